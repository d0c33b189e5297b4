package lease

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Keeper is the runner's side of a lock: it verifies and refreshes a lock whose
// id was handed over by a dispatch. It never takes a lock.
type Keeper struct {
	Register Register
	// ServerNow is the store's clock.
	ServerNow func() time.Time
}

// ErrMissing says that the lock is gone.
var ErrMissing = errors.New("the lock is gone")

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

// Refresh verifies the lock, sets its phase to running, its time to now and
// puts run among its runs, then confirms by a second read: a poller that hands
// the lock over at the same moment may have written over it. Errors as for
// [Keeper.Verify].
func (k *Keeper) Refresh(ctx context.Context, item, id string, run Run) (Lock, error) {
	held, err := k.Verify(ctx, item, id)
	for range 2 {
		if err != nil {
			return held, err
		}
		next := held.WithRun(run)
		next.Phase, next.TS = Running, k.ServerNow()
		value, eerr := next.Encode()
		if eerr != nil {
			return held, eerr
		}
		if _, err := k.Register.Put(ctx, item, value); err != nil {
			return held, err
		}
		held, err = k.Verify(ctx, item, id)
		if err == nil && held.Phase == Running {
			return held, nil
		}
	}
	return held, err
}
