package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fullsend/poll-action/internal/sim"
	"github.com/fullsend/poll-action/internal/sim/simtest"
)

// stopped is an issue whose command was dispatched a minute ago: a run works on
// it, under the lock.
type stopped struct {
	t     *testing.T
	w     *simtest.World
	p     *poller
	issue sim.Issue
	// run is the run's id, key the dispatch key of its event.
	run int64
	key string
}

func atWork(t *testing.T, opts ...simtest.Option) *stopped {
	t.Helper()
	w := simtest.New(t, opts...)
	check := w.Net.Check
	w.Net.Check = nil // of the cycle, which other tests hold against the descriptions
	issue := createIssues(w, 1)[0]
	time.Sleep(time.Minute)
	w.Jira.Comment(issue.Key, simtest.Alice, "/fs-triage go")
	time.Sleep(time.Minute)
	p := newPoller(t, w, testConfig("m: 50, n: 5"), 1)
	p.mustCycle()
	w.Net.Check = check
	run := w.GitHub.Runs()[0]
	w.GitHub.Start(run.ID)
	time.Sleep(time.Minute)
	w.Net.ResetLog()
	return &stopped{t: t, w: w, p: p, issue: issue, run: run.ID, key: run.Inputs["dispatch_key"]}
}

func (s *stopped) property(short string) string {
	raw, _ := s.w.Jira.Property(s.issue.Key, propertyName(short))
	return string(raw)
}

// lock writes a lock as somebody else would: an id ("" is the one that stands),
// its age, and the runs that it names.
func (s *stopped) lock(id string, age time.Duration, runs ...int64) {
	s.t.Helper()
	named := []map[string]any{}
	for _, r := range runs {
		named = append(named, map[string]any{"agent": "triage", "run_id": r})
	}
	if id == "" {
		id = lockID(s.w, s.issue.Key)
	}
	raw, err := json.Marshal(map[string]any{"id": id, "ts": s.w.Now().Add(-age).UTC().Format(time.RFC3339Nano), "phase": "pending", "driver": "jira-poll", "runs": named})
	if err != nil {
		s.t.Fatal(err)
	}
	s.w.Jira.SetProperty(s.issue.Key, lockProp, raw)
}

// another starts one more run of a workflow, with the lock's id in its name where
// that is the agents', and returns its id.
func (s *stopped) another(workflow string) int64 {
	s.t.Helper()
	body := `{"ref":"main"}`
	if workflow == simtest.WorkflowFile {
		body = fmt.Sprintf(`{"ref":"main","inputs":{"agent":"review","poll_lock_id":%q}}`, lockID(s.w, s.issue.Key))
	}
	answer, said := s.w.Do(s.t, http.MethodPost, simtest.GitHubURL+"/repos/"+simtest.Repo+"/actions/workflows/"+workflow+"/dispatches", body)
	if answer.StatusCode >= 300 {
		s.t.Fatalf("%d %s", answer.StatusCode, said)
	}
	runs := s.w.GitHub.Runs()
	return runs[len(runs)-1].ID
}

// whenCancelled calls f once, when a run is to be cancelled, before GitHub sees it.
func (s *stopped) whenCancelled(f func()) {
	done := false
	s.w.Net.Fault = func(r *http.Request) sim.Fault {
		if !done && strings.HasSuffix(r.URL.Path, "/cancel") {
			done = true
			f()
		}
		return sim.Fault{}
	}
}

func (s *stopped) cancel(args ...string) outcome {
	s.t.Helper()
	return s.p.run(s.t.Context(), append([]string{"cancel", "--issue", s.issue.Key}, args...)...)
}

func textOf(tb testing.TB, file string) string {
	tb.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	return string(raw)
}

