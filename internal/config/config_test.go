package config

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// secret stands for every secret in these tests; no report may contain it.
const secret = "hunter2-hunter2"

// env is a lookup over fixed variables.
func env(pairs ...string) Lookup {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return func(name string) (string, bool) {
		v, ok := m[name]
		return v, ok
	}
}

func usual() Lookup {
	return env("JIRA_TOKEN", secret, "JIRA_USER_EMAIL", "bot@acme.example", "FULLSEND_FORGE_TOKEN", secret, "CI_PROJECT_PATH", "acme/shop",
		"EMPTY", "", "SITE", "acme")
}

const contractExample = `version: "1"
kill_switch: false
agents:                       # registration; a string or {name, source, enabled}
  - harness/triage.yaml
poll:
  input_drivers:
    - type: jira-poll
      connection:
        base_url: https://acme.atlassian.net
        email: ${JIRA_USER_EMAIL}
        token: ${JIRA_TOKEN}
      queries:
        - project = PROJ
      lock: {m: 50, n: 5, stale_threshold: 900s, refresh_interval: 300s}
  output_driver: gha-dispatch
  gha_dispatch: {workflow: fullsend-agent.yml, ref: main}
`

func TestTheContractsExample(t *testing.T) {
	t.Parallel()
	got, problems := Parse([]byte(contractExample), usual(), Options{})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	want := &Config{
		Version: "1",
		Agents:  []Agent{{Name: "triage", Source: "harness/triage.yaml", Enabled: true, Line: 4}},
		Poll: Poll{
			InputDrivers: []InputDriver{{
				Type: "jira-poll", Name: "jira-poll", Line: 7,
				Connection:         Connection{BaseURL: "https://acme.atlassian.net", Email: "bot@acme.example", Token: secret},
				Queries:            []Query{{JQL: "project = PROJ", Line: 13}},
				Lock:               Lock{Mode: ModeVerify, M: 50, N: 5, StaleThreshold: 900 * time.Second, PendingTTL: 900 * time.Second, MaxHold: 6 * time.Hour, RefreshInterval: 300 * time.Second, Guard: time.Second, JitterMin: 500 * time.Millisecond, JitterMax: 1500 * time.Millisecond},
				Flavour:            "auto",
				ScanWindow:         168 * time.Hour,
				FirstPollWindow:    24 * time.Hour,
				ReplayWindow:       168 * time.Hour,
				ScanLimit:          1000,
				MaxEventsPerIssue:  100,
				RestrictedComments: "skip", Authorization: Authorization{Mode: AuthorizeByProjectRoles},
			}},
			OutputDriver: "gha-dispatch",
			GHADispatch:  GHA{Workflow: "fullsend-agent.yml", Ref: "main"},
		},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Poll{})); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
}

func TestAnEmptyFileIsAConfigurationOfDefaults(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{"", "---\n", "# nothing\n", "null\n", "forge: gitlab\nunknown: {deep: [1]}\n", "poll:\n", "poll: {input_drivers: []}\nagents:\n"} {
		cfg, problems := Parse([]byte(raw), nil, Options{})
		if len(problems) > 0 {
			t.Errorf("%q: %v", raw, problems)
			continue
		}
		if cfg.Poll.GHADispatch.Workflow != DefaultWorkflow || cfg.Poll.OutputDriver != GHADispatch || cfg.AllowedRemoteResources != nil {
			t.Errorf("%q: %+v", raw, cfg)
		}
	}
}

// driver makes a configuration of one driver from lines of it; its type is on
// line 3, the first of the lines on line 9.
func driver(lines ...string) string {
	return "poll:\n  input_drivers:\n    - type: jira-poll\n      connection:\n        base_url: https://acme.atlassian.net\n        email: ${JIRA_USER_EMAIL}\n        token: ${JIRA_TOKEN}\n      queries: [project = A]\n      " +
		strings.Join(lines, "\n      ") + "\n"
}

// connection makes a configuration of one driver with this connection, which
// begins on line 5.
func connection(lines ...string) string {
	return "poll:\n  input_drivers:\n    - type: jira-poll\n      connection:\n        " + strings.Join(lines, "\n        ") + "\n      queries: [project = A]\n"
}

