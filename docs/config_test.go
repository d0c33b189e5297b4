package docs_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"gopkg.in/yaml.v3"

	"github.com/fullsend/poll-action/internal/config"
	"github.com/fullsend/poll-action/internal/jira"
)

func lookup(name string) (string, bool) {
	v, ok := map[string]string{"JIRA_USER_EMAIL": "poller@example.com", "JIRA_TOKEN": "token-of-the-test"}[name]
	return v, ok
}

func parse(t *testing.T, text string) *config.Config {
	t.Helper()
	c, problems := config.Parse([]byte(text), lookup, config.Options{CheckJQL: jira.CheckQuery})
	if err := problems.Err(); err != nil {
		t.Fatalf("%v\nin\n%s", err, text)
	}
	return c
}

// yamlBlocks returns the YAML blocks of a page by their first key.
func yamlBlocks(t *testing.T, page string) map[string]string {
	t.Helper()
	blocks := map[string]string{}
	for _, m := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(page, -1) {
		var doc yaml.Node
		if err := yaml.Unmarshal([]byte(m[1]), &doc); err != nil {
			t.Errorf("a block is no YAML: %v\n%s", err, m[1])
			continue
		}
		first, _, _ := strings.Cut(strings.TrimPrefix(m[1], "- "), ":")
		if blocks[first] != "" && first == "name" {
			first = "step"
		}
		blocks[first] = m[1]
	}
	return blocks
}

func TestTheReadmesBlocksAreTheExampleFiles(t *testing.T) {
	t.Parallel()
	blocks := yamlBlocks(t, read(t, "README.md"))
	load := func(text string) any {
		var v any
		if err := yaml.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	for block, file := range map[string]string{"name": "fullsend-poll.yml", "version": "config.yaml", "role": "harness/triage.yaml"} {
		if diff := cmp.Diff(load(read(t, "examples/"+file)), load(blocks[block])); diff != "" {
			t.Errorf("the block of %s (-examples +README.md):\n%s", file, diff)
		}
	}
	var agent struct {
		Jobs map[string]struct{ Steps []any }
	}
	if err := yaml.Unmarshal([]byte(read(t, "examples/fullsend-agent.yml")), &agent); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(any(agent.Jobs["agent"].Steps[:1]), load(blocks["step"])); diff != "" {
		t.Errorf("the agent workflow's first step (-examples +README.md):\n%s", diff)
	}
	parse(t, blocks["version"])
}

// defaults returns the keys of a table with their defaults, empty for none.
func defaults(t *testing.T, heading string) map[string]string {
	t.Helper()
	keys := map[string]string{}
	for _, row := range table(t, section(t, read(t, "README.md"), heading)) {
		keys[plain(row[0])] = plain(row[1])
	}
	return keys
}

func TestTheDriversTableHasTheDefaultsOfTheProgram(t *testing.T) {
	t.Parallel()
	var lock, driver strings.Builder
	for key, value := range defaults(t, "### A `jira-poll` driver") {
		if name, ok := strings.CutPrefix(key, "lock."); ok {
			fmt.Fprintf(&lock, "        %s: %s\n", name, value)
		} else if value != "" {
			fmt.Fprintf(&driver, "      %s: %s\n", key, value)
		}
	}
	text := `poll:
  input_drivers:
    - type: jira-poll
      connection: {base_url: "https://acme.atlassian.net", email: "${JIRA_USER_EMAIL}", token: "${JIRA_TOKEN}"}
      queries: [project = PROJ]
` + driver.String() + "      lock:\n" + lock.String()
	got := parse(t, text).Poll.InputDrivers[0]
	ignored := cmpopts.IgnoreFields(config.InputDriver{}, "Connection", "Queries", "Line")
	if diff := cmp.Diff(config.Defaults(), got, ignored); diff != "" {
		t.Errorf("the driver that the table's defaults make (-program +README.md):\n%s", diff)
	}
}

func TestTheWholeFilesTableHasTheDefaultsOfTheProgram(t *testing.T) {
	t.Parallel()
	c := parse(t, "{}")
	want := map[string]string{
		"kill_switch":                strconv.FormatBool(c.KillSwitch),
		"poll.output_driver":         c.Poll.OutputDriver,
		"poll.gha_dispatch.workflow": c.Poll.GHADispatch.Workflow,
		"poll.gha_dispatch.ref":      c.Poll.GHADispatch.Ref,
	}
	got := defaults(t, "### The whole file")
	for key, value := range want {
		if v, ok := got[key]; !ok || v != value {
			t.Errorf("%s: the default is %q, README.md says %q (listed: %t)", key, value, v, ok)
		}
	}
}

// The program answers an unknown key with the keys that there are.
func TestTheTablesHaveEveryKeyOfTheProgram(t *testing.T) {
	t.Parallel()
	const unknown = "zzzzzzzzzzzzzzzzzzzz"
	text := strings.ReplaceAll(`poll:
  zz: 1
  gha_dispatch: {zz: 1}
  input_drivers:
    - type: jira-poll
      zz: 1
      connection: {zz: 1}
      lock: {zz: 1}
`, "zz", unknown)
	_, problems := config.Parse([]byte(text), lookup, config.Options{})
	prefixes := map[string]string{
		"poll": "poll.", "poll.gha_dispatch": "poll.gha_dispatch.",
		"poll.input_drivers[0]": "", "poll.input_drivers[0].connection": "connection.", "poll.input_drivers[0].lock": "lock.",
	}
	want := map[string]bool{}
	for _, p := range problems {
		keys, ok := strings.CutPrefix(p.Cure, "the keys here are ")
		if !ok {
			continue
		}
		for key := range strings.SplitSeq(keys, ", ") {
			want[prefixes[p.Path]+key] = true
		}
	}
	for _, folder := range []string{"poll.gha_dispatch", "connection", "lock"} {
		if !want[folder] {
			t.Fatalf("the program does not name its keys; it says %v", problems)
		}
		delete(want, folder)
	}
	got := map[string]bool{}
	for _, heading := range []string{"### The whole file", "### A `jira-poll` driver"} {
		for key := range defaults(t, heading) {
			got[key] = true
		}
	}
	for _, top := range []string{"version", "kill_switch", "agents", "allowed_remote_resources"} {
		if !got[top] {
			t.Errorf("the table of the whole file lacks %s", top)
		}
		delete(got, top)
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got))); diff != "" {
		t.Errorf("keys (-program +README.md):\n%s", diff)
	}
}
