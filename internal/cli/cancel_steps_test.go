package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fullsend/poll-action/internal/dispatch"
	"github.com/fullsend/poll-action/internal/github"
	"github.com/fullsend/poll-action/internal/lease"
)

// bench is a canceller without vendors; it notes every call in order.
type bench struct {
	calls []string
	// lock is what is stored, nil for none.
	lock []byte
	// runs are the runs that there are; an answer is taken from answers first.
	runs    map[int64]github.Run
	answers []error
	// asked is called when a run is cancelled, read, if set, before the lock is read.
	asked func(id int64)
	read  func()
}

func (b *bench) note(format string, args ...any) {
	b.calls = append(b.calls, fmt.Sprintf(format, args...))
}

func (b *bench) Get(context.Context, string) ([]byte, error) {
	b.note("read")
	if b.read != nil {
		b.read()
	}
	if b.lock == nil {
		return nil, lease.ErrAbsent
	}
	return b.lock, nil
}

func (b *bench) Delete(context.Context, string) error {
	b.note("delete")
	b.lock = nil
	return nil
}

func (b *bench) GetRun(ctx context.Context, id int64) (github.Run, bool, error) {
	b.note("look %d", id)
	if err := ctx.Err(); err != nil {
		return github.Run{}, false, err
	}
	if len(b.answers) > 0 {
		err := b.answers[0]
		if b.answers = b.answers[1:]; err != nil {
			return github.Run{}, false, err
		}
	}
	run, found := b.runs[id]
	return run, found, nil
}

func (b *bench) CancelRun(_ context.Context, id int64, force bool) error {
	b.note("cancel %d %t", id, force)
	if b.asked != nil {
		b.asked(id)
	}
	if _, found := b.runs[id]; !found {
		return fmt.Errorf("cancel of run %d: %w", id, github.ErrNoRun)
	}
	return nil
}

func (b *bench) RunsByLock(_ context.Context, lockID string, _, _ time.Time) ([]github.Run, error) {
	b.note("search")
	var found []github.Run
	for _, r := range b.runs {
		if strings.Contains(r.Title, lockID) {
			found = append(found, r)
		}
	}
	return found, nil
}

func (b *bench) Owns(context.Context, int64) (bool, error) { b.note("owns"); return true, nil }

func (b *bench) Revoke(_ context.Context, _ string, runs []int64, drop bool) ([]string, error) {
	b.note("revoke %v %t", runs, drop)
	return nil, nil
}

const benchLock = "5d2a8c1e-7a51-4f0e-9a53-2f6c1d0b9e77"

// stored is a lock of an age.
func (b *bench) stored(age time.Duration, runs ...int64) []byte {
	l := lease.Lock{ID: benchLock, TS: time.Now().Add(-age), Phase: lease.Running, Driver: "jira-poll"}
	for _, r := range runs {
		l = l.WithRun(lease.Run{Agent: "triage", ID: r})
	}
	raw, err := l.Encode()
	if err != nil {
		panic(err)
	}
	return raw
}

func (b *bench) ends(id int64) {
	b.runs[id] = github.Run{ID: id, Title: "triage " + benchLock, Completed: true, Conclusion: "cancelled"}
}

func (b *bench) canceller() *canceller {
	return &canceller{locks: b, output: b, journal: b, key: "PROJ-1", serverNow: time.Now, tell: func(string) {}}
}

func newBench(runs ...int64) *bench {
	b := &bench{runs: map[int64]github.Run{}}
	for _, id := range runs {
		b.runs[id] = github.Run{ID: id, Title: "triage " + benchLock}
	}
	b.asked = b.ends
	return b
}

func TestACancelEndsEveryRunBeforeItTouchesJournalAndLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(1, 2)
		b.lock = b.stored(time.Hour, 1, 2)
		if err := b.canceller().cancel(t.Context(), b.lock); err != nil {
			t.Fatal(err)
		}
		want := []string{"look 1", "look 2", "cancel 1 false", "cancel 2 false", "look 1", "look 2", "revoke [1 2] false", "read", "delete", "read"}
		if diff := cmp.Diff(want, b.calls); diff != "" {
			t.Error(diff)
		}
	})
}

func TestACancelWaitsUntilThePollerOfAYoungLockIsQuiet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(1, 2)
		b.lock = b.stored(10*time.Second, 1)
		start := time.Now()
		b.read = func() { // the poller goes on for 15 s
			if time.Since(start) == 20*time.Second {
				b.lock = b.stored(5*time.Second, 1, 2)
			}
		}
		if err := b.canceller().cancel(t.Context(), b.lock); err != nil {
			t.Fatal(err)
		}
		want := []string{
			"look 1", "cancel 1 false", "look 1", "read", // 20 s later
			"look 2", "cancel 2 false", "look 2", "read", // 25 s later
			"revoke [1 2] false", "read", "delete", "read",
		}
		if diff := cmp.Diff(want, b.calls); diff != "" {
			t.Error(diff)
		}
		if took := time.Since(start); took != 45*time.Second {
			t.Errorf("it took %s, want 45s: 30 s after the lock's last write", took)
		}
	})
}