func TestWhatIsRefused(t *testing.T) {
	t.Parallel()
	const good = "email: a@b.example"
	for _, tc := range []struct {
		name, raw string
		want      []string
	}{
		{"no YAML", "a: [1\nb: 2", []string{"this is not YAML"}},
		{"a list", "- a\n", []string{"line 1: the configuration is not a mapping"}},
		{"a second document", "version: '1'\n---\nversion: '1'\n", []string{"line 3: a second YAML document begins here"}},
		{"an empty second document", "version: '1'\n---\n", []string{"a second YAML document"}},
		{"a duplicate key at the top", "version: '1'\nforge: a\nforge: b\n", []string{`line 3: the key "forge" is here for the second time (first on line 2)`}},
		{"a duplicate key where nobody reads", "models:\n  x: {a: 1, b: 2, a: 3}\n", []string{`line 2: models.x: the key "a"`}},
		{"depth", "a: " + strings.Repeat("[", 200) + strings.Repeat("]", 200), []string{"nested deeper than 64"}},
		{"length", "a: " + strings.Repeat("x", 1<<20), []string{"longer than 1 MiB"}},
		{"another version", "version: 2\n", []string{`line 1: version: this program reads version "1"`}},
		{"a kill switch in quotes", "kill_switch: 'true'\n", []string{"line 1: kill_switch: this must be true or false, not text"}},
		{"a kill switch that says nothing", "kill_switch:\n", []string{"kill_switch: this must be true or false, not nothing"}},
		{"poll as a list", "poll: [a]\n", []string{"line 1: poll: this must be a mapping"}},
		{"an unknown key", "poll:\n  input_driver: []\n", []string{`line 2: poll: unknown key "input_driver"; did you mean "input_drivers"?`}},
		{"an unknown key that resembles nothing", "poll:\n  zzzzzzzz: []\n", []string{`unknown key "zzzzzzzz"; the keys here are input_drivers, output_driver, gha_dispatch`}},
		{"an unknown key of a driver", driver("scan_windw: 7d"), []string{`line 9: poll.input_drivers[0]: unknown key "scan_windw"; did you mean "scan_window"?`}},
		{"an unknown key of a lock", driver("lock:", "  stale: 5m"), []string{`line 10: poll.input_drivers[0].lock: unknown key "stale"`}},
		{"an unknown key of a connection", connection("base_url: https://a.example", "tokn: ${JIRA_TOKEN}", "token: ${JIRA_TOKEN}", good), []string{`line 6: poll.input_drivers[0].connection: unknown key "tokn"; did you mean "token"?`}},
		{"a key of the lock beside it", driver("n: 3"), []string{`unknown key "n"; this key belongs to lock`}},
		{"a key of the other driver", driver("project: a/b"), []string{`unknown key "project"; this key belongs to the GitLab drivers`}},
		{"a merge key", driver("<<: {n: 1}"), []string{`unknown key "<<"; merge keys are not read`}},
		{"no type", "poll:\n  input_drivers:\n    - queries: []\n", []string{"line 3: poll.input_drivers[0]: the input driver has no type; the types are jira-poll, gitlab-poll, gitlab-webhook"}},
		{"another type", "poll:\n  input_drivers:\n    - type: jira\n", []string{`line 3: poll.input_drivers[0].type: "jira" is not one of the choices; the choices are jira-poll, gitlab-poll, gitlab-webhook`}},
		{"a driver that is text", "poll:\n  input_drivers:\n    - jira-poll\n", []string{"poll.input_drivers[0]: this must be a mapping"}},
		{"another output", "poll:\n  output_driver: stdout\n", []string{`"stdout" is not one of the choices; the choices are gha-dispatch, gitlab-pipeline`}},
		{"two drivers of one name", strings.Replace(contractExample, "  output_driver", "    - {type: gitlab-poll, name: x}\n    - {type: gitlab-poll, name: x}\n  output_driver", 1), []string{`line 16: poll.input_drivers[2].name: two input drivers are named "x"`}},

		{"n above m", driver("lock:", "  m: 3", "  n: 4"), []string{"line 11: poll.input_drivers[0].lock.n: n is 4 and m is 3: a cycle cannot lock more issues than it looks at; set n to at most 3"}},
		{"m below the default of n", driver("lock:", "  m: 3"), []string{"line 10: poll.input_drivers[0].lock.m: n is 5 (the default) and m is 3"}},
		{"n of zero", driver("lock: {n: 0}"), []string{"line 9: poll.input_drivers[0].lock.n: 0 is not between 1 and 1000"}},
		{"m of zero", driver("lock: {m: 0}"), []string{"lock.m: 0 is not between"}},
		{"m of a million", driver("lock: {m: 1000000}"), []string{"lock.m: 1000000 is not between"}},
		{"m in words", driver("lock: {m: many}"), []string{"lock.m: this must be a whole number, not text"}},
		{"m with a fraction", driver("lock: {m: 1.5}"), []string{"lock.m: this must be a whole number"}},
		{"another lock mode", driver("lock: {mode: cas}"), []string{`line 9: poll.input_drivers[0].lock.mode: "cas" is not one of the choices; the choices are verify, conditional`}},
		{"conditional locks on Data Center", driver("flavour: datacenter", "lock:", "  m: 50", "  mode: conditional"), []string{"line 12: poll.input_drivers[0].lock.mode: Jira Data Center has no conditional writes; write mode: verify, or leave it out"}},
		{"a jitter upside down", driver("lock: {jitter_min: 2s, jitter_max: 1s}"), []string{"jitter_min is 2s and longer than jitter_max, 1s"}},
		{"a jitter above the default maximum", driver("lock: {jitter_min: 2s}"), []string{"jitter_min is 2s and longer than jitter_max, 1.5s (the default)"}},
		{"a refresh that is too seldom", driver("lock: {stale_threshold: 100s, refresh_interval: 51s}"), []string{"refresh_interval is 51s, more than half of stale_threshold, 1m40s"}},
		{"a threshold too short for the default refresh", driver("lock: {stale_threshold: 5m}"), []string{"refresh_interval is 5m0s (the default), more than half"}},
		{"a guard of zero", driver("lock: {guard: 0s}"), []string{"lock.guard: this duration cannot be zero"}},
		{"a negative duration", driver("scan_window: -1h"), []string{"scan_window: a duration cannot be negative"}},
		{"a number without unit", driver("scan_window: 900"), []string{"line 9: poll.input_drivers[0].scan_window: the number has no unit; write a number with its unit"}},
		{"days and hours", driver("scan_window: 1d12h"), []string{`"1d12h" is not a duration`}},
		{"a duration that overflows", driver("scan_window: 99999d"), []string{"scan_window: 2399976h0m0s is not between"}},
		{"a replay window of zero", driver("replay_window: 0"), []string{"replay_window: this duration cannot be zero"}},
		{"a scan limit", driver("scan_limit: 100001"), []string{"scan_limit: 100001 is not between 1 and 100000"}},
		{"events per issue", driver("max_events_per_issue: 0"), []string{"max_events_per_issue: 0 is not between 1 and 10000"}},
		{"restricted comments", driver("restricted_comments: yes please"), []string{"the choices are skip, include"}},
		{"a flavour", driver("flavour: server"), []string{"the choices are auto, cloud, datacenter"}},
		{"a name", driver("name: a b"), []string{`"a b" is not a driver's name`}},

		{"no queries", connection("base_url: https://a.example", "token: ${JIRA_TOKEN}")[:strings.Index(connection("base_url: https://a.example", "token: ${JIRA_TOKEN}"), "      queries")], []string{"the driver has no queries"}},
		{"an empty list of queries", strings.Replace(driver("scan_limit: 1"), "[project = A]", "[]", 1), []string{"poll.input_drivers[0].queries: there is no query"}},
		{"a query with a colon", strings.Replace(driver("scan_limit: 1"), "[project = A]", "\n        - summary ~ a: b", 1), []string{"queries[0]: this must be text, not a mapping; put the whole query in quotes"}},
		{"a blank query", strings.Replace(driver("scan_limit: 1"), "[project = A]", "[' ']", 1), []string{"queries[0]: this is empty"}},
		{"a long query", strings.Replace(driver("scan_limit: 1"), "[project = A]", "["+strings.Repeat("x", 10_001)+"]", 1), []string{"longer than 10000 characters"}},
		{"a query that the checker refuses", strings.Replace(driver("scan_limit: 1"), "[project = A]", "[bad]", 1), []string{"line 8: poll.input_drivers[0].queries[0]: the query cannot be used: no such field"}},

		{"a literal token", connection("base_url: https://a.example", "token: "+secret), []string{"line 6: poll.input_drivers[0].connection.token: a secret is written into the file as itself; write ${JIRA_TOKEN}"}},
		{"a token with text around the reference", connection("base_url: https://a.example", "token: Bearer ${JIRA_TOKEN}"), []string{"a secret must be exactly one reference"}},
		{"a token of two references", connection("base_url: https://a.example", "token: ${JIRA_TOKEN}${JIRA_TOKEN}"), []string{"a secret must be exactly one reference"}},
		{"a token as a number", connection("base_url: https://a.example", "token: 12345678"), []string{"connection.token: this must be text, not a number"}},
		{"a token as a key", connection("base_url: https://a.example", secret+secret+": x", "token: ${JIRA_TOKEN}"), []string{"unknown key (not repeated here: it may be a secret)"}},
		{"a token that is an alias", connection("base_url: https://a.example", "token: *"+secret), []string{"this is not YAML: unknown anchor"}},
		{"an undefined reference", connection("base_url: https://a.example", "token: ${NOPE}"), []string{"line 6: poll.input_drivers[0].connection.token: the variable of ${NOPE} is not defined; set NOPE in the environment"}},
		{"an empty reference", connection("base_url: https://a.example", "token: ${EMPTY}"), []string{"the variable of ${EMPTY} is empty"}},
		{"an undefined email", connection("base_url: https://a.example", "email: ${NOPE}", "token: ${JIRA_TOKEN}"), []string{"line 6: poll.input_drivers[0].connection.email: the variable of ${NOPE} is not defined"}},
		{"a reference without end", connection("base_url: https://${SITE.example", "token: ${JIRA_TOKEN}"), []string{"connection.base_url: a reference is not of the form ${NAME}"}},
		{"no token", connection("base_url: https://a.example"), []string{"connection: there is no token; write token: ${JIRA_TOKEN}"}},
		{"no base URL", connection("token: ${JIRA_TOKEN}"), []string{"connection: there is no base_url"}},
		{"Cloud without email", connection("base_url: https://acme.atlassian.net", "token: ${JIRA_TOKEN}"), []string{"Jira Cloud does not take a token without the email"}},
		{"an email with a colon", connection("base_url: https://a.example", "email: 'a:b'", "token: ${JIRA_TOKEN}"), []string{"connection.email: the email has a blank, a colon"}},
		{"http", connection("base_url: http://a.example", "token: ${JIRA_TOKEN}"), []string{"line 5: poll.input_drivers[0].connection.base_url: the address must be https"}},
		{"a password in the address", connection("base_url: https://me:"+secret+"@a.example", "token: ${JIRA_TOKEN}"), []string{"the address has a user or password in it"}},

		{"the old form of an agent", "agents:\n  - role: triage\n    name: x\n", []string{"line 2: agents[0]: this is the old form of an agent"}},
		{"an agent of nothing", "agents:\n  - enabled: false\n", []string{"the entry has neither source nor name"}},
		{"an agent's name", "agents:\n  - {name: -x, source: a.yaml}\n", []string{`"-x" is not an agent's name`}},
		{"an agent's name from its file", "agents:\n  - 'harness/ä b.yaml'\n", []string{`"ä b" is not an agent's name; give the agent a name:`}},
		{"an agent twice", "agents: [a.yaml,\n  x/A.yml]\n", []string{`line 2: agents[1]: the agent "A" is registered for the second time (first on line 1)`}},
		{"an agent that is a number", "agents: [1]\n", []string{"agents[0]: this must be text"}},
		{"agents that are no list", "agents: a.yaml\n", []string{"agents: this must be a list"}},
		{"a switch that is none", "agents: [{source: a.yaml, enabled: 1}]\n", []string{"agents[0].enabled: this must be true or false"}},
		{"an allowed resource over http", "allowed_remote_resources: [http://a.example/]\n", []string{"allowed_remote_resources[0]: this is not the beginning of an https URL"}},

		{"a workflow elsewhere", "poll: {gha_dispatch: {workflow: ../x.yml}}\n", []string{"poll.gha_dispatch.workflow: this is not the file name of a workflow"}},
		{"a workflow in a folder", "poll: {gha_dispatch: {workflow: .github/workflows/a/x.yml}}\n", []string{"not the file name of a workflow"}},
		{"a workflow that is no YAML file", "poll: {gha_dispatch: {workflow: agent}}\n", []string{"not the file name of a workflow"}},
		{"a commit as ref", "poll: {gha_dispatch: {ref: '" + strings.Repeat("0a", 20) + "'}}\n", []string{"this is a commit; a dispatch takes a branch or tag only"}},
		{"a ref with a blank", "poll: {gha_dispatch: {ref: 'a b'}}\n", []string{"cannot be the name of a branch or tag"}},
		{"a ref with dots", "poll: {gha_dispatch: {ref: a..b}}\n", []string{"cannot be the name"}},
		{"a ref that is an option", "poll: {gha_dispatch: {ref: -f}}\n", []string{"cannot be the name"}},
		{"a ref that is a number", "poll: {gha_dispatch: {ref: 1.0}}\n", []string{"must be text, not a number; put it in quotes"}},

		{"a GitLab project", "poll: {input_drivers: [{type: gitlab-poll, project: shop}]}\n", []string{"project: this is not the path of a project"}},
		{"a GitLab mode", "poll: {input_drivers: [{type: gitlab-poll, mode: all}]}\n", []string{"the choices are events, slash"}},
		{"queries for GitLab", "poll: {input_drivers: [{type: gitlab-poll, queries: [a]}]}\n", []string{`unknown key "queries"; this key belongs to jira-poll`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, problems := Parse([]byte(tc.raw), usual(), Options{CheckJQL: func(jql string) error {
				if jql == "bad" {
					return errors.New("no such\nfield")
				}
				return nil
			}})
			if len(problems) != len(tc.want) {
				t.Fatalf("problems:\n%v\nwant %q", problems, tc.want)
			}
			for i, part := range tc.want {
				if !strings.Contains(problems[i].String(), part) {
					t.Errorf("problem %q does not say %q", problems[i], part)
				}
			}
			if strings.Contains(problems.Error(), secret) {
				t.Errorf("a report repeats a secret: %v", problems)
			}
		})
	}
}

