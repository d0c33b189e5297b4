package poll

import (
	"context"
	"time"

	"github.com/sethvargo/go-retry"
)

// MaxBackoff is the longest pause of [Watch] between failing cycles, unless the
// interval itself is longer.
const MaxBackoff = 15 * time.Minute

// Watch runs cycle every interval until ctx ends, and returns nil then. A cycle
// that reports false doubles the pause up to [MaxBackoff]; the first good one
// brings the interval back. The pause counts from the start of a cycle, so that
// slow cycles do not stretch the interval; jitterPercent spreads watchers.
func Watch(ctx context.Context, interval time.Duration, jitterPercent uint64, cycle func(ctx context.Context) bool) {
	slower := backoff(interval, jitterPercent)
	for ctx.Err() == nil {
		started := time.NewTimer(interval)
		var more time.Duration
		if cycle(ctx) {
			slower = backoff(interval, jitterPercent)
		} else if pause, stop := slower.Next(); !stop {
			more = pause - interval
		}
		wait(ctx, started)
		wait(ctx, time.NewTimer(more))
	}
}

// wait returns when t fires or ctx ends.
func wait(ctx context.Context, t *time.Timer) {
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// backoff gives the pauses after the first, second… failing cycle in a row.
func backoff(interval time.Duration, jitterPercent uint64) retry.Backoff {
	b := retry.NewExponential(2 * interval)
	b = retry.WithCappedDuration(max(MaxBackoff, interval), b)
	return retry.WithJitterPercent(jitterPercent, b)
}
