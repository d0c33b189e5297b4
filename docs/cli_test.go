package docs_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fullsend/poll-action/internal/cli"
)

// run runs the program in an empty environment; it must end well.
func run(t *testing.T, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := cli.Run(t.Context(), cli.Process{
		Args: args, Getenv: func(string) string { return "" }, Stdout: &stdout, Stderr: &stderr,
		Now: time.Now, Rand: func() float64 { return 0.5 },
	})
	if code != cli.ExitOK {
		t.Errorf("%q exits %d\n%s", args, code, stderr.String())
	}
	return stdout.String()
}

// commands returns the names under "Available Commands" of a help text.
func commands(help string) []string {
	_, list, _ := strings.Cut(help, "Available Commands:\n")
	list, _, _ = strings.Cut(list, "\n\n")
	var names []string
	for line := range strings.SplitSeq(list, "\n") {
		if f := strings.Fields(line); len(f) > 0 && f[0] != "help" {
			names = append(names, f[0])
		}
	}
	return names
}

var flagName = regexp.MustCompile(`--[a-z][a-z-]+`)

func TestTheReadmeNamesEveryCommandAndFlagAndNoOthers(t *testing.T) {
	t.Parallel()
	page := read(t, "README.md")
	documented := section(t, page, "## Command line")
	helps := map[string]string{}
	for _, name := range commands(run(t, "--help")) {
		helps[name] = run(t, name, "--help")
		for _, sub := range commands(helps[name]) {
			if name != "completion" { // one for each shell
				helps[name+" "+sub] = run(t, name, sub, "--help")
			}
		}
	}
	flags := map[string]bool{}
	for name, help := range helps {
		for _, f := range flagName.FindAllString(help, -1) {
			flags[f] = true
		}
		if parent := len(commands(help)) > 0 && name != "completion"; !parent && !strings.Contains(documented, "`fullsend-poll "+name) {
			t.Errorf("the command table lacks %s", name)
		}
	}
	for f := range flags {
		if f != "--help" && !regexp.MustCompile(f+`\b`).MatchString(documented) {
			t.Errorf("the section on the command line lacks %s", f)
		}
	}
	for _, f := range flagName.FindAllString(page, -1) {
		if !flags[f] {
			t.Errorf("README.md names the flag %s, which no command has", f)
		}
	}
	for _, m := range regexp.MustCompile("(?:`|… |repo )fullsend-poll ([a-z]+)(?: ([a-z]+))?").FindAllStringSubmatch(page, -1) {
		name := strings.TrimSpace(m[1] + " " + m[2])
		if helps[name] == "" {
			t.Errorf("README.md names the command %q, which does not exist", name)
		}
	}
}

func TestTheReadmeGivesTheExitCodesOfTheProgram(t *testing.T) {
	t.Parallel()
	documented := section(t, read(t, "README.md"), "## Command line")
	for _, row := range []string{"| 0 |", "| 1 |", "| 2 |", "| 3 |", "| 130, 143 |"} {
		if !strings.Contains(documented, "\n"+row) {
			t.Errorf("the table of exit codes lacks the row %s", row)
		}
	}
	got := []int{cli.ExitOK, cli.ExitFailed, cli.ExitUsage, cli.ExitLost, cli.ExitInterrupted, cli.ExitTerminated}
	for i, want := range []int{0, 1, 2, 3, 130, 143} {
		if got[i] != want {
			t.Errorf("exit code %d is %d in the program", want, got[i])
		}
	}
}

func TestTheDemoPrintsWhatTheReadmeSays(t *testing.T) {
	t.Parallel()
	_, block, _ := strings.Cut(read(t, "README.md"), "It prints, shortened:\n\n```text\n")
	block, _, found := strings.Cut(block, "\n```")
	if !found {
		t.Fatal("README.md has no output of the demo")
	}
	synctest.Test(t, func(t *testing.T) { // its waits cost nothing here
		printed := run(t, "demo")
		for line := range strings.SplitSeq(block, "\n") {
			for part := range strings.SplitSeq(line, "…") {
				if strings.Trim(part, " )") == "" {
					continue
				}
				_, after, ok := strings.Cut(printed, part)
				if !ok {
					t.Fatalf("the demo does not print %q there; left of its output:\n%s", part, printed)
				}
				printed = after
			}
		}
	})
}

func TestExplainTakesTheEventsThatTheReadmePointsTo(t *testing.T) {
	t.Parallel()
	events, err := filepath.Glob(filepath.Join(root, "testdata/events/*.json"))
	if err != nil || len(events) == 0 {
		t.Fatalf("no event is found: %v", err)
	}
	dir := t.TempDir()
	_, block, _ := strings.Cut(section(t, read(t, "README.md"), "## Triggers"), "```text\n")
	block, _, _ = strings.Cut(block, "\n```")
	var config strings.Builder
	config.WriteString("agents:\n")
	for i, trigger := range strings.Split(block, "\n") {
		name := "t" + string(rune('a'+i)) + ".yaml"
		config.WriteString("  - " + name + "\n")
		if err := os.WriteFile(filepath.Join(dir, name), []byte("role: triage\ntrigger: >-\n  "+trigger+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte(config.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, ev := range events {
		out.WriteString(run(t, "explain", "--config", file, "--event", ev))
	}
	if !strings.Contains(out.String(), "yes: the trigger is true") {
		t.Errorf("no trigger of README.md matches any event of testdata/events:\n%s", out.String())
	}
}
