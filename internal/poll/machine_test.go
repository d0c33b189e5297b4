package poll

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/fullsend/poll-action/internal/dispatch"
	"github.com/fullsend/poll-action/internal/event"
	"github.com/fullsend/poll-action/internal/lease/leasetest"
)

// step is one move of the state machine.
type step struct {
	// Kind: "say", "cycle", "both", "end" (the runs end), "retry", "pass".
	Kind string
	// Seed decides everything else about the step.
	Seed uint64
	// Faults is the share of calls that fail, in percent.
	Faults int
	// Fuse is after how many calls the process dies; negative: never.
	Fuse int
	// Cut is when the context ends, in tenths of a second; negative: never.
	Cut int
}

func steps() *rapid.Generator[step] {
	return rapid.Custom(func(t *rapid.T) step {
		return step{
			Kind:   rapid.SampledFrom([]string{"say", "say", "say", "cycle", "cycle", "cycle", "both", "end", "retry", "pass"}).Draw(t, "kind"),
			Seed:   rapid.Uint64().Draw(t, "seed"),
			Faults: rapid.SampledFrom([]int{0, 0, 5, 20}).Draw(t, "faults"),
			Fuse:   rapid.OneOf(rapid.Just(-1), rapid.IntRange(0, 40)).Draw(t, "fuse"),
			Cut:    rapid.OneOf(rapid.Just(-1), rapid.IntRange(0, 60)).Draw(t, "cut"),
		}
	})
}

// machine plays steps in a world and knows what must come of them.
type machine struct {
	w *world
	// due is how many runs a dispatch key must have in the end.
	due map[string]int
	// refused are the keys that the output will never take.
	refused map[string]bool
	alone   bool
	names   int
}

var comments = []string{"talk", "/fs-triage now", "/fs-code", "/fs-both"}

func (m *machine) play(t *testing.T, s step) {
	t.Helper()
	dice := rand.New(rand.NewPCG(s.Seed, 1))
	w := m.w
	switch s.Kind {
	case "say":
		id, body := strconv.Itoa(dice.IntN(4)), comments[dice.IntN(len(comments))]
		role := event.RoleWrite
		if dice.IntN(5) == 0 {
			role = event.RoleRead
		}
		occ := w.sayAs(id, body, time.Duration(dice.IntN(9))*time.Second, role)
		for _, agent := range []string{"triage", "code"} {
			if role == event.RoleWrite && (strings.HasPrefix(body, "/fs-"+agent) || body == "/fs-both") {
				key := agent + ":" + occ
				m.due[key] = 1
				if dice.IntN(8) == 0 {
					m.refused[key], m.due[key] = true, 0
				}
			}
		}
	case "cycle":
		m.cycles(t, s, dice, 1)
	case "both":
		m.alone = false
		m.cycles(t, s, dice, 2)
	case "end":
		w.end(func() bool { return dice.IntN(3) == 0 })
	case "retry": // a run gave its work back
		for _, i := range w.issues {
			for _, e := range i.events {
				key := "triage:" + e.Key
				if i.keys[key] && w.runs[key] > 0 && i.retry[key].IsZero() && dice.IntN(3) == 0 {
					w.end(func() bool { return false })
					i.retry[key] = e.At
					m.due[key]++
				}
			}
		}
	case "pass":
		time.Sleep(time.Duration(dice.IntN(2)) * 11 * time.Minute)
	}
	time.Sleep(time.Duration(dice.IntN(20)) * time.Second)
}

