package lease_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fullsend/poll-action/internal/lease"
	"github.com/fullsend/poll-action/internal/lease/leasetest"
)

const (
	guard     = time.Second
	jitterMin = 500 * time.Millisecond
	jitterMax = 1500 * time.Millisecond
	bound     = guard + jitterMin // W
	stale     = 10 * time.Minute
	cleanUp   = 4 * time.Second
	item      = "10001"
)

var errBoom = errors.New("boom")

// bench is a register with a locker on it, inside a bubble.
type bench struct {
	*leasetest.Memory
	opts  lease.Options
	notes []string
}

func newBench(script func(c leasetest.Call) leasetest.Fault) *bench {
	b := &bench{Memory: &leasetest.Memory{Script: script, Now: time.Now}}
	b.opts = lease.Options{
		Register: b.Memory, Driver: "jira-poll", Rules: lease.Rules{StaleThreshold: stale}, Guard: guard, JitterMin: jitterMin, JitterMax: jitterMax, CleanUp: cleanUp,
		Now: time.Now, ServerNow: time.Now, Rand: func() float64 { return 0 }, NewID: ids("id"),
		Note: func(item, what string) { b.notes = append(b.notes, item+": "+what) },
	}
	return b
}

func (b *bench) locker() *lease.Locker { return lease.New(b.opts) }

func ids(prefix string) func() string {
	var n atomic.Int64
	return func() string { return fmt.Sprintf("%s-%d", prefix, n.Add(1)) }
}

// stored decodes what the register holds; its id is empty where there is none.
func (b *bench) stored(item string) lease.Lock {
	l, _ := lease.Decode(b.Value(item))
	return l
}

// hold puts somebody else's lock of the given age into the register.
func (b *bench) hold(t *testing.T, item, id string, age time.Duration) {
	t.Helper()
	b.Set(item, encoded(t, lease.Lock{ID: id, TS: time.Now().Add(-age), Phase: lease.Running, RunID: 77}))
}

func encoded(t *testing.T, l lease.Lock) []byte {
	t.Helper()
	raw, err := l.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// on returns a script under which one request meets a fault.
func on(op leasetest.Op, n int, f leasetest.Fault) func(leasetest.Call) leasetest.Fault {
	return func(c leasetest.Call) leasetest.Fault {
		if c.Op == op && c.N == n {
			return f
		}
		return leasetest.Fault{}
	}
}

func TestAnItemThatNobodyHoldsIsTaken(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		setup func(t *testing.T, b *bench)
		note  string
	}{
		{"no lock", func(*testing.T, *bench) {}, ""},
		{"a stale lock", func(t *testing.T, b *bench) { t.Helper(); b.hold(t, item, "old", stale) }, "10m0s old"},
		{"a lock dated into the future", func(t *testing.T, b *bench) { t.Helper(); b.hold(t, item, "old", -2*time.Minute) }, "dated ahead"},
		{"a value that is no lock", func(_ *testing.T, b *bench) { b.Set(item, []byte(`["rubbish"]`)) }, "cannot be understood"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(nil)
				tc.setup(t, b)
				start := time.Now()
				l, err := b.locker().Acquire(t.Context(), item)
				if err != nil {
					t.Fatal(err)
				}
				if err := l.Verify(t.Context()); err != nil || l.Item() != item || l.ID() != "id-1" {
					t.Errorf("verify %v, item %q, id %q", err, l.Item(), l.ID())
				}
				want := lease.Lock{ID: "id-1", TS: start.UTC(), Phase: lease.Pending, Driver: "jira-poll"}
				if diff := cmp.Diff(want, b.stored(item)); diff != "" {
					t.Error(diff)
				}
				if notes := strings.Join(b.notes, "\n"); !strings.Contains(notes, tc.note) || (tc.note == "") != (notes == "") {
					t.Errorf("notes: %q", notes)
				}
			})
		})
	}
}

func TestAnItemThatSomebodyHoldsIsLeftAlone(t *testing.T) {
	t.Parallel()
	for name, age := range map[string]time.Duration{"just taken": 0, "almost stale": stale - time.Nanosecond, "a little ahead": -30 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(nil)
				b.hold(t, item, "other", age)
				start := time.Now()
				_, err := b.locker().Acquire(t.Context(), item)
				var held *lease.HeldError
				if !errors.As(err, &held) || held.Item != item || held.Holder.ID != "other" || held.Holder.RunID != 77 || held.Age != age {
					t.Fatalf("got %v", err)
				}
				if !lease.Contended(err) || !strings.Contains(err.Error(), `"other"`) || !strings.Contains(err.Error(), "77") {
					t.Errorf("contended %t: %v", lease.Contended(err), err)
				}
				if took := time.Since(start); took != 0 {
					t.Errorf("it waited %v", took)
				}
				if calls := b.Calls(); len(calls) != 1 {
					t.Errorf("%d requests", len(calls))
				}
			})
		})
	}
}

