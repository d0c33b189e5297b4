//go:build unix

package cli

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fullsend/poll-action/internal/sim"
	"github.com/fullsend/poll-action/internal/sim/simtest"
)

// command is one lock exec in this process, on a run that was started just now.
// These tests have real children, so they cannot be in a bubble.
type command struct {
	t       *testing.T
	w       *simtest.World
	issue   sim.Issue
	job     *job
	key     string
	dir     string
	signals chan os.Signal
}

func newCommand(t *testing.T) *command {
	t.Helper()
	w := simtest.New(t)
	issue := createIssues(w, 1)[0]
	p := newPoller(t, w, testConfig("m: 50, n: 5, guard: 50ms, jitter_min: 10ms, jitter_max: 20ms"), 1)
	w.Advance(time.Minute)
	w.Jira.Comment(issue.Key, simtest.Alice, "/fs-triage go")
	w.Advance(time.Minute)
	p.mustCycle()
	run := w.GitHub.Runs()[0]
	return &command{t: t, w: w, issue: issue, job: startJob(t, p, run), key: run.Inputs["dispatch_key"], dir: t.TempDir(), signals: make(chan os.Signal, 1)}
}

// run runs a script under the lock and returns exit code and standard error.
func (c *command) run(ctx context.Context, script string, flags ...string) (int, string) {
	c.t.Helper()
	var stdout, stderr bytes.Buffer
	args := append([]string{"--config", filepath.Join(c.job.p.dir, "config.yaml"), "lock", "exec"}, flags...)
	code := Run(ctx, Process{
		Name: "fullsend-poll", Args: append(args, "--", "sh", "-c", script, c.dir), Stdout: &stdout, Stderr: &stderr,
		Getenv: func(k string) string {
			if v, ok := c.job.env[k]; ok && k != "GITHUB_ACTIONS" {
				return v
			}
			return c.job.p.env[k]
		},
		Environ:   func() []string { return []string{"PATH=" + os.Getenv("PATH")} },
		Signals:   func(...os.Signal) (<-chan os.Signal, func()) { return c.signals, func() {} },
		Transport: c.w.Net, Now: time.Now, Rand: c.job.p.rand,
	})
	if stdout.Len() > 0 {
		c.t.Errorf("standard output has %q", stdout.String())
	}
	return code, stderr.String()
}

func TestACommandWhoseLockCannotBeConfirmedIsStoppedInTimeAndItsEventGivenBack(t *testing.T) {
	t.Parallel()
	c := newCommand(t)
	writes := 0
	c.w.Net.Fault = func(r *http.Request) sim.Fault {
		if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, lockProp) {
			if writes++; writes > 1 {
				return sim.Fault{Status: http.StatusServiceUnavailable}
			}
		}
		return sim.Fault{}
	}
	began := time.Now()
	code, log := c.run(t.Context(), "trap '' TERM; while :; do sleep 0.02; done", "--refresh-interval", "1s", "--stale-threshold", "2s", "--grace", "100ms")
	if took := time.Since(began); code != ExitLost || took > 10*time.Second {
		t.Errorf("exit code %d after %s, want %d", code, took, ExitLost)
	}
	mentions(t, log, c.issue.Key, "before others take it", "the command was stopped", "its event is given back")
	if !slices.Contains(retries(t, c.w, c.issue.Key), c.key) {
		t.Error("the event is not to be dispatched again")
	}
	wantNoLock(t, c.w, c.issue.Key)
}

func TestASignalIsTheCommandsToAnswer(t *testing.T) {
	t.Parallel()
	c := newCommand(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		for range 500 {
			if _, err := os.Stat(filepath.Join(c.dir, "ready")); err == nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		cancel(signalError{syscall.SIGTERM}) // as Main's own handler does at the same time
		c.signals <- syscall.SIGTERM
	}()
	code, log := c.run(ctx, `trap 'sleep 0.1; exit 0' TERM; echo >"$0/ready"; while :; do sleep 0.02; done`)
	if code != 0 {
		t.Errorf("exit code %d, want the command's own 0\n%s", code, log)
	}
	wantNoLock(t, c.w, c.issue.Key)
	if keys := retries(t, c.w, c.issue.Key); len(keys) > 0 {
		t.Errorf("given back: %v", keys)
	}
}

func TestASignalBeforeTheCommandHasStartedStartsNothing(t *testing.T) {
	t.Parallel()
	c := newCommand(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	c.w.Net.Fault = func(r *http.Request) sim.Fault {
		if r.Method == http.MethodPut {
			cancel(signalError{syscall.SIGTERM})
		}
		return sim.Fault{}
	}
	code, log := c.run(ctx, `echo >"$0/ready"`)
	if code != ExitTerminated {
		t.Errorf("exit code %d, want %d\n%s", code, ExitTerminated, log)
	}
	if _, err := os.Stat(filepath.Join(c.dir, "ready")); err == nil {
		t.Error("the command was started")
	}
}

func TestACommandIsNotStartedOnceTheSignalHasCome(t *testing.T) {
	t.Parallel()
	a := &app{Process: Process{Getenv: func(string) string { return "" }}}
	c := a.child(t.Context(), &hold{}, []string{"sh", "-c", "exit 0"})
	c.detach = func() bool { return false }
	if err := c.Start(); err == nil || c.started {
		t.Errorf("started %t, %v", c.started, err)
	}
}
