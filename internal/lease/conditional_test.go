package lease_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fullsend/poll-action/internal/lease"
	"github.com/fullsend/poll-action/internal/lease/leasetest"
)

// trusted is a register whose self-test is left out.
type trusted struct{ *leasetest.ConditionalMemory }

func (trusted) SelfTest(context.Context, string, func() lease.Lock) error { return nil }

// swapBench is a bench whose register can compare and swap, and a locker that
// does.
func swapBench(script func(c leasetest.Call) leasetest.Fault) (*bench, *leasetest.ConditionalMemory) {
	b := newBench(script)
	m := &leasetest.ConditionalMemory{}
	m.Script, m.Now = b.Script, b.Now
	b.Memory = &m.Memory
	b.opts.Register, b.opts.Conditional = trusted{m}, true
	return b, m
}

// ops are the requests so far for an item, without those of the self-test.
func (b *bench) ops(item string) []leasetest.Op {
	var ops []leasetest.Op
	for _, c := range b.Calls() {
		if c.Item == item {
			ops = append(ops, c.Op)
		}
	}
	return ops
}

func TestAConditionalLockIsTakenWithoutAWaitExceptOverAnotherOne(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		setup func(t *testing.T, b *bench)
		took  time.Duration
	}{
		"no lock":                    {func(*testing.T, *bench) {}, 0},
		"a stale lock":               {func(t *testing.T, b *bench) { t.Helper(); b.hold(t, item, "old", stale) }, bound},
		"a value that is no lock":    {func(_ *testing.T, b *bench) { b.Set(item, []byte(`["rubbish"]`)) }, bound},
		"a lock dated in the future": {func(t *testing.T, b *bench) { t.Helper(); b.hold(t, item, "old", -2*time.Minute) }, bound},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, _ := swapBench(nil)
				tc.setup(t, b)
				start := time.Now()
				l, err := b.locker().Acquire(t.Context(), item)
				if err != nil {
					t.Fatal(err)
				}
				if took := time.Since(start); took != tc.took {
					t.Errorf("it took %s, want %s", took, tc.took)
				}
				want := lease.Lock{ID: "id-1", TS: start.UTC(), Phase: lease.Pending, Driver: "jira-poll"}
				if diff := cmp.Diff(want, b.stored(item)); diff != "" {
					t.Error(diff)
				}
				if err := l.Release(t.Context()); err != nil || b.Value(item) != nil {
					t.Errorf("after the release: %v, %s", err, b.Value(item))
				}
				if diff := cmp.Diff([]leasetest.Op{leasetest.Get, leasetest.Swap, leasetest.Get, leasetest.Get, leasetest.DeleteIf}, b.ops(item)); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

func TestAConditionalLockThatSomebodyHoldsIsLeftAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, _ := swapBench(nil)
		b.hold(t, item, "other", time.Minute)
		_, err := b.locker().Acquire(t.Context(), item)
		var held *lease.HeldError
		if !errors.As(err, &held) || held.Holder.ID != "other" || len(b.Calls()) != 1 {
			t.Errorf("got %v after %d requests", err, len(b.Calls()))
		}
	})
}

func TestTheLoserOfARaceOfSwapsTouchesNothing(t *testing.T) {
	t.Parallel()
	for name, age := range map[string]time.Duration{"for an empty place": -1, "for a stale lock": stale} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, _ := swapBench(func(leasetest.Call) leasetest.Fault { return leasetest.Fault{Before: 10 * time.Millisecond} })
				if age >= 0 {
					b.hold(t, item, "old", age)
				}
				var mu sync.Mutex
				winner, lost := "", 0
				var wg sync.WaitGroup
				for range 8 {
					locker := b.locker()
					wg.Go(func() {
						l, err := locker.Acquire(t.Context(), item)
						mu.Lock()
						defer mu.Unlock()
						switch {
						case err == nil && winner == "":
							winner = l.ID()
						case err == nil:
							t.Errorf("%s and %s win", winner, l.ID())
						case errors.Is(err, lease.ErrLost):
							lost++
						default:
							t.Error(err)
						}
					})
				}
				wg.Wait()
				if lost != 7 || b.stored(item).ID != winner {
					t.Errorf("%d lost; %s won, %s is stored", lost, winner, b.stored(item).ID)
				}
				if n := len(b.Calls()); n != 8*3 {
					t.Errorf("%d requests", n)
				}
			})
		})
	}
}

