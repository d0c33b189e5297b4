package lease_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fullsend/poll-action/internal/lease"
)

// What the model found, as single schedules.

// Two runs of one lock had refreshed it at the same moment, so that it named only
// one of them. That one was killed, and the item was given away beside the other.
func TestALockWhoseNamedRunsHaveEndedStaysWhereAnotherIsFoundAtWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, w := judged(t, lease.Lock{TS: time.Now().Add(-time.Minute), Phase: lease.Running}.WithRun(lease.Run{ID: 7}))
		w.knows["old"] = lease.Standing{Life: lease.Over, Runs: runs(7)}
		w.found["old"] = lease.Standing{Life: lease.Alive, Runs: runs(7, 8)}
		_, err := b.locker().Acquire(t.Context(), item)
		var held *lease.HeldError
		if !errors.As(err, &held) || held.Holder.ID != "old" {
			t.Fatalf("it is taken over beside a run at work: %v", err)
		}
		if diff := cmp.Diff(runs(7, 8), held.Adopted); diff != "" {
			t.Errorf("adopted: %s", diff)
		}
		if got := b.stored(item); got.ID != "old" || !got.Names(8) || got.Phase != lease.Running {
			t.Errorf("stored: %+v", got)
		}
		time.Sleep(time.Minute)
		w.knows["old"] = lease.Standing{Life: lease.Over, Runs: runs(7, 8)}
		w.found["old"] = w.knows["old"]
		if _, err := b.locker().Acquire(t.Context(), item); err != nil {
			t.Errorf("it is not free when that run has ended: %v", err)
		}
	})
}
