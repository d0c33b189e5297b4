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
		ok := cycle(ctx)
		if ok {
			slower = backoff(interval, jitterPercent)
		} else if pause, stop := slower.Next(); !stop {
			started.Stop()
			started = time.NewTimer(pause)
		}
		select {
		case <-ctx.Done():
		case <-started.C:
		}
		started.Stop()
	}
}

func backoff(interval time.Duration, jitterPercent uint64) retry.Backoff {
	b := retry.NewExponential(interval)
	b = retry.WithCappedDuration(max(MaxBackoff, interval), b)
	return retry.WithJitterPercent(jitterPercent, b)
}