// A run writes its lock without a condition: what it read before the swap, it may
// write after it.
func TestARunsRefreshUnderWayIsNotOverseenByATakeOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, m := swapBench(on(leasetest.Put, 1, leasetest.Fault{Before: bound - 100*time.Millisecond}))
		b.hold(t, item, "old", stale)
		var wg sync.WaitGroup
		wg.Go(func() {
			k := lease.Keeper{Register: m, ServerNow: time.Now}
			if _, err := k.Refresh(t.Context(), item, "old", lease.Run{ID: 77}); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(50 * time.Millisecond)
		if l, err := b.locker().Acquire(t.Context(), item); !errors.Is(err, lease.ErrLost) {
			t.Errorf("got %v and %v", l, err)
		}
		wg.Wait()
		if got := b.stored(item); got.ID != "old" || got.Phase != lease.Running {
			t.Errorf("stored is %+v", got)
		}
	})
}

func TestAStoreThatCannotCompareAndSwapIsRefusedAndNoLockWritten(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		register func(b *bench, m *leasetest.ConditionalMemory) lease.Register
		want     string
		// again: the next acquisition tries again.
		again bool
	}{
		"the condition is tested too early": {func(b *bench, m *leasetest.ConditionalMemory) lease.Register {
			m.Flaw = leasetest.TestsEarly
			return m
		}, "both of two racing writes", false},
		"the condition is ignored": {func(_ *bench, m *leasetest.ConditionalMemory) lease.Register {
			m.Flaw = leasetest.Unconditional
			return m
		}, "cannot be relied on", false},
		"the value is not compared": {func(_ *bench, m *leasetest.ConditionalMemory) lease.Register {
			m.Flaw = leasetest.IgnoresValue
			return m
		}, "another value was stored", false},
		"nothing has an effect": {func(_ *bench, m *leasetest.ConditionalMemory) lease.Register {
			m.Flaw = leasetest.NoEffect
			return m
		}, "Edit Issues", true},
		"the store knows better": {func(_ *bench, m *leasetest.ConditionalMemory) lease.Register {
			m.Refuses = errors.ErrUnsupported
			return m
		}, "unsupported", false},
		"an answer fails": {func(_ *bench, m *leasetest.ConditionalMemory) lease.Register {
			m.Refuses = errBoom
			return m
		}, "boom", true},
		"a store of another kind": {func(b *bench, _ *leasetest.ConditionalMemory) lease.Register {
			return &leasetest.Memory{}
		}, "unsupported", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, m := swapBench(func(c leasetest.Call) leasetest.Fault {
					if c.Op == leasetest.Swap && c.N%2 == 0 {
						return leasetest.Fault{Before: time.Second} // one racer is slower
					}
					return leasetest.Fault{Before: 50 * time.Millisecond}
				})
				b.opts.Register = tc.register(b, m)
				locker := b.locker()
				for try := range 2 {
					before := len(b.Calls())
					for _, a := range locker.AcquireAll(t.Context(), []string{"1", "2", "3", "4"}) {
						if a.Lease != nil || a.Err == nil || !strings.Contains(a.Err.Error(), tc.want) || !strings.Contains(a.Err.Error(), "lock.mode: verify") || lease.Contended(a.Err) {
							t.Errorf("%s: %v", a.Item, a.Err)
						}
					}
					if tried := len(b.Calls()) > before || m.Refuses != nil; try > 0 && m.Refuses == nil && tried != tc.again {
						t.Errorf("the second acquisition tries again: %t", tried)
					}
				}
				for _, c := range b.Calls() {
					if !strings.HasSuffix(c.Item, leasetest.Scratch("")) {
						t.Errorf("%s of %s", c.Op, c.Item)
					}
				}
				for _, i := range []string{"1", "2", "3", "4"} {
					if b.Value(leasetest.Scratch(i)) != nil {
						t.Errorf("the scratch value of %s was left", i)
					}
				}
			})
		})
	}
}

