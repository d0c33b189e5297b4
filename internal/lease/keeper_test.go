package lease_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fullsend/poll-action/internal/lease"
	"github.com/fullsend/poll-action/internal/lease/leasetest"
)

func TestKeeper(t *testing.T) {
	t.Parallel()
	own := lease.Run{Agent: "triage", ID: 7, URL: "https://x/7"}
	handed := func(id string, age time.Duration) lease.Lock {
		return lease.Lock{ID: id, TS: time.Now().Add(-age), Phase: lease.Pending, Driver: "jira-poll"}.WithRun(lease.Run{Agent: "triage", ID: 7})
	}
	for _, tc := range []struct {
		name   string
		stored func(t *testing.T) []byte
		script func(c leasetest.Call) leasetest.Fault
		want   error
		lost   bool
		gets   int // of a refresh that succeeds, 0 where it does not
	}{
		{"a held lock is refreshed", func(t *testing.T) []byte { t.Helper(); return encoded(t, handed("ours", time.Minute)) }, nil, nil, false, 2},
		{"a lock that went stale and that nobody took is still ours", func(t *testing.T) []byte { t.Helper(); return encoded(t, handed("ours", 10*stale)) }, nil, nil, false, 2},
		{"a lock that is gone is missing", func(*testing.T) []byte { return nil }, nil, lease.ErrMissing, false, 0},
		{"somebody else's lock is lost", func(t *testing.T) []byte { t.Helper(); return encoded(t, handed("other", time.Minute)) }, nil, lease.ErrLost, true, 0},
		{"rubbish is lost", func(*testing.T) []byte { return []byte(`{"id":7}`) }, nil, lease.ErrLost, true, 0},
		{"a store that does not answer is neither", func(t *testing.T) []byte { t.Helper(); return encoded(t, handed("ours", 0)) }, on(leasetest.Get, 1, leasetest.Fault{Err: errBoom}), errBoom, false, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := &leasetest.Memory{Script: tc.script}
				m.Set(item, tc.stored(t))
				before := m.Value(item)
				k := &lease.Keeper{Register: m, ServerNow: time.Now}
				_, err := k.Verify(t.Context(), item, "ours")
				check := func(what string, err error) {
					t.Helper()
					var held *lease.HeldError
					if !errors.Is(err, tc.want) || errors.Is(err, lease.ErrLost) != tc.lost {
						t.Errorf("%s: got %v, want %v", what, err, tc.want)
					}
					if tc.name == "somebody else's lock is lost" && (!errors.As(err, &held) || held.Holder.ID != "other" || held.Age != time.Minute) {
						t.Errorf("%s: the holder is not told: %v", what, err)
					}
				}
				check("verify", err)
				if diff := cmp.Diff(before, m.Value(item)); diff != "" {
					t.Errorf("verify wrote:\n%s", diff)
				}
				m2 := &leasetest.Memory{Script: tc.script}
				m2.Set(item, before)
				k.Register = m2
				got, err := k.Refresh(t.Context(), item, "ours", own)
				check("refresh", err)
				if tc.gets == 0 {
					if diff := cmp.Diff(before, m2.Value(item)); diff != "" {
						t.Errorf("a refresh that failed wrote:\n%s", diff)
					}
					return
				}
				want := handed("ours", 0).WithRun(own)
				want.Phase, want.TS = lease.Running, time.Now().UTC()
				stored, derr := lease.Decode(m2.Value(item))
				if diff := cmp.Diff(want, stored); derr != nil || diff != "" {
					t.Errorf("stored: %v\n%s", derr, diff)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("returned:\n%s", diff)
				}
				if last := m2.Calls()[len(m2.Calls())-1]; last.Op != leasetest.Get || last.N != tc.gets {
					t.Errorf("the last request is %s %d", last.Op, last.N)
				}
			})
		})
	}
}