func TestTheHolderIsQuotedInTheError(t *testing.T) {
	t.Parallel()
	err := &lease.HeldError{Item: "1", Holder: lease.Lock{ID: "a\x7f\u2028::error::", Phase: lease.Pending}, Age: 90 * time.Second}
	if got := err.Error(); strings.ContainsAny(got, "\x7f\u2028\n") || !strings.Contains(got, "1m30s") || !strings.Contains(got, "pending") {
		t.Errorf("got %q", got)
	}
}

func TestStoreErrorsAreNoContention(t *testing.T) {
	t.Parallel()
	for _, op := range []leasetest.Op{leasetest.Get, leasetest.Put} {
		t.Run(string(op), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(on(op, 1, leasetest.Fault{Err: errBoom, Drop: true}))
				_, err := b.locker().Acquire(t.Context(), item)
				if !errors.Is(err, errBoom) || lease.Contended(err) {
					t.Errorf("got %v", err)
				}
				if b.Value(item) != nil {
					t.Error("a lock was left")
				}
			})
		})
	}
}

func TestAllItemsWaitOnceAndAtLeastTheBound(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		rand  float64
		n     int
		least time.Duration
		most  time.Duration
	}{
		"one item, shortest jitter": {0, 1, bound, bound},
		"five, shortest jitter":     {0, 5, bound, bound},
		"five, longest jitter":      {0.999999, 5, guard + jitterMax - 10*time.Millisecond, guard + jitterMax},
		"forty":                     {0.5, 40, bound + 500*time.Millisecond, bound + 500*time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const latency = 40 * time.Millisecond
				b := newBench(func(leasetest.Call) leasetest.Fault { return leasetest.Fault{Before: latency / 2, After: latency / 2} })
				b.opts.Rand = func() float64 { return tc.rand }
				var items []string
				for i := range tc.n {
					items = append(items, strconv.Itoa(i))
				}
				start := time.Now()
				attempts := b.locker().AcquireAll(t.Context(), items)
				took := time.Since(start)
				rounds := time.Duration((tc.n+15)/16) * latency // at most 16 at once
				if low, high := tc.least+3*latency, tc.most+3*rounds; took < low || took > high {
					t.Errorf("took %v, want %v to %v", took, low, high)
				}
				seen := map[string]bool{}
				for i, a := range attempts {
					if a.Err != nil || a.Item != items[i] || a.Lease.Item() != items[i] || seen[a.Lease.ID()] {
						t.Fatalf("attempt %d: %+v", i, a)
					}
					seen[a.Lease.ID()] = true
				}
				var lastPut, firstVerify time.Time
				for _, c := range b.Calls() {
					if c.Op == leasetest.Put && c.At.After(lastPut) {
						lastPut = c.At
					}
					if c.Op == leasetest.Get && c.N == tc.n+1 {
						firstVerify = c.At
					}
				}
				if waited := firstVerify.Sub(lastPut.Add(latency)); waited < bound {
					t.Errorf("only %v between the last write and the first verifying read", waited)
				}
			})
		})
	}
}

func TestItemsSucceedAndFailEachByItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(func(c leasetest.Call) leasetest.Fault {
			switch {
			case c.Item == "broken":
				return leasetest.Fault{Err: errBoom, Drop: true}
			case c.Item == "slow" && c.Op == leasetest.Get:
				return leasetest.Fault{After: 2 * bound}
			}
			return leasetest.Fault{}
		})
		b.hold(t, "held", "other", 0)
		items := []string{"broken", "a", "held", "slow", "b"}
		got := b.locker().AcquireAll(t.Context(), items)
		for i, want := range []func(error) bool{
			func(err error) bool { return errors.Is(err, errBoom) },
			func(err error) bool { return err == nil },
			func(err error) bool { var h *lease.HeldError; return errors.As(err, &h) },
			func(err error) bool { return errors.Is(err, lease.ErrSlow) },
			func(err error) bool { return err == nil },
		} {
			if !want(got[i].Err) || (got[i].Err == nil) != (got[i].Lease != nil) {
				t.Errorf("%s: %v", items[i], got[i].Err)
			}
		}
		if b.Value("slow") != nil || b.stored("held").ID != "other" {
			t.Error("what was not won was touched")
		}
	})
}

