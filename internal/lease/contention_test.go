package lease_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fullsend/poll-action/internal/lease"
	"github.com/fullsend/poll-action/internal/lease/leasetest"
)

// The tests in this file model contention for one item. What is assumed of the
// store is what the lock's promise rests on:
//
//   - a read sees every write whose effect came before it;
//   - a request has its effect between its beginning and the end of its context,
//     or not at all: what its sender gave up has no effect afterwards.
//
// The second is more than a real server promises. A write that lands long after
// it was given up stands over the lock of a holder until it is taken back, and
// then the item is free although its holder works, until the holder's handover
// puts the lock back; no order is doubled as long as the holder has journalled
// before the next one reads the journal.
//
// Everything else is free: every request takes 0 to 6 seconds, split at random
// before and after its effect; answers are lost, requests fail, contenders are
// interrupted or die at any moment.

// win is one output under a verified lock.
type win struct {
	who, id string
	at      time.Time
	// ts dates the lock: it keeps others out until ts + the stale threshold.
	ts time.Time
	// over is when its holder began to release it.
	over time.Time
}

// referee books outputs and finds two within one generation of the lock. A
// generation lasts from the first output until its holder begins to release the
// lock, or until the lock is stale.
type referee struct {
	mu    sync.Mutex
	stale time.Duration
	wins  []*win
	fouls []string
}

func (r *referee) output(who, id string, ts time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for _, w := range r.wins {
		if w.id != id && w.over.IsZero() && now.Before(w.ts.Add(r.stale)) {
			r.fouls = append(r.fouls, fmt.Sprintf("%s (%s) puts out at %s while %s (%s) has since %s", who, id, clock(now), w.who, w.id, clock(w.at)))
		}
	}
	r.wins = append(r.wins, &win{who: who, id: id, at: now, ts: ts})
}

// update changes the wins of one lock.
func (r *referee) update(id string, f func(w *win)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.wins {
		if w.id == id {
			f(w)
		}
	}
}

func clock(t time.Time) string { return t.UTC().Format("04:05.000") }

// dice are the random numbers of one schedule.
type dice struct {
	mu sync.Mutex
	r  *rand.Rand
}

func (d *dice) float() float64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.r.Float64()
}

func (d *dice) chance(p float64) bool { return d.float() < p }

func (d *dice) upTo(limit time.Duration) time.Duration {
	return time.Duration(d.float() * float64(limit))
}

// schedule is one random run of several contenders.
type schedule struct {
	*referee
	dice *dice
	reg  *leasetest.Memory
	// latency is the most that a request takes, trouble the share of requests
	// that go wrong.
	latency time.Duration
	trouble float64
	// spread is how far apart contenders begin; a small one makes them collide.
	spread time.Duration
	// log has every effect in order.
	log []effect
}

// effect is a request at the time of its effect.
type effect struct {
	call leasetest.Call
	at   time.Time
}

func (s *schedule) String() string {
	var b strings.Builder
	for _, e := range s.log {
		fmt.Fprintf(&b, "%s %s %s\n", clock(e.at), e.call.Op, e.call.Value)
	}
	return b.String()
}

func newSchedule(seed uint64) *schedule {
	s := &schedule{referee: &referee{stale: time.Minute}, dice: &dice{r: rand.New(rand.NewPCG(seed, 1))}}
	s.latency = []time.Duration{1500 * time.Millisecond, 3 * time.Second, 6 * time.Second}[s.dice.r.IntN(3)]
	s.trouble = []float64{0, 0.1, 0.3}[s.dice.r.IntN(3)]
	s.spread = []time.Duration{20 * time.Millisecond, 200 * time.Millisecond, 3 * time.Second}[s.dice.r.IntN(3)]
	s.reg = &leasetest.Memory{
		Now: time.Now,
		Script: func(leasetest.Call) leasetest.Fault {
			// most requests are much faster than the slowest: only where one contender
			// is quick and another slow do two turns overlap in the worst way
			total := s.dice.upTo(s.latency / 20)
			if s.dice.chance(0.2) {
				total = s.latency - s.dice.upTo(s.latency)/2
			}
			before := s.dice.upTo(total)
			if s.dice.chance(0.5) {
				before = total
			}
			f := leasetest.Fault{Before: before, After: total - before}
			if s.dice.chance(s.trouble) {
				f.Err, f.Drop = errBoom, s.dice.chance(0.5)
			}
			return f
		},
		Effect: func(c leasetest.Call) { s.log = append(s.log, effect{c, time.Now()}) },
	}
	return s
}

// contend lets one contender try a few times; it works as a poll cycle does.
func (s *schedule) contend(t *testing.T, who string) {
	t.Helper()
	locker := lease.New(lease.Options{
		Register: s.reg, Driver: who, Rules: lease.Rules{StaleThreshold: s.stale}, Guard: guard, JitterMin: jitterMin, JitterMax: jitterMax, CleanUp: cleanUp,
		Now: time.Now, ServerNow: time.Now, Rand: s.dice.float, NewID: ids(who),
	})
	for range 3 {
		time.Sleep(s.dice.upTo(s.spread))
		if !s.turn(t, locker, who) {
			return // dead
		}
	}
}

