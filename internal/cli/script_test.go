package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fullsend/poll-action/internal/lease"
	"github.com/fullsend/poll-action/internal/sim"
	"github.com/fullsend/poll-action/internal/sim/simtest"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"fullsend-poll": func() { os.Exit(Main()) }, PostName: func() { os.Exit(Main()) },
	})
}

// TestStories runs the whole program, one process a command, against simulated
// servers on the loopback interface. A story is a file in testdata/script.
//
// Beside testscript's own commands a story has:
//
//	status N fullsend-poll ARG…   run and expect exit code N; output goes to the files out and err
//	issue [REPORTER]              create an issue (alice by default)
//	comment KEY PERSON TEXT       comment on an issue (TEXT knows \n)
//	label KEY PERSON LABEL…       set an issue's labels
//	later DURATION                move the servers' clock
//	jira SWITCH, github SWITCH    make a server behave oddly
//	property KEY NAME JSON|none   write one of the product's properties as somebody else would, or delete it
//	lock KEY none|PHASE           check the phase of an issue's lock
//	has-property KEY NAME [TEXT]  check that a property is there and has a text; ! that it is not
//	runs N                        check how many runs there are
//	end-runs                      let all runs end and give back their locks
//	requests HOST N               check how many requests a host got since the last look
//	hold KEY N                    put the n-th run's lock on an issue as it was handed over
//	refreshed KEY                 wait until the issue's lock is refreshed
//	from FILE [PREFIX]            take the variables over that a step has written into a file of the runner
//	appears FILE                  wait until a file is there
//	file-has FILE NAME REGEXP     check the last value of a name in a file of the runner
//	event-of N                    write the n-th run's event file to event.json
func TestStories(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../testdata/script/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories found: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			s := &story{t: t, w: simtest.New(t)}
			s.jira, s.github = s.w.Listen(t)
			testscript.Run(t, testscript.Params{
				Files: []string{file}, Setup: s.setup, RequireExplicitExec: true,
				Cmds: map[string]func(*testscript.TestScript, bool, []string){
					"status": s.status, "issue": s.issue, "comment": s.comment, "label": s.label, "later": s.later,
					"jira": s.jiraSwitch, "github": s.githubSwitch, "property": s.property, "lock": s.lock,
					"has-property": s.hasProperty, "runs": s.runs, "end-runs": s.endRuns, "requests": s.requests, "event-of": s.eventOf, "file-has": s.fileHas,
					"hold": s.hold, "refreshed": s.refreshed, "from": s.from, "appears": s.appears,
				},
			})
		})
	}
}

type story struct {
	t            *testing.T
	w            *simtest.World
	jira, github string
	issues       []sim.Issue
}