// The run starts so fast that the poller is still handing over: its write of
// "pending" comes after the run's write of "running".
func TestRefreshWinsOverARacingHandover(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		late   lease.Lock // written after the run's first write
		want   error
		phase  lease.Phase
		runIDs []int64
	}{
		{"by the poller of the same lock", lease.Lock{ID: "ours", Phase: lease.Pending}.WithRun(lease.Run{Agent: "triage", ID: 7}).WithRun(lease.Run{Agent: "code", ID: 8}), nil, lease.Running, []int64{7, 8}},
		{"by somebody else", lease.Lock{ID: "other", Phase: lease.Pending}, lease.ErrLost, lease.Pending, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := &leasetest.Memory{}
				m.Set(item, encoded(t, lease.Lock{ID: "ours", TS: time.Now(), Phase: lease.Pending}))
				m.Script = on(leasetest.Put, 1, leasetest.Fault{After: 10 * time.Millisecond})
				late := tc.late
				late.TS = time.Now()
				time.AfterFunc(5*time.Millisecond, func() { m.Set(item, encoded(t, late)) })
				k := &lease.Keeper{Register: m, ServerNow: time.Now}
				_, err := k.Refresh(t.Context(), item, "ours", lease.Run{Agent: "triage", ID: 7})
				if !errors.Is(err, tc.want) {
					t.Fatalf("got %v", err)
				}
				got, err := lease.Decode(m.Value(item))
				if err != nil || got.Phase != tc.phase || got.ID != tc.late.ID {
					t.Errorf("stored %+v, %v", got, err)
				}
				var runs []int64
				for _, r := range got.Runs {
					runs = append(runs, r.ID)
				}
				if diff := cmp.Diff(tc.runIDs, runs); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

func TestRefreshReportsAWriteThatFails(t *testing.T) {
	t.Parallel()
	for _, script := range []func(leasetest.Call) leasetest.Fault{
		on(leasetest.Put, 1, leasetest.Fault{Err: errBoom, Drop: true}),
		on(leasetest.Get, 2, leasetest.Fault{Err: errBoom}),
	} {
		m := &leasetest.Memory{Script: script}
		m.Set(item, encoded(t, lease.Lock{ID: "ours", TS: time.Unix(1, 0), Phase: lease.Pending}))
		k := &lease.Keeper{Register: m, ServerNow: func() time.Time { return time.Unix(2, 0) }}
		if _, err := k.Refresh(t.Context(), item, "ours", lease.Run{ID: 7}); !errors.Is(err, errBoom) || lease.Contended(err) {
			t.Errorf("got %v", err)
		}
	}
}

func TestTwoRunsOfOneLockStandBesideEachOther(t *testing.T) {
	t.Parallel()
	m := &leasetest.Memory{}
	m.Set(item, encoded(t, lease.Lock{ID: "ours", TS: time.Unix(1, 0), Phase: lease.Pending}))
	k := &lease.Keeper{Register: m, ServerNow: func() time.Time { return time.Unix(2, 0) }}
	for _, id := range []int64{7, 8, 7} {
		if _, err := k.Refresh(t.Context(), item, "ours", lease.Run{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := lease.Decode(m.Value(item))
	if diff := cmp.Diff([]lease.Run{{ID: 7}, {ID: 8}}, got.Runs); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

// keeper is the runner's side of a lock in a bubble.
func keeper(reg lease.Register) *lease.Keeper {
	return &lease.Keeper{Register: reg, ServerNow: time.Now}
}

// An operator deletes the lock while a run writes it.
func TestALockThatWasDeletedNeverComesBack(t *testing.T) {
	t.Parallel()
	other := func(t *testing.T) []byte {
		t.Helper()
		return encoded(t, lease.Lock{ID: "other", TS: time.Now(), Phase: lease.Pending})
	}
	for _, tc := range []struct {
		name   string
		at     time.Duration // of the deletion; a read takes a second, so does a write
		next   func(t *testing.T) []byte
		faults func(leasetest.Call) leasetest.Fault
		want   error
		left   string
	}{
		{"before the read", 0, nil, nil, lease.ErrMissing, ""},
		{"between read and write", 1500 * time.Millisecond, nil, nil, lease.ErrMissing, ""},
		{"between write and confirmation", 2500 * time.Millisecond, nil, nil, lease.ErrMissing, ""},
		{"between read and write, and somebody takes it when it is back", 1500 * time.Millisecond, other, nil, lease.ErrMissing, "other"},
		{"the look at what came back fails twice", 1500 * time.Millisecond, nil, func(c leasetest.Call) leasetest.Fault {
			return leasetest.Fault{Err: map[bool]error{true: errBoom}[c.Op == leasetest.Get && (c.N == 2 || c.N == 3)]}
		}, lease.ErrMissing, ""},
		{"its removal fails once", 1500 * time.Millisecond, nil, on(leasetest.Delete, 1, leasetest.Fault{Err: errBoom, Drop: true}), lease.ErrMissing, ""},
		{"its removal fails for good", 1500 * time.Millisecond, nil, func(c leasetest.Call) leasetest.Fault {
			return leasetest.Fault{Err: map[bool]error{true: errBoom}[c.Op == leasetest.Delete], Drop: c.Op == leasetest.Delete}
		}, errBoom, "ours"},
	} {
		for _, cancelled := range []bool{false, true} {
			for _, release := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, cancelled %t, release %t", tc.name, cancelled, release), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						reg := &leasetest.Memory{Script: func(c leasetest.Call) leasetest.Fault {
							f := leasetest.Fault{}
							if tc.faults != nil {
								f = tc.faults(c)
							}
							f.Before = time.Second
							return f
						}}
						reg.Set(item, encoded(t, lease.Lock{ID: "ours", TS: time.Now(), Phase: lease.Running}.WithRun(lease.Run{ID: 7}).WithRun(lease.Run{ID: 8})))
						ctx, cancel := context.WithCancel(t.Context())
						defer cancel()
						time.AfterFunc(tc.at, func() { reg.Set(item, nil) })
						if cancelled {
							time.AfterFunc(1700*time.Millisecond, cancel)
						}
						if tc.next != nil {
							time.AfterFunc(2500*time.Millisecond, func() { reg.Set(item, tc.next(t)) })
						}
						var err error
						if release {
							var r lease.Released
							if r, err = keeper(reg).Release(ctx, item, "ours", lease.Run{ID: 7}); r != lease.NotHeld {
								t.Errorf("released: %v", r)
							}
						} else {
							_, err = keeper(reg).Refresh(ctx, item, "ours", lease.Run{ID: 7})
							if !errors.Is(err, tc.want) && !cancelled {
								t.Errorf("got %v", err)
							}
						}
						if errors.Is(err, lease.ErrLost) {
							t.Errorf("got %v", err)
						}
						time.Sleep(time.Hour)
						if got, _ := lease.Decode(reg.Value(item)); got.ID != tc.left {
							t.Errorf("left behind: %s", reg.Value(item))
						}
					})
				})
			}
		}
	}
}