func (s *schedule) turn(t *testing.T, locker *lease.Locker, who string) (alive bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if s.dice.chance(0.3) {
		defer time.AfterFunc(s.dice.upTo(8*time.Second), cancel).Stop()
	}
	ts := time.Now() // not later than the lock's
	l, err := locker.Acquire(ctx, item)
	if err != nil {
		return true
	}
	grace, done := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer done()
	defer func() {
		if !alive {
			return // it died with its output: the lock goes stale
		}
		s.update(l.ID(), func(w *win) { w.over = time.Now() })
		_ = l.Release(grace)
	}()
	for range 1 + int(2*s.dice.float()) { // orders
		if s.dice.chance(0.5) {
			time.Sleep(s.dice.upTo(time.Second))
		}
		if l.Verify(grace) != nil {
			return true
		}
		s.output(who, l.ID(), ts)
		if s.dice.chance(0.1) {
			return false
		}
		if s.dice.chance(0.5) {
			time.Sleep(s.dice.upTo(2 * time.Second)) // the output works
		}
		now := time.Now()
		if l.Handover(grace, lease.Run{ID: 1, Agent: who}) == nil {
			ts = now
			s.update(l.ID(), func(w *win) { w.ts = now })
		}
	}
	time.Sleep(s.dice.upTo(5 * time.Second)) // its run works
	return true
}

func TestNeverTwoPutOutUnderOneGenerationOfALock(t *testing.T) {
	t.Parallel()
	const batches, each = 4, 525
	var mu sync.Mutex
	outputs, contests := 0, 0
	t.Run("schedules", func(t *testing.T) {
		t.Parallel()
		for batch := range batches {
			t.Run(strconv.Itoa(batch), func(t *testing.T) {
				t.Parallel()
				for i := range each {
					seed := uint64(batch*each + i)
					s := play(t, seed)
					if len(s.fouls) > 0 {
						t.Fatalf("seed %d, latency up to %v, trouble %v:\n%s\n%s", seed, s.latency, s.trouble, strings.Join(s.fouls, "\n"), s)
					}
					mu.Lock()
					outputs += len(s.wins)
					if len(s.wins) > 1 {
						contests++
					}
					mu.Unlock()
				}
			})
		}
	})
	t.Cleanup(func() {
		if total := batches * each; outputs < total || contests < total/3 {
			t.Errorf("%d schedules with %d outputs, %d of them with more than one: the model is idle", total, outputs, contests)
		}
	})
}

func play(t *testing.T, seed uint64) *schedule {
	t.Helper()
	var s *schedule
	synctest.Test(t, func(t *testing.T) {
		s = newSchedule(seed)
		var wg sync.WaitGroup
		for i := range 2 + s.dice.r.IntN(3) {
			wg.Go(func() { s.contend(t, fmt.Sprintf("p%d", i)) })
		}
		wg.Wait()
	})
	return s
}

// naive is plain write-then-verify: read, write, wait, verify; it does not
// measure how long read and write took.
func naive(ctx context.Context, reg lease.Register, id string) bool {
	if _, err := reg.Get(ctx, item); !errors.Is(err, lease.ErrAbsent) {
		return false
	}
	raw, err := lease.Lock{ID: id, TS: time.Now(), Phase: lease.Pending}.Encode()
	if err != nil {
		return false
	}
	if _, err := reg.Put(ctx, item, raw); err != nil {
		return false
	}
	time.Sleep(guard + jitterMin)
	raw, err = reg.Get(ctx, item)
	if err != nil {
		return false
	}
	l, err := lease.Decode(raw)
	return err == nil && l.ID == id
}

// The counterexample that rule (a) is for: one's read-to-write straddles the
// other's write-to-verify.
func TestPlainWriteThenVerifyLetsTwoWinAndTheRuleDoesNot(t *testing.T) {
	t.Parallel()
	straddle := func() *leasetest.Memory {
		return &leasetest.Memory{Script: func(c leasetest.Call) leasetest.Fault {
			if c.Op == leasetest.Put && c.N == 2 {
				return leasetest.Fault{Before: 2 * time.Second}
			}
			return leasetest.Fault{After: 10 * time.Millisecond}
		}}
	}
	contest := func(t *testing.T, try func(ctx context.Context, reg lease.Register, who string) bool) (winners int) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			reg := straddle()
			var mu sync.Mutex
			var wg sync.WaitGroup
			for _, who := range []string{"p0", "p1"} {
				wg.Go(func() {
					if try(t.Context(), reg, who) {
						mu.Lock()
						winners++
						mu.Unlock()
					}
				})
			}
			wg.Wait()
		})
		return winners
	}
	if n := contest(t, func(ctx context.Context, reg lease.Register, who string) bool { return naive(ctx, reg, who) }); n != 2 {
		t.Errorf("without the rule %d win: the counterexample is none", n)
	}
	if n := contest(t, func(ctx context.Context, reg lease.Register, who string) bool {
		l, err := lease.New(lease.Options{
			Register: reg, Rules: lease.Rules{StaleThreshold: stale}, Guard: guard, JitterMin: jitterMin, JitterMax: jitterMax, CleanUp: cleanUp,
			Now: time.Now, ServerNow: time.Now, Rand: func() float64 { return 0 }, NewID: ids(who),
		}).Acquire(ctx, item)
		return err == nil && l.Verify(ctx) == nil
	}); n != 1 {
		t.Errorf("with the rule %d win", n)
	}
}
