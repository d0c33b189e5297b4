package lease

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Keeper is the runner's side of a lock: it verifies, refreshes and releases a
// lock whose id was handed over by a dispatch. It never takes a lock, and a lock
// that was deleted never comes back by it.
type Keeper struct {
	Register Register
	// ServerNow is the store's clock.
	ServerNow func() time.Time
}

// ErrMissing says that the lock is gone.
var ErrMissing = errors.New("the lock is gone")

// ErrUnsettled says that others wrote the lock again and again while a run wrote
// its part; it is still the run's, and the next try may be luckier.
var ErrUnsettled = errors.New("others keep writing the lock")

// tries bounds how often a run writes what somebody wrote over.
const tries = 4

// Verify reads the lock of item and returns it when its id is id. The error
// matches [ErrMissing] when there is none, and is a [*HeldError] (which also
// matches [ErrLost]) when somebody else holds it.
func (k *Keeper) Verify(ctx context.Context, item, id string) (Lock, error) {
	raw, err := k.Register.Get(ctx, item)
	if errors.Is(err, ErrAbsent) {
		return Lock{}, ErrMissing
	}
	if err != nil {
		return Lock{}, err
	}
	held, err := Decode(raw)
	if err != nil {
		return Lock{}, fmt.Errorf("%w: %w", ErrLost, err)
	}
	if held.ID != id {
		return held, errors.Join(ErrLost, &HeldError{Item: item, Holder: held, Age: k.ServerNow().Sub(held.TS)})
	}
	return held, nil
}

// Refresh verifies the lock, sets its phase to running, its time to now and puts
// run among its runs, then confirms by a second read: a poller that hands the
// lock over, or another run under the same lock, may write at the same moment.
// Errors as for [Keeper.Verify], and [ErrUnsettled]. The lock returned is the one
// that was read last; its TS is when the refresh was asked for, at the latest.
func (k *Keeper) Refresh(ctx context.Context, item, id string, run Run) (Lock, error) {
	held, err := k.Verify(ctx, item, id)
	known := held.Runs
	for range tries {
		if err != nil {
			return held, err
		}
		known = merged(known, held.Runs)
		next := held
		for _, r := range known { // whoever wrote over another's run gives it back
			next = next.WithRun(r)
		}
		next = next.WithRun(run)
		next.Phase, next.TS = Running, k.ServerNow()
		if err := k.put(ctx, item, next); err != nil {
			return held, err
		}
		held, err = k.Verify(ctx, item, id)
		if err == nil && held.Phase == Running && !held.TS.Before(next.TS) && (run.ID <= 0 || held.Names(run.ID)) {
			return held, nil
		}
	}
	if err == nil {
		err = ErrUnsettled
	}
	return held, err
}

// lingering is how long a request is still waited for after the context was
// cancelled, and how long the removal of what must not stay may take.
const lingering = 10 * time.Second

// put writes the lock. One that was deleted since it was read must not come back:
// what was written is taken away again, and the error matches [ErrMissing]. A
// write that was cut off might land after the lock's release, so a cancelled ctx
// does not cut it off, only ctx's deadline does.
func (k *Keeper) put(ctx context.Context, item string, next Lock) error {
	value, err := next.Encode()
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	after, done := afterwards(ctx, lingering)
	defer done()
	wctx, cancel := after, context.CancelFunc(func() {})
	if deadline, ok := ctx.Deadline(); ok {
		wctx, cancel = context.WithDeadline(after, deadline)
	}
	created, err := k.Register.Put(wctx, item, value)
	cancel()
	if err != nil || !created {
		return err
	}
	after, cancel = context.WithTimeout(after, lingering)
	defer cancel()
	err = retried(after, time.Second, func() error {
		_, err := k.Verify(after, item, next.ID)
		if err == nil {
			err = k.Register.Delete(after, item)
		}
		if errors.Is(err, ErrMissing) || errors.Is(err, ErrLost) {
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%w; it came back by a refresh that was under way and could not be removed: %w", ErrMissing, err)
	}
	return ErrMissing
}

// Released says how a release ended.
type Released int

// The ends of a release.
const (
	// NotHeld: the lock is gone or somebody else's; nothing was touched.
	NotHeld Released = iota
	// Left: the run is out of the lock, others still work under it.
	Left
	// Deleted: it was the last run; the lock is gone.
	Deleted
)

// Release takes run out of the lock and deletes the lock with the last one. A
// lock with another id is never touched. What is left counts as refreshed now. A
// run without an id is none of those that the lock names, so it deletes the lock
// only when that names none.
func (k *Keeper) Release(ctx context.Context, item, id string, run Run) (Released, error) {
	for range tries {
		held, err := k.Verify(ctx, item, id)
		if errors.Is(err, ErrMissing) || errors.Is(err, ErrLost) {
			return NotHeld, nil
		}
		if err != nil {
			return NotHeld, err
		}
		next := held.without([]Run{run})
		if len(next.Runs) == 0 {
			return Deleted, k.Register.Delete(ctx, item)
		}
		if len(next.Runs) == len(held.Runs) {
			return Left, nil // it is out already
		}
		// another run may have refreshed since the read: its trust counts on this
		next.Phase, next.TS = Running, k.ServerNow()
		err = k.put(ctx, item, next)
		if errors.Is(err, ErrMissing) {
			return NotHeld, nil
		}
		if err != nil {
			return NotHeld, err
		}
	}
	return Left, ErrUnsettled
}