func TestATurnThatCannotBeWonIsGivenUpAndTakenBack(t *testing.T) {
	t.Parallel()
	second := time.Second
	foreign := func(t *testing.T) []byte {
		t.Helper()
		return encoded(t, lease.Lock{ID: "other", TS: time.Now(), Phase: lease.Pending})
	}
	for _, tc := range []struct {
		name   string
		script func(leasetest.Call) leasetest.Fault
		// during runs half a second after the start
		during func(t *testing.T, b *bench)
		want   error
		left   string // the id that stands at the end
	}{
		{"read slower than the bound", on(leasetest.Get, 1, leasetest.Fault{After: bound}), nil, lease.ErrSlow, ""},
		{"write slower than the bound, before its effect", on(leasetest.Put, 1, leasetest.Fault{Before: bound + second}), nil, lease.ErrSlow, ""},
		{"write slower than the bound, after its effect", on(leasetest.Put, 1, leasetest.Fault{After: bound + second}), nil, lease.ErrSlow, ""},
		{"write that lands after it was given up", on(leasetest.Put, 1, leasetest.Fault{Before: 2 * second, Lands: 300 * time.Millisecond}), nil, lease.ErrSlow, ""},
		{"read and write slower together", func(c leasetest.Call) leasetest.Fault {
			if c.N == 1 && c.Op != leasetest.Delete {
				return leasetest.Fault{After: 800 * time.Millisecond}
			}
			return leasetest.Fault{}
		}, nil, lease.ErrSlow, ""},
		{"write replaced what was not there", on(leasetest.Get, 1, leasetest.Fault{After: second}), func(t *testing.T, b *bench) {
			t.Helper()
			b.Set(item, foreign(t))
		}, lease.ErrLost, ""},
		{"lost answer, written", on(leasetest.Put, 1, leasetest.Fault{Err: errBoom}), nil, errBoom, ""},
		{"lost answer, not written", on(leasetest.Put, 1, leasetest.Fault{Err: errBoom, Drop: true}), nil, errBoom, ""},
		{"lost answer, written later", on(leasetest.Put, 1, leasetest.Fault{Err: errBoom, Lands: 900 * time.Millisecond}), nil, errBoom, ""},
		{"verifying read fails", on(leasetest.Get, 2, leasetest.Fault{Err: errBoom, Drop: true}), nil, errBoom, ""},
		{"verifying read and the one after it fail", func(c leasetest.Call) leasetest.Fault {
			if c.Op == leasetest.Get && (c.N == 2 || c.N == 3) {
				return leasetest.Fault{Err: errBoom, Drop: true}
			}
			return leasetest.Fault{}
		}, nil, errBoom, ""},
		{"the deletion fails once", func(c leasetest.Call) leasetest.Fault {
			if c.N == 2 && c.Op == leasetest.Get || c.N == 1 && c.Op == leasetest.Delete {
				return leasetest.Fault{Err: errBoom, Drop: true}
			}
			return leasetest.Fault{}
		}, nil, errBoom, ""},
		{"overwritten during the wait", nil, func(t *testing.T, b *bench) { t.Helper(); b.Set(item, foreign(t)) }, lease.ErrLost, "other"},
		{"deleted during the wait", nil, func(_ *testing.T, b *bench) { b.Set(item, nil) }, lease.ErrLost, ""},
		{"overwritten with rubbish during the wait", nil, func(_ *testing.T, b *bench) { b.Set(item, []byte(`{}`)) }, lease.ErrLost, "rubbish"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(tc.script)
				if tc.during != nil {
					time.AfterFunc(second/2, func() { tc.during(t, b) })
				}
				l, err := b.locker().Acquire(t.Context(), item)
				if !errors.Is(err, tc.want) || l != nil {
					t.Errorf("got %v, want %v", err, tc.want)
				}
				if got := !errors.Is(tc.want, errBoom); lease.Contended(err) != got {
					t.Errorf("contended: %t", !got)
				}
				time.Sleep(time.Minute)
				switch left := b.Value(item); {
				case tc.left == "" && left != nil:
					t.Errorf("left behind: %s", left)
				case tc.left == "other" && b.stored(item).ID != "other":
					t.Errorf("somebody else's lock became %s", left)
				}
			})
		})
	}
}

// A slow take-back must not delete what somebody else wrote in the meantime: the
// deletion keeps the bound, as a write does.
func TestATakeBackDoesNotDeleteTheNextHoldersLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(func(c leasetest.Call) leasetest.Fault {
			switch {
			case c.Op == leasetest.Put && c.N == 1:
				return leasetest.Fault{Err: errBoom} // written, the answer is lost
			case c.Op == leasetest.Delete:
				return leasetest.Fault{Before: 3 * time.Second}
			}
			return leasetest.Fault{}
		})
		// somebody whose read came before our write, within the bound
		time.AfterFunc(200*time.Millisecond, func() {
			b.Set(item, encoded(t, lease.Lock{ID: "other", TS: time.Now(), Phase: lease.Pending}))
		})
		if _, err := b.locker().Acquire(t.Context(), item); !errors.Is(err, errBoom) {
			t.Fatal(err)
		}
		// by then the other one has verified
		if got := b.stored(item).ID; got != "other" {
			t.Errorf("the lock of the next holder was deleted, %q stands", got)
		}
	})
}

func TestAnEndedContextLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]time.Duration{"ordinary": 0, "writes land late": 300 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for at := time.Duration(0); at <= 3*time.Second; at += 25 * time.Millisecond {
				synctest.Test(t, func(t *testing.T) {
					b := newBench(func(c leasetest.Call) leasetest.Fault {
						f := leasetest.Fault{Before: 110 * time.Millisecond, After: 130 * time.Millisecond}
						if c.Op == leasetest.Put {
							f.Lands = after
						}
						return f
					})
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					time.AfterFunc(at, cancel)
					start := time.Now()
					attempts := b.locker().AcquireAll(ctx, []string{"1", "2", "3"})
					if spent := time.Since(start) - at; spent > cleanUp {
						t.Errorf("ended after %v: %v more", at, spent)
					}
					for _, a := range attempts {
						if a.Err == nil {
							if at < bound {
								t.Errorf("ended after %v: a lease", at)
							}
							continue
						}
						if after == 0 && !errors.Is(a.Err, context.Canceled) {
							t.Errorf("ended after %v: %v", at, a.Err)
						}
						if b.Value(a.Item) != nil {
							t.Errorf("ended after %v: a lock is left on %s", at, a.Item)
						}
					}
				})
			}
		})
	}
}

// The store hangs, so nothing can be taken back; the locker must still come to
// an end.
func TestAHangingStoreHoldsUpAnEndedContextNoLongerThanTheCleanUp(t *testing.T) {
	t.Parallel()
	for _, hang := range []leasetest.Op{leasetest.Get, leasetest.Put, leasetest.Delete} {
		t.Run(string(hang), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				b := newBench(func(c leasetest.Call) leasetest.Fault {
					switch {
					case c.Item == "good" && ctx.Err() == nil:
						return leasetest.Fault{}
					case ctx.Err() != nil || c.Op == hang:
						return leasetest.Fault{Before: time.Hour}
					}
					return leasetest.Fault{After: 200 * time.Millisecond}
				})
				var ended time.Time
				time.AfterFunc(300*time.Millisecond, func() { ended = time.Now(); cancel() })
				b.locker().AcquireAll(ctx, []string{"bad", "good"})
				if spent := time.Since(ended); spent > cleanUp {
					t.Errorf("it took %v after the context's end", spent)
				}
			})
		})
	}
}

func TestVerifyBeforeOutputSeesALoss(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		happen func(t *testing.T, b *bench)
		lost   bool
		want   error
	}{
		{"nothing", func(*testing.T, *bench) {}, false, nil},
		{"somebody else's lock", func(t *testing.T, b *bench) { t.Helper(); b.hold(t, item, "other", 0) }, true, lease.ErrLost},
		{"deleted", func(_ *testing.T, b *bench) { b.Set(item, nil) }, true, lease.ErrLost},
		{"rubbish", func(_ *testing.T, b *bench) { b.Set(item, []byte(`null`)) }, true, lease.ErrMalformed},
		{"gone stale", func(*testing.T, *bench) { time.Sleep(stale) }, true, lease.ErrLost},
		{"the store does not answer", func(_ *testing.T, b *bench) {
			b.Script = func(leasetest.Call) leasetest.Fault { return leasetest.Fault{Err: errBoom} }
		}, false, errBoom},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(nil)
				l, err := b.locker().Acquire(t.Context(), item)
				if err != nil {
					t.Fatal(err)
				}
				tc.happen(t, b)
				if err := l.Verify(t.Context()); !errors.Is(err, tc.want) || errors.Is(err, lease.ErrLost) != tc.lost {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

func TestHandover(t *testing.T) {
	t.Parallel()
	run := lease.Run{Agent: "triage", ID: 7, URL: "u"}
	other := lease.Run{Agent: "code", ID: 8}
	for _, tc := range []struct {
		name   string
		happen func(t *testing.T, b *bench, id string)
		phase  lease.Phase
		runs   []lease.Run
		err    error
	}{
		{"writes the runs", func(*testing.T, *bench, string) {}, lease.Pending, []lease.Run{run, other}, nil},
		{"keeps a running phase and the runs that are there", func(t *testing.T, b *bench, id string) {
			t.Helper()
			b.Set(item, encoded(t, lease.Lock{ID: id, TS: time.Now(), Phase: lease.Running}.WithRun(lease.Run{ID: 9})))
		}, lease.Running, []lease.Run{{ID: 9}, run, other}, nil},
		{"writes over somebody else's lock", func(t *testing.T, b *bench, _ string) { t.Helper(); b.hold(t, item, "other", 0) }, lease.Pending, []lease.Run{run, other}, nil},
		{"writes over rubbish", func(_ *testing.T, b *bench, _ string) { b.Set(item, []byte(`7`)) }, lease.Pending, []lease.Run{run, other}, nil},
		{"writes where nothing is", func(_ *testing.T, b *bench, _ string) { b.Set(item, nil) }, lease.Pending, []lease.Run{run, other}, nil},
		{"survives two failures", func(_ *testing.T, b *bench, _ string) {
			b.Script = func(c leasetest.Call) leasetest.Fault {
				if c.Op == leasetest.Get && c.N == 3 || c.Op == leasetest.Put && c.N == 2 {
					return leasetest.Fault{Err: errBoom, Drop: true}
				}
				return leasetest.Fault{}
			}
		}, lease.Pending, []lease.Run{run, other}, nil},
		{"gives up after three", func(_ *testing.T, b *bench, _ string) {
			b.Script = func(c leasetest.Call) leasetest.Fault {
				if c.Op == leasetest.Put {
					return leasetest.Fault{Err: errBoom, Drop: true}
				}
				return leasetest.Fault{}
			}
		}, lease.Pending, nil, errBoom},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(nil)
				l, err := b.locker().Acquire(t.Context(), item)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				tc.happen(t, b, l.ID())
				before := len(b.Calls())
				if err := l.Handover(t.Context(), run, other); !errors.Is(err, tc.err) {
					t.Fatalf("got %v", err)
				}
				if n := len(b.Calls()) - before; n > 6 {
					t.Errorf("%d requests", n)
				}
				got := b.stored(item)
				if diff := cmp.Diff(tc.runs, got.Runs); diff != "" || got.ID != l.ID() || got.Phase != tc.phase {
					t.Errorf("id %q, phase %q\n%s", got.ID, got.Phase, diff)
				}
				if tc.err == nil && !got.TS.After(time.Now().Add(-10*time.Second)) {
					t.Errorf("dated %v ago", time.Since(got.TS))
				}
			})
		})
	}
}

