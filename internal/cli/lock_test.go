package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fullsend/poll-action/internal/lease"
	"github.com/fullsend/poll-action/internal/sim"
	"github.com/fullsend/poll-action/internal/sim/simtest"
)

// job is one job of a workflow run, whose steps GitHub's runner would start.
type job struct {
	t   testing.TB
	p   *poller
	run sim.Run
	// env is what the job's steps have beside the product's own variables: the
	// runner's, and what earlier steps have exported.
	env map[string]string
	// config, if set, is the configuration in the checkout.
	config string
}

// startJob is a run's first job, once the run has begun.
func startJob(tb testing.TB, p *poller, run sim.Run) *job {
	tb.Helper()
	p.w.GitHub.Start(run.ID)
	event, err := json.Marshal(map[string]any{"inputs": run.Inputs})
	if err != nil {
		tb.Fatal(err)
	}
	file := filepath.Join(tb.TempDir(), "event.json")
	if err := os.WriteFile(file, event, 0o600); err != nil {
		tb.Fatal(err)
	}
	return &job{t: tb, p: p, run: run, env: map[string]string{
		"GITHUB_ACTIONS": "true", "GITHUB_RUN_ID": strconv.FormatInt(run.ID, 10), "GITHUB_EVENT_PATH": file,
	}}
}

// step is what is left of a step.
type step struct {
	code           int
	log            string
	outputs, state map[string]string
}

// step runs one step. state is what the runner gives to a post part.
func (j *job) step(ctx context.Context, name string, state map[string]string, args ...string) step {
	j.t.Helper()
	dir := j.t.TempDir()
	env := map[string]string{}
	for _, from := range []map[string]string{j.p.env, j.env} {
		for k, v := range from {
			env[k] = v
		}
	}
	for k, v := range state {
		env["STATE_"+k] = v
	}
	files := map[string]string{}
	for _, file := range []string{"GITHUB_OUTPUT", "GITHUB_ENV", "GITHUB_STATE", "GITHUB_STEP_SUMMARY"} {
		env[file] = filepath.Join(dir, file)
	}
	if j.config != "" {
		args = append([]string{"--config", j.config}, args...)
	}
	transport := j.p.transport
	if transport == nil {
		transport = j.p.w.Net
	}
	var stdout, stderr bytes.Buffer
	code := Run(ctx, Process{
		Name: name, Args: args, Getenv: func(k string) string { return env[k] }, Stdout: &stdout, Stderr: &stderr,
		Transport: transport, Now: time.Now, Rand: j.p.rand,
	})
	for _, file := range []string{"GITHUB_OUTPUT", "GITHUB_ENV", "GITHUB_STATE"} {
		raw, err := os.ReadFile(env[file])
		if err != nil && !os.IsNotExist(err) {
			j.t.Fatal(err)
		}
		files[file] = string(raw)
	}
	for k, v := range protocol(files["GITHUB_ENV"]) {
		j.env[k] = v
	}
	return step{code: code, log: stdout.String() + stderr.String(), outputs: protocol(files["GITHUB_OUTPUT"]), state: protocol(files["GITHUB_STATE"])}
}

// do runs a step that has to end with the given exit code.
func (j *job) do(code int, args ...string) step {
	j.t.Helper()
	s := j.step(j.t.Context(), "/fullsend-poll", nil, args...)
	if s.code != code {
		j.t.Fatalf("%q ended with %d, want %d\n%s", args, s.code, code, s.log)
	}
	return s
}

// post runs the post part of a step, as runs.args and post-entrypoint make it.
func (j *job) post(of step) step {
	j.t.Helper()
	s := j.step(j.t.Context(), "/fullsend-poll-post", of.state, "action")
	if s.code != ExitOK {
		j.t.Errorf("the post part ended with %d\n%s", s.code, s.log)
	}
	return s
}

// background runs a step beside others; end sends it a signal and returns what is
// left of it.
func (j *job) background(args ...string) (end func() step) {
	ctx, cancel := context.WithCancelCause(j.t.Context())
	done := make(chan step, 1)
	go func() { done <- j.step(ctx, "/fullsend-poll", nil, args...) }()
	return func() step {
		cancel(signalError{os.Interrupt})
		return <-done
	}
}

// protocol reads a file of the runner's: NAME<<DELIMITER, lines, DELIMITER.
func protocol(text string) map[string]string {
	values := map[string]string{}
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		name, delimiter, ok := strings.Cut(lines[i], "<<")
		if !ok {
			continue
		}
		start := i + 1
		for i++; i < len(lines) && lines[i] != delimiter; i++ {
		}
		values[name] = strings.Join(lines[start:i], "\n")
	}
	return values
}