// cycles runs one cycle each of n new processes, side by side.
func (m *machine) cycles(t *testing.T, s step, dice *rand.Rand, n int) {
	t.Helper()
	var mu sync.Mutex
	roll := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return dice.IntN(n)
	}
	w := m.w
	w.latency = func() time.Duration { return time.Duration(roll(300)) * time.Millisecond }
	w.fault = func(call, _ string) error {
		// Whether a stale lock has runs that it does not name has to be answered:
		// where it is not, the threshold decides, and a run may be doubled.
		if call != "search" && roll(100) < s.Faults {
			return errBoom
		}
		return nil
	}
	w.locks.Script = func(leasetest.Call) leasetest.Fault {
		if roll(100) < s.Faults {
			return leasetest.Fault{Err: errBoom} // the answer is lost
		}
		return leasetest.Fault{}
	}
	w.outcome = func(o dispatch.Order) error {
		classes := []dispatch.Class{dispatch.Transient, dispatch.Unknown, dispatch.Fatal}
		switch {
		case m.refused[o.Key]:
			return classed(dispatch.Permanent)
		case roll(100) < 2*s.Faults:
			return classed(classes[roll(3)])
		}
		return nil
	}
	w.ghost = func(o dispatch.Order) bool { return !m.refused[o.Key] && roll(2) == 0 }
	ctx := t.Context()
	if s.Cut >= 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(s.Cut)*100*time.Millisecond)
		defer cancel()
	}
	var wg sync.WaitGroup
	for range n {
		m.names++
		p := w.poller(t, "p"+strconv.Itoa(m.names))
		p.intN = roll
		p.opts.N = 2
		p.fuse.Store(int64(s.Fuse))
		wg.Go(func() { p.cycle(ctx) })
	}
	wg.Wait()
}

// settle lets the world come to rest without faults.
func (m *machine) settle(t *testing.T) {
	t.Helper()
	for range 40 {
		before := len(m.w.orders)
		m.play(t, step{Kind: "cycle", Fuse: -1, Cut: -1})
		m.play(t, step{Kind: "end"})
		time.Sleep(11 * time.Minute)
		if quiet := len(m.w.orders) == before; quiet && m.settled() {
			return
		}
	}
}

func (m *machine) settled() bool {
	for _, i := range m.w.issues {
		if i.checkpoint.At.Before(i.updated()) || len(i.retry) > 0 {
			return false
		}
	}
	return true
}

// verdict says what is wrong in the end.
func (m *machine) verdict() []string {
	var out []string
	w := m.w
	for _, key := range slices.Sorted(maps.Keys(m.due)) {
		due, runs := m.due[key], w.runs[key]
		if runs != due {
			out = append(out, fmt.Sprintf("%s has %d runs, %d are due, %d were journalled", key, runs, due, w.committed[key]))
		}
	}
	for key := range w.runs {
		if _, known := m.due[key]; !known {
			out = append(out, key+" was nobody's business and has a run")
		}
	}
	if !m.settled() {
		out = append(out, "it never comes to rest")
	}
	for _, i := range w.issues {
		if m.alone && !slices.IsSortedFunc(i.advances, time.Time.Compare) {
			out = append(out, fmt.Sprintf("the checkpoint of %s went back: %v", i.key, i.advances))
		}
	}
	return out
}

// Events appear, outputs and stores fail, processes are interrupted or die
// between any two calls, two pollers run side by side, runs end and give their lock
// back or are killed: in the end every command had exactly one run, and one more for
// each time that it was given back.
func TestWhateverHappensEveryCommandIsDispatchedAndNoneTwice(t *testing.T) {
	t.Parallel()
	for part := range 4 {
		t.Run(strconv.Itoa(part), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(r *rapid.T) {
				plan := rapid.SliceOfN(steps(), 1, 25).Draw(r, "plan")
				var wrong, log []string
				synctest.Test(t, func(t *testing.T) {
					m := &machine{w: newWorld(), due: map[string]int{}, refused: map[string]bool{}, alone: true}
					for _, s := range plan {
						m.play(t, s)
					}
					m.settle(t)
					wrong, log = m.verdict(), m.w.log
				})
				if len(wrong) > 0 {
					r.Fatalf("%s\n%s", strings.Join(wrong, "\n"), strings.Join(log, "\n"))
				}
			})
		})
	}
}