// told is what an operator sees, without the log.
func (o outcome) told() string {
	var lines []string
	for _, line := range strings.Split(o.stdout+o.stderr, "\n") {
		if line != "" && !strings.HasPrefix(line, "time=") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

// journalled is what "seen" says of the event.
func (s *stopped) journalled() string {
	var seen struct {
		Keys map[string]struct {
			Run int64           `json:"run"`
			D   json.RawMessage `json:"d"`
		} `json:"keys"`
		Retry map[string]int64 `json:"retry"`
	}
	if raw := s.property("seen"); raw != "" {
		if err := json.Unmarshal([]byte(raw), &seen); err != nil {
			s.t.Fatal(err)
		}
	}
	var words []string
	if e, ok := seen.Keys[s.key]; ok {
		words = append(words, "dispatched")
		if len(e.D) > 0 {
			words = append(words, "dropped")
		}
	}
	if _, ok := seen.Retry[s.key]; ok {
		words = append(words, "retry")
	}
	return strings.Join(words, ", ")
}

func TestEveryOutcomeOfACancelHasItsSentenceAndItsExitCode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		prepare func(s *stopped)
		args    []string
		code    int
		// says are parts of what is said, RUN standing for the run's id, KEY for the
		// event's key; never are parts that must not be said.
		says, never []string
		// lock is "none", "same" (byte by byte) or the id that stands afterwards.
		lock string
		// journal is what the journal says of the event afterwards; ended says that
		// its run has ended.
		journal string
		ended   bool
		// jira and github are the numbers of requests.
		jira, github int
		// again is how many runs the next cycle starts.
		again int
	}{
		{
			name: "cancelled", code: ExitOK, ended: true, lock: "none", journal: "dispatched, retry", jira: 7, github: 3, again: 1,
			says: []string{"run RUN is cancelled: https://github.com/acme/platform/actions/runs/RUN\n", `the lock of PROJ-1 is deleted; dispatched again by the next poll cycle: "KEY"`},
		},
		{
			name: "dropped", args: []string{"--drop"}, code: ExitOK, ended: true, lock: "none", journal: "dispatched, dropped", jira: 7, github: 3,
			says: []string{"run RUN is cancelled", `the lock of PROJ-1 is deleted; not dispatched again: "KEY"`},
		},
		{
			name: "dry run", args: []string{"--dry-run"}, code: ExitOK, lock: "same", journal: "dispatched", jira: 1, github: 1,
			says: []string{"run RUN would be cancelled", "dry run: the lock of PROJ-1 would be deleted; nothing was changed"},
		},
		{
			name: "key in small letters, kill switch on", code: ExitOK, ended: true, lock: "none", journal: "dispatched, retry", jira: 7, github: 3,
			prepare: func(s *stopped) {
				s.issue.Key = strings.ToLower(s.issue.Key)
				s.p.write("config.yaml", testConfig("m: 50, n: 5")+"kill_switch: true\n")
			},
			says: []string{"the lock of PROJ-1 is deleted"},
		},
		{
			name: "a broken harness", code: ExitOK, ended: true, lock: "none", journal: "dispatched, retry", jira: 7, github: 3,
			prepare: func(s *stopped) { s.p.write("harness/triage.yaml", "trigger: '((('") },
			says:    []string{"the lock of PROJ-1 is deleted"},
		},
		{
			name: "takes its time", code: ExitOK, ended: true, lock: "none", journal: "dispatched, retry", jira: 7, github: 18, again: 1,
			prepare: func(s *stopped) {
				s.w.GitHub.Set(func(g *sim.GitHubSwitches) { g.CancelTakes = 30 * time.Second })
			},
			says: []string{"run RUN is cancelled"},
		},
		{
			name: "no lock", code: ExitOK, lock: "none", journal: "dispatched", jira: 1,
			prepare: func(s *stopped) { s.w.Jira.DeleteProperty(s.issue.Key, lockProp) },
			says:    []string{"PROJ-1 has no lock: there is nothing to cancel"},
		},
		{
			name: "unreadable lock", code: ExitOK, lock: "none", journal: "dispatched", jira: 3,
			prepare: func(s *stopped) { s.w.Jira.SetProperty(s.issue.Key, lockProp, []byte(`["::error::x"]`)) },
			says:    []string{"the lock of PROJ-1 could not be understood (malformed lock: not a JSON object) and is deleted"},
			never:   []string{"::error::x"},
		},
		{
			name: "unreadable lock, dry run", args: []string{"--dry-run"}, code: ExitOK, lock: "same", journal: "dispatched", jira: 1,
			prepare: func(s *stopped) { s.w.Jira.SetProperty(s.issue.Key, lockProp, []byte(`7`)) },
			says:    []string{"dry run: the lock of PROJ-1 cannot be understood", "nothing was changed"},
		},
		{
			name: "lock of another driver", code: ExitLost, lock: "same", journal: "dispatched", jira: 1,
			prepare: func(s *stopped) {
				s.w.Jira.SetProperty(s.issue.Key, lockProp, []byte(`{"id":"x-1","ts":"2026-01-01T00:00:00Z","phase":"running","driver":"gitlab-poll\n::error::","run_id":`+strconv.FormatInt(s.run, 10)+`}`))
			},
			says: []string{`the lock of PROJ-1 is one of the driver "gitlab-poll\n::error::", not of jira-poll; nothing was touched`},
		},
		{
			name: "unsigned lock where nothing unsigned counts", code: ExitLost, lock: "same", journal: "dispatched", jira: 1,
			prepare: func(s *stopped) { s.p.signs(true) },
			says:    []string{"the lock of PROJ-1 is not trusted, its signature is missing or wrong; nothing was touched", secretName},
		},
		{
			name: "run is gone", code: ExitOK, lock: "none", jira: 7, github: 3, journal: "dispatched, retry", again: 1,
			prepare: func(s *stopped) {
				s.w.Jira.SetProperty(s.issue.Key, propertyName("seen"), []byte(strings.ReplaceAll(s.property("seen"), strconv.FormatInt(s.run, 10), "404")))
				s.lock("", time.Minute, 404)
			},
			says: []string{"run 404 does not exist any more\n", "dispatched again by the next poll cycle"},
		},
		{
			name: "the repository is hidden", code: ExitFailed, lock: "same", journal: "dispatched", jira: 1, github: 2,
			prepare: func(s *stopped) {
				s.w.Net.Fault = func(r *http.Request) sim.Fault {
					if r.URL.Host == simtest.GitHubHost {
						return sim.Fault{Status: 404, Body: `{"message":"Not Found"}`}
					}
					return sim.Fault{}
				}
			},
			says: []string{"whether run RUN of PROJ-1 is gone or hidden cannot be told", "the token cannot see it", "the lock stays"},
		},
		{
			name: "no permission on GitHub", code: ExitFailed, lock: "same", journal: "dispatched", jira: 1, github: 2,
			prepare: func(s *stopped) {
				s.w.GitHub.Set(func(g *sim.GitHubSwitches) { g.DispatchForbidden = true })
			},
			says: []string{"run RUN of PROJ-1 cannot be cancelled", "lacks `actions: write`", "the lock stays"},
		},
		{
			name: "wrong GitHub token", code: ExitFailed, lock: "same", journal: "dispatched", jira: 1, github: 1,
			prepare: func(s *stopped) { s.p.env["GITHUB_TOKEN"] = "wrong-token" },
			says:    []string{"run RUN of PROJ-1 cannot be looked at", "token is wrong or has expired", "the lock stays"},
		},
		{
			name: "wrong Jira token", code: ExitFailed, lock: "same", journal: "dispatched", jira: 1,
			prepare: func(s *stopped) { s.p.env["JIRA_TOKEN"] = "wrong-token" },
			says:    []string{"the lock of PROJ-1 cannot be read", "JIRA_TOKEN", "nothing was touched"},
		},
		{
			name: "no permission on Jira", code: ExitFailed, lock: "same", journal: "dispatched", ended: true, jira: 3, github: 3,
			prepare: func(s *stopped) { s.w.Jira.SetReadOnly(s.issue.Key, true) },
			says:    []string{"the runs of PROJ-1 have ended, but its journal could not be changed", "needs Browse Projects and Edit Issues", "the lock stays"},
		},
		{
			name: "no permission on Jira to delete", code: ExitFailed, lock: "same", journal: "dispatched, retry", ended: true, jira: 6, github: 3,
			prepare: func(s *stopped) {
				s.w.Net.Fault = func(r *http.Request) sim.Fault {
					if r.Method == http.MethodDelete {
						return sim.Fault{Status: 403, Body: `{"errorMessages":["You do not have permission to edit this issue."]}`}
					}
					return sim.Fault{}
				}
			},
			says: []string{"the runs of PROJ-1 have ended, but the lock cannot be deleted: ", "needs Browse Projects and Edit Issues", `dispatched again by the next poll cycle: "KEY"`},
		},
		{
			name: "no permission on Jira, nothing to take back", code: ExitFailed, lock: "same", journal: "dispatched", ended: true, jira: 4, github: 1,
			prepare: func(s *stopped) {
				s.w.GitHub.Complete(s.run, "success")
				s.w.Jira.SetReadOnly(s.issue.Key, true)
			},
			says: []string{"the lock cannot be deleted: it is still there; the Jira account needs Browse Projects and Edit Issues on this issue"},
		},
		{
			name: "unreadable lock, no permission on Jira", code: ExitFailed, lock: "same", journal: "dispatched", jira: 3,
			prepare: func(s *stopped) {
				s.w.Jira.SetProperty(s.issue.Key, lockProp, []byte(`7`))
				s.w.Jira.SetReadOnly(s.issue.Key, true)
			},
			says: []string{"the lock of PROJ-1 cannot be understood, and it cannot be deleted: it is still there"},
		},
		{
			name: "succeeded before", code: ExitOK, lock: "none", journal: "dispatched", ended: true, jira: 4, github: 1,
			prepare: func(s *stopped) { s.w.GitHub.Complete(s.run, "success") },
			says:    []string{`run RUN had ended before ("success")`, "the lock of PROJ-1 is deleted; its work was done, nothing is dispatched again"},
		},
		{
			name: "failed before", code: ExitOK, lock: "none", journal: "dispatched, retry", ended: true, jira: 7, github: 1, again: 1,
			prepare: func(s *stopped) { s.w.GitHub.Complete(s.run, "failure") },
			says:    []string{`run RUN had ended before ("failure")`, `dispatched again by the next poll cycle: "KEY"`},
		},
		{
			name: "succeeds before the cancel reaches it", code: ExitOK, lock: "none", journal: "dispatched", ended: true, jira: 4, github: 3,
			prepare: func(s *stopped) {
				s.whenCancelled(func() { s.w.GitHub.Complete(s.run, "success") })
			},
			says: []string{`run RUN ended by itself ("success")`, "nothing is dispatched again"},
		},
		{
			name: "does not stop", code: ExitFailed, lock: "same", journal: "dispatched", jira: 1, github: 33,
			prepare: func(s *stopped) {
				s.w.GitHub.Set(func(g *sim.GitHubSwitches) { g.CancelIgnored = true })
			},
			says: []string{"run RUN is still running", "run RUN of PROJ-1 is still running 1m0s after it was asked to stop; the lock stays; cancel again later, or with --force"},
		},
		{
			name: "does not stop and is forced to", args: []string{"--force"}, code: ExitOK, lock: "none", journal: "dispatched, retry", ended: true, jira: 7, github: 35, again: 1,
			prepare: func(s *stopped) {
				s.w.GitHub.Set(func(g *sim.GitHubSwitches) { g.CancelIgnored = true })
			},
			says: []string{"run RUN is cancelled", "the lock of PROJ-1 is deleted"},
		},
		{
			name: "does not stop even by force", args: []string{"--force"}, code: ExitFailed, lock: "same", journal: "dispatched", jira: 1, github: 65,
			prepare: func(s *stopped) {
				s.w.Net.Fault = func(r *http.Request) sim.Fault {
					if strings.HasSuffix(r.URL.Path, "cancel") {
						return sim.Fault{Status: 202, Body: "{}"}
					}
					return sim.Fault{}
				}
			},
			says: []string{"run RUN of PROJ-1 is still running 1m0s after it was to stop by force; the lock stays"},
		},
		{
			name: "no run named, found by the lock's id", code: ExitOK, lock: "none", journal: "dispatched, retry", ended: true, jira: 7, github: 4, again: 1,
			prepare: func(s *stopped) { s.lock("", time.Minute) },
			says:    []string{"the lock names no run; 1 found by its id", "run RUN is cancelled"},
		},
		{
			name: "no run named, none found", code: ExitOK, lock: "none", journal: "dispatched", jira: 4, github: 1,
			prepare: func(s *stopped) { s.lock("9b2d9a1c-0000-4000-8000-5b1f4be7c001", time.Hour) },
			says:    []string{"the lock names no run, and none was found by its id", "the lock of PROJ-1 is deleted; no run of it is known"},
		},
		{
			name: "its poller is still at work", code: ExitOK, lock: "none", journal: "dispatched, retry", ended: true, jira: 9, github: 3, again: 1,
			prepare: func(s *stopped) {
				s.lock("", time.Second)
				time.AfterFunc(10*time.Second, func() { s.lock("", 0, s.run) })
			},
			says: []string{"run RUN is cancelled", "the lock of PROJ-1 is deleted"},
		},
		{
			name: "changes hands", code: ExitLost, lock: "another", journal: "dispatched, retry", ended: true, jira: 6, github: 3,
			prepare: func(s *stopped) {
				s.whenCancelled(func() { s.lock("another", 0) })
			},
			says: []string{`the lock of PROJ-1 changed hands meanwhile`, `"another" holds it now`, "was left alone", `dispatched again by the next poll cycle: "KEY"`},
		},
		{
			name: "is released by its run", code: ExitOK, lock: "none", journal: "dispatched, retry", ended: true, jira: 6, github: 3, again: 1,
			prepare: func(s *stopped) {
				s.whenCancelled(func() { s.w.Jira.DeleteProperty(s.issue.Key, lockProp) })
			},
			says: []string{"the lock of PROJ-1 was released meanwhile; dispatched again by the next poll cycle"},
		},
		{
			name: "a further run appears", code: ExitOK, lock: "none", journal: "dispatched, retry", ended: true, jira: 9, github: 7, again: 1,
			prepare: func(s *stopped) {
				s.whenCancelled(func() { s.lock("", time.Minute, s.run, s.another(simtest.WorkflowFile)) })
			},
			says: []string{"run RUN is cancelled", "the lock of PROJ-1 is deleted"},
		},
		{
			name: "a run of another workflow", code: ExitLost, lock: "same", journal: "dispatched", jira: 1, github: 4,
			prepare: func(s *stopped) {
				s.w.GitHub.AddWorkflow("release.yml", "main", "name: release\non: {workflow_dispatch: }\n")
				s.lock("", time.Minute, s.run, s.another("release.yml"))
				s.w.Net.ResetLog()
			},
			says: []string{"which the lock of PROJ-1 names, is none of the workflow fullsend-agent.yml: it was not cancelled, and the lock stays"},
		},
		{
			name: "a name without the lock's id", code: ExitOK, lock: "none", journal: "dispatched, retry", ended: true, jira: 7, github: 5, again: 1,
			prepare: func(s *stopped) { s.lock("an-inherited-one", time.Minute, s.run) },
			says:    []string{"run RUN is cancelled"},
		},
		{
			name: "no such issue", args: []string{"--issue", "PROJ-77"}, code: ExitUsage, lock: "same", journal: "dispatched", jira: 1,
			says: []string{"the issue PROJ-77 does not exist at https://acme.atlassian.net, or the Jira account may not see it"},
		},
		{
			name: "no issue key", args: []string{"--issue", "../x"}, code: ExitUsage, lock: "same", journal: "dispatched",
			says: []string{`--issue "../x" is no Jira issue key`},
		},
		{
			name: "no issue", args: []string{"--issue="}, code: ExitUsage, lock: "same", journal: "dispatched",
			says: []string{"--issue is missing"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := atWork(t)
				if c.prepare != nil {
					c.prepare(s)
				}
				s.w.Net.ResetLog()
				lastCheck, lock := s.property("lastCheck"), s.property("lock")
				o := s.cancel(c.args...)
				if o.code != c.code {
					t.Errorf("exit code %d, want %d", o.code, c.code)
				}
				words := strings.NewReplacer("RUN", strconv.FormatInt(s.run, 10), "KEY", s.key)
				for _, part := range c.says {
					if !strings.Contains(o.told(), strings.TrimSuffix(words.Replace(part), "\n")) {
						t.Errorf("%q is not said", words.Replace(part))
					}
				}
				for _, part := range c.never {
					if strings.Contains(o.stdout+o.stderr, part) {
						t.Errorf("%q is said", part)
					}
				}
				if got := s.property("lastCheck"); got != lastCheck || got == "" {
					t.Errorf("lastCheck was %s and is %s", lastCheck, got)
				}
				if got := s.property("lock"); c.lock == "same" && got != lock || c.lock == "none" && got != "" || c.lock != "none" && c.lock != "same" && lockID(s.w, s.issue.Key) != c.lock {
					t.Errorf("the lock is %q, want %s (%s)", got, c.lock, lock)
				}
				if got := s.journalled(); got != c.journal {
					t.Errorf("the journal says %q, want %q: %s", got, c.journal, s.property("seen"))
				}
				for _, r := range s.w.GitHub.Runs() {
					if r.Workflow == simtest.WorkflowFile && (r.Status == "completed") != c.ended {
						t.Errorf("run %d is %s", r.ID, r.Status)
					}
				}
				if j, g := s.w.Net.Count(simtest.JiraHost), s.w.Net.Count(simtest.GitHubHost); j != c.jira || g != c.github {
					t.Errorf("%d requests to Jira and %d to GitHub, want %d and %d: %v", j, g, c.jira, c.github, s.w.Net.Log())
				}
				if t.Failed() {
					t.Logf("\n%s", o.told())
				}
				s.nextCycle(c.again)
			})
		})
	}
}