func TestASecondHandoverKeepsTheFirstOnesRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(nil)
		l, err := b.locker().Acquire(t.Context(), item)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Handover(t.Context(), lease.Run{ID: 1}); err != nil {
			t.Fatal(err)
		}
		b.Set(item, nil)
		if err := l.Handover(t.Context(), lease.Run{ID: 2}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]lease.Run{{ID: 1}, {ID: 2}}, b.stored(item).Runs); diff != "" {
			t.Error(diff)
		}
	})
}

func TestReleaseDeletesOnlyItsOwn(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		happen func(t *testing.T, b *bench)
		left   bool
		err    error
	}{
		{"its own", func(*testing.T, *bench) {}, false, nil},
		{"somebody else's stays", func(t *testing.T, b *bench) { t.Helper(); b.hold(t, item, "other", 0) }, true, nil},
		{"one that is gone is no error", func(_ *testing.T, b *bench) { b.Set(item, nil) }, false, nil},
		{"rubbish is none of its", func(_ *testing.T, b *bench) { b.Set(item, []byte(`7`)) }, true, nil},
		{"two failures are survived", func(_ *testing.T, b *bench) {
			b.Script = func(c leasetest.Call) leasetest.Fault {
				if c.Op == leasetest.Get && c.N == 3 || c.Op == leasetest.Delete && c.N == 1 {
					return leasetest.Fault{Err: errBoom, Drop: true}
				}
				return leasetest.Fault{}
			}
		}, false, nil},
		{"a deletion whose answer was lost is done", func(_ *testing.T, b *bench) { b.Script = on(leasetest.Delete, 1, leasetest.Fault{Err: errBoom}) }, false, nil},
		{"three failures are an error", func(_ *testing.T, b *bench) {
			b.Script = func(c leasetest.Call) leasetest.Fault {
				return leasetest.Fault{Err: errBoom, Drop: c.Op == leasetest.Delete}
			}
		}, true, errBoom},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(nil)
				l, err := b.locker().Acquire(t.Context(), item)
				if err != nil {
					t.Fatal(err)
				}
				tc.happen(t, b)
				if err := l.Release(t.Context()); !errors.Is(err, tc.err) {
					t.Errorf("got %v", err)
				}
				if left := b.Value(item) != nil; left != tc.left {
					t.Errorf("left: %t", left)
				}
			})
		})
	}
}

func TestReleaseEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(nil)
		l, err := b.locker().Acquire(t.Context(), item)
		if err != nil {
			t.Fatal(err)
		}
		b.Script = func(leasetest.Call) leasetest.Fault { return leasetest.Fault{Before: time.Hour} }
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		start := time.Now()
		if err := l.Release(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

func TestALockerWritesNothingThatItDoesNotReadBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(nil)
		l, err := b.locker().Acquire(t.Context(), item)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(l.Verify(t.Context()), l.Handover(t.Context(), lease.Run{ID: 1}), l.Release(t.Context())); err != nil {
			t.Fatal(err)
		}
		var ops []leasetest.Op
		for _, c := range b.Calls() {
			ops = append(ops, c.Op)
		}
		want := []leasetest.Op{"get", "put", "get", "get", "get", "put", "get", "delete"}
		if !slices.Equal(ops, want) {
			t.Errorf("got %v, want %v", ops, want)
		}
	})
}

