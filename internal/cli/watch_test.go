package cli

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fullsend/poll-action/internal/sim"
	"github.com/fullsend/poll-action/internal/sim/simtest"
)

func TestWatchCyclesUntilASignalAndEndsWithItsCode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		issues := createIssues(w, 2)
		time.Sleep(time.Minute)
		p := newPoller(t, w, testConfig("m: 50, n: 5"), 1)
		ctx, cancel := context.WithCancelCause(t.Context())
		var o outcome
		done := make(chan struct{})
		go func() { defer close(done); o = p.run(ctx, "poll", "--watch", "--interval", "60s") }()
		time.Sleep(5 * time.Minute)
		w.Jira.Comment(issues[0].Key, simtest.Alice, "/fs-triage go")
		time.Sleep(2 * time.Minute)
		if n := len(w.GitHub.Runs()); n != 1 {
			t.Errorf("%d runs two minutes after the command, want 1", n)
		}
		time.Sleep(30 * time.Second)
		cancel(signalError{syscall.SIGTERM})
		<-done
		if o.code != ExitTerminated {
			t.Errorf("exit code %d, want %d", o.code, ExitTerminated)
		}
		if n := strings.Count(o.stderr, "msg=cycle "); n < 7 || n > 9 {
			t.Errorf("%d cycles in seven and a half minutes, want one a minute\n%s", n, o.stderr)
		}
	})
}

func TestWatchSlowsDownWhileCyclesFailAndRecovers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t, simtest.Unchecked())
		createIssues(w, 1)
		p := newPoller(t, w, testConfig("m: 50, n: 5"), 1)
		var down bool
		var mu sync.Mutex
		set := func(v bool) { mu.Lock(); down = v; mu.Unlock() }
		w.Net.Fault = func(*http.Request) sim.Fault {
			mu.Lock()
			defer mu.Unlock()
			if down {
				return sim.Fault{Status: http.StatusForbidden}
			}
			return sim.Fault{}
		}
		ctx, cancel := context.WithCancel(t.Context())
		var o outcome
		done := make(chan struct{})
		go func() { defer close(done); o = p.run(ctx, "poll", "--watch", "--interval", "60s") }()
		set(true)
		time.Sleep(2 * time.Hour)
		failing := w.Net.Count(simtest.JiraHost)
		set(false)
		time.Sleep(20 * time.Minute)
		w.Net.ResetLog()
		time.Sleep(time.Hour)
		healthy := w.Net.Count(simtest.JiraHost)
		cancel()
		<-done
		if failing > 14 {
			t.Errorf("%d requests in two hours of failure, want a growing pause", failing)
		}
		if healthy < 59 || healthy > 61 {
			t.Errorf("%d requests in a healthy idle hour, want one a minute", healthy)
		}
		if o.code != ExitOK {
			t.Errorf("exit code %d after a plain end of the context, want 0", o.code)
		}
	})
}

// TestQuietIssuesAreNotWrittenForEver: should a property write move an issue's
// updated after all, nothing is locked, written or dispatched for ever.
func TestQuietIssuesAreNotWrittenForEverWhenPropertyWritesMoveUpdated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		w.Jira.Set(func(j *sim.JiraSwitches) { j.BumpUpdatedOnPropertyWrite = true })
		issues := createIssues(w, 5)
		time.Sleep(time.Minute)
		w.Jira.Comment(issues[0].Key, simtest.Alice, "/fs-triage go")
		w.Jira.Comment(issues[1].Key, simtest.Alice, "hello")
		w.Jira.Touch(issues[2].Key)
		time.Sleep(time.Minute)
		p := newPoller(t, w, testConfig("m: 50, n: 5"), 1)
		for range 10 {
			p.mustCycle()
			endRuns(w, issues)
			time.Sleep(5 * time.Minute)
		}
		writes := w.Jira.PropertyWrites()
		t.Logf("%d property writes until quiet", writes)
		for range 20 {
			p.mustCycle()
			time.Sleep(5 * time.Minute)
		}
		if n := w.Jira.PropertyWrites() - writes; n != 0 {
			t.Errorf("%d property writes in 20 quiet cycles, want none", n)
		}
		if n := len(w.GitHub.Runs()); n != 1 {
			t.Errorf("%d runs, want 1", n)
		}
		w.Jira.Comment(issues[3].Key, simtest.Alice, "/fs-triage go")
		p.mustCycle()
		if n := len(w.GitHub.Runs()); n != 2 {
			t.Errorf("%d runs after another command, want 2", n)
		}
	})
}

// TestARealProcessThatIsKilledLeavesNothingForEver kills real processes with
// SIGKILL at some of their requests; all other points are covered in virtual
// time.
func TestARealProcessThatIsKilledLeavesNothingForEver(t *testing.T) {
	t.Parallel()
	program := build(t)
	for _, n := range []int{9, 11, 13, 14, 15} {
		t.Run(fmt.Sprintf("request %d", n), func(t *testing.T) {
			t.Parallel()
			w := simtest.New(t)
			issues := createIssues(w, 2)
			w.Jira.Comment(issues[0].Key, simtest.Alice, "/fs-triage go")
			w.Advance(time.Minute)
			p := newPoller(t, w, testConfig("m: 50, n: 5, guard: 150ms, jitter_min: 50ms, jitter_max: 60ms"), 1)
			var mu sync.Mutex
			left, victim := n, (*exec.Cmd)(nil)
			w.Net.Fault = func(*http.Request) sim.Fault {
				mu.Lock()
				defer mu.Unlock()
				if left--; left == 0 && victim != nil {
					_ = victim.Process.Kill()
				}
				return sim.Fault{}
			}
			p.env["JIRA_BASE_URL"], p.env["GITHUB_API_URL"] = w.Listen(t)
			mu.Lock()
			victim = start(p, program, "poll")
			err := victim.Start()
			mu.Unlock()
			if err != nil {
				t.Fatal(err)
			}
			if err := victim.Wait(); err == nil || !strings.Contains(err.Error(), os.Kill.String()) {
				t.Fatalf("the process ended with %v, want it killed", err)
			}
			w.Advance(time.Hour)
			for range 2 {
				if out, err := start(p, program, "poll").CombinedOutput(); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				endRuns(w, issues)
				w.Advance(time.Hour)
			}
			if n := len(w.GitHub.Runs()); n < 1 || n > 2 {
				t.Errorf("%d runs, want one, or two after a kill between dispatch and journal", n)
			}
			if id := lockID(w, issues[0].Key); id != "" {
				t.Errorf("the issue is still locked by %s", id)
			}
		})
	}
}
