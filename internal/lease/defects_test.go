package lease_test

// What other pollers of Jira did wrong with their locks, row by row of
// docs/known-poller-defects.md. The rows are defects that the poller of
// https://github.com/fullsend-ai/fullsend named itself, in the commits that each
// comment gives; R rows are what was found in its code by running it.

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fullsend/poll-action/internal/lease"
	"github.com/fullsend/poll-action/internal/lease/leasetest"
)

// D2: fullsend-ai/fullsend commit 7cf41f96 and pull request 5778.
func TestDefectD2ALockWhoseVerifyingReadFailsIsTakenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(on(leasetest.Get, 2, leasetest.Fault{Err: errBoom, Drop: true}))
		if _, err := b.locker().Acquire(t.Context(), item); !errors.Is(err, errBoom) {
			t.Errorf("got %v", err)
		}
		if left := b.Value(item); left != nil {
			t.Errorf("left behind: %s", left)
		}
	})
}

// D3: fullsend-ai/fullsend commit a8790ee2.
func TestDefectD3ARubbishReadBackLeavesNothingThatKeepsOthersOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(nil)
		time.AfterFunc(time.Second, func() { b.Set(item, []byte(`{"id":`)) })
		if _, err := b.locker().Acquire(t.Context(), item); !errors.Is(err, lease.ErrLost) {
			t.Errorf("got %v", err)
		}
		b.opts.NewID = ids("next")
		l, err := b.locker().Acquire(t.Context(), item)
		if err != nil || l.ID() != "next-1" {
			t.Errorf("the next contender gets %v", err)
		}
	})
}

// D4: fullsend-ai/fullsend commit 5abe96d6.
func TestDefectD4CleaningUpAStaleLockDeletesNoFreshOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(nil)
		b.hold(t, item, "stale", stale+time.Minute)
		// after our write over the stale lock, another contender's lands
		time.AfterFunc(time.Second, func() { b.hold(t, item, "fresh", 0) })
		if _, err := b.locker().Acquire(t.Context(), item); !lease.Contended(err) {
			t.Errorf("got %v", err)
		}
		if id := b.stored(item).ID; id != "fresh" {
			t.Errorf("the fresh lock became %q", id)
		}
		for _, c := range b.Calls() {
			if c.Op == leasetest.Delete {
				t.Errorf("something was deleted at %v", c.At)
			}
		}
	})
}

// D5: fullsend-ai/fullsend commit ff197bd1.
func TestDefectD5ASlowHolderReleasesNobodyElsesLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(nil)
		slow, err := b.locker().Acquire(t.Context(), item)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(stale + time.Minute)
		b.opts.NewID = ids("fast")
		fast, err := b.locker().Acquire(t.Context(), item)
		if err != nil {
			t.Fatal(err)
		}
		if err := slow.Release(t.Context()); err != nil {
			t.Errorf("release: %v", err)
		}
		if err := fast.Verify(t.Context()); err != nil {
			t.Errorf("the faster one has lost its lock: %v", err)
		}
	})
}

// R6: found by running fullsend-ai/fullsend's Jira poller: B reads, A locks and
// verifies, B's slow write lands, B verifies.
func TestDefectR6ASlowWriteWinsNoSecondLock(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]leasetest.Fault{
		"slow before its effect":     {Before: 2 * time.Second},
		"slow after its effect":      {After: 2 * time.Second},
		"lands when it was given up": {Before: 2 * time.Second, Lands: 2500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				reg := &leasetest.Memory{Script: func(c leasetest.Call) leasetest.Fault {
					if c.Op == leasetest.Put && c.N == 2 {
						return fault
					}
					return leasetest.Fault{After: 10 * time.Millisecond}
				}}
				var mu sync.Mutex
				var pollers sync.WaitGroup
				winners := 0
				for _, who := range []string{"a", "b"} {
					pollers.Go(func() {
						b := newBench(nil)
						b.opts.Register, b.opts.NewID = reg, ids(who)
						l, err := b.locker().Acquire(t.Context(), item)
						if err == nil && l.Verify(t.Context()) == nil {
							mu.Lock()
							winners++
							mu.Unlock()
						}
					})
				}
				pollers.Wait()
				if winners > 1 {
					t.Errorf("%d own the lock", winners)
				}
			})
		})
	}
}
