package leasetest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fullsend/poll-action/internal/lease/leasetest"
)

func TestMemoryConforms(t *testing.T) {
	t.Parallel()
	leasetest.Run(t, func(*testing.T) leasetest.Subject {
		return leasetest.Subject{Register: &leasetest.Memory{}, Item: "PROJ-1", Other: "PROJ-2"}
	})
}

func TestMemoryPlaysItsScript(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for _, tc := range []struct {
		name         string
		fault        leasetest.Fault
		limit        time.Duration
		took         time.Duration
		err          error
		stored, late bool
	}{
		{"a slow request", leasetest.Fault{Before: time.Second, After: time.Second}, time.Hour, 2 * time.Second, nil, true, true},
		{"a lost answer", leasetest.Fault{Err: boom}, time.Hour, 0, boom, true, true},
		{"a lost request", leasetest.Fault{Err: boom, Drop: true}, time.Hour, 0, boom, false, false},
		{"a late effect", leasetest.Fault{Err: boom, Lands: time.Second}, time.Hour, 0, boom, false, true},
		{"given up before the effect", leasetest.Fault{Before: 2 * time.Second}, time.Second, time.Second, context.DeadlineExceeded, false, false},
		{"given up after the effect", leasetest.Fault{After: 2 * time.Second}, time.Second, time.Second, context.DeadlineExceeded, true, true},
		{"given up and late", leasetest.Fault{Before: 2 * time.Second, Lands: time.Second}, time.Second, time.Second, context.DeadlineExceeded, false, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := &leasetest.Memory{Script: func(leasetest.Call) leasetest.Fault { return tc.fault }}
				ctx, cancel := context.WithTimeout(t.Context(), tc.limit)
				defer cancel()
				start := time.Now()
				_, err := m.Put(ctx, "x", []byte("{}"))
				if !errors.Is(err, tc.err) || time.Since(start) != tc.took {
					t.Errorf("got %v after %v", err, time.Since(start))
				}
				if got := m.Value("x") != nil; got != tc.stored {
					t.Errorf("stored at once: %t", got)
				}
				time.Sleep(time.Minute)
				if got := m.Value("x") != nil; got != tc.late {
					t.Errorf("stored later: %t", got)
				}
			})
		})
	}
}

func TestMemoryConformsWithConditionalWrites(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]func(leasetest.Call) leasetest.Fault{
		"at once": nil,
		"slow": func(leasetest.Call) leasetest.Fault {
			return leasetest.Fault{Before: 70 * time.Millisecond, After: 40 * time.Millisecond}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			leasetest.RunConditional(t, func(*testing.T) leasetest.Subject {
				m := &leasetest.ConditionalMemory{}
				m.Script = script
				return leasetest.Subject{Register: m, Item: "PROJ-1", Other: "PROJ-2"}
			})
		})
	}
}