func TestTheSelfTestIsMadeOnceAndBeforeTheFirstLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, m := swapBench(func(leasetest.Call) leasetest.Fault { return leasetest.Fault{After: 20 * time.Millisecond} })
		b.opts.Register = m
		locker := b.locker()
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() {
				for _, a := range locker.AcquireAll(t.Context(), []string{fmt.Sprint(i, "a"), fmt.Sprint(i, "b")}) {
					if a.Err != nil {
						t.Error(a.Err)
					}
				}
			})
		}
		wg.Wait()
		tests, items := 0, map[string]bool{}
		for _, c := range b.Calls() {
			if strings.HasSuffix(c.Item, leasetest.Scratch("")) {
				tests++
				items[c.Item] = true
			} else if tests < 13 {
				t.Errorf("%s of %s before the end of the test", c.Op, c.Item)
			}
		}
		// read, two swaps with a look each, look, swap and deletion for the loser's
		// value, look, swap, look, deletion, look
		if len(items) != 1 || tests != 13 {
			t.Errorf("%d requests on %v", tests, items)
		}
	})
}

func TestAnotherItemIsTriedWhereTheFirstCannotBeTested(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, m := swapBench(func(c leasetest.Call) leasetest.Fault {
			if c.Item == leasetest.Scratch("1") {
				return leasetest.Fault{Err: errBoom, Drop: true}
			}
			return leasetest.Fault{}
		})
		b.opts.Register = m
		for _, a := range b.locker().AcquireAll(t.Context(), []string{"1", "2"}) {
			if a.Err != nil {
				t.Errorf("%s: %v", a.Item, a.Err)
			}
		}
	})
}

// A task may run long after it was given up: then it writes only where things are
// as they were, and nobody is at work under it.
func TestALateSwapIsAnAbandonedLockAtMost(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]func(t *testing.T, b *bench){
		"others came and went": func(t *testing.T, b *bench) {
			t.Helper()
			l, err := b.locker().Acquire(t.Context(), item)
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
		"another is at work": func(t *testing.T, b *bench) {
			t.Helper()
			if _, err := b.locker().Acquire(t.Context(), item); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, _ := swapBench(on(leasetest.Swap, 1, leasetest.Fault{Err: lease.ErrSlow, Lands: time.Minute}))
				if l, err := b.locker().Acquire(t.Context(), item); !errors.Is(err, lease.ErrSlow) {
					t.Fatalf("got %v and %v", l, err)
				}
				meanwhile(t, b)
				working := b.stored(item).ID
				time.Sleep(2 * time.Minute)
				late := b.stored(item)
				if working != "" {
					if late.ID != working {
						t.Errorf("%q is at work, %q is stored", working, late.ID)
					}
					return
				}
				var held *lease.HeldError
				if _, err := b.locker().Acquire(t.Context(), item); late.ID != "id-1" || !errors.As(err, &held) {
					t.Errorf("stored is %+v; %v", late, err)
				}
				time.Sleep(stale)
				if _, err := b.locker().Acquire(t.Context(), item); err != nil {
					t.Errorf("the abandoned lock does not end: %v", err)
				}
			})
		})
	}
}