// handedOver is an issue with a command whose run was started just now.
func handedOver(tb testing.TB, config string) (*simtest.World, sim.Issue, *poller, sim.Run) {
	tb.Helper()
	w := simtest.New(tb)
	issue := createIssues(w, 1)[0]
	p := newPoller(tb, w, config, 1)
	time.Sleep(time.Minute)
	w.Jira.Comment(issue.Key, simtest.Alice, "/fs-triage go")
	time.Sleep(time.Minute)
	p.mustCycle()
	return w, issue, p, w.GitHub.Runs()[0]
}

func storedLock(tb testing.TB, w *simtest.World, key string) lease.Lock {
	tb.Helper()
	raw, ok := w.Jira.Property(key, lockProp)
	if !ok {
		tb.Fatalf("%s has no lock", key)
	}
	l, err := lease.Decode(raw)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

func wantNoLock(tb testing.TB, w *simtest.World, key string) {
	tb.Helper()
	if raw, ok := w.Jira.Property(key, lockProp); ok {
		tb.Errorf("%s is locked: %s", key, raw)
	}
}

// retries returns the keys that are to be dispatched again.
func retries(tb testing.TB, w *simtest.World, key string) []string {
	tb.Helper()
	raw, _ := w.Jira.Property(key, propertyName("seen"))
	var doc struct {
		Retry map[string]int64 `json:"retry"`
	}
	if len(raw) > 0 && json.Unmarshal(raw, &doc) != nil {
		tb.Fatalf("the journal of %s is %s", key, raw)
	}
	keys := []string{}
	for k := range doc.Retry {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func mentions(tb testing.TB, text string, parts ...string) {
	tb.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			tb.Errorf("nothing about %q in\n%s", part, text)
		}
	}
}

// jobsLooks are the times at which the jobs of runs were listed.
func jobsLooks(w *simtest.World) []time.Time {
	var at []time.Time
	for _, e := range w.Net.Log() {
		if strings.HasSuffix(e.Path, "/jobs") {
			at = append(at, e.At)
		}
	}
	return at
}

func TestARunThatWorksLongerThanTheThresholdKeepsItsItemToItselfAndGivesItFree(t *testing.T) {
	t.Parallel()
	const hour = 65 * time.Minute
	for name, work := range map[string]func(t *testing.T, w *simtest.World, p *poller, run sim.Run, others func()){
		"keepalive as a background step": func(t *testing.T, _ *simtest.World, p *poller, run sim.Run, others func()) {
			t.Helper()
			j := startJob(t, p, run)
			lock := j.do(ExitOK, "lock", "refresh")
			end := j.background("lock", "keepalive")
			others()
			if s := end(); s.code != ExitInterrupted {
				t.Errorf("the keepalive ended with %d\n%s", s.code, s.log)
			}
			j.post(lock)
		},
		"keepalive as a job of its own": func(t *testing.T, w *simtest.World, p *poller, run sim.Run, others func()) {
			t.Helper()
			jobs := func(agent string) {
				conclusion := ""
				if agent == "completed" {
					conclusion = "success"
				}
				w.GitHub.SetJobs(run.ID, sim.Job{Name: "agent", Status: agent, Conclusion: conclusion, Runner: "runner-1"}, sim.Job{Name: "Keep the lock", Status: "in_progress", Runner: "runner-2"})
			}
			jobs("in_progress")
			startJob(t, p, run).do(ExitOK, "lock", "verify")
			beside := startJob(t, p, run)
			beside.env["RUNNER_NAME"], beside.env["GITHUB_JOB"] = "runner-2", "keepalive"
			done := make(chan step, 1)
			go func() { done <- beside.step(t.Context(), "/fullsend-poll", nil, "lock", "keepalive") }()
			others()
			jobs("completed")
			ended := time.Now()
			if s := <-done; s.code != ExitOK {
				t.Errorf("the keepalive ended with %d\n%s", s.code, s.log)
			}
			if took := time.Since(ended); took > 2*time.Minute+time.Second {
				t.Errorf("the keepalive ended %s after the last job", took)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, issue, p, run := handedOver(t, testConfig("m: 50, n: 5"))
				second := newPoller(t, w, testConfig("m: 50, n: 5"), 2)
				work(t, w, p, run, func() {
					began := time.Now()
					w.Jira.Comment(issue.Key, simtest.Alice, "/fs-triage and this, please")
					for time.Since(began) < hour {
						time.Sleep(4 * time.Minute)
						if o := second.mustCycle(); o.result.Dispatched != 0 {
							t.Fatalf("%s into the run a second poller starts another", time.Since(began))
						}
						if l := storedLock(t, w, issue.Key); l.Phase != lease.Running || w.Now().Sub(l.TS) > 5*time.Minute+time.Second || !l.Names(run.ID) {
							t.Fatalf("%s into the run its lock is %+v", time.Since(began), l)
						}
					}
				})
				wantNoLock(t, w, issue.Key)
				w.GitHub.Complete(run.ID, "success")
				time.Sleep(time.Minute)
				if o := second.mustCycle(); o.result.Dispatched != 1 {
					t.Errorf("the next cycle dispatched %d, want the command that had to wait", o.result.Dispatched)
				}
				for key, n := range runsPerKey(w) {
					if n != 1 {
						t.Errorf("%s was dispatched %d times", key, n)
					}
				}
			})
		})
	}
}

