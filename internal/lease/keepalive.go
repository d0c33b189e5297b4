package lease

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Keepalive keeps a lock alive that was handed over.
type Keepalive struct {
	Keeper *Keeper
	// Item and ID name the lock, Run is the run that works under it.
	Item, ID string
	Run      Run
	// Interval is the time from one refresh to the next, Threshold the age at
	// which others take the lock to be abandoned.
	Interval, Threshold time.Duration
	// Now is the local, monotonic clock.
	Now func() time.Time
	// Note is told of a refresh that failed and is tried again. Nil is allowed.
	Note func(what string)
}

// ErrUnconfirmed says that the lock could not be refreshed for so long that
// others may soon take it.
var ErrUnconfirmed = errors.New("the lock could not be confirmed in time")

// The pause before a refresh that failed is tried again: an eighth of the
// interval, within these.
const (
	minPause = time.Second
	maxPause = 30 * time.Second
)

// Keep refreshes the lock every Interval, counted from asking to asking, and
// sooner after a failure. It returns nil when ctx ends, an error that matches
// [ErrMissing] when the lock is gone or [ErrLost] when it is somebody else's, and
// one that matches [ErrUnconfirmed] when no refresh succeeded until margin before
// Threshold. Trust counts from when the last confirmed refresh was asked for,
// never from its answer: asked is that time by Now. Where it is zero, Keep
// refreshes at once and trust counts from the call. No request is under way when
// Keep returns.
func (k *Keepalive) Keep(ctx context.Context, asked time.Time, margin time.Duration) error {
	due := asked.Add(k.interval(margin))
	if asked.IsZero() {
		asked = k.Now()
		due = asked
	}
	var last error
	for {
		end := asked.Add(k.Threshold - margin)
		wake := due
		if end.Before(due) {
			wake = end
		}
		if sleep(ctx, wake.Sub(k.Now())) != nil || ctx.Err() != nil {
			return nil //nolint:nilerr // that ctx ends is the ordinary end
		}
		start := k.Now()
		if !start.Before(end) {
			return unconfirmed(last)
		}
		err := k.refresh(ctx, min(end.Sub(start), max(k.Interval, maxPause)))
		switch {
		case err == nil:
			asked, due, last = start, start.Add(k.interval(margin)), nil
		case errors.Is(err, ErrMissing) || errors.Is(err, ErrLost):
			return err
		case ctx.Err() != nil:
			return nil //nolint:nilerr // as above
		default:
			last, due = err, k.Now().Add(k.pause())
			if k.Note != nil && due.Before(end) {
				k.Note(fmt.Sprintf("the lock of %s could not be refreshed and is tried again in %s: %v", k.Item, k.pause(), err))
			}
		}
	}
}

// refresh asks once and waits no longer than limit.
func (k *Keepalive) refresh(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_, err := k.Keeper.Refresh(ctx, k.Item, k.ID, k.Run)
	return err
}

// interval is Interval, or less where that would leave no time to try again.
func (k *Keepalive) interval(margin time.Duration) time.Duration {
	return min(k.Interval, (k.Threshold-margin)/2)
}

func (k *Keepalive) pause() time.Duration { return min(max(k.Interval/8, minPause), maxPause) }

func unconfirmed(last error) error {
	if last == nil {
		return ErrUnconfirmed
	}
	return fmt.Errorf("%w: %w", ErrUnconfirmed, last)
}
