package poll

import (
	"context"
	"fmt"
	"time"

	"github.com/fullsend/poll-action/internal/dispatch"
	"github.com/fullsend/poll-action/internal/lease"
)

// adopt settles what a dead poller left behind: runs were started under its lock
// that the journal does not name. Orders under one lock are placed one after the
// other, each journalled before the next, so such a run belongs to the first open
// order of its agent. The order counts as done and is journalled with that run. A
// run that gave its order back is in the journal, and so is never adopted. Where
// the journal has an agent's key without a run's id, the run may be that one's, and
// nothing is adopted: a second run is better than none.
func (r *run) adopt(ctx context.Context, v *view, journal dispatch.Journal, runs []lease.Run, row *Row) error {
	for _, started := range runs { // the oldest first
		if started.ID <= 0 || v.state.Runs[started.ID] || v.state.Nameless[started.Agent] {
			continue
		}
		i, k, ok, err := v.orderOf(ctx, journal, started)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		o, at := v.orders[i][k], v.judged[i].Occurrence.At
		oc := dispatch.Outcome{Order: o, Status: dispatch.Adopted, Receipt: dispatch.Receipt{RunID: started.ID, RunURL: started.URL}}
		if err := journal.Commit(ctx, o.Key, at, oc.Receipt); err != nil {
			return fmt.Errorf("journal the run %d that an earlier poller started: %w", started.ID, err)
		}
		v.orders[i] = append(v.orders[i][:k:k], v.orders[i][k+1:]...)
		v.todo--
		r.settle(row, oc)
	}
	return nil
}

// clocks is how far the clocks of input and output may differ, one second of their
// grain included.
const clocks = 30 * time.Second

// orderOf finds the first open order of a run's agent; without a name, the only
// open order there is. An event that came after the run was created is not its
// cause, however few others are left: those may have been edited or deleted.
func (v *view) orderOf(ctx context.Context, journal dispatch.Journal, run lease.Run) (event, order int, ok bool, err error) {
	agent := run.Agent
	for i, orders := range v.orders {
		if v.judged[i].Occurrence.At.After(run.Created.Add(clocks)) {
			break // those that follow are later still
		}
		for k, o := range orders {
			if o.Agent != agent && (agent != "" || v.todo != 1) {
				continue
			}
			// One that ends as a duplicate was never placed.
			if fresh, err := journal.Begin(ctx, o.Key); err != nil || fresh {
				return i, k, fresh, err
			}
		}
	}
	return 0, 0, false, nil
}

// adoptHeld does the same for an item whose lock is left to a run that is still at
// work. Nobody else writes its journal meanwhile: its poller is dead, and the run
// has not yet come to its lock.
func (r *run) adoptHeld(ctx, grace context.Context, v *view, row Row, runs []lease.Run) {
	state, err := r.o.Checkpoints.Load(grace, v.item.Ref())
	if err != nil {
		r.close(v, row, []error{err}, false)
		return
	}
	again, err := r.inspect(ctx, v.item, state)
	if err != nil {
		r.close(v, row, []error{err}, false)
		return
	}
	v = again
	r.count(v)
	if err := r.adopt(grace, v, r.o.Checkpoints.Journal(v.item.Ref()), runs, &row); err != nil {
		r.close(v, row, []error{err}, false)
		return
	}
	next := v.delta.Next
	for i, a := range v.judged {
		if before := a.Occurrence.At.Add(-time.Nanosecond); len(v.orders[i]) > 0 && before.Before(next.At) {
			next.At = before
		}
	}
	if err := r.advance(grace, v, next); err != nil {
		r.close(v, row, []error{err}, false)
		return
	}
	if v.todo == 0 {
		row.Status, row.Reason = ItemAdopted, ""
	}
	r.row(v, row)
}