// nextCycle runs a cycle that has to start so many runs of the event.
func (s *stopped) nextCycle(want int) {
	s.t.Helper()
	if want == 0 {
		return
	}
	s.w.Net.Fault, s.w.Net.Check = nil, nil
	before := runsPerKey(s.w)[s.key]
	time.Sleep(time.Minute)
	s.p.mustCycle()
	if got := runsPerKey(s.w)[s.key] - before; got != want {
		s.t.Errorf("the next cycle started %d runs of the event, want %d", got, want)
	}
}

func TestACancelledEventIsDispatchedAgainOnceAndADroppedOneNever(t *testing.T) {
	t.Parallel()
	for _, drop := range []bool{false, true} {
		t.Run(fmt.Sprintf("drop %t", drop), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := atWork(t)
				if o := s.cancel("--drop=" + strconv.FormatBool(drop)); o.code != ExitOK {
					t.Fatalf("exit code %d\n%s", o.code, o.told())
				}
				want := 2
				if drop {
					want = 1
				}
				for range 4 {
					time.Sleep(6 * time.Minute)
					s.p.mustCycle()
					endRuns(s.w, []sim.Issue{s.issue})
				}
				if got := runsPerKey(s.w)[s.key]; got != want {
					t.Errorf("%d runs of the event, want %d", got, want)
				}
			})
		})
	}
}