// together runs both at a distance from each other against one register whose
// requests all take equally long.
func together(apart time.Duration, reg *leasetest.Memory, a, b func()) {
	reg.Script = func(leasetest.Call) leasetest.Fault {
		return leasetest.Fault{Before: 50 * time.Millisecond, After: 50 * time.Millisecond}
	}
	var g sync.WaitGroup
	g.Go(a)
	g.Go(func() { time.Sleep(apart); b() })
	g.Wait()
}

func TestTwoRunsThatRefreshAtOnceBothStandInTheLock(t *testing.T) {
	t.Parallel()
	for apart := time.Duration(0); apart < 500*time.Millisecond; apart += 13 * time.Millisecond {
		for name, l := range map[string]lease.Lock{
			"the lock named none": {}, "it named both": lease.Lock{}.WithRun(lease.Run{ID: 7}).WithRun(lease.Run{ID: 8}),
		} {
			synctest.Test(t, func(t *testing.T) {
				reg := &leasetest.Memory{}
				l.ID, l.TS, l.Phase = "ours", time.Now().Add(-time.Minute), lease.Pending
				reg.Set(item, encoded(t, l))
				start := time.Now()
				refresh := func(id int64) func() {
					return func() {
						if _, err := keeper(reg).Refresh(t.Context(), item, "ours", lease.Run{ID: id}); err != nil {
							t.Errorf("%s, %v apart: run %d: %v", name, apart, id, err)
						}
					}
				}
				together(apart, reg, refresh(7), refresh(8))
				got, err := lease.Decode(reg.Value(item))
				if err != nil || !got.Names(7) || !got.Names(8) || len(got.Runs) != 2 || got.Phase != lease.Running || got.TS.Before(start) {
					t.Errorf("%s, %v apart: %+v, %v", name, apart, got, err)
				}
			})
		}
	}
}

