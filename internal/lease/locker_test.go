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
		{"a stale lock", func(t *testing.T, b *bench) { t.Helper(); b.hold(t, item, "old", stale) }, "stale"},
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