func TestARunThatStartsAfterItsCancelAbortsAndBringsNoDroppedEventBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := atWork(t)
		inputs := s.w.GitHub.Runs()[0].Inputs
		if o := s.cancel("--drop"); o.code != ExitOK {
			t.Fatalf("exit code %d\n%s", o.code, o.told())
		}
		before := s.property("seen")
		event, err := json.Marshal(map[string]any{"inputs": inputs})
		if err != nil {
			t.Fatal(err)
		}
		s.p.write("event.json", string(event))
		s.p.env["GITHUB_EVENT_PATH"] = filepath.Join(s.p.dir, "event.json")
		s.p.env["GITHUB_RUN_ID"] = strconv.FormatInt(s.run, 10)
		o := s.p.run(t.Context(), "lock", "refresh")
		if o.code != ExitLost {
			t.Errorf("exit code %d, want %d\n%s", o.code, ExitLost, o.told())
		}
		if s.property("lock") != "" {
			t.Errorf("the lock came back: %s", s.property("lock"))
		}
		if s.journalled() != "dispatched, dropped" {
			t.Errorf("the dropped event is not dropped any more: %s, before %s", s.property("seen"), before)
		}
		time.Sleep(10 * time.Minute)
		if s.p.mustCycle(); len(s.w.GitHub.Runs()) != 1 {
			t.Errorf("%d runs, want the one", len(s.w.GitHub.Runs()))
		}
	})
}

