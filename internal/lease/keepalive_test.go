package lease_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fullsend/poll-action/internal/lease"
	"github.com/fullsend/poll-action/internal/lease/leasetest"
)

const (
	interval  = 5 * time.Minute
	threshold = 15 * time.Minute
)

// handed is a register with a lock "ours" that names run 7, written just now.
func handed(t *testing.T) *leasetest.Memory {
	t.Helper()
	m := &leasetest.Memory{Now: time.Now}
	m.Set(item, encoded(t, lease.Lock{ID: "ours", TS: time.Now(), Phase: lease.Pending}.WithRun(lease.Run{ID: 7})))
	return m
}

func keeping(m *leasetest.Memory) *lease.Keepalive {
	return &lease.Keepalive{
		Keeper: &lease.Keeper{Register: m, ServerNow: time.Now}, Item: item, ID: "ours", Run: lease.Run{Agent: "triage", ID: 7},
		Interval: interval, Threshold: threshold, Now: time.Now,
	}
}

// begun returns when requests of a kind began, counted from start.
func begun(m *leasetest.Memory, op leasetest.Op, start time.Time) []time.Duration {
	var at []time.Duration
	for _, c := range m.Calls() {
		if c.Op == op {
			at = append(at, c.At.Sub(start))
		}
	}
	return at
}

// from returns a script under which all requests after a time meet a fault.
func from(at time.Time, f leasetest.Fault) func(leasetest.Call) leasetest.Fault {
	return func(c leasetest.Call) leasetest.Fault {
		if c.At.Before(at) {
			return leasetest.Fault{}
		}
		return f
	}
}

func TestAKeptLockIsRefreshedAtEveryInterval(t *testing.T) {
	t.Parallel()
	const m = time.Minute
	for _, tc := range []struct {
		name   string
		ago    time.Duration // of the last confirmed refresh; negative: there was none
		margin time.Duration
		want   []time.Duration
	}{
		{"at once where none was", -1, 0, []time.Duration{0, 5 * m, 10 * m, 15 * m}},
		{"an interval after the last", 0, 0, []time.Duration{5 * m, 10 * m, 15 * m}},
		{"counted from the last one's asking", 2 * m, 0, []time.Duration{3 * m, 8 * m, 13 * m}},
		{"at once when it is overdue", 7 * m, 0, []time.Duration{0, 5 * m, 10 * m, 15 * m}},
		{"sooner where the margin leaves no time to try again", 0, 9 * m, []time.Duration{3 * m, 6 * m, 9 * m, 12 * m, 15 * m}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				reg, start := handed(t), time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 16*m)
				defer cancel()
				asked := start.Add(-tc.ago)
				if tc.ago < 0 {
					asked = time.Time{}
				}
				if err := keeping(reg).Keep(ctx, asked, tc.margin); err != nil {
					t.Errorf("got %v", err)
				}
				if took := time.Since(start); took != 16*m {
					t.Errorf("it ended after %v", took)
				}
				if diff := cmp.Diff(tc.want, begun(reg, leasetest.Put, start)); diff != "" {
					t.Error(diff)
				}
				got, err := lease.Decode(reg.Value(item))
				if err != nil || got.Phase != lease.Running || !got.TS.Equal(start.Add(tc.want[len(tc.want)-1])) {
					t.Errorf("stored %+v, %v", got, err)
				}
			})
		})
	}
}

func TestAKeptLockThatIsLostOrGoneEndsTheKeepingAtOnce(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		stored func(t *testing.T) []byte
		want   error
	}{
		"gone": {func(*testing.T) []byte { return nil }, lease.ErrMissing},
		"somebody else's": {func(t *testing.T) []byte {
			t.Helper()
			return encoded(t, lease.Lock{ID: "other", TS: time.Now(), Phase: lease.Pending})
		}, lease.ErrLost},
		"rubbish": {func(*testing.T) []byte { return []byte(`{}`) }, lease.ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				reg, start := handed(t), time.Now()
				var left []byte
				time.AfterFunc(6*time.Minute, func() { left = tc.stored(t); reg.Set(item, left) })
				err := keeping(reg).Keep(t.Context(), start, 0)
				if !errors.Is(err, tc.want) || errors.Is(err, lease.ErrUnconfirmed) {
					t.Errorf("got %v", err)
				}
				if took := time.Since(start); took != 2*interval {
					t.Errorf("it ended after %v", took)
				}
				if diff := cmp.Diff(left, reg.Value(item)); diff != "" {
					t.Errorf("what stood there was touched:\n%s", diff)
				}
			})
		})
	}
}