func TestASiblingJobAsksGitHubOnceAMinuteAndNotBeforeTheLockIsRefreshed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, issue, p, run := handedOver(t, testConfig("m: 50, n: 5"))
		w.Net.Check = nil            // long lists, the same over and over
		list := make([]sim.Job, 230) // three pages
		for i := range list {
			list[i] = sim.Job{Name: fmt.Sprintf("agent (%d)", i), Status: "in_progress", Runner: fmt.Sprintf("runner-%d", i)}
		}
		w.GitHub.SetJobs(run.ID, list...)
		w.Net.ResetLog()
		down := 0
		w.Net.Fault = func(r *http.Request) sim.Fault { // one page fails, and its retries
			if strings.HasSuffix(r.URL.Path, "/jobs") {
				if down++; down > 4 && down < 9 {
					return sim.Fault{Status: http.StatusBadGateway}
				}
			}
			return sim.Fault{}
		}
		j := startJob(t, p, run)
		j.env["RUNNER_NAME"] = "runner-0"
		done := make(chan step, 1)
		go func() { done <- j.step(t.Context(), "/fullsend-poll", nil, "lock", "keepalive") }()
		time.Sleep(30 * time.Minute)
		looks := jobsLooks(w)
		if n := len(looks); n < 28 || n > 31 {
			t.Errorf("%d requests for jobs in 30 minutes", n)
		}
		refreshed := storedLock(t, w, issue.Key).TS
		for i := 1; i < len(looks); i++ {
			if d := looks[i].Sub(looks[i-1]); d < time.Minute {
				t.Errorf("only %s between two looks", d)
			}
		}
		if w.Now().Sub(refreshed) > 5*time.Minute {
			t.Errorf("the lock was last refreshed at %s", refreshed)
		}
		first := ""
		for _, e := range w.Net.Log() {
			if first == "" && (e.Method == http.MethodPut || strings.HasSuffix(e.Path, "/jobs")) {
				first = e.Method
			}
		}
		if first != http.MethodPut {
			t.Error("the jobs were looked at before the lock was refreshed")
		}
		for i := 1; i < len(list); i++ {
			list[i].Status, list[i].Conclusion = "completed", "success"
		}
		w.GitHub.SetJobs(run.ID, list...)
		if s := <-done; s.code != ExitOK {
			t.Errorf("exit code %d\n%s", s.code, s.log)
		}
		wantNoLock(t, w, issue.Key)
	})
}

func TestASiblingJobThatFindsNoLockAsksWhetherTheRunIsOver(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		agent string
		other bool // somebody else has locked the item meanwhile
		code  int
		says  string
	}{
		"the agent's job has released and ended":        {"completed", false, ExitOK, "nothing is released"},
		"and another poller was quick":                  {"completed", true, ExitOK, "nothing is released"},
		"an operator cancelled, the agent still works":  {"in_progress", false, ExitLost, "is gone"},
		"somebody else holds it, the agent still works": {"in_progress", true, ExitLost, "not this run's"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, issue, p, run := handedOver(t, testConfig("m: 50, n: 5"))
				keep := sim.Job{Name: "keepalive", Status: "in_progress", Runner: "runner-2"}
				agent := sim.Job{Name: "agent", Status: "in_progress", Runner: "runner-1"}
				w.GitHub.SetJobs(run.ID, agent, keep)
				j := startJob(t, p, run)
				j.env["RUNNER_NAME"] = "runner-2"
				done := make(chan step, 1)
				go func() { done <- j.step(t.Context(), "/fullsend-poll", nil, "lock", "keepalive") }()
				time.Sleep(4*time.Minute + 50*time.Second) // a look was just had, a refresh is near
				agent.Status = c.agent
				w.GitHub.SetJobs(run.ID, agent, keep)
				w.Jira.DeleteProperty(issue.Key, lockProp)
				if c.other {
					w.Jira.SetProperty(issue.Key, lockProp, fmt.Appendf(nil, `{"id":"other","ts":%q,"phase":"pending"}`, w.Now().UTC().Format(time.RFC3339)))
				}
				s := <-done
				if s.code != c.code {
					t.Errorf("exit code %d, want %d\n%s", s.code, c.code, s.log)
				}
				mentions(t, s.log, c.says)
				if c.other && lockID(w, issue.Key) != "other" {
					t.Error("the other one's lock was touched")
				}
				looks := jobsLooks(w)
				for i := 1; i < len(looks); i++ {
					if d := looks[i].Sub(looks[i-1]); d < time.Minute {
						t.Errorf("only %s between two looks", d)
					}
				}
				if keys := retries(t, w, issue.Key); len(keys) > 0 {
					t.Errorf("%v was given back while the agent may be at work", keys)
				}
			})
		})
	}
}

