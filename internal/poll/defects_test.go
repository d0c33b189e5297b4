package poll

// What other pollers of Jira did wrong in the order of a cycle, row by row of
// docs/known-poller-defects.md. The rows are defects that the poller of
// https://github.com/fullsend-ai/fullsend named itself, in the commits that each
// comment gives.

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fullsend/poll-action/internal/lease"
)

// D9, its second half: fullsend-ai/fullsend commit a8790ee2.
func TestDefectD9bALockThatWasLostMeanwhileDispatchesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.say("1", "/fs-triage", time.Minute)
		w.fault = func(call, id string) error {
			if call == "begin" { // the last moment before the order
				raw, err := lease.Lock{ID: "another", TS: time.Now(), Phase: lease.Pending}.Encode()
				if err != nil {
					return err
				}
				w.locks.Set("1", raw)
			}
			return nil
		}
		rep := w.poller(t, "p").cycle(t.Context())
		if len(w.orders) != 0 || rep.Dispatched != 0 {
			t.Errorf("%d orders under somebody else's lock", len(w.orders))
		}
		if l := w.lock("1"); l == nil || l.ID != "another" {
			t.Errorf("the other's lock became %+v", l)
		}
		if i := w.issue("1"); !i.checkpoint.IsZero() {
			t.Errorf("the checkpoint became %v", i.checkpoint)
		}
	})
}

// D17, the order of things: fullsend-ai/fullsend commit 50430e22.
func TestDefectD17bTheCheckpointIsWrittenAfterRunAndJournal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.say("1", "/fs-both", time.Minute)
		w.poller(t, "p").cycle(t.Context())
		var order []string
		for _, c := range w.calls(" dispatch ", " commit ", " advance ") {
			order = append(order, strings.Fields(c)[1])
		}
		if want := []string{"dispatch", "commit", "dispatch", "commit", "advance"}; !slices.Equal(order, want) {
			t.Errorf("order %q, want %q", order, want)
		}
	})
}
