package dispatch

import (
	"context"
	"errors"
	"time"

	"github.com/fullsend/poll-action/internal/event"
	"github.com/fullsend/poll-action/internal/harness"
)

// Matcher evaluates every harness's trigger on an event and gives a reason for
// each, in registration order.
type Matcher interface {
	Match(ctx context.Context, ev event.NormalizedEvent) []harness.Decision
}

// Core judges events and places orders. It holds no state of its own; make one
// per configuration and use it from any number of goroutines.
type Core struct {
	validator  *event.Validator
	matcher    Matcher
	killSwitch bool
}

// Options make a [Core].
type Options struct {
	Validator *event.Validator
	Matcher   Matcher
	// KillSwitch refuses every event.
	KillSwitch bool
}

// New makes a core.
func New(o Options) *Core {
	return &Core{validator: o.Validator, matcher: o.Matcher, killSwitch: o.KillSwitch}
}

// Verdict says how far an event got.
type Verdict string

// The verdicts on an event.
const (
	// Accepted: the gate let it through; the harnesses' decisions hold.
	Accepted Verdict = "accepted"
	// Invalid: the event does not fit the schema and never will.
	Invalid Verdict = "invalid"
	// Unauthorized: the gate refused it.
	Unauthorized Verdict = "unauthorized"
	// Stopped: the kill switch is on.
	Stopped Verdict = "stopped"
)

// Assessment is what the core thinks of one occurrence.
type Assessment struct {
	Occurrence event.Occurrence
	Verdict    Verdict
	// Reason explains the verdict in one sentence.
	Reason string
	// Decisions has one entry per harness, for accepted events only.
	Decisions []harness.Decision
}

// Assess validates, authorizes and matches one occurrence. It does no I/O.
func (c *Core) Assess(ctx context.Context, occ event.Occurrence) Assessment {
	a := Assessment{Occurrence: occ}
	if err := c.validator.Validate(occ.Event); err != nil {
		a.Verdict, a.Reason = Invalid, err.Error()
		return a
	}
	if c.killSwitch {
		a.Verdict, a.Reason = Stopped, "the kill switch is on"
		return a
	}
	ok, reason := Authorize(occ.Event)
	a.Reason = reason
	if !ok {
		a.Verdict = Unauthorized
		return a
	}
	a.Verdict = Accepted
	a.Decisions = c.matcher.Match(ctx, occ.Event)
	return a
}

// Orders returns the orders that the matching harnesses ask for, without a
// lock; [Order.Lock] is the caller's.
func (a Assessment) Orders() []Order {
	var orders []Order
	for _, d := range a.Decisions {
		if !d.Matched {
			continue
		}
		orders = append(orders, Order{
			Key:   event.DispatchKey(d.Agent, a.Occurrence.Key),
			Agent: d.Agent,
			Role:  d.Role,
			Event: a.Occurrence.Event,
			Ref:   Project(d.Agent, a.Occurrence.Event),
		})
	}
	return orders
}

// Status is what became of an order.
type Status string

// The ends of an order.
const (
	// Dispatched: a run is confirmed.
	Dispatched Status = "dispatched"
	// Duplicate: the journal already had the key.
	Duplicate Status = "duplicate"
	// Adopted: somebody who died before it was journalled had started its run.
	Adopted Status = "adopted"
	// Refused: it can never succeed; the journal remembers that.
	Refused Status = "refused"
	// Failed: it will be tried again.
	Failed Status = "failed"
	// Uncertain: whether a run exists is not known.
	Uncertain Status = "uncertain"
	// Lost: the lock was not ours any more; somebody else will do it.
	Lost Status = "lost"
)

// Final reports whether the order needs no further try, so that a checkpoint
// may pass its event.
func (s Status) Final() bool {
	switch s {
	case Dispatched, Duplicate, Adopted, Refused:
		return true
	case Failed, Uncertain, Lost:
	}
	return false
}

// Outcome is the end of one order. Err is set for every status but Dispatched
// and Duplicate; a Dispatched outcome with Err is a run that exists but could
// not be journalled.
type Outcome struct {
	Order   Order
	Status  Status
	Receipt Receipt
	Err     error
}

// Guard is asked immediately before output; an error means that the lock is
// not (known to be) held any more.
type Guard func(ctx context.Context) error

// Place dispatches one order under its key: Begin, guard, Dispatch, Commit. at
// is the time of the order's event. A nil guard holds always.
func Place(ctx context.Context, out Output, j Journal, guard Guard, o Order, at time.Time) Outcome {
	oc := Outcome{Order: o}
	fresh, err := j.Begin(ctx, o.Key)
	switch {
	case err != nil:
		oc.Status, oc.Err = Failed, err
		return oc
	case !fresh:
		oc.Status = Duplicate
		return oc
	}
	if guard != nil {
		if err := guard(ctx); err != nil {
			oc.Status, oc.Err = Lost, err
			// whatever the lock's store said is no verdict on the order
			return abort(ctx, j, at, oc, &Error{Class: Transient, Err: err})
		}
	}
	oc.Receipt, err = out.Dispatch(ctx, o)
	if err != nil {
		oc.Err = err
		switch ClassOf(err) {
		case Permanent:
			oc.Status = Refused
		case Unknown:
			oc.Status = Uncertain
		case Transient, Fatal:
			oc.Status = Failed
		}
		return abort(ctx, j, at, oc, err)
	}
	oc.Status = Dispatched
	oc.Err = j.Commit(ctx, o.Key, at, oc.Receipt)
	return oc
}

func abort(ctx context.Context, j Journal, at time.Time, oc Outcome, cause error) Outcome {
	if err := j.Abort(ctx, oc.Order.Key, at, cause); err != nil {
		oc.Err = errors.Join(oc.Err, err)
		if oc.Status == Refused { // not recorded, so it is not final yet
			oc.Status = Failed
		}
	}
	return oc
}