// judged is a bench with evidence and somebody's lock "old".
func judged(t *testing.T, old lease.Lock) (*bench, *witness) {
	t.Helper()
	b := newBench(nil)
	w := &witness{knows: map[string]lease.Standing{}, found: map[string]lease.Standing{"old": {Life: lease.Over}}}
	b.opts.Evidence = w
	old.ID = "old"
	b.Set(item, encoded(t, old))
	return b, w
}

func ops(b *bench) string {
	var all []string
	for _, c := range b.Calls() {
		all = append(all, string(c.Op))
	}
	return strings.Join(all, " ")
}

func TestALockWhoseRunsHaveEndedIsTakenOverWithThem(t *testing.T) {
	t.Parallel()
	ended := lease.Standing{Life: lease.Over, Runs: runs(7)}
	for _, tc := range []struct {
		name  string
		old   lease.Lock
		found lease.Standing // by a search
		want  []int64
	}{
		{"fresh", lease.Lock{TS: noon(), Phase: lease.Running}.WithRun(lease.Run{ID: 7}), lease.Standing{Life: lease.Over}, []int64{7}},
		{"with a run that its poller did not write down", lease.Lock{TS: noon(), Phase: lease.Running}.WithRun(lease.Run{ID: 7}), lease.Standing{Life: lease.Over, Runs: runs(7, 8)}, []int64{7, 8}},
		{"stale, of a poller that died", lease.Lock{Phase: lease.Pending}, lease.Standing{}, []int64{7}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				if !tc.old.TS.IsZero() {
					tc.old.TS = time.Now().Add(-time.Minute)
				}
				b, w := judged(t, tc.old)
				w.knows["old"], w.found["old"] = ended, tc.found
				w.asks = func() { time.Sleep(10 * bound) } // the bound does not count it
				l, err := b.locker().Acquire(t.Context(), item)
				if err != nil {
					t.Fatal(err)
				}
				var want []lease.Run
				for _, id := range tc.want {
					want = append(want, lease.Run{ID: id})
				}
				if diff := cmp.Diff(want, l.Inherited()); diff != "" {
					t.Errorf("inherited:\n%s", diff)
				}
				if got := b.stored(item); got.ID != l.ID() || got.Phase != lease.Pending || !cmp.Equal(want, got.Runs) {
					t.Errorf("stored %+v", got)
				}
				if got := ops(b); got != "get get put get" {
					t.Errorf("requests: %s", got)
				}
				if len(b.notes) != 1 || !strings.Contains(b.notes[0], "has ended") {
					t.Errorf("notes: %q", b.notes)
				}
			})
		})
	}
}

func TestALockThatChangedWhileItWasAskedAboutIsNotTaken(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*lease.Lock) bool{
		"somebody else took it over": func(l *lease.Lock) bool { l.ID = "theirs"; return true },
		"it was refreshed":           func(l *lease.Lock) bool { l.TS = l.TS.Add(time.Second); return true },
		"its run began":              func(l *lease.Lock) bool { l.Phase = lease.Running; return true },
		"it was deleted":             func(*lease.Lock) bool { return false },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				old := lease.Lock{ID: "old", TS: time.Now().Add(-time.Minute), Phase: lease.Pending}.WithRun(lease.Run{ID: 7})
				b, w := judged(t, old)
				w.knows["old"] = lease.Standing{Life: lease.Over}
				var left []byte
				w.asks = func() {
					if next := old; change(&next) {
						left = encoded(t, next)
					}
					b.Set(item, left)
				}
				l, err := b.locker().Acquire(t.Context(), item)
				if l != nil || !errors.Is(err, lease.ErrLost) || !lease.Contended(err) {
					t.Errorf("got %v", err)
				}
				if got := ops(b); got != "get get" || !cmp.Equal(left, b.Value(item)) {
					t.Errorf("requests: %s; left %s", got, b.Value(item))
				}
			})
		})
	}
}

