package lease_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fullsend/poll-action/internal/lease"
	"github.com/fullsend/poll-action/internal/lease/leasetest"
)

const grace = 10 * time.Second

// child is a process group in a bubble.
type child struct {
	runs  time.Duration // after which it ends by itself; 0: never
	code  int
	dying time.Duration // from SIGTERM to its end
	deaf  bool          // SIGTERM does not end it
	mute  bool          // signals cannot be sent
	start error
	wait  error

	mu    sync.Mutex
	log   []string // what was done to it
	began time.Time
	ended time.Time
	told  chan time.Duration
}

func (c *child) note(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended.IsZero() {
		what += " after its end"
	}
	c.log = append(c.log, what)
}

func (c *child) done() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.log
}

func (c *child) Start() error {
	if c.start != nil {
		return c.start
	}
	c.note("start")
	c.began, c.told = time.Now(), make(chan time.Duration, 4)
	return nil
}

func (c *child) Signal(sig os.Signal) error {
	c.note(sig.String())
	if c.mute {
		return errBoom
	}
	if sig == syscall.SIGTERM && !c.deaf {
		c.told <- c.dying
	}
	return nil
}

func (c *child) Kill() error {
	c.note("kill")
	c.told <- -1
	return nil
}

func (c *child) Wait() (int, error) {
	end, code := make(<-chan time.Time), c.code
	if c.runs > 0 {
		end = time.After(c.runs)
	}
	for {
		select {
		case <-end:
			c.mu.Lock()
			defer c.mu.Unlock()
			c.ended = time.Now()
			return code, c.wait
		case d := <-c.told:
			if code = 128 + int(syscall.SIGTERM); d < 0 {
				code = 128 + int(syscall.SIGKILL)
			}
			end = time.After(max(d, 0))
		}
	}
}

func TestACommandRunsUnderItsLockAndItsCodeIsPassedOn(t *testing.T) {
	t.Parallel()
	for code, wait := range map[int]error{0: nil, 3: nil, 143: nil, 1: errBoom} {
		synctest.Test(t, func(t *testing.T) {
			reg, start := handed(t), time.Now()
			c := &child{runs: 12 * time.Minute, code: code, wait: wait}
			got, err := keeping(reg).Exec(t.Context(), c, nil, grace)
			if got != code || !errors.Is(err, wait) {
				t.Errorf("got %d, %v", got, err)
			}
			if diff := cmp.Diff([]time.Duration{0, interval, 2 * interval}, begun(reg, leasetest.Put, start)); diff != "" {
				t.Errorf("refreshes:\n%s", diff)
			}
			if diff := cmp.Diff([]string{"start"}, c.done()); diff != "" {
				t.Errorf("the child met:\n%s", diff)
			}
			if reg.Value(item) == nil {
				t.Error("the lock was released")
			}
		})
	}
}

func TestNothingIsStartedWithoutTheLock(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		set   func(t *testing.T, reg *leasetest.Memory)
		grace time.Duration
		want  error
		says  string
	}{
		"it is gone": {func(_ *testing.T, reg *leasetest.Memory) { reg.Set(item, nil) }, grace, lease.ErrMissing, ""},
		"it is somebody else's": {func(t *testing.T, reg *leasetest.Memory) {
			t.Helper()
			reg.Set(item, encoded(t, lease.Lock{ID: "other", TS: time.Now(), Phase: lease.Running}))
		}, grace, lease.ErrLost, `"other"`},
		"it cannot be read": {func(_ *testing.T, reg *leasetest.Memory) {
			reg.Script = on(leasetest.Get, 1, leasetest.Fault{Err: errBoom})
		}, grace, errBoom, ""},
		"it cannot be written": {func(_ *testing.T, reg *leasetest.Memory) {
			reg.Script = on(leasetest.Put, 1, leasetest.Fault{Err: errBoom})
		}, grace, errBoom, ""},
		"it cannot be confirmed": {func(_ *testing.T, reg *leasetest.Memory) {
			reg.Script = on(leasetest.Get, 2, leasetest.Fault{Err: errBoom})
		}, grace, errBoom, ""},
		"its answer comes too late": {func(_ *testing.T, reg *leasetest.Memory) {
			reg.Script = on(leasetest.Get, 1, leasetest.Fault{Before: threshold})
		}, grace, context.DeadlineExceeded, ""},
		"the grace time is too long for it": {func(*testing.T, *leasetest.Memory) {}, threshold, nil, "grace time"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				reg, c := handed(t), &child{runs: time.Minute}
				tc.set(t, reg)
				code, err := keeping(reg).Exec(t.Context(), c, nil, tc.grace)
				if code != -1 || err == nil || tc.want != nil && !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.says) {
					t.Errorf("got %d, %v", code, err)
				}
				if done := c.done(); len(done) > 0 {
					t.Errorf("the child met %q", done)
				}
			})
		})
	}
}