func TestASwapThatEndsInDoubtIsTakenBack(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		op    leasetest.Op
		n     int
		fault leasetest.Fault
	}{
		"its answer is lost":      {leasetest.Swap, 1, leasetest.Fault{Err: errBoom}},
		"it is lost":              {leasetest.Swap, 1, leasetest.Fault{Err: errBoom, Drop: true}},
		"it lands a little later": {leasetest.Swap, 1, leasetest.Fault{Err: errBoom, Lands: guard / 2}},
		"the look fails":          {leasetest.Get, 2, leasetest.Fault{Err: errBoom}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, _ := swapBench(func(c leasetest.Call) leasetest.Fault {
					if c.Op == leasetest.DeleteIf {
						return leasetest.Fault{Before: bound + 500*time.Millisecond} // a condition makes a slow deletion harmless
					}
					return on(tc.op, tc.n, tc.fault)(c)
				})
				if _, err := b.locker().Acquire(t.Context(), item); !errors.Is(err, errBoom) {
					t.Errorf("got %v", err)
				}
				if b.Value(item) != nil || slices.Contains(b.ops(item), leasetest.Delete) {
					t.Errorf("left is %s after %v", b.Value(item), b.ops(item))
				}
			})
		})
	}
}

func TestAnInterruptedConditionalAcquisitionLeavesNoLock(t *testing.T) {
	t.Parallel()
	for at := 50 * time.Millisecond; at < 2*time.Second; at += 100 * time.Millisecond {
		t.Run(at.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, m := swapBench(func(leasetest.Call) leasetest.Fault {
					return leasetest.Fault{Before: 60 * time.Millisecond, After: 60 * time.Millisecond}
				})
				b.opts.Register = m
				ctx, cancel := context.WithTimeout(t.Context(), at)
				defer cancel()
				start := time.Now()
				l, err := b.locker().Acquire(ctx, item)
				if took := time.Since(start) - at; took > 5*time.Second {
					t.Errorf("it went on for %s", took)
				}
				if l == nil && (b.Value(item) != nil || err == nil) {
					t.Errorf("left is %s; %v", b.Value(item), err)
				}
				if b.Value(leasetest.Scratch(item)) != nil {
					t.Error("the scratch value was left")
				}
			})
		})
	}
}

func TestAConditionalReleaseDeletesOnlyWhatWasRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, m := swapBench(on(leasetest.DeleteIf, 1, leasetest.Fault{Before: time.Second}))
		l, err := b.locker().Acquire(t.Context(), item)
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := l.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(500 * time.Millisecond)
		k := lease.Keeper{Register: m, ServerNow: time.Now}
		if _, err := k.Refresh(t.Context(), item, l.ID(), lease.Run{ID: 5}); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		if got := b.stored(item); got.ID != l.ID() || got.RunID != 5 {
			t.Errorf("the run's lock was deleted; stored is %+v", got)
		}
	})
}

func TestAWriteThatChangesNothingThoughNobodyElseWroteIsAFailureNotContention(t *testing.T) {
	t.Parallel()
	for name, age := range map[string]time.Duration{"an empty place": -1, "a stale lock": stale} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, m := swapBench(nil)
				m.Flaw = leasetest.NoEffect
				if age >= 0 {
					b.hold(t, item, "old", age)
				}
				_, err := b.locker().Acquire(t.Context(), item)
				if err == nil || lease.Contended(err) || !strings.Contains(err.Error(), "Edit Issues") {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

// Another poller that came and went between the read and the swap is no fault of
// the store.
func TestSomebodyWhoCameAndWentDuringASwapIsNoFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, m := swapBench(nil)
		m.Script = func(c leasetest.Call) leasetest.Fault {
			if c.Op == leasetest.Swap && c.N == 1 {
				return leasetest.Fault{Drop: true}
			}
			return leasetest.Fault{}
		}
		if _, err := b.locker().Acquire(t.Context(), item); err != nil {
			t.Error(err)
		}
	})
}