func TestAJobThatNeedsAnotherKeepsTheSiblingGoing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, issue, p, run := handedOver(t, testConfig("m: 50, n: 5"))
		keep := sim.Job{Name: "keepalive", Status: "in_progress"}
		w.GitHub.SetJobs(run.ID, keep, sim.Job{Name: "build", Status: "completed", Conclusion: "success"})
		j := startJob(t, p, run)
		done := make(chan step, 1)
		go func() { done <- j.step(t.Context(), "/fullsend-poll", nil, "lock", "keepalive") }()
		time.Sleep(30 * time.Second) // GitHub lists it only now
		w.GitHub.SetJobs(run.ID, keep, sim.Job{Name: "build", Status: "completed", Conclusion: "success"}, sim.Job{Name: "agent", Status: "queued"})
		time.Sleep(20 * time.Minute)
		if l := storedLock(t, w, issue.Key); l.Phase != lease.Running {
			t.Errorf("the lock is %+v", l)
		}
		w.GitHub.SetJobs(run.ID, keep, sim.Job{Name: "build", Status: "completed", Conclusion: "success"}, sim.Job{Name: "agent", Status: "completed", Conclusion: "failure"})
		if s := <-done; s.code != ExitOK {
			t.Errorf("exit code %d\n%s", s.code, s.log)
		}
		wantNoLock(t, w, issue.Key)
	})
}

func TestAJobOnAnotherMachineIsNotThisOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, issue, p, run := handedOver(t, testConfig("m: 50, n: 5"))
		w.GitHub.SetJobs(run.ID, sim.Job{Name: "keepalive", Status: "in_progress", Runner: "runner-1"}) // this one is not listed yet
		j := startJob(t, p, run)
		j.env["RUNNER_NAME"] = "runner-2"
		done := make(chan step, 1)
		go func() { done <- j.step(t.Context(), "/fullsend-poll", nil, "lock", "keepalive") }()
		time.Sleep(10 * time.Minute)
		if l := storedLock(t, w, issue.Key); l.Phase != lease.Running {
			t.Errorf("the lock is %+v", l)
		}
		w.GitHub.SetJobs(run.ID, sim.Job{Name: "keepalive", Status: "in_progress", Runner: "runner-2"}, sim.Job{Name: "agent", Status: "completed", Conclusion: "success", Runner: "runner-1"})
		if s := <-done; s.code != ExitOK {
			t.Errorf("exit code %d\n%s", s.code, s.log)
		}
	})
}

func TestASiblingJobThatMayNotWatchSaysWhatItLacks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, _, p, run := handedOver(t, testConfig("m: 50, n: 5"))
		w.GitHub.Set(func(s *sim.GitHubSwitches) { s.RunsForbidden = true })
		s := startJob(t, p, run).do(ExitFailed, "lock", "keepalive")
		mentions(t, s.log, "actions: read", "cannot be watched")
		without := *p
		without.env = map[string]string{"GITHUB_REPOSITORY": simtest.Repo}
		for k, v := range p.env {
			if k != "GITHUB_TOKEN" {
				without.env[k] = v
			}
		}
		w.Net.ResetLog()
		s = startJob(t, &without, run).do(ExitUsage, "lock", "keepalive")
		mentions(t, s.log, "actions: read", "--until signal")
		if n := len(w.Net.Log()); n > 0 {
			t.Errorf("%d requests", n)
		}
	})
}