func (s *story) setup(e *testscript.Env) error {
	e.Vars = append(e.Vars,
		"JIRA_BASE_URL="+s.jira, "JIRA_USER_EMAIL="+simtest.JiraEmail, "JIRA_TOKEN="+simtest.JiraToken,
		"GITHUB_API_URL="+s.github, "GITHUB_TOKEN="+simtest.GitHubToken, "GITHUB_REPOSITORY="+simtest.Repo,
		"GOCOVERDIR="+e.WorkDir,
	)
	if err := os.MkdirAll(filepath.Join(e.WorkDir, ".fullsend", "harness"), 0o750); err != nil {
		return err
	}
	for name, content := range map[string]string{
		"config.yaml":         testConfig("m: 50, n: 5, guard: 400ms, jitter_min: 50ms, jitter_max: 60ms"),
		"harness/triage.yaml": testHarness,
	} {
		file := filepath.Join(e.WorkDir, ".fullsend", name)
		if _, err := os.Stat(file); err == nil {
			continue // the story brings its own
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (s *story) status(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	path, err := exec.LookPath(args[1])
	if err != nil {
		path = args[1]
	}
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		if file := filepath.Join(dir, args[1]); executable(file) {
			path = file
			break
		}
	}
	cmd := exec.CommandContext(s.t.Context(), path, args[2:]...)
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = s.env(ts)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	ts.Check(os.WriteFile(ts.MkAbs("out"), stdout.Bytes(), 0o600))
	ts.Check(os.WriteFile(ts.MkAbs("err"), stderr.Bytes(), 0o600))
	for _, secret := range []string{simtest.JiraToken, simtest.GitHubToken} {
		if s := strings.ReplaceAll(stderr.String()+stdout.String(), "::add-mask::"+secret, ""); strings.Contains(s, secret) {
			ts.Fatalf("a secret was printed")
		}
	}
	code := 0
	var ee *exec.ExitError
	if errors.As(err, &ee) {
		code = ee.ExitCode()
	} else {
		ts.Check(err)
	}
	if code != want {
		ts.Fatalf("exit code %d, want %d\n--- out\n%s--- err\n%s", code, want, stdout.String(), stderr.String())
	}
}

func executable(file string) bool {
	info, err := os.Stat(file)
	return err == nil && !info.IsDir() && info.Mode()&0o111 != 0
}

// env passes on the variables that the program reads, as a story set them.
func (s *story) env(ts *testscript.TestScript) []string {
	env := []string{"PATH=" + ts.Getenv("PATH"), "HOME=" + ts.Getenv("HOME"), "GOCOVERDIR=" + ts.Getenv("GOCOVERDIR"), "TMPDIR=" + os.TempDir()}
	for _, name := range []string{
		"JIRA_BASE_URL", "JIRA_USER_EMAIL", "JIRA_TOKEN", "GITHUB_API_URL", "GITHUB_TOKEN", "GITHUB_REPOSITORY",
		"GITHUB_ACTIONS", "GITHUB_OUTPUT", "GITHUB_ENV", "GITHUB_STATE", "GITHUB_STEP_SUMMARY", "GITHUB_EVENT_PATH", "GITHUB_RUN_ID",
		"INPUT_COMMAND", "INPUT_CANCEL", "INPUT_CONFIG", "INPUT_DRY-RUN", "INPUT_JIRA-TOKEN", "INPUT_GITHUB-TOKEN", "INPUT_JIRA-BASE-URL",
		"INPUT_JIRA-USER-EMAIL", "INPUT_TARGET-REPO", "INPUT_INPUT-DRIVER", "INPUT_OUTPUT-DRIVER", "FULLSEND_POLL_LOG_FORMAT",
		"FULLSEND_WORK_ITEM_KEY", "FULLSEND_POLL_LOCK_ID", "FULLSEND_POLL_LOCK_DRIVER", "FULLSEND_POLL_LOCK_PROPERTY",
		"FULLSEND_DISPATCH_SECRET",
	} {
		if v := ts.Getenv(name); v != "" {
			env = append(env, name+"="+v)
		}
	}
	return env
}

func person(name string) string {
	switch name {
	case "alice":
		return simtest.Alice
	case "bob":
		return simtest.Bob
	case "mallory":
		return simtest.Mallory
	case "bot":
		return simtest.Bot
	}
	return name
}

func (s *story) issue(_ *testscript.TestScript, _ bool, args []string) {
	reporter := simtest.Alice
	if len(args) > 0 {
		reporter = person(args[0])
	}
	s.issues = append(s.issues, s.w.Jira.CreateIssue(sim.IssueSpec{Project: simtest.Project, Summary: "An issue", Reporter: reporter}))
}

func (s *story) comment(_ *testscript.TestScript, _ bool, args []string) {
	s.w.Jira.Comment(args[0], person(args[1]), strings.ReplaceAll(args[2], `\n`, "\n"))
}

func (s *story) label(_ *testscript.TestScript, _ bool, args []string) {
	s.w.Jira.SetLabels(args[0], person(args[1]), args[2:]...)
}

func (s *story) later(ts *testscript.TestScript, _ bool, args []string) {
	d, err := time.ParseDuration(args[0])
	ts.Check(err)
	s.w.Advance(d)
	s.w.Net.ResetLog()
}

func (s *story) jiraSwitch(ts *testscript.TestScript, _ bool, args []string) {
	switch args[0] {
	case "anonymous":
		s.w.Jira.Set(func(j *sim.JiraSwitches) { j.AuthMode = sim.AuthAnonymous200 })
	case "roles-forbidden":
		s.w.Jira.Set(func(j *sim.JiraSwitches) { j.RolesForbidden = true })
	case "read-only":
		s.w.Jira.SetReadOnly(args[1], true)
	case "no-updated":
		s.w.Jira.BreakIssue(args[1], func(f map[string]any) { delete(f, "updated") })
	case "null-author":
		s.w.Jira.AddHistory(args[1], map[string]any{"author": nil, "created": s.w.Now().Format("2006-01-02T15:04:05.000-0700"), "items": []any{map[string]any{"field": "summary"}}})
	case "bump":
		s.w.Jira.Set(func(j *sim.JiraSwitches) { j.BumpUpdatedOnPropertyWrite = true })
	default:
		ts.Fatalf("unknown switch %s", args[0])
	}
}

func (s *story) githubSwitch(ts *testscript.TestScript, _ bool, args []string) {
	switch args[0] {
	case "forbidden":
		s.w.GitHub.Set(func(g *sim.GitHubSwitches) { g.DispatchForbidden = true })
	case "old-server":
		s.w.GitHub.Set(func(g *sim.GitHubSwitches) { g.NoRunDetails = true })
	case "disabled":
		s.w.GitHub.SetState(simtest.WorkflowFile, "disabled_manually")
	default:
		ts.Fatalf("unknown switch %s", args[0])
	}
}

// propertyName completes "lock", "lastCheck" and "seen" to the property's name.
func propertyName(short string) string { return strings.TrimSuffix(lockProp, "lock") + short }

func (s *story) property(_ *testscript.TestScript, _ bool, args []string) {
	if args[2] == "none" {
		s.w.Jira.DeleteProperty(args[0], propertyName(args[1]))
		return
	}
	s.w.Jira.SetProperty(args[0], propertyName(args[1]), []byte(args[2]))
}

func (s *story) lock(ts *testscript.TestScript, _ bool, args []string) {
	raw, ok := s.w.Jira.Property(args[0], lockProp)
	switch {
	case args[1] == "none" && ok:
		ts.Fatalf("%s is locked: %s", args[0], raw)
	case args[1] != "none" && !strings.Contains(string(raw), fmt.Sprintf(`"phase":%q`, args[1])):
		ts.Fatalf("the lock of %s is %s, want phase %s", args[0], raw, args[1])
	}
}

func (s *story) hasProperty(ts *testscript.TestScript, neg bool, args []string) {
	raw, ok := s.w.Jira.Property(args[0], propertyName(args[1]))
	switch {
	case neg && ok:
		ts.Fatalf("%s has the property %s: %s", args[0], args[1], raw)
	case !neg && !ok:
		ts.Fatalf("%s has no property %s", args[0], args[1])
	case !neg && len(args) > 2 && !strings.Contains(string(raw), args[2]):
		ts.Fatalf("the property %s of %s is %s, want %s in it", args[1], args[0], raw, args[2])
	}
}

func (s *story) runs(ts *testscript.TestScript, _ bool, args []string) {
	if n := strconv.Itoa(len(s.w.GitHub.Runs())); n != args[0] {
		ts.Fatalf("%s runs, want %s", n, args[0])
	}
}

func (s *story) endRuns(_ *testscript.TestScript, _ bool, _ []string) { endRuns(s.w, s.issues) }

func (s *story) requests(ts *testscript.TestScript, _ bool, args []string) {
	n := 0
	for _, e := range s.w.Net.Log() {
		if (e.Host == simtest.GitHubHost) == (args[0] == "github") {
			n++
		}
	}
	if strconv.Itoa(n) != args[1] {
		ts.Fatalf("%d requests to %s, want %s: %v", n, args[0], args[1], s.w.Net.Log())
	}
	s.w.Net.ResetLog()
}

func (s *story) eventOf(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	r := s.w.GitHub.Runs()[n-1]
	var b strings.Builder
	for k, v := range r.Inputs {
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%q:%s", k, strconv.Quote(v))
	}
	ts.Check(os.WriteFile(ts.MkAbs("event.json"), []byte(`{"inputs":{`+b.String()+`}}`), 0o600))
	ts.Setenv("GITHUB_RUN_ID", strconv.FormatInt(r.ID, 10))
	s.w.GitHub.Start(r.ID)
}

func (s *story) fileHas(ts *testscript.TestScript, _ bool, args []string) {
	value, found := protocol(ts.ReadFile(args[0]))[args[1]]
	if !found || !regexp.MustCompile("^(?:"+args[2]+")$").MatchString(value) {
		ts.Fatalf("%s is %q in %s, want %s", args[1], value, args[0], args[2])
	}
}

func (s *story) hold(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	run := s.w.GitHub.Runs()[n-1]
	l := lease.Lock{ID: run.Inputs["poll_lock_id"], TS: s.w.Now(), Phase: lease.Pending, Driver: "jira-poll"}.WithRun(lease.Run{Agent: run.Inputs["agent"], ID: run.ID})
	raw, err := l.Encode()
	ts.Check(err)
	s.w.Jira.SetProperty(args[0], lockProp, raw)
}

// waitFor looks until it sees.
func waitFor(ts *testscript.TestScript, what string, seen func() bool) {
	for end := time.Now().Add(20 * time.Second); !seen(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			ts.Fatalf("%s did not happen", what)
		}
	}
}

func (s *story) refreshed(ts *testscript.TestScript, _ bool, args []string) {
	from := s.w.Now()
	waitFor(ts, "a refresh of "+args[0], func() bool {
		raw, _ := s.w.Jira.Property(args[0], lockProp)
		l, err := lease.Decode(raw)
		return err == nil && l.Phase == lease.Running && !l.TS.Before(from.Truncate(time.Second))
	})
}

func (s *story) appears(ts *testscript.TestScript, _ bool, args []string) {
	waitFor(ts, args[0], func() bool {
		info, err := os.Stat(ts.MkAbs(args[0]))
		return err == nil && info.Size() > 0
	})
}

func (s *story) from(ts *testscript.TestScript, _ bool, args []string) {
	prefix := strings.Join(args[1:], "")
	for k, v := range protocol(ts.ReadFile(args[0])) {
		ts.Setenv(prefix+k, v)
	}
}