func TestALockThatOthersKeepWritingIsUnsettledAndStays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reg := handed(t)
		others := encoded(t, lease.Lock{ID: "ours", TS: time.Now(), Phase: lease.Pending}.WithRun(lease.Run{ID: 8}))
		reg.Script = func(c leasetest.Call) leasetest.Fault {
			if c.Op == leasetest.Put {
				time.AfterFunc(time.Millisecond, func() { reg.Set(item, others) })
			}
			return leasetest.Fault{After: 2 * time.Millisecond}
		}
		_, err := keeper(reg).Refresh(t.Context(), item, "ours", lease.Run{ID: 7})
		if !errors.Is(err, lease.ErrUnsettled) || lease.Contended(err) || errors.Is(err, lease.ErrMissing) {
			t.Errorf("got %v", err)
		}
		if n := len(begun(reg, leasetest.Put, time.Now())); n != 4 {
			t.Errorf("%d writes", n)
		}
		if diff := cmp.Diff(others, reg.Value(item)); diff != "" {
			t.Error(diff)
		}
	})
}

// Another run's write takes this one out; so does that one's with the others.
func TestARunThatWasWrittenOverGivesTheOthersBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reg := handed(t)
		others := encoded(t, lease.Lock{ID: "ours", TS: time.Now().Add(time.Second), Phase: lease.Running}.WithRun(lease.Run{ID: 8}))
		reg.Script = func(c leasetest.Call) leasetest.Fault {
			if c.Op == leasetest.Put && c.N == 1 {
				time.AfterFunc(time.Millisecond, func() { reg.Set(item, others) })
			}
			return leasetest.Fault{After: 2 * time.Millisecond}
		}
		got, err := keeper(reg).Refresh(t.Context(), item, "ours", lease.Run{ID: 9})
		if err != nil || !got.Names(7) || !got.Names(8) || !got.Names(9) {
			t.Errorf("got %+v, %v", got, err)
		}
	})
}

func TestReleaseDeletesTheLockWithItsLastRun(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		id     string
		stored []int64
		run    int64
		script func(leasetest.Call) leasetest.Fault
		want   lease.Released
		err    error
		left   []int64 // nil: nothing is left
		writes int
	}{
		{"the only run", "ours", []int64{7}, 7, nil, lease.Deleted, nil, nil, 1},
		{"no run is named", "ours", []int64{}, 7, nil, lease.Deleted, nil, nil, 1},
		{"no run is named, and it has no id", "ours", []int64{}, 0, nil, lease.Deleted, nil, nil, 1},
		{"another one stays", "ours", []int64{7, 8}, 7, nil, lease.Left, nil, []int64{8}, 1},
		{"two others stay", "ours", []int64{7, 8, 9}, 8, nil, lease.Left, nil, []int64{7, 9}, 1},
		{"it is out already", "ours", []int64{8}, 7, nil, lease.Left, nil, []int64{8}, 0},
		{"it has no id, another one is named", "ours", []int64{8}, 0, nil, lease.Left, nil, []int64{8}, 0},
		{"somebody else's", "other", []int64{7}, 7, nil, lease.NotHeld, nil, []int64{7}, 0},
		{"somebody else's without runs", "other", []int64{}, 7, nil, lease.NotHeld, nil, []int64{}, 0},
		{"the store does not answer", "ours", []int64{7}, 7, on(leasetest.Get, 1, leasetest.Fault{Err: errBoom}), lease.NotHeld, errBoom, []int64{7}, 0},
		{"the store does not write", "ours", []int64{7, 8}, 7, on(leasetest.Put, 1, leasetest.Fault{Err: errBoom, Drop: true}), lease.NotHeld, errBoom, []int64{7, 8}, 1},
		{"the store does not delete", "ours", []int64{7}, 7, on(leasetest.Delete, 1, leasetest.Fault{Err: errBoom, Drop: true}), lease.Deleted, errBoom, []int64{7}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				reg := &leasetest.Memory{Script: tc.script}
				l := lease.Lock{ID: tc.id, TS: time.Now().Add(-time.Minute), Phase: lease.Pending, Driver: "d"}
				for _, id := range tc.stored {
					l = l.WithRun(lease.Run{Agent: "a", ID: id, URL: "u"})
				}
				reg.Set(item, encoded(t, l))
				got, err := keeper(reg).Release(t.Context(), item, "ours", lease.Run{ID: tc.run})
				if got != tc.want || !errors.Is(err, tc.err) {
					t.Errorf("got %v, %v", got, err)
				}
				writes := 0
				for _, c := range reg.Calls() {
					if c.Op != leasetest.Get {
						writes++
					}
				}
				if writes != tc.writes {
					t.Errorf("%d writes", writes)
				}
				left, err := lease.Decode(reg.Value(item))
				if (err != nil) != (tc.left == nil) {
					t.Fatalf("left %s", reg.Value(item))
				}
				if tc.left == nil {
					return
				}
				var ids []int64
				for _, r := range left.Runs {
					ids = append(ids, r.ID)
					if r.Agent != "a" || r.URL != "u" {
						t.Errorf("run %+v", r)
					}
				}
				if diff := cmp.Diff(tc.left, ids, cmpopts.EquateEmpty()); diff != "" || left.ID != tc.id || left.Driver != "d" {
					t.Errorf("left %+v\n%s", left, diff)
				}
			})
		})
	}
	t.Run("gone or rubbish", func(t *testing.T) {
		t.Parallel()
		for _, stored := range [][]byte{nil, []byte(`7`)} {
			reg := &leasetest.Memory{}
			reg.Set(item, stored)
			if got, err := keeper(reg).Release(t.Context(), item, "ours", lease.Run{ID: 7}); got != lease.NotHeld || err != nil || string(reg.Value(item)) != string(stored) {
				t.Errorf("%s: got %v, %v, left %s", stored, got, err, reg.Value(item))
			}
		}
	})
}

