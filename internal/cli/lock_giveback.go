package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/fullsend/poll-action/internal/config"
	"github.com/fullsend/poll-action/internal/jira"
	"github.com/fullsend/poll-action/internal/lease"
)

const (
	// pollerWait is how long a poller that is at the work item is waited for before
	// the journal is written beside it, in steps of pollerStep.
	pollerWait = 2 * time.Minute
	pollerStep = 15 * time.Second
	// never is the age at which a lock is taken over here: somebody else's never.
	never = 10 * 365 * 24 * time.Hour
)

// giveBack puts the event of a run that may not work back into the journal and
// returns a clause that says what became of it.
func (a *app) giveBack(ctx context.Context, h *hold) string {
	if h.DispatchKey == "" || h.run.ID <= 0 {
		return unknownEvent
	}
	var end jira.GivenBack
	err := a.alone(ctx, h, func(ctx context.Context) (err error) {
		end, err = h.state.GiveBack(ctx, h.WorkItemKey, h.DispatchKey, time.Time{}, h.run.ID)
		return err
	})
	return fateOf(end, err)
}

const unknownEvent = "its event is not known here (no input dispatch_key, or no GITHUB_RUN_ID) and not given back; a change in the work item starts another run"

// fateOf is a clause about what became of an event that was given back.
func fateOf(end jira.GivenBack, err error) string {
	if err != nil {
		return fmt.Sprintf("its event could not be given back (%v); a change in the work item starts another run", err)
	}
	switch end {
	case jira.Returned:
		return "its event is given back: the next poll cycle starts another run"
	case jira.Already:
		return "its event is to be dispatched again already: the next poll cycle starts another run"
	case jira.Dropped:
		return "its event was dropped by an operator: no other run is started for it"
	case jira.Exhausted:
		return fmt.Sprintf("its event was given back %d times already: no other run is started for it before the work item changes", jira.Limit)
	case jira.Elsewhere:
		return "its event is another run's, as the journal says"
	}
	return "what became of its event is not known"
}

// alone calls write while no poller writes the journal: under a lock of its own
// where there is none, else beside those who only work; a poller that is about to
// dispatch is waited for, but not for ever.
func (a *app) alone(ctx context.Context, h *hold, write func(context.Context) error) error {
	set := a.lockSettings()
	locker := lease.New(lease.Options{
		Register: h.state, Driver: jira.DriverType, Rules: lease.Rules{StaleThreshold: never}, Conditional: set.Mode == config.ModeConditional,
		Guard: set.Guard, JitterMin: set.JitterMin, JitterMax: set.JitterMax, CleanUp: cleanUp,
		Now: a.Now, ServerNow: h.client.ServerNow, Rand: a.Rand, NewID: uuid.NewString,
	})
	for waited, step := time.Duration(0), time.Duration(0); ; waited += step {
		taken, err := locker.Acquire(ctx, h.WorkItemKey)
		switch {
		case err == nil:
			err = write(ctx)
			after, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUp)
			defer cancel()
			if free := taken.Release(after); free != nil {
				a.log.WarnContext(ctx, "lock", "key", h.WorkItemKey, "note", "the lock under which the event was given back could not be removed; it goes stale: "+free.Error())
			}
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case !lease.Contended(err) || working(err) || waited >= pollerWait:
			return write(ctx)
		}
		step = pollerStep
		if held := (*lease.HeldError)(nil); !errors.As(err, &held) {
			step = time.Second // who was quicker is to be seen then
		}
		if err := pause(ctx, step); err != nil {
			return err
		}
	}
}

// working reports whether the holder has handed its lock to runs: nobody writes
// the journal then.
func working(err error) bool {
	var held *lease.HeldError
	return errors.As(err, &held) && (held.Holder.Phase == lease.Running || len(held.Holder.Runs) > 0)
}

// pause waits for d, or returns ctx's error.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