func TestALockThatWasWrittenMeanwhileIsDeletedWhenItsWriterIsQuiet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(1)
		b.lock = b.stored(time.Hour, 1)
		b.asked = func(id int64) {
			b.ends(id)
			b.lock = b.stored(0, 1)
		}
		start := time.Now()
		if err := b.canceller().cancel(t.Context(), b.lock); err != nil {
			t.Fatal(err)
		}
		want := []string{
			"look 1", "cancel 1 false", "look 1", "revoke [1] false", "read", // 30 s later
			"read", "revoke [1] false", "read", "delete", "read",
		}
		if diff := cmp.Diff(want, b.calls); diff != "" || time.Since(start) != 30*time.Second {
			t.Errorf("after %s: %s", time.Since(start), diff)
		}
	})
}

func TestALockThatIsDatedFarAheadIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(1)
		b.lock = b.stored(-24*time.Hour, 1)
		start := time.Now()
		if err := b.canceller().cancel(t.Context(), b.lock); err != nil || b.lock != nil || time.Since(start) > 0 {
			t.Errorf("%v after %s, calls %v", err, time.Since(start), b.calls)
		}
	})
}

func TestACancelOutlivesAnOutageWhileItWaits(t *testing.T) {
	t.Parallel()
	outage := &dispatch.Error{Class: dispatch.Transient, Err: errors.New("502")}
	for _, c := range []struct {
		name    string
		answers []error
		gone    bool
		says    string
	}{
		{"short", []error{nil, outage, outage}, true, ""},
		{"long", append([]error{nil}, repeated(outage, 40)...), false, "502; the lock stays"},
		{"refusal", []error{nil, &dispatch.Error{Class: dispatch.Fatal, Err: errors.New("401")}}, false, "401; the lock stays"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(1)
				b.lock, b.answers = b.stored(time.Hour, 1), c.answers
				err := b.canceller().cancel(t.Context(), b.lock)
				if gone := b.lock == nil; gone != c.gone {
					t.Errorf("the lock is gone: %t; %v", gone, err)
				}
				if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
					t.Errorf("the error is %v, want %q in it", err, c.says)
				}
			})
		})
	}
}

func repeated(err error, n int) []error {
	all := make([]error, n)
	for i := range all {
		all[i] = err
	}
	return all
}

func TestACancelThatIsInterruptedOrRunsOutOfTimeLeavesTheLock(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		end  func(ctx context.Context) (context.Context, context.CancelFunc)
		says string
	}{
		{"signal", func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(9*time.Second, cancel)
			return ctx, cancel
		}, "the cancel of PROJ-1 was interrupted; the lock stays"},
		{"time", func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 9*time.Second)
		}, "the runs of PROJ-1 did not end within 5m0s; the lock stays"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(1)
				b.asked = nil
				b.lock = b.stored(time.Hour, 1)
				ctx, cancel := c.end(t.Context())
				defer cancel()
				start := time.Now()
				err := b.canceller().cancel(ctx, b.lock)
				if err == nil || !strings.Contains(err.Error(), c.says) || b.lock == nil {
					t.Errorf("the error is %v, want %q in it; calls %v", err, c.says, b.calls)
				}
				if took := time.Since(start); took != 9*time.Second {
					t.Errorf("it went on for %s", took)
				}
			})
		})
	}
}

func TestRunsThatKeepAppearingEndACancelAfterThreeRounds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(1, 2, 3, 4, 5)
		b.lock = b.stored(time.Hour, 1)
		b.asked = func(id int64) {
			b.ends(id)
			b.lock = b.stored(time.Hour, id, id+1)
		}
		err := b.canceller().cancel(t.Context(), b.lock)
		if err == nil || !strings.Contains(err.Error(), "runs keep appearing under the lock of PROJ-1") || b.lock == nil {
			t.Errorf("the error is %v", err)
		}
		if n := strings.Count(strings.Join(b.calls, "\n"), "cancel"); n != maxRounds {
			t.Errorf("%d runs were cancelled, want %d: %v", n, maxRounds, b.calls)
		}
	})
}

func TestARunThatGoesWhileItIsCancelledIsOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(1)
		b.lock = b.stored(time.Hour, 1)
		b.asked = func(id int64) { delete(b.runs, id) }
		if err := b.canceller().cancel(t.Context(), b.lock); err != nil || b.lock != nil {
			t.Errorf("%v; calls %v", err, b.calls)
		}
		if diff := cmp.Diff([]string{"look 1", "cancel 1 false", "revoke [1] false", "read", "delete", "read"}, b.calls); diff != "" {
			t.Error(diff)
		}
	})
}
