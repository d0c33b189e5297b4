package lease_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

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