func TestAllProblemsAreReportedTogetherByLine(t *testing.T) {
	t.Parallel()
	raw := `version: "3"
agents:
  - role: x
kill_switch: maybe
poll:
  input_drivers:
    - type: jira-poll
      connection: {base_url: "http://acme.example", token: hunter2-hunter2}
      queries: []
      lock: {m: 1, n: 2}
      scan_window: soon
    - type: nothing
  outputs: x
  gha_dispatch: {ref: "a b"}
version: "1"
`
	_, problems := Parse([]byte(raw), usual(), Options{})
	var at []int
	for _, p := range problems {
		at = append(at, p.Line)
	}
	if diff := cmp.Diff([]int{1, 3, 4, 8, 8, 9, 10, 11, 12, 13, 14, 15}, at); diff != "" {
		t.Errorf("lines (-want +got):\n%s\n%v", diff, problems)
	}
	if got := len(strings.Split(problems.Error(), "\n")); got != len(problems) {
		t.Errorf("%d problems are %d lines", len(problems), got)
	}
}

func TestConnections(t *testing.T) {
	t.Parallel()
	const token = "token: ${JIRA_TOKEN}"
	for _, tc := range []struct {
		name, raw string
		opts      Options
		want      Connection
	}{
		{"a reference in an address", connection("base_url: https://${SITE}.atlassian.net/", "email: ${JIRA_USER_EMAIL}", token), Options{}, Connection{"https://acme.atlassian.net", "bot@acme.example", secret}},
		{"Data Center with a context path", connection("base_url: https://Jira.Acme.example:8443/jira/", token), Options{}, Connection{"https://jira.acme.example:8443/jira", "", secret}},
		{"loopback may be http", connection("base_url: http://127.8.0.1:8080", token), Options{}, Connection{"http://127.8.0.1:8080", "", secret}},
		{"loopback of version 6", connection("base_url: 'http://[::1]:8080'", token), Options{}, Connection{"http://[::1]:8080", "", secret}},
		{"loopback by name", connection("base_url: http://localhost:8080/jira", token), Options{}, Connection{"http://localhost:8080/jira", "", secret}},
		{
			"overrides take the place of references that are not defined", connection("base_url: ${NOPE}", "email: ${NOPE}", "token: ${NOPE}"),
			Options{Overrides: Overrides{"https://acme.atlassian.net/", "me@acme.example", secret + "\n"}},
			Connection{"https://acme.atlassian.net", "me@acme.example", secret},
		},
		{
			"overrides fill what the file has not", "poll: {input_drivers: [{type: jira-poll, queries: [a = b]}]}",
			Options{Overrides: Overrides{"https://acme.example", "", secret}},
			Connection{"https://acme.example", "", secret},
		},
		{"a command without connections asks for nothing", connection("base_url: ${NOPE}", "token: ${NOPE}"), Options{WithoutConnections: true}, Connection{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			cfg, problems := Parse([]byte(tc.raw), usual(), tc.opts)
			if err := problems.Err(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, cfg.Poll.InputDrivers[0].Connection); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestALiteralTokenIsRefusedEvenWhereItIsNotUsed(t *testing.T) {
	t.Parallel()
	raw := connection("base_url: https://acme.example", "token: "+secret)
	for _, opts := range []Options{{WithoutConnections: true}, {Overrides: Overrides{JiraToken: "other"}}} {
		if _, problems := Parse([]byte(raw), usual(), opts); len(problems) != 1 || strings.Contains(problems.Error(), secret) {
			t.Errorf("%+v: %v", opts, problems)
		}
	}
}

func TestAValueOfTheEnvironmentIsNotExpandedAgain(t *testing.T) {
	t.Parallel()
	_, problems := Parse([]byte(connection("base_url: https://${A}.example", "token: ${B}")), env("A", "${B}", "B", secret), Options{})
	if len(problems) != 1 || strings.Contains(problems.Error(), secret) {
		t.Errorf("problems %v, want one about the address", problems)
	}
}

func TestATokenThatCannotBeAHeaderIsRefused(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{secret + "\r\nX: y", secret + " x", "\u00a0" + secret + "ü"} {
		_, problems := Parse([]byte(connection("base_url: https://a.example", "token: ${B}")), env("B", bad), Options{})
		if len(problems) != 1 || strings.Contains(problems.Error(), secret) {
			t.Errorf("%q: %v", bad, problems)
		}
	}
}

func TestPrintingAConnectionDoesNotPrintItsToken(t *testing.T) {
	t.Parallel()
	d := InputDriver{Connection: Connection{BaseURL: "https://a.example", Token: secret}}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if got := fmt.Sprintf(verb, d); strings.Contains(got, secret) {
			t.Errorf("%s prints the token: %s", verb, got)
		}
	}
}

func TestDurations(t *testing.T) {
	t.Parallel()
	cfg, problems := Parse([]byte(driver("first_poll_window: 0", "scan_window: 3d", "replay_window: 168h", "lock: {jitter_min: 0s}")), usual(), Options{})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	d := cfg.Poll.InputDrivers[0]
	got := []time.Duration{d.FirstPollWindow, d.ScanWindow, d.ReplayWindow, d.Lock.JitterMin}
	if diff := cmp.Diff([]time.Duration{0, 72 * time.Hour, 168 * time.Hour, 0}, got); diff != "" {
		t.Error(diff)
	}
}

func TestAgents(t *testing.T) {
	t.Parallel()
	const remote = "https://raw.githubusercontent.com/fullsend-ai/agents/v1/harness/code.yaml#sha256=00"
	for _, tc := range []struct {
		name, raw string
		want      []Agent
	}{
		{"text", "agents: [harness/triage.yaml]", []Agent{{"triage", "harness/triage.yaml", true, 1}}},
		{"a URL", "agents: ['" + remote + "']", []Agent{{"code", remote, true, 1}}},
		{"a given name", "agents: [{name: Fix_2, source: a.yaml}]", []Agent{{"Fix_2", "a.yaml", true, 1}}},
		{"keys of other tools", "agents: [{source: a.yaml, role: x, model: opus, subagents: {a: b}}]", []Agent{{"a", "a.yaml", true, 1}}},
		{"a default that is switched off", "agents: [{name: review, enabled: false}]", []Agent{{"review", "", false, 1}}},
		{"a default that is adjusted", "agents: [{name: review, model: opus}]", []Agent{{"review", "", true, 1}}},
		{"the last of an enabled and a disabled one wins", "agents:\n- a.yaml\n- b.yaml\n- {name: A, enabled: false}", []Agent{{"b", "b.yaml", true, 3}, {"A", "", false, 4}}},
		{"the last wins the other way too", "agents:\n- {name: a, enabled: false}\n- x/a.yaml", []Agent{{"a", "x/a.yaml", true, 3}}},
		{"an alias", "x: &h h/a.yaml\nagents: [*h]", []Agent{{"a", "h/a.yaml", true, 1}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			cfg, problems := Parse([]byte(tc.raw), nil, Options{})
			if err := problems.Err(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, cfg.Agents); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAnEmptyAllowListIsNotTheDefault(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string][]string{"allowed_remote_resources: []": {}, "a: 1": nil, "allowed_remote_resources: [https://x.example/]": {"https://x.example/"}} {
		cfg, problems := Parse([]byte(raw), nil, Options{})
		if err := problems.Err(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, cfg.AllowedRemoteResources); diff != "" || cfg.AllowedRemoteResourcesSet != (want != nil) {
			t.Errorf("%s: set %v, %s", raw, cfg.AllowedRemoteResourcesSet, diff)
		}
	}
}

func TestTheWorkflow(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{"agent.yml": "agent.yml", ".github/workflows/agent.yaml": "agent.yaml"} {
		cfg, problems := Parse([]byte("poll: {gha_dispatch: {workflow: "+given+", ref: release/1.0}}"), nil, Options{})
		if err := problems.Err(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(GHA{Workflow: want, Ref: "release/1.0"}, cfg.Poll.GHADispatch); diff != "" {
			t.Error(diff)
		}
	}
}

func TestDriversOfOneTypeAreToldApart(t *testing.T) {
	t.Parallel()
	cfg, problems := Parse([]byte("poll: {input_drivers: [{type: gitlab-poll}, {type: gitlab-poll, project: a/b/c}]}"), usual(), Options{})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	want := []InputDriver{
		{Type: GitLabPoll, Name: "gitlab-poll", Project: "acme/shop", Mode: "events", Line: 1, Connection: Connection{BaseURL: DefaultGitLabURL, Token: secret}},
		{Type: GitLabPoll, Name: "gitlab-poll-2", Project: "a/b/c", Mode: "events", Line: 1, Connection: Connection{BaseURL: DefaultGitLabURL, Token: secret}},
	}
	if diff := cmp.Diff(want, cfg.Poll.InputDrivers); diff != "" {
		t.Error(diff)
	}
	if cfg.Poll.OutputDriver != GitLabPipeline {
		t.Errorf("output %q, want %q", cfg.Poll.OutputDriver, GitLabPipeline)
	}
}

func TestDetection(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		env    Lookup
		opts   Options
		want   []string // types
		output string
		bad    string
	}{
		{"nothing", env(), Options{}, nil, GHADispatch, ""},
		{"Jira", env("JIRA_BASE_URL", "https://acme.atlassian.net/", "JIRA_USER_EMAIL", "a@b.example", "JIRA_TOKEN", secret), Options{}, []string{JiraPoll}, GHADispatch, ""},
		{"Jira by flags", env(), Options{Overrides: Overrides{"https://acme.example", "", secret}}, []string{JiraPoll}, GHADispatch, ""},
		{"Jira without a token", env("JIRA_BASE_URL", "https://acme.example"), Options{}, nil, "", "environment: there is no token"},
		{"Jira with a bad address", env("JIRA_BASE_URL", "http://acme.example", "JIRA_TOKEN", secret), Options{}, nil, "", "environment.base_url: the address must be https"},
		{"Jira without connections", env("JIRA_BASE_URL", "https://acme.example"), Options{WithoutConnections: true}, []string{JiraPoll}, GHADispatch, ""},
		{"GitLab", env("CI_PROJECT_PATH", "a/b", "FULLSEND_FORGE_TOKEN", secret), Options{}, []string{GitLabPoll}, GitLabPipeline, ""},
		{"a GitLab job for one payload", env("CI_PROJECT_PATH", "a/b", "TRIGGER_PAYLOAD", "/tmp/x", "FULLSEND_FORGE_TOKEN", secret), Options{}, []string{GitLabWebhook}, GitLabPipeline, ""},
		{"GitLab without a token", env("CI_PROJECT_PATH", "a/b"), Options{}, nil, "", "there is no token"},
		{"Jira in GitLab CI", env("JIRA_BASE_URL", "https://acme.example", "JIRA_TOKEN", secret, "CI_PROJECT_PATH", "a/b", "FULLSEND_FORGE_TOKEN", secret), Options{}, []string{JiraPoll, GitLabPoll}, GHADispatch, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			cfg, problems := Parse(nil, tc.env, tc.opts)
			if err := problems.Err(); err != nil {
				t.Fatal(err)
			}
			problems = cfg.DetectDrivers(tc.env, tc.opts)
			if tc.bad != "" {
				if len(problems) != 1 || !strings.Contains(problems.Error(), tc.bad) {
					t.Errorf("problems %v, want %q", problems, tc.bad)
				}
				return
			}
			if err := problems.Err(); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, d := range cfg.Poll.InputDrivers {
				got = append(got, d.Type)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || cfg.Poll.OutputDriver != tc.output {
				t.Errorf("output %q, drivers (-want +got):\n%s", cfg.Poll.OutputDriver, diff)
			}
		})
	}
}

func TestADetectedDriverHasTheDefaults(t *testing.T) {
	t.Parallel()
	cfg := &Config{}
	if problems := cfg.DetectDrivers(env("JIRA_BASE_URL", "https://acme.example/x/", "JIRA_TOKEN", secret), Options{}); len(problems) > 0 {
		t.Fatal(problems)
	}
	want := Defaults()
	want.Connection = Connection{BaseURL: "https://acme.example/x", Token: secret}
	if diff := cmp.Diff([]InputDriver{want}, cfg.Poll.InputDrivers); diff != "" {
		t.Error(diff)
	}
}

func TestOverride(t *testing.T) {
	t.Parallel()
	d := InputDriver{Connection: Connection{"a", "b", "c"}}
	d.Override("x", "", "z")
	if diff := cmp.Diff(Connection{"x", "b", "z"}, d.Connection); diff != "" {
		t.Error(diff)
	}
}

func TestLocksAreTakenByVerificationUnlessTheFileSaysOtherwise(t *testing.T) {
	t.Parallel()
	for lock, want := range map[string]string{"{m: 50}": ModeVerify, "{mode: verify}": ModeVerify, "{mode: conditional}": ModeConditional} {
		cfg, problems := Parse([]byte(driver("lock: "+lock)), usual(), Options{})
		if err := problems.Err(); err != nil {
			t.Fatalf("%s: %v", lock, err)
		}
		if got := cfg.Poll.InputDrivers[0].Lock.Mode; got != want {
			t.Errorf("%s: %q, want %q", lock, got, want)
		}
	}
}