func TestASecondCancelEndsWhatTheFirstCouldNot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := atWork(t)
		s.w.GitHub.Set(func(g *sim.GitHubSwitches) { g.CancelTakes = 3 * time.Minute })
		if o := s.cancel(); o.code != ExitFailed {
			t.Fatalf("exit code %d\n%s", o.code, o.told())
		}
		time.Sleep(3 * time.Minute)
		if o := s.cancel(); o.code != ExitOK {
			t.Fatalf("exit code %d\n%s", o.code, o.told())
		}
		s.nextCycle(1)
	})
}

func TestOfSeveralDriversTheFirstWhoseSiteKnowsTheIssueIsTaken(t *testing.T) {
	t.Parallel()
	const other = "https://other.atlassian.net"
	for _, c := range []struct {
		name string
		args []string
		code int
		// asked is how many requests the other site gets.
		asked int
	}{
		{"any", nil, ExitOK, 1},
		{"by type", []string{"--input-driver", "jira-poll"}, ExitOK, 1},
		{"by name", []string{"--input-driver", "ours"}, ExitOK, 0},
		{"by the other's name", []string{"--input-driver", "theirs"}, ExitUsage, 1},
		{"by a name that there is not", []string{"--input-driver", "nobody"}, ExitUsage, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := atWork(t)
				site := sim.NewJira(sim.JiraConfig{BaseURL: other, Now: s.w.Now, Email: simtest.JiraEmail, Token: simtest.JiraToken, Self: sim.User{AccountID: simtest.Bot}})
				s.w.Net.Handle("other.atlassian.net", site)
				driver := func(name, base string) string {
					return fmt.Sprintf("    - type: jira-poll\n      name: %s\n      connection: {base_url: %q, email: \"${JIRA_USER_EMAIL}\", token: \"${JIRA_TOKEN}\"}\n      queries: [project = PROJ]\n", name, base)
				}
				config := testConfig("m: 50, n: 5")
				from, to := strings.Index(config, "    - type"), strings.Index(config, "  output_driver")
				s.p.write("config.yaml", config[:from]+driver("theirs", other)+driver("ours", simtest.JiraURL)+config[to:])
				o := s.cancel(c.args...)
				if o.code != c.code || s.w.Net.Count("other.atlassian.net") != c.asked {
					t.Errorf("exit code %d and %d requests to the other site, want %d and %d\n%s", o.code, s.w.Net.Count("other.atlassian.net"), c.code, c.asked, o.told())
				}
				if gone := s.property("lock") == ""; gone != (c.code == ExitOK) {
					t.Errorf("the lock is gone: %t", gone)
				}
			})
		})
	}
}

