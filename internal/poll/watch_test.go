package poll

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// watched runs Watch over scripted cycles and returns when each began, from the
// first one's beginning.
func watched(t *testing.T, interval time.Duration, jitter uint64, results []bool, took func(i int) time.Duration) []time.Duration {
	t.Helper()
	var begun []time.Duration
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		start := time.Now()
		Watch(ctx, interval, jitter, func(context.Context) bool {
			i := len(begun)
			begun = append(begun, time.Since(start))
			if i == len(results) {
				cancel()
				return true
			}
			time.Sleep(took(i))
			return results[i]
		})
		if got := time.Since(start); got != begun[len(begun)-1] {
			t.Errorf("it ended at %v, %v after the last cycle began", got, got-begun[len(begun)-1])
		}
	})
	return begun
}

func TestTheIntervalCountsFromStartToStart(t *testing.T) {
	t.Parallel()
	durations := []time.Duration{0, 40 * time.Second, 59 * time.Second, 90 * time.Second, time.Second}
	got := watched(t, time.Minute, 10, []bool{true, true, true, true, true}, func(i int) time.Duration { return durations[i] })
	want := []time.Duration{0, time.Minute, 2 * time.Minute, 3 * time.Minute, 4*time.Minute + 30*time.Second, 5*time.Minute + 30*time.Second}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func gaps(begun []time.Duration) []time.Duration {
	var out []time.Duration
	for i := 1; i < len(begun); i++ {
		out = append(out, begun[i]-begun[i-1])
	}
	return out
}

func TestFailingCyclesDoubleThePauseUpToACapAndAGoodOneBringsItBack(t *testing.T) {
	t.Parallel()
	m := time.Minute
	for _, tc := range []struct {
		name     string
		interval time.Duration
		results  []bool
		want     []time.Duration
	}{
		{"doubling and cap", m, []bool{false, false, false, false, false, false}, []time.Duration{2 * m, 4 * m, 8 * m, 15 * m, 15 * m, 15 * m}},
		{"reset", m, []bool{false, false, true, false, true}, []time.Duration{2 * m, 4 * m, m, 2 * m, m}},
		{"an interval above the cap is kept", time.Hour, []bool{false, false, true}, []time.Duration{time.Hour, time.Hour, time.Hour}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got := gaps(watched(t, tc.interval, 0, tc.results, func(int) time.Duration { return 20 * time.Second }))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestManyFailuresDoNotOverflowThePause(t *testing.T) {
	t.Parallel()
	for i, gap := range gaps(watched(t, time.Second, 0, make([]bool, 200), func(int) time.Duration { return 0 })) {
		if want := min(time.Second<<min(i+1, 30), MaxBackoff); gap != want {
			t.Fatalf("pause %d is %v, want %v", i, gap, want)
		}
	}
}

func TestTheJitterSpreadsFailingWatchersWithinItsPercents(t *testing.T) {
	t.Parallel()
	seen := map[time.Duration]bool{}
	for range 20 {
		got := gaps(watched(t, time.Minute, 10, []bool{false}, func(int) time.Duration { return 0 }))[0]
		if got < 108*time.Second || got > 132*time.Second {
			t.Errorf("a pause of %v", got)
		}
		seen[got] = true
	}
	if len(seen) < 3 {
		t.Errorf("no spread: %v", seen)
	}
}

func TestWatchEndsAtOnceWithItsContext(t *testing.T) {
	t.Parallel()
	for name, result := range map[string]bool{"after a good cycle": true, "after a failing one": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				start, cycles := time.Now(), 0
				Watch(ctx, time.Minute, 0, func(context.Context) bool { cycles++; return result })
				if took := time.Since(start); took != 10*time.Second || cycles != 1 {
					t.Errorf("it ended after %v and %d cycles", took, cycles)
				}
				Watch(ctx, time.Minute, 0, func(context.Context) bool { t.Error("a cycle after the end"); return true })
			})
		})
	}
}