func TestAnAbortedRunGivesItsEventBackAndTheNextCycleStartsItAgainThreeTimesAtMost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, issue, p, _ := handedOver(t, testConfig("m: 50, n: 5"))
		w.GitHub.OnDispatch(func(r sim.Run) {})
		for n := 1; ; n++ {
			runs := w.GitHub.Runs()
			if len(runs) != n {
				t.Fatalf("%d runs after %d aborts", len(runs), n-1)
			}
			run := runs[n-1]
			w.Jira.DeleteProperty(issue.Key, lockProp)
			j := startJob(t, p, run)
			s := j.do(ExitLost, "lock", "refresh")
			if diff := cmp.Diff(map[string]string{"lock-status": "missing", "lock-id": run.Inputs["poll_lock_id"]}, s.outputs); diff != "" {
				t.Error(diff)
			}
			if len(s.state) > 0 || j.env["FULLSEND_POLL_LOCK_ID"] != "" {
				t.Errorf("a run without its lock saved %v and exported %v", s.state, j.env)
			}
			wantNoLock(t, w, issue.Key)
			w.GitHub.Complete(run.ID, "failure")
			time.Sleep(time.Minute)
			o := p.mustCycle()
			if n == 4 {
				mentions(t, s.log, issue.Key, "is gone", "was given back 3 times already", "must not work")
				if o.result.Dispatched != 0 || len(retries(t, w, issue.Key)) != 0 {
					t.Errorf("after the fourth abort: %d dispatched, to be repeated: %v", o.result.Dispatched, retries(t, w, issue.Key))
				}
				break
			}
			mentions(t, s.log, issue.Key, "is gone", "given back: the next poll cycle starts another run", "must not work")
			if o.result.Dispatched != 1 || w.GitHub.Runs()[n].Inputs["dispatch_key"] != run.Inputs["dispatch_key"] {
				t.Fatalf("abort %d: %d dispatched\n%s", n, o.result.Dispatched, o.stderr)
			}
		}
	})
}

func TestAnAbortedRunSaysWhoHasItsItemAndWhatBecameOfItsEvent(t *testing.T) {
	t.Parallel()
	lock := func(w *simtest.World, phase string, run int64) []byte {
		return fmt.Appendf(nil, `{"id":"other","ts":%q,"phase":%q,"run_id":%d}`, w.Now().UTC().Format(time.RFC3339), phase, run)
	}
	for name, c := range map[string]struct {
		stands func(w *simtest.World, run int64) (lock, seen []byte)
		says   []string
		again  bool
		within time.Duration
	}{
		"another run works": {
			stands: func(w *simtest.World, _ int64) ([]byte, []byte) { return lock(w, "running", 77), nil },
			says:   []string{`"other" (running, run 77)`, "given back"}, again: true, within: time.Second,
		},
		"a poller is at the item for too long": {
			stands: func(w *simtest.World, _ int64) ([]byte, []byte) { return lock(w, "pending", 0), nil },
			says:   []string{`"other" (pending)`, "given back"}, again: true, within: 2*time.Minute + 10*time.Second,
		},
		"what stands there is no lock": {
			stands: func(*simtest.World, int64) ([]byte, []byte) { return []byte(`"x"`), nil },
			says:   []string{"malformed lock", "given back"}, again: true, within: 4 * time.Second,
		},
		"another run has the event": {
			stands: func(w *simtest.World, _ int64) ([]byte, []byte) {
				return lock(w, "running", 77), []byte(`{"v":1,"keys":{"KEY":{"t":1,"run":77}}}`)
			},
			says: []string{"another run's"}, within: time.Second,
		},
		"the event waits already": {
			stands: func(w *simtest.World, run int64) ([]byte, []byte) {
				return lock(w, "running", 77), fmt.Appendf(nil, `{"v":1,"keys":{"KEY":{"t":1,"run":%d}},"retry":{"KEY":1700000000000}}`, run)
			},
			says: []string{"dispatched again already"}, again: true, within: time.Second,
		},
		"an operator dropped it": {
			stands: func(w *simtest.World, run int64) ([]byte, []byte) {
				return nil, fmt.Appendf(nil, `{"v":1,"keys":{"KEY":{"t":1,"run":%d,"d":true}}}`, run)
			},
			says: []string{"dropped by an operator"}, within: 4 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, issue, p, run := handedOver(t, testConfig("m: 50, n: 5"))
				key := run.Inputs["dispatch_key"]
				w.Jira.DeleteProperty(issue.Key, lockProp)
				held, seen := c.stands(w, run.ID)
				if held != nil {
					w.Jira.SetProperty(issue.Key, lockProp, held)
				}
				if seen != nil {
					w.Jira.SetProperty(issue.Key, propertyName("seen"), bytes.ReplaceAll(seen, []byte("KEY"), []byte(key)))
				}
				began := time.Now()
				s := startJob(t, p, run).do(ExitLost, "lock", "refresh")
				if took := time.Since(began); took > c.within {
					t.Errorf("it took %s", took)
				}
				mentions(t, s.log, append(c.says, issue.Key, "must not work")...)
				if again := slices.Contains(retries(t, w, issue.Key), key); again != c.again {
					t.Errorf("to be dispatched again: %t, want %t", again, c.again)
				}
				if lines := strings.Count(s.log, "::error::"); lines != 1 {
					t.Errorf("%d errors, want one sentence:\n%s", lines, s.log)
				}
				if raw, _ := w.Jira.Property(issue.Key, lockProp); json.Valid(held) && bytes.Contains(held, []byte("other")) && !bytes.Equal(raw, held) {
					t.Errorf("the lock is %s, was %s", raw, held)
				}
			})
		})
	}
}