func TestTheBoundHoldsFromTheSecondReadOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, w := judged(t, lease.Lock{TS: time.Now().Add(-time.Minute), Phase: lease.Running}.WithRun(lease.Run{ID: 7}))
		w.knows["old"] = lease.Standing{Life: lease.Over}
		b.Script = on(leasetest.Get, 2, leasetest.Fault{After: bound})
		if _, err := b.locker().Acquire(t.Context(), item); !errors.Is(err, lease.ErrSlow) {
			t.Errorf("got %v", err)
		}
		if got := ops(b); got != "get get" {
			t.Errorf("requests: %s", got)
		}
		b.Script = on(leasetest.Get, 4, leasetest.Fault{Err: errBoom})
		if _, err := b.locker().Acquire(t.Context(), item); !errors.Is(err, errBoom) || lease.Contended(err) {
			t.Errorf("the second read fails: %v", err)
		}
	})
}

func TestAFreshLockIsLeftAloneWhileNobodyKnowsWhetherItHasFurtherRuns(t *testing.T) {
	t.Parallel()
	for age, held := range map[time.Duration]bool{time.Minute: true, stale - time.Second: true, stale: false} {
		synctest.Test(t, func(t *testing.T) {
			b, w := judged(t, lease.Lock{TS: time.Now().Add(-age), Phase: lease.Running}.WithRun(lease.Run{ID: 7}))
			w.knows["old"], w.found["old"] = lease.Standing{Life: lease.Over}, lease.Standing{Err: errBoom}
			_, err := b.locker().Acquire(t.Context(), item)
			var h *lease.HeldError
			if errors.As(err, &h) != held || held && (!h.Kept || !strings.Contains(h.Error(), "boom")) || (b.stored(item).ID == "old") != held {
				t.Errorf("%v old: got %v, stored %+v", age, err, b.stored(item))
			}
		})
	}
}

func TestInheritedRunsStayInTheLockUntilTheyAreSettled(t *testing.T) {
	t.Parallel()
	for name, settled := range map[string]bool{"settled": true, "not settled": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, w := judged(t, lease.Lock{TS: time.Now().Add(-time.Minute), Phase: lease.Running}.WithRun(lease.Run{ID: 7}))
				w.knows["old"] = lease.Standing{Life: lease.Over}
				acquired := func() *lease.Lease {
					l, err := b.locker().Acquire(t.Context(), item)
					if err != nil {
						t.Fatal(err)
					}
					if settled {
						l.Settled()
					}
					return l
				}
				if err := acquired().Release(t.Context()); err != nil {
					t.Fatal(err)
				}
				if left := b.Value(item); (left == nil) != settled {
					t.Errorf("a release left %s", left)
				}
				b.Set(item, encoded(t, lease.Lock{ID: "old", TS: time.Now().Add(-time.Minute), Phase: lease.Running}.WithRun(lease.Run{ID: 7})))
				l := acquired()
				if err := l.Handover(t.Context(), lease.Run{ID: 9}); err != nil {
					t.Fatal(err)
				}
				if got := b.stored(item); got.Names(7) == settled || !got.Names(9) {
					t.Errorf("a handover wrote %+v", got)
				}
			})
		})
	}
}

// A lock that names runs may be freed as soon as they have ended, from 30 s after
// its last write; its poller stops well before.
func TestALockThatNamesRunsIsConfirmedOnlyWhileItWasWrittenJustNow(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		runs  []lease.Run
		phase lease.Phase
		age   time.Duration
		want  error
	}{
		{"no runs, long ago", nil, lease.Pending, stale - time.Second, nil},
		{"runs, just now", runs(7), lease.Pending, 10 * time.Second, nil},
		{"runs, a little ahead", runs(7), lease.Pending, -10 * time.Second, nil},
		{"runs, too long ago", runs(7), lease.Pending, 10*time.Second + 1, lease.ErrLost},
		{"runs, running, too long ago", runs(7), lease.Running, time.Minute, lease.ErrLost},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(nil)
				l, err := b.locker().Acquire(t.Context(), item)
				if err != nil {
					t.Fatal(err)
				}
				now := lease.Lock{ID: l.ID(), TS: time.Now().Add(-tc.age), Phase: tc.phase, Runs: tc.runs}
				if err := l.Confirm(encoded(t, now)); !errors.Is(err, tc.want) {
					t.Errorf("got %v", err)
				}
				b.Set(item, encoded(t, now))
				if err := l.Handover(t.Context(), tc.runs...); err != nil {
					t.Fatal(err)
				}
				if err := l.Verify(t.Context()); err != nil {
					t.Errorf("a handover does not renew it: %v", err)
				}
			})
		})
	}
}