func TestAFailedRefreshIsTriedAgainSoon(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ interval, pause time.Duration }{
		"an eighth of the interval": {80 * time.Second, 10 * time.Second},
		"at most half a minute":     {10 * time.Minute, 30 * time.Second},
		"at least a second":         {4 * time.Second, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				reg, start := handed(t), time.Now()
				reg.Script = func(c leasetest.Call) leasetest.Fault {
					if c.Op == leasetest.Get && c.N <= 3 {
						return leasetest.Fault{Err: errBoom}
					}
					return leasetest.Fault{}
				}
				k := keeping(reg)
				k.Interval, k.Threshold = tc.interval, 3*tc.interval
				var notes []string
				k.Note = func(what string) { notes = append(notes, what) }
				ctx, cancel := context.WithTimeout(t.Context(), 2*tc.interval+3*tc.pause-time.Millisecond)
				defer cancel()
				if err := k.Keep(ctx, start, 0); err != nil {
					t.Errorf("got %v", err)
				}
				first := tc.interval
				want := []time.Duration{first, first + tc.pause, first + 2*tc.pause, first + 3*tc.pause, first + 3*tc.pause}
				if diff := cmp.Diff(want, begun(reg, leasetest.Get, start)[:5]); diff != "" {
					t.Error(diff)
				}
				if len(notes) != 3 {
					t.Errorf("notes: %q", notes)
				}
			})
		})
	}
}

// The trouble begins after a refresh that succeeded at asked; the keeping must end
// exactly margin before the threshold after that, whatever the trouble is.
func TestAnUnconfirmedLockEndsTheKeepingInTime(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]leasetest.Fault{
		"requests fail":                {Err: errBoom, Drop: true},
		"answers are lost":             {Err: errBoom},
		"requests hang":                {Before: time.Hour},
		"answers hang":                 {After: time.Hour},
		"answers hang for some time":   {After: 7 * time.Minute, Err: errBoom},
		"requests take half a minute":  {Before: 30 * time.Second, Err: errBoom},
		"a rate limit":                 {Err: lease.ErrSlow, Drop: true},
		"the lock was never confirmed": {Err: errBoom},
	} {
		for _, margin := range []time.Duration{0, 17 * time.Second, 11 * time.Minute} {
			t.Run(name+", margin "+margin.String(), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					reg, start := handed(t), time.Now()
					reg.Script = from(start.Add(time.Second), fault)
					asked := time.Time{}
					if name == "the lock was never confirmed" {
						reg.Script = from(start, fault)
					}
					err := keeping(reg).Keep(t.Context(), asked, margin)
					if !errors.Is(err, lease.ErrUnconfirmed) || errors.Is(err, lease.ErrLost) || errors.Is(err, lease.ErrMissing) {
						t.Errorf("got %v", err)
					}
					if fault.Err != nil && !errors.Is(err, fault.Err) && !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("the cause is not told: %v", err)
					}
					if took, want := time.Since(start), threshold-margin; took != want {
						t.Errorf("it ended after %v, want %v", took, want)
					}
				})
			})
		}
	}
}

func TestALockThatOthersKeepWritingIsNotConfirmed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reg, start := handed(t), time.Now()
		late := encoded(t, lease.Lock{ID: "ours", TS: start, Phase: lease.Pending})
		reg.Script = func(c leasetest.Call) leasetest.Fault {
			if c.Op == leasetest.Put {
				time.AfterFunc(time.Millisecond, func() { reg.Set(item, late) })
			}
			return leasetest.Fault{After: 2 * time.Millisecond}
		}
		err := keeping(reg).Keep(t.Context(), start, 0)
		if !errors.Is(err, lease.ErrUnconfirmed) || time.Since(start) != threshold {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
		if n := len(begun(reg, leasetest.Put, start)); n < 4*10 {
			t.Errorf("only %d writes", n)
		}
	})
}

// The refresh at 5 min is answered at 9 min; then the store is dead.
func TestTrustCountsFromTheAskingNotFromTheAnswer(t *testing.T) {
	t.Parallel()
	for _, op := range []leasetest.Op{leasetest.Get, leasetest.Put} {
		t.Run("a slow "+string(op), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				reg, start := handed(t), time.Now()
				reg.Script = func(c leasetest.Call) leasetest.Fault {
					switch {
					case c.At.After(start.Add(9*time.Minute + time.Second)):
						return leasetest.Fault{Err: errBoom}
					case c.Op == op && c.N == 1:
						return leasetest.Fault{After: 4 * time.Minute}
					}
					return leasetest.Fault{}
				}
				err := keeping(reg).Keep(t.Context(), start, time.Minute)
				if took, want := time.Since(start), interval+threshold-time.Minute; !errors.Is(err, lease.ErrUnconfirmed) || took != want {
					t.Errorf("got %v after %v, want it after %v", err, took, want)
				}
				if at := begun(reg, leasetest.Get, start); !slices.Contains(at, 2*interval) {
					t.Errorf("the next refresh is not an interval after the asking: %v", at)
				}
			})
		})
	}
}