func TestAnEventIsGivenBackAsSoonAsThePollerAtTheItemHasLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, issue, p, run := handedOver(t, testConfig("m: 50, n: 5"))
		w.Jira.SetProperty(issue.Key, lockProp, fmt.Appendf(nil, `{"id":"poller","ts":%q,"phase":"pending"}`, w.Now().UTC().Format(time.RFC3339)))
		done := make(chan step, 1)
		go func() { done <- startJob(t, p, run).do(ExitLost, "lock", "refresh") }()
		time.Sleep(40 * time.Second)
		if keys := retries(t, w, issue.Key); len(keys) > 0 {
			t.Fatal("the journal was written beside a poller")
		}
		w.Jira.DeleteProperty(issue.Key, lockProp)
		time.Sleep(20 * time.Second)
		if keys := retries(t, w, issue.Key); len(keys) != 1 {
			t.Error("the journal was not written after the poller had left")
		}
		<-done
		wantNoLock(t, w, issue.Key)
	})
}

func TestALockIsVerifiedWithoutWritingAnything(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, issue, p, run := handedOver(t, testConfig("m: 50, n: 5"))
		writes := w.Jira.PropertyWrites()
		if s := startJob(t, p, run).do(ExitOK, "lock", "verify"); s.outputs["lock-status"] != "held" {
			t.Errorf("outputs %v", s.outputs)
		}
		w.Jira.DeleteProperty(issue.Key, lockProp)
		if s := startJob(t, p, run).do(ExitLost, "lock", "verify"); s.outputs["lock-status"] != "missing" {
			t.Errorf("outputs %v", s.outputs)
		}
		if n := w.Jira.PropertyWrites(); n != writes {
			t.Errorf("%d writes", n-writes)
		}
	})
}

func TestTwoHarnessesShareALockUntilTheLastOneReleases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		issue := createIssues(w, 1)[0]
		p := newPoller(t, w, strings.Replace(testConfig("m: 50, n: 5"), "agents: [harness/triage.yaml]", "agents: [harness/triage.yaml, harness/review.yaml]", 1), 1)
		p.write("harness/review.yaml", strings.Replace(testHarness, "role: triage", "role: review", 1))
		time.Sleep(time.Minute)
		w.Jira.Comment(issue.Key, simtest.Alice, "/fs-triage go")
		time.Sleep(time.Minute)
		p.mustCycle()
		runs := w.GitHub.Runs()
		if len(runs) != 2 || runs[0].Inputs["poll_lock_id"] != runs[1].Inputs["poll_lock_id"] {
			t.Fatalf("%d runs, want two under one lock", len(runs))
		}
		w.Jira.Comment(issue.Key, simtest.Alice, "/fs-triage later")
		jobs := []*job{startJob(t, p, runs[0]), startJob(t, p, runs[1])}
		locks := []step{jobs[0].do(ExitOK, "lock", "refresh"), jobs[1].do(ExitOK, "lock", "refresh")}
		jobs[0].post(locks[0])
		w.GitHub.Complete(runs[0].ID, "success")
		if l := storedLock(t, w, issue.Key); len(l.Runs) != 1 || l.Runs[0].ID != runs[1].ID {
			t.Fatalf("after the first release the lock is %+v", l)
		}
		time.Sleep(2 * time.Minute)
		if o := p.mustCycle(); o.result.Dispatched != 0 {
			t.Errorf("%d dispatched while the second run works", o.result.Dispatched)
		}
		jobs[1].do(ExitOK, "lock", "release")
		w.GitHub.Complete(runs[1].ID, "success")
		wantNoLock(t, w, issue.Key)
		jobs[1].post(locks[1]) // there is nothing left to do
		time.Sleep(time.Minute)
		if o := p.mustCycle(); o.result.Dispatched != 2 {
			t.Errorf("%d dispatched afterwards, want 2", o.result.Dispatched)
		}
	})
}