// An adoption by a plain write would overwrite a lock that somebody has swapped in
// and already verified.
func TestAnAdoptionDoesNotOverwriteALockThatWasSwappedIn(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		other string
		want  string
		runs  int
	}{"nobody else came": {"", "old", 1}, "another took the lock": {"new", "new", 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, _ := swapBench(func(c leasetest.Call) leasetest.Fault { return leasetest.Fault{Before: 100 * time.Millisecond} })
				b.Set(item, encoded(t, lease.Lock{ID: "old", TS: time.Now().Add(-stale), Phase: lease.Pending}))
				b.opts.Evidence = brief{answers: []lease.Standing{{Life: lease.Alive, Runs: []lease.Run{{ID: 9}}}}}
				if tc.other != "" { // between adopt's read and its write
					time.AfterFunc(250*time.Millisecond, func() {
						b.Set(item, encoded(t, lease.Lock{ID: tc.other, TS: time.Now(), Phase: lease.Pending}))
					})
				}
				_, err := b.locker().Acquire(t.Context(), item)
				var held *lease.HeldError
				if !errors.As(err, &held) || len(held.Adopted) != tc.runs {
					t.Errorf("got %v", err)
				}
				if got := b.stored(item); got.ID != tc.want || len(got.Runs) != tc.runs {
					t.Errorf("stored is %+v", got)
				}
			})
		})
	}
}

// swapSchedule is a schedule of contenders that compare and swap. Requests that
// were given up may have their effect up to two minutes later.
func swapSchedule(t *testing.T, seed uint64, flaw leasetest.Flaw) *schedule {
	t.Helper()
	var s *schedule
	synctest.Test(t, func(t *testing.T) {
		s = newSchedule(seed)
		m := &leasetest.ConditionalMemory{Flaw: flaw}
		m.Now, m.Effect = s.reg.Now, s.reg.Effect
		m.Script = func(c leasetest.Call) leasetest.Fault {
			f := s.reg.Script(c)
			if (c.Op == leasetest.Swap || c.Op == leasetest.DeleteIf) && s.dice.chance(s.trouble/2) {
				f = leasetest.Fault{Before: f.Before, Err: lease.ErrSlow, Lands: s.dice.upTo(2 * time.Minute)}
			}
			return f
		}
		var wg sync.WaitGroup
		for i := range 2 + s.dice.r.IntN(3) {
			who := fmt.Sprintf("p%d", i)
			wg.Go(func() {
				locker := lease.New(lease.Options{
					Register: trusted{m}, Conditional: true, Driver: who, Rules: lease.Rules{StaleThreshold: s.stale},
					Guard: guard, JitterMin: jitterMin, JitterMax: jitterMax, CleanUp: cleanUp,
					Now: time.Now, ServerNow: time.Now, Rand: s.dice.float, NewID: ids(who),
				})
				for range 3 {
					time.Sleep(s.dice.upTo(s.spread))
					if !s.turn(t, locker, who) {
						return
					}
				}
			})
		}
		wg.Wait()
		time.Sleep(3 * time.Minute) // late effects
	})
	return s
}

func TestNeverTwoPutOutUnderOneGenerationOfAConditionalLock(t *testing.T) {
	t.Parallel()
	const schedules = 600
	outputs, contests, late := 0, 0, 0
	for seed := range uint64(schedules) {
		s := swapSchedule(t, seed, leasetest.Sound)
		if len(s.fouls) > 0 {
			t.Fatalf("seed %d, latency up to %v, trouble %v:\n%s\n%s", seed, s.latency, s.trouble, strings.Join(s.fouls, "\n"), s)
		}
		outputs += len(s.wins)
		if len(s.wins) > 1 {
			contests++
		}
		if s.trouble > 0 {
			late++
		}
	}
	if outputs < schedules || contests < schedules/3 || late < schedules/3 {
		t.Errorf("%d outputs, %d contests, %d schedules with trouble: the model is idle", outputs, contests, late)
	}
	fouls := 0
	for seed := range uint64(100) {
		fouls += len(swapSchedule(t, seed, leasetest.TestsEarly).fouls)
	}
	if fouls == 0 {
		t.Error("a store that tests early shows no double either: the model proves nothing")
	}
}