func TestTheInputCancelTurnsAnyCommandIntoACancel(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"", "poll", "cancel", "doctor"} {
		t.Run("command "+command, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := atWork(t)
				summary := filepath.Join(s.p.dir, "summary")
				s.p.env["GITHUB_ACTIONS"], s.p.env["GITHUB_STEP_SUMMARY"], s.p.env["GITHUB_OUTPUT"] = "true", summary, filepath.Join(s.p.dir, "output")
				s.p.env["INPUT_COMMAND"], s.p.env["INPUT_CANCEL"] = command, " proj-1 "
				s.p.env["INPUT_CONFIG"] = filepath.Join(s.p.dir, "config.yaml")
				o := s.p.run(t.Context(), "action")
				if o.code != ExitOK || s.property("lock") != "" {
					t.Fatalf("exit code %d, lock %q\n%s", o.code, s.property("lock"), o.stdout)
				}
				o.mentions(t, "::notice::the lock of PROJ-1 is deleted")
				text := textOf(t, summary)
				for _, part := range []string{"cancel PROJ-1", fmt.Sprintf("[run %d](https://github.com/acme/platform/actions/runs/%d) is cancelled", s.run, s.run), "is deleted"} {
					if !strings.Contains(text, part) {
						t.Errorf("%q is not in the summary:\n%s", part, text)
					}
				}
			})
		})
	}
}