func TestARunThatADeadPollerStartedIsAdopted(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		// happens after the judge has decided
		script  func(t *testing.T, b *bench) func(leasetest.Call) leasetest.Fault
		adopted []lease.Run
		err     error
		ops     string
		left    string // id, and the number of its runs
	}{
		{"it stands in the lock afterwards", nil, runs(7), nil, "get get put", "old 1"},
		{"the lock was refreshed meanwhile", func(t *testing.T, b *bench) func(leasetest.Call) leasetest.Fault {
			t.Helper()
			return before(leasetest.Get, 2, func() {
				b.Set(item, encoded(t, lease.Lock{ID: "old", TS: time.Now(), Phase: lease.Running, Runs: runs(7, 8)}))
			})
		}, nil, nil, "get get", "old 2"},
		{"it was taken over meanwhile", func(t *testing.T, b *bench) func(leasetest.Call) leasetest.Fault {
			t.Helper()
			return before(leasetest.Get, 2, func() { b.hold(t, item, "other", 0) })
		}, nil, nil, "get get", "other 1"},
		{"it was deleted meanwhile", func(_ *testing.T, b *bench) func(leasetest.Call) leasetest.Fault {
			return before(leasetest.Get, 2, func() { b.Set(item, nil) })
		}, nil, nil, "get get", " 0"},
		{"it was deleted between read and write", func(_ *testing.T, b *bench) func(leasetest.Call) leasetest.Fault {
			return before(leasetest.Put, 1, func() { b.Set(item, nil) })
		}, nil, nil, "get get put delete", " 0"},
		{"the read fails", func(*testing.T, *bench) func(leasetest.Call) leasetest.Fault {
			return on(leasetest.Get, 2, leasetest.Fault{Err: errBoom})
		}, nil, errBoom, "get get", "old 0"},
		{"the write fails", func(*testing.T, *bench) func(leasetest.Call) leasetest.Fault {
			return on(leasetest.Put, 1, leasetest.Fault{Err: errBoom, Drop: true})
		}, nil, errBoom, "get get put", "old 0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, w := judged(t, lease.Lock{TS: time.Now().Add(-stale), Phase: lease.Pending, Driver: "theirs"})
				w.knows["old"] = lease.Standing{Life: lease.Alive, Runs: runs(7)}
				if tc.script != nil {
					b.Script = tc.script(t, b)
				}
				l, err := b.locker().Acquire(t.Context(), item)
				time.Sleep(time.Minute)
				var held *lease.HeldError
				switch {
				case l != nil:
					t.Error("it was taken over")
				case tc.err != nil:
					if !errors.Is(err, tc.err) || lease.Contended(err) {
						t.Errorf("got %v", err)
					}
				case !errors.As(err, &held) || !held.Kept || held.Holder.ID != "old" || held.Age != stale || !strings.Contains(held.Why, "run 7"):
					t.Errorf("got %v", err)
				default:
					if diff := cmp.Diff(tc.adopted, held.Adopted); diff != "" {
						t.Error(diff)
					}
				}
				got := b.stored(item)
				if left := fmt.Sprintf("%s %d", got.ID, len(got.Runs)); left != tc.left || ops(b) != tc.ops {
					t.Errorf("left %q, requests %q", left, ops(b))
				}
				if tc.adopted != nil && (got.Phase != lease.Pending || got.Driver != "theirs" || time.Since(got.TS) != time.Minute) {
					t.Errorf("stored %+v", got)
				}
			})
		})
	}
}

// before returns a script under which something happens right before one request
// has its effect.
func before(op leasetest.Op, n int, happen func()) func(leasetest.Call) leasetest.Fault {
	return func(c leasetest.Call) leasetest.Fault {
		if c.Op != op || c.N != n {
			return leasetest.Fault{}
		}
		time.AfterFunc(time.Millisecond, happen)
		return leasetest.Fault{Before: 2 * time.Millisecond}
	}
}

func TestAPendingLockGoesByItsOwnThreshold(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Minute
	for _, tc := range []struct {
		name  string
		phase lease.Phase
		age   time.Duration
		taken bool
	}{
		{"pending, younger", lease.Pending, ttl - 1, false},
		{"pending, as old", lease.Pending, ttl, true},
		{"running, as old", lease.Running, ttl, false},
		{"running, younger than the stale threshold", lease.Running, stale - 1, false},
		{"running, as old as that", lease.Running, stale, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(nil)
				b.opts.PendingTTL = ttl
				b.Set(item, encoded(t, lease.Lock{ID: "old", TS: time.Now().Add(-tc.age), Phase: tc.phase}))
				start := time.Now()
				l, err := b.locker().Acquire(t.Context(), item)
				if (err == nil) != tc.taken {
					t.Fatalf("got %v", err)
				}
				if l == nil {
					return
				}
				if got := l.Until().Sub(start); got != ttl-ttl/4 {
					t.Errorf("the holder should have finished after %v", got)
				}
				time.Sleep(ttl - time.Since(start) - 1)
				if err := l.Verify(t.Context()); err != nil {
					t.Errorf("almost stale: %v", err)
				}
				time.Sleep(time.Nanosecond)
				if err := l.Verify(t.Context()); !errors.Is(err, lease.ErrLost) {
					t.Errorf("stale: %v", err)
				}
			})
		})
	}
}