func TestThePostPartReleasesOnlyWhatItsOwnStepHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, issue, p, run := handedOver(t, testConfig("m: 50, n: 5"))
		j := startJob(t, p, run)
		verified := j.do(ExitOK, "lock", "verify")
		held := j.do(ExitOK, "lock", "refresh")
		w.Net.ResetLog()
		for name, of := range map[string]step{"of a lock-verify": verified, "of a step that never ran": {}} {
			if s := j.post(of); len(w.Net.Log()) != 0 || s.log != "" {
				t.Errorf("the post part %s made %d requests and said %q", name, len(w.Net.Log()), s.log)
			}
		}
		// The item is somebody else's by now.
		mine, _ := w.Jira.Property(issue.Key, lockProp)
		other := fmt.Appendf(nil, `{"id":"other","ts":%q,"phase":"running","run_id":5}`, w.Now().UTC().Format(time.RFC3339))
		w.Jira.SetProperty(issue.Key, lockProp, other)
		j.post(held)
		if raw, _ := w.Jira.Property(issue.Key, lockProp); !bytes.Equal(raw, other) {
			t.Errorf("somebody else's lock is now %s", raw)
		}
		w.Jira.SetProperty(issue.Key, lockProp, mine)
		w.Net.Fault = func(*http.Request) sim.Fault { return sim.Fault{Status: http.StatusBadGateway} }
		if s := j.post(held); !strings.Contains(s.log, "::warning::") || !strings.Contains(s.log, "the next poll cycle frees it") {
			t.Errorf("a release that fails says\n%s", s.log)
		}
		w.Net.Fault = nil
		j.post(held)
		wantNoLock(t, w, issue.Key)
	})
}

func TestAReleaseWritesDownWhatAPollerThatDiedHadDispatched(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, issue, p, run := handedOver(t, testConfig("m: 50, n: 5"))
		w.Jira.DeleteProperty(issue.Key, propertyName("seen"))
		w.Jira.DeleteProperty(issue.Key, propertyName("lastCheck"))
		j := startJob(t, p, run)
		j.do(ExitOK, "lock", "refresh")
		time.Sleep(time.Minute)
		j.do(ExitOK, "lock", "release")
		w.GitHub.Complete(run.ID, "success")
		wantNoLock(t, w, issue.Key)
		for range 3 {
			time.Sleep(time.Minute)
			p.mustCycle()
		}
		if n := len(w.GitHub.Runs()); n != 1 {
			t.Errorf("%d runs, want 1", n)
		}
		j.do(ExitOK, "lock", "release")
		j.env["GITHUB_EVENT_PATH"], j.env["FULLSEND_POLL_LOCK_ID"] = "", ""
		j.do(ExitOK, "lock", "release")
	})
}

func TestAReleaseOutsideARunSaysThatItCannotTellWhoseTheLockIs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, issue, p, run := handedOver(t, testConfig("m: 50, n: 5"))
		j := startJob(t, p, run)
		j.env["GITHUB_RUN_ID"] = ""
		mentions(t, j.do(ExitFailed, "lock", "release").log, "GITHUB_RUN_ID")
		if !storedLock(t, w, issue.Key).Names(run.ID) {
			t.Error("the run is out of the lock")
		}
	})
}

func TestAKeepaliveThatLosesItsLockOrItsSiteEndsWithThree(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		happens func(w *simtest.World, key string)
		within  time.Duration
		says    string
	}{
		"cancelled": {func(w *simtest.World, key string) { w.Jira.DeleteProperty(key, lockProp) }, 5 * time.Minute, "is gone"},
		"taken over": {func(w *simtest.World, key string) {
			w.Jira.SetProperty(key, lockProp, fmt.Appendf(nil, `{"id":"other","ts":%q,"phase":"pending"}`, w.Now().UTC().Format(time.RFC3339)))
		}, 5 * time.Minute, "other"},
		"Jira is gone": {nil, 15 * time.Minute, "before others take it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, issue, p, run := handedOver(t, testConfig("m: 50, n: 5"))
				j := startJob(t, p, run)
				j.do(ExitOK, "lock", "refresh")
				var gone atomic.Bool
				w.Net.Fault = func(*http.Request) sim.Fault { return sim.Fault{DropBefore: gone.Load()} }
				done := make(chan step, 1)
				go func() { done <- j.step(t.Context(), "/fullsend-poll", nil, "lock", "keepalive") }()
				time.Sleep(time.Second)
				if c.happens == nil {
					gone.Store(true)
				} else {
					c.happens(w, issue.Key)
				}
				began := time.Now()
				s := <-done
				if s.code != ExitLost || time.Since(began) > c.within {
					t.Errorf("it ended with %d after %s\n%s", s.code, time.Since(began), s.log)
				}
				mentions(t, s.log, c.says, "must not work on")
			})
		})
	}
}

