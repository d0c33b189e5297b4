package lease_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/fullsend/poll-action/internal/lease"
)

// The tests in this file replay public reports about other pollers' claims;
// docs/known-poller-defects.md lists them all.

// TestCaseE32ALockOfTheSameAccountWithAnotherIDIsNotOurs: two runs wrote the same
// identity, read it back, and both had won.
// https://github.com/watt-mind/factory/issues/877
func TestCaseE32ALockOfTheSameAccountWithAnotherIDIsNotOurs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(nil)
		l, err := b.locker().Acquire(t.Context(), item)
		if err != nil {
			t.Fatal(err)
		}
		rival := b.stored(item) // the same driver, phase and time
		rival.ID = "id-of-the-other-run"
		b.Set(item, encoded(t, rival))
		if err := l.Verify(t.Context()); !errors.Is(err, lease.ErrLost) {
			t.Errorf("the rival's lock is taken for ours: %v", err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if b.stored(item).ID != rival.ID {
			t.Error("the rival's lock was deleted")
		}
	})
}