func TestACommandThatCannotBeStartedIsSaidAndTheLockNotKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reg, c := handed(t), &child{start: &fs.PathError{Op: "exec", Path: "nosuch", Err: fs.ErrNotExist}}
		code, err := keeping(reg).Exec(t.Context(), c, nil, grace)
		if code != -1 || !errors.Is(err, lease.ErrNotStarted) || !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("got %d, %v", code, err)
		}
		time.Sleep(time.Hour)
		if n := len(begun(reg, leasetest.Put, time.Now())); n != 1 {
			t.Errorf("%d writes", n)
		}
	})
}

func TestACommandIsStoppedWhenItsLockIsLost(t *testing.T) {
	t.Parallel()
	gone := func(reg *leasetest.Memory) { reg.Set(item, nil) }
	taken := func(reg *leasetest.Memory) { reg.Set(item, []byte(`{"id":"other","ts":"2000-01-01T00:00:00Z"}`)) }
	for _, tc := range []struct {
		name  string
		child *child
		loss  func(*leasetest.Memory)
		want  error
		after time.Duration // from the refresh that sees it to the child's end
		code  int
		met   []string
	}{
		{"gone", &child{}, gone, lease.ErrMissing, 0, 143, []string{"start", "terminated", "kill after its end"}},
		{"taken by somebody", &child{}, taken, lease.ErrLost, 0, 143, []string{"start", "terminated", "kill after its end"}},
		{"the command takes its time", &child{dying: 9 * time.Second}, taken, lease.ErrLost, 9 * time.Second, 143, []string{"start", "terminated", "kill after its end"}},
		{"the command takes too long", &child{dying: time.Hour}, taken, lease.ErrLost, grace, 137, []string{"start", "terminated", "kill", "kill after its end"}},
		{"the command is deaf", &child{deaf: true}, gone, lease.ErrMissing, grace, 137, []string{"start", "terminated", "kill", "kill after its end"}},
		{"the command cannot be told", &child{mute: true}, gone, lease.ErrMissing, 0, 137, []string{"start", "terminated", "kill", "kill after its end"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				reg, start := handed(t), time.Now()
				c := tc.child
				time.AfterFunc(time.Minute, func() { tc.loss(reg) })
				code, err := keeping(reg).Exec(t.Context(), c, nil, grace)
				if !errors.Is(err, tc.want) || code != tc.code {
					t.Errorf("got %d, %v", code, err)
				}
				if got := c.ended.Sub(start); got != interval+tc.after {
					t.Errorf("the child ended after %v", got)
				}
				if diff := cmp.Diff(tc.met, c.done()); diff != "" {
					t.Errorf("the child met:\n%s", diff)
				}
			})
		})
	}
}

// Whatever the store does from some time on, a command that ignores SIGTERM is gone
// before the lock as it is stored would be stale.
func TestACommandIsGoneBeforeALockThatCannotBeConfirmedIsStale(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]leasetest.Fault{
		"requests fail": {Err: errBoom, Drop: true}, "answers hang": {Before: time.Hour}, "answers are slow": {After: 4 * time.Minute, Err: errBoom},
	} {
		for _, tc := range []struct{ grace, latency, trouble time.Duration }{
			{0, 0, 11 * time.Minute},
			{10 * time.Second, 0, 11 * time.Minute},
			{4 * time.Minute, 10 * time.Second, 11 * time.Minute},
			{12 * time.Minute, 0, 11 * time.Minute},
			{10 * time.Second, 30 * time.Second, 2 * time.Minute}, // the first refresh alone succeeds, and takes long
		} {
			grace := tc.grace
			t.Run(fmt.Sprintf("%s, grace %s, latency %s", name, grace, tc.latency), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					reg, start := handed(t), time.Now()
					var written time.Time // what is stored
					reg.Script = func(c leasetest.Call) leasetest.Fault {
						if !c.At.Before(start.Add(tc.trouble)) {
							return fault
						}
						return leasetest.Fault{Before: tc.latency / 2, After: tc.latency / 2}
					}
					reg.Effect = func(c leasetest.Call) {
						if c.Op == leasetest.Put {
							l, _ := lease.Decode(c.Value)
							written = l.TS
						}
					}
					c := &child{deaf: true}
					code, err := keeping(reg).Exec(t.Context(), c, nil, grace)
					if !errors.Is(err, lease.ErrUnconfirmed) || code != 137 {
						t.Errorf("got %d, %v", code, err)
					}
					left := threshold - c.ended.Sub(written)
					if left < 5*time.Second {
						t.Errorf("the child ended %v before the lock was stale", left)
					}
					if met := c.done(); met[1] != "terminated" || c.ended.Sub(c.began) < grace {
						t.Errorf("the child met %q", met)
					}
				})
			})
		}
	}
}

func TestSignalsReachTheCommandAndTheLockIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reg, start := handed(t), time.Now()
		c := &child{dying: 6 * time.Minute, code: 1}
		signals := make(chan os.Signal, 1)
		go func() {
			defer close(signals)
			for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM} {
				time.Sleep(80 * time.Second)
				signals <- sig
			}
		}()
		code, err := keeping(reg).Exec(t.Context(), c, signals, grace)
		if code != 143 || err != nil {
			t.Errorf("got %d, %v", code, err)
		}
		if diff := cmp.Diff([]string{"start", "hangup", "interrupt", "terminated"}, c.done()); diff != "" {
			t.Errorf("the child met:\n%s", diff)
		}
		if took := c.ended.Sub(start); took != 10*time.Minute {
			t.Errorf("it ended after %v", took)
		}
		if got := begun(reg, leasetest.Put, start); len(got) < 2 || got[1] != interval {
			t.Errorf("refreshes at %v", got)
		}
	})
}

func TestSignalsReachACommandThatIsBeingStopped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reg, start := handed(t), time.Now()
		c := &child{deaf: true}
		signals := make(chan os.Signal)
		time.AfterFunc(time.Minute, func() { reg.Set(item, nil) })
		time.AfterFunc(interval+3*time.Second, func() { signals <- syscall.SIGQUIT })
		if _, err := keeping(reg).Exec(t.Context(), c, signals, grace); !errors.Is(err, lease.ErrMissing) {
			t.Errorf("got %v", err)
		}
		if diff := cmp.Diff([]string{"start", "terminated", "quit", "kill", "kill after its end"}, c.done()); diff != "" || c.ended.Sub(start) != interval+grace {
			t.Errorf("it ended after %v, the child met:\n%s", c.ended.Sub(start), diff)
		}
	})
}

func TestAnEndedContextStopsTheCommandAndTheLockIsKeptUntilItIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reg, start := handed(t), time.Now()
		c := &child{dying: 4 * time.Minute}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		code, err := keeping(reg).Exec(ctx, c, nil, 5*time.Minute)
		if code != 143 || !errors.Is(err, context.DeadlineExceeded) || c.ended.Sub(start) != 6*time.Minute {
			t.Errorf("got %d, %v after %v", code, err, c.ended.Sub(start))
		}
		if got := begun(reg, leasetest.Put, start); len(got) != 2 {
			t.Errorf("refreshes at %v", got)
		}
	})
}

// The command ends at every moment of a refresh; what is under way is waited for,
// nothing new begins, and a release that follows is final.
func TestNoRefreshBeginsAfterTheCommandsEnd(t *testing.T) {
	t.Parallel()
	for at := interval - 200*time.Millisecond; at <= interval+2*time.Second; at += 100 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			reg := handed(t)
			start := time.Now()
			reg.Script = func(c leasetest.Call) leasetest.Fault {
				if c.At.Before(start.Add(time.Minute)) {
					return leasetest.Fault{}
				}
				return leasetest.Fault{Before: 250 * time.Millisecond, After: 240 * time.Millisecond}
			}
			c := &child{runs: at - time.Millisecond}
			if code, err := keeping(reg).Exec(t.Context(), c, nil, grace); code != 0 || err != nil {
				t.Errorf("ended after %v: %d, %v", at, code, err)
			}
			for _, call := range reg.Calls() {
				if call.At.After(c.ended) {
					t.Errorf("ended after %v: a %s began %v later", at, call.Op, call.At.Sub(c.ended))
				}
			}
			r, err := keeping(reg).Keeper.Release(t.Context(), item, "ours", lease.Run{ID: 7})
			if r != lease.Deleted || err != nil {
				t.Errorf("release: %v, %v", r, err)
			}
			calls := len(reg.Calls())
			time.Sleep(time.Hour)
			if len(reg.Calls()) != calls || reg.Value(item) != nil {
				t.Errorf("ended after %v: the lock came back: %s", at, reg.Value(item))
			}
		})
	}
}