func TestAFailedCancelIsAnAnnotationAndInTheSummary(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := atWork(t)
		s.w.GitHub.Set(func(g *sim.GitHubSwitches) { g.DispatchForbidden = true })
		summary := filepath.Join(s.p.dir, "summary")
		s.p.env["GITHUB_ACTIONS"], s.p.env["GITHUB_STEP_SUMMARY"] = "true", summary
		o := s.cancel()
		if o.code != ExitFailed || strings.Count(o.stdout, "::error::") != 1 {
			t.Errorf("exit code %d\n%s", o.code, o.stdout)
		}
		o.mentions(t, "::error::run")
		if text := textOf(t, summary); !strings.Contains(text, "❌") || !strings.Contains(text, "the lock stays") {
			t.Errorf("the summary does not say it:\n%s", text)
		}
	})
}

func TestACancelWorksOnSignedState(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		issue := createIssues(w, 1)[0]
		time.Sleep(time.Minute)
		w.Jira.Comment(issue.Key, simtest.Alice, "/fs-triage go")
		time.Sleep(time.Minute)
		p := newPoller(t, w, testConfig("m: 50, n: 5"), 1).signs(true)
		p.mustCycle()
		time.Sleep(time.Minute)
		s := &stopped{t: t, w: w, p: p, issue: issue, key: w.GitHub.Runs()[0].Inputs["dispatch_key"]}
		lastCheck := s.property("lastCheck")
		if o := s.cancel(); o.code != ExitOK || s.property("lock") != "" || s.property("lastCheck") != lastCheck {
			t.Fatalf("exit code %d, lock %q\n%s", o.code, s.property("lock"), o.told())
		}
		s.nextCycle(1)
	})
}

