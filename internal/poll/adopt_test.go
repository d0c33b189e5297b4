package poll

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fullsend/poll-action/internal/dispatch"
	"github.com/fullsend/poll-action/internal/lease"
)

// died lets a poller die right after its first order has started a run: nothing
// of it is journalled or written into the lock.
func died(t *testing.T, w *world) {
	t.Helper()
	p := w.poller(t, "dead")
	w.outcome = func(dispatch.Order) error { p.dead.Store(true); return nil }
	p.cycle(t.Context())
	w.outcome = nil
	if len(w.started) != 1 || w.lock("1") == nil || len(w.lock("1").Runs) != 0 {
		t.Fatalf("started %v, lock %v", w.started, w.lock("1"))
	}
}

func TestARunThatADeadPollerStartedIsAdoptedAndNotStartedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		occ := w.say("1", "/fs-triage", time.Minute)
		died(t, w)
		w.end(func() bool { return true }) // the run ends and gives nothing back
		time.Sleep(testStale)
		rep := w.poller(t, "p").cycle(t.Context())
		row := rowOf(t, rep, "PROJ-1")
		if len(w.started) != 1 || rep.Adopted != 1 || rep.Dispatched != 0 || row.Status != ItemAdopted || row.Runs[0].RunID != w.started[0].id || !rep.OK() {
			t.Errorf("%d runs, %+v", len(w.started), row)
		}
		i := w.issue("1")
		if !i.keys["triage:"+occ] || i.checkpoint.At.Before(i.events[0].At) || w.lock("1") != nil {
			t.Errorf("journal %v, checkpoint %v, lock %v", i.keys, i.checkpoint.At, w.lock("1"))
		}
	})
}

func TestARunThatADeadPollerStartedAndThatIsAtWorkKeepsTheLockAndIsJournalled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		occ := w.say("1", "/fs-triage", time.Minute)
		died(t, w)
		id := w.lock("1").ID
		time.Sleep(testStale)
		rep := w.poller(t, "p").cycle(t.Context())
		row := rowOf(t, rep, "PROJ-1")
		if len(w.started) != 1 || rep.Adopted != 1 || row.Status != ItemAdopted || !rep.OK() {
			t.Errorf("%d runs, %+v", len(w.started), row)
		}
		if l := w.lock("1"); l == nil || l.ID != id || !l.Names(w.started[0].id) || l.Phase != lease.Pending {
			t.Errorf("lock %+v", l)
		}
		if i := w.issue("1"); !i.keys["triage:"+occ] || i.checkpoint.At.Before(i.events[0].At) {
			t.Errorf("journal %v, checkpoint %v", i.keys, i.checkpoint.At)
		}
	})
}

func TestWhatADeadPollerHadNotStartedIsStarted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.say("1", "/fs-triage", time.Minute)
		p := w.poller(t, "dead")
		w.fault = func(call, _ string) error {
			if call == "dispatch" {
				p.dead.Store(true)
				return errDead
			}
			return nil
		}
		p.cycle(t.Context())
		w.fault = nil
		if w.lock("1") == nil {
			t.Fatal("no lock is left behind")
		}
		time.Sleep(testStale)
		if rep := w.poller(t, "p").cycle(t.Context()); rep.Dispatched != 1 || rep.Adopted != 0 || len(w.started) != 1 {
			t.Errorf("%+v", rep)
		}
	})
}

func TestWhileNobodyKnowsWhatADeadPollerStartedNothingIsStarted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.say("1", "/fs-triage", time.Minute)
		died(t, w)
		time.Sleep(testStale)
		failing("evidence")(w)
		rep := w.poller(t, "p").cycle(t.Context())
		if row := rowOf(t, rep, "PROJ-1"); row.Status != ItemContended || row.Reason == "" || len(w.started) != 1 {
			t.Errorf("%d runs, %+v", len(w.started), row)
		}
		time.Sleep(lease.DefaultMaxHold)
		w.poller(t, "p2").cycle(t.Context())
		if len(w.started) != 2 {
			t.Errorf("%d runs: the item is locked for ever", len(w.started))
		}
	})
}

func TestOnlyTheOrderOfTheRunsAgentIsAdopted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		occ := w.say("1", "/fs-both", time.Minute)
		died(t, w) // triage comes first
		w.end(func() bool { return true })
		time.Sleep(testStale)
		rep := w.poller(t, "p").cycle(t.Context())
		if rep.Adopted != 1 || rep.Dispatched != 1 || w.runs["triage:"+occ] != 1 || w.runs["code:"+occ] != 1 {
			t.Errorf("runs %v, %+v", w.runs, rep)
		}
		if l := w.lock("1"); l == nil || len(l.Runs) != 1 || l.Runs[0].ID != w.started[1].id {
			t.Errorf("the lock names more than the run that works now: %+v", l)
		}
	})
}

func TestWhereARunsIDIsUnknownNothingIsAdoptedForItsAgent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.say("1", "/fs-triage", time.Minute)
		w.issue("1").nameless = map[string]bool{"triage": true}
		died(t, w)
		w.end(func() bool { return true })
		time.Sleep(testStale)
		if rep := w.poller(t, "p").cycle(t.Context()); rep.Adopted != 0 || rep.Dispatched != 1 {
			t.Errorf("%+v", rep)
		}
	})
}

func TestTheOrdersOfAnAgentWaitBehindOneThatFailed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		first := w.say("1", "/fs-triage", 3*time.Minute)
		second := w.say("1", "/fs-triage", 2*time.Minute)
		other := w.say("1", "/fs-code", time.Minute)
		w.outcome = func(o dispatch.Order) error {
			if o.Key == "triage:"+first {
				return errBoom
			}
			return nil
		}
		w.poller(t, "p").cycle(t.Context())
		if w.runs["triage:"+second] != 0 || w.runs["code:"+other] != 1 {
			t.Errorf("runs %v", w.runs)
		}
		w.outcome = nil
		w.end(func() bool { return false })
		time.Sleep(time.Minute)
		w.poller(t, "p2").cycle(t.Context())
		if w.runs["triage:"+first] != 1 || w.runs["triage:"+second] != 1 || w.runs["code:"+other] != 1 {
			t.Errorf("runs %v", w.runs)
		}
	})
}