func TestARefreshThatSucceedsAfterFailuresRestoresTheTrust(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reg, start := handed(t), time.Now()
		reg.Script = func(c leasetest.Call) leasetest.Fault {
			if at := c.At.Sub(start); at > 14*time.Minute+45*time.Second {
				return leasetest.Fault{Err: errBoom}
			} else if at < 14*time.Minute+30*time.Second {
				return leasetest.Fault{Err: errBoom, Drop: true}
			}
			return leasetest.Fault{}
		}
		err := keeping(reg).Keep(t.Context(), start, 0)
		if took, want := time.Since(start), 14*time.Minute+30*time.Second+threshold; !errors.Is(err, lease.ErrUnconfirmed) || took != want {
			t.Errorf("got %v after %v, want it after %v", err, took, want)
		}
	})
}

// A write that was cut off might land after the lock has been released.
func TestNothingIsUnderWayWhenTheKeepingEnds(t *testing.T) {
	t.Parallel()
	for at := time.Duration(0); at <= 2*time.Second; at += 100 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			reg := handed(t)
			reg.Script = func(leasetest.Call) leasetest.Fault {
				return leasetest.Fault{Before: 250 * time.Millisecond, After: 250 * time.Millisecond}
			}
			effects, ended := 0, time.Time{}
			reg.Effect = func(leasetest.Call) { effects++ }
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(at, func() { ended = time.Now(); cancel() })
			if err := keeping(reg).Keep(ctx, time.Time{}, 0); err != nil {
				t.Errorf("ended after %v: %v", at, err)
			}
			if took := time.Since(ended); took > 500*time.Millisecond {
				t.Errorf("ended after %v: it took %v more", at, took)
			}
			for _, c := range reg.Calls() {
				if c.At.After(ended) {
					t.Errorf("ended after %v: a %s began %v later", at, c.Op, c.At.Sub(ended))
				}
			}
			before := effects
			if r, err := keeping(reg).Keeper.Release(t.Context(), item, "ours", lease.Run{ID: 7}); r != lease.Deleted || err != nil {
				t.Errorf("release: %v, %v", r, err)
			}
			time.Sleep(time.Hour)
			if reg.Value(item) != nil || effects != before+2 {
				t.Errorf("ended after %v: %d effects since, there is %s", at, effects-before, reg.Value(item))
			}
		})
	}
}

func TestAHangingWriteHoldsUpTheEndForSecondsOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reg, start := handed(t), time.Now()
		reg.Script = on(leasetest.Put, 1, leasetest.Fault{Before: time.Hour})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if err := keeping(reg).Keep(ctx, time.Time{}, 0); err != nil || time.Since(start) != 11*time.Second {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
	})
}

func TestARequestThatHangsIsGivenUpAndTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reg, start := handed(t), time.Now()
		reg.Script = on(leasetest.Get, 1, leasetest.Fault{Before: time.Hour})
		ctx, cancel := context.WithTimeout(t.Context(), threshold+time.Second)
		defer cancel()
		if err := keeping(reg).Keep(ctx, start, 0); err != nil {
			t.Errorf("got %v", err)
		}
		if diff := cmp.Diff([]time.Duration{2*interval + 30*time.Second}, begun(reg, leasetest.Put, start)); diff != "" {
			t.Error(diff)
		}
	})
}

// counted counts reads, also those whose context has ended.
type counted struct {
	*leasetest.Memory
	reads int
}

func (c *counted) Get(ctx context.Context, item string) ([]byte, error) {
	c.reads++
	return c.Memory.Get(ctx, item)
}

func TestAnEndedContextBeginsNoRefreshThatIsDue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reg := &counted{Memory: handed(t)}
		k := keeping(reg.Memory)
		k.Keeper.Register = reg
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 50 {
			if err := k.Keep(ctx, time.Time{}, 0); err != nil {
				t.Errorf("got %v", err)
			}
		}
		if reg.reads > 0 {
			t.Errorf("%d reads", reg.reads)
		}
	})
}