func TestACancelOnDataCenterLeavesTheCheckpointByteByByte(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := atWork(t, simtest.DataCenter())
		lastCheck := s.property("lastCheck")
		if o := s.cancel(); o.code != ExitOK || s.property("lock") != "" || s.property("lastCheck") != lastCheck || lastCheck == "" {
			t.Fatalf("exit code %d, lock %q\n%s", o.code, s.property("lock"), o.told())
		}
		s.nextCycle(1)
	})
}

func TestTheProductsOwnRunsAreTheOnlyOnesACancelAsksToEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := atWork(t)
		s.w.GitHub.AddWorkflow("release.yml", "main", "name: release\non: {workflow_dispatch: }\n")
		release := s.another("release.yml")
		s.lock("release", time.Minute, release) // the forged id is part of the run's name
		s.w.Net.ResetLog()
		if o := s.cancel("--force"); o.code != ExitLost {
			t.Errorf("exit code %d\n%s", o.code, o.told())
		}
		var posted []string
		for _, e := range s.w.Net.Log() {
			if e.Method != http.MethodGet {
				posted = append(posted, e.Path)
			}
		}
		if diff := cmp.Diff([]string(nil), posted); diff != "" {
			t.Error(diff)
		}
		if runs := s.w.GitHub.Runs(); slices.ContainsFunc(runs, func(r sim.Run) bool { return r.Status == "completed" }) {
			t.Errorf("a run was ended: %v", runs)
		}
	})
}
