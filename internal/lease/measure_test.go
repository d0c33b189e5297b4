package lease_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fullsend/poll-action/internal/lease"
	"github.com/fullsend/poll-action/internal/lease/leasetest"
)

func TestTheWorstOfSomeReadsAndWritesIsMeasured(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for _, tc := range []struct {
		name  string
		tries int
		want  lease.Latency
		puts  int
	}{
		{"one try", 1, lease.Latency{Read: 10 * ms, Write: 50 * ms, Both: 60 * ms}, 1},
		{"no try is one", 0, lease.Latency{Read: 10 * ms, Write: 50 * ms, Both: 60 * ms}, 1},
		// reads take 10, 30, 50 ms (and 20, 40, 60 between), writes 50, 40, 30 ms
		{"three tries", 3, lease.Latency{Read: 50 * ms, Write: 50 * ms, Both: 80 * ms}, 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := &leasetest.Memory{Script: func(c leasetest.Call) leasetest.Fault {
					d := time.Duration(c.N) * 10 * ms
					if c.Op == leasetest.Put {
						d = 60*ms - d
					}
					return leasetest.Fault{Before: d / 2, After: d / 2}
				}}
				got, err := lease.Measure(t.Context(), m, item, tc.tries, time.Now, []byte(`{"a":1}`))
				if diff := cmp.Diff(tc.want, got); err != nil || diff != "" {
					t.Errorf("%v\n%s", err, diff)
				}
				puts := 0
				for _, c := range m.Calls() {
					if c.Op == leasetest.Put {
						puts++
					}
				}
				if puts != tc.puts {
					t.Errorf("%d writes", puts)
				}
			})
		})
	}
}

func TestAMeasurementThatFailsSaysWhy(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		script func(leasetest.Call) leasetest.Fault
		want   error
	}{
		"read":                   {on(leasetest.Get, 1, leasetest.Fault{Err: errBoom}), errBoom},
		"write":                  {on(leasetest.Put, 1, leasetest.Fault{Err: errBoom}), errBoom},
		"second read":            {on(leasetest.Get, 2, leasetest.Fault{Err: errBoom}), errBoom},
		"a write without effect": {on(leasetest.Put, 1, leasetest.Fault{Drop: true}), lease.ErrNotRead},
		"a write that is late":   {on(leasetest.Put, 1, leasetest.Fault{Lands: time.Second}), lease.ErrNotRead},
	} {
		for _, before := range []string{"", `{"a":2}`, `rubbish`} {
			t.Run(name+" over "+before, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					m := &leasetest.Memory{Script: tc.script}
					if before != "" {
						m.Set(item, []byte(before))
					}
					if _, err := lease.Measure(t.Context(), m, item, 3, time.Now, []byte(`{"a":1}`)); !errors.Is(err, tc.want) {
						t.Errorf("got %v", err)
					}
				})
			})
		}
	}
}

// reformatted is a store that keeps values, not texts.
type reformatted struct{ *leasetest.Memory }

func (r reformatted) Get(ctx context.Context, item string) ([]byte, error) {
	raw, err := r.Memory.Get(ctx, item)
	return bytes.Replace(raw, []byte(`{"a":1,"b":[true]}`), []byte(`{ "b":[ true], "a":1 }`), 1), err
}

func TestFormattingIsNoDifference(t *testing.T) {
	t.Parallel()
	for _, value := range []string{`{"a":1,"b":[true]}`, `no JSON`} {
		if _, err := lease.Measure(t.Context(), reformatted{&leasetest.Memory{}}, item, 2, time.Now, []byte(value)); err != nil {
			t.Errorf("%s: %v", value, err)
		}
	}
}

func TestALatencyIsComparedWithTheBound(t *testing.T) {
	t.Parallel()
	for both, want := range map[time.Duration]lease.Fit{
		0: lease.Fits, bound / 2: lease.Fits, bound/2 + 1: lease.Tight, bound: lease.Tight, bound + 1: lease.TooSlow,
	} {
		l := lease.Latency{Read: time.Hour, Write: time.Hour, Both: both}
		if got := l.Fits(bound); got != want {
			t.Errorf("%v: %v, want %v", both, got, want)
		}
	}
	if got := (lease.Latency{Both: 1234567 * time.Microsecond}).String(); got != "a read and a write took 1.235s" {
		t.Errorf("got %q", got)
	}
}