func TestTheConfigurationOfTheCheckoutSetsTheBeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, issue, p, run := handedOver(t, testConfig("m: 50, n: 5, stale_threshold: 60s, refresh_interval: 20s"))
		j := startJob(t, p, run)
		j.config = filepath.Join(p.dir, "config.yaml")
		j.do(ExitOK, "lock", "refresh")
		end := j.background("lock", "keepalive")
		for range 30 {
			time.Sleep(10 * time.Second)
			if age := w.Now().Sub(storedLock(t, w, issue.Key).TS); age > 21*time.Second {
				t.Errorf("the lock is %s old", age)
			}
		}
		end()
		mentions(t, j.do(ExitUsage, "lock", "keepalive", "--refresh-interval", "40s").log, "more than half of the stale threshold 1m0s")
		mentions(t, j.do(ExitUsage, "lock", "keepalive", "--until", "noon").log, "noon")
		p.write("config.yaml", "poll: [")
		end = j.background("lock", "keepalive")
		time.Sleep(time.Second)
		mentions(t, end().log, "the defaults")
	})
}

func TestARunWhoseRunnerWasKilledFreesItsItem(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		completed        bool
		earliest, latest time.Duration
	}{
		"in the next cycle that sees the run completed":     {true, 0, 3 * time.Minute},
		"where GitHub does not answer, after the threshold": {false, 10 * time.Minute, 18 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, issue, p, run := handedOver(t, testConfig("m: 50, n: 5"))
				j := startJob(t, p, run)
				j.do(ExitOK, "lock", "refresh")
				end := j.background("lock", "keepalive")
				time.Sleep(12 * time.Minute)
				end() // as kill -9 would: it writes nothing more
				w.Jira.Comment(issue.Key, simtest.Alice, "/fs-triage again")
				if c.completed {
					w.GitHub.Complete(run.ID, "failure")
				} else {
					w.GitHub.Set(func(s *sim.GitHubSwitches) { s.RunsForbidden = true })
				}
				killed := time.Now()
				for len(w.GitHub.Runs()) == 1 && time.Since(killed) < 2*time.Hour {
					time.Sleep(2 * time.Minute)
					p.cycle()
				}
				if took := time.Since(killed); took < c.earliest || took > c.latest {
					t.Errorf("the item was free after %s, want %s to %s", took, c.earliest, c.latest)
				}
			})
		})
	}
}

func TestTheLockCommandsAreActionInputs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, issue, p, run := handedOver(t, testConfig("m: 50, n: 5"))
		j := startJob(t, p, run)
		action := func(command string) {
			j.env["INPUT_COMMAND"] = command
			j.do(ExitOK, "action")
		}
		action("lock-refresh")
		action("lock-verify")
		j.env["INPUT_COMMAND"] = "lock-keepalive"
		end := j.background("action")
		time.Sleep(20 * time.Minute)
		if s := end(); s.code != ExitInterrupted {
			t.Errorf("the keepalive ended with %d\n%s", s.code, s.log)
		}
		if age := w.Now().Sub(storedLock(t, w, issue.Key).TS); age > 5*time.Minute {
			t.Errorf("the lock is %s old", age)
		}
		action("lock-release")
		wantNoLock(t, w, issue.Key)
	})
}

func TestARefreshThatGetsNoAnswerFailsWithOneAndGivesNothingBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, issue, p, run := handedOver(t, testConfig("m: 50, n: 5"))
		before, _ := w.Jira.Property(issue.Key, lockProp)
		w.Net.Fault = func(r *http.Request) sim.Fault { return sim.Fault{DropBefore: strings.Contains(r.URL.Path, "/issue/")} }
		began := time.Now()
		s := startJob(t, p, run).do(ExitFailed, "lock", "refresh")
		mentions(t, s.log, issue.Key, "cannot be confirmed")
		if took := time.Since(began); took > lockTimeout+time.Second {
			t.Errorf("it took %s", took)
		}
		if raw, _ := w.Jira.Property(issue.Key, lockProp); !bytes.Equal(raw, before) || len(s.state) > 0 {
			t.Errorf("the lock is %s, saved was %v", raw, s.state)
		}
	})
}

func TestAnEventThatBelongsToAnotherLockIsNotGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, issue, p, run := handedOver(t, testConfig("m: 50, n: 5"))
		j := startJob(t, p, run)
		j.env["FULLSEND_POLL_LOCK_ID"] = "one that an operator has given"
		mentions(t, j.do(ExitLost, "lock", "refresh").log, "its event is not known here")
		if keys := retries(t, w, issue.Key); len(keys) > 0 {
			t.Errorf("given back: %v", keys)
		}
	})
}