// The other run has refreshed between the read and the write of a release, and
// trusts in that; what the release writes must not be older by more than its own
// time on the way.
func TestAReleaseTakesNothingFromWhatAnotherRunRefreshed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reg := &leasetest.Memory{}
		old := lease.Lock{ID: "ours", TS: time.Now().Add(-interval), Phase: lease.Pending}.WithRun(lease.Run{ID: 7}).WithRun(lease.Run{ID: 8})
		reg.Set(item, encoded(t, old))
		reg.Script = on(leasetest.Put, 1, leasetest.Fault{Before: time.Second})
		var asked time.Time
		time.AfterFunc(time.Second/2, func() {
			asked = time.Now()
			if _, err := keeper(reg).Refresh(t.Context(), item, "ours", lease.Run{ID: 8}); err != nil {
				t.Error(err)
			}
		})
		if r, err := keeper(reg).Release(t.Context(), item, "ours", lease.Run{ID: 7}); r != lease.Left || err != nil {
			t.Errorf("got %v, %v", r, err)
		}
		got, err := lease.Decode(reg.Value(item))
		if err != nil || got.TS.Before(asked.Add(-time.Second)) || got.Phase != lease.Running || got.Names(7) || !got.Names(8) {
			t.Errorf("left %+v, %v", got, err)
		}
	})
}

func TestRunsThatReleaseAtOnceLeaveNothing(t *testing.T) {
	t.Parallel()
	for _, second := range []int64{8, 7} { // two runs, and one run twice
		for apart := time.Duration(0); apart < 500*time.Millisecond; apart += 13 * time.Millisecond {
			synctest.Test(t, func(t *testing.T) {
				reg := &leasetest.Memory{}
				reg.Set(item, encoded(t, lease.Lock{ID: "ours", TS: time.Now(), Phase: lease.Running}.WithRun(lease.Run{ID: 7}).WithRun(lease.Run{ID: second})))
				release := func(id int64) func() {
					return func() {
						if _, err := keeper(reg).Release(t.Context(), item, "ours", lease.Run{ID: id}); err != nil {
							t.Errorf("%v apart: run %d: %v", apart, id, err)
						}
					}
				}
				together(apart, reg, release(7), release(second))
				if left := reg.Value(item); left != nil {
					t.Errorf("runs 7 and %d, %v apart: left %s", second, apart, left)
				}
			})
		}
	}
}
