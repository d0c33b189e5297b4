package lease_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fullsend/poll-action/internal/lease"
)

// witness is evidence by lock id; what it does not know is unknown. It books what
// it is asked.
type witness struct {
	knows map[string]lease.Standing
	// found is what a search finds beyond knows.
	found map[string]lease.Standing
	// asks happens at every question.
	asks   func()
	asked  [][]string
	sought []string
}

func (w *witness) Standings(_ context.Context, locks []lease.Lock) []lease.Standing {
	var names []string
	all := make([]lease.Standing, len(locks))
	for i, l := range locks {
		names, all[i] = append(names, l.ID), w.knows[l.ID]
	}
	w.asked = append(w.asked, names)
	if w.asks != nil {
		w.asks()
	}
	return all
}

func (w *witness) Search(_ context.Context, l lease.Lock) lease.Standing {
	w.sought = append(w.sought, l.ID)
	return w.found[l.ID]
}

func noon() time.Time { return time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC) }

// aged is a lock with the given age at noon.
func aged(p lease.Phase, age time.Duration, runs ...int64) lease.Lock {
	l := lease.Lock{ID: "it", TS: noon().Add(-age), Phase: p}
	for _, id := range runs {
		l = l.WithRun(lease.Run{ID: id})
	}
	return l
}

func runs(ids ...int64) []lease.Run {
	var all []lease.Run
	for _, id := range ids {
		all = append(all, lease.Run{ID: id})
	}
	return all
}

func TestALockIsJudgedByItsAgeAndItsRuns(t *testing.T) {
	t.Parallel()
	const (
		pendingTTL = 4 * time.Minute
		maxHold    = time.Hour
		s          = time.Second
	)
	alive := func(ids ...int64) *lease.Standing { return &lease.Standing{Life: lease.Alive, Runs: runs(ids...)} }
	over := func(ids ...int64) *lease.Standing { return &lease.Standing{Life: lease.Over, Runs: runs(ids...)} }
	none, unknown := &lease.Standing{Life: lease.None}, &lease.Standing{Err: errBoom}
	held := func(ids ...int64) lease.Verdict { return lease.Verdict{Held: true, Runs: runs(ids...)} }
	free := func(ids ...int64) lease.Verdict { return lease.Verdict{Runs: runs(ids...)} }
	adopt := func(ids ...int64) lease.Verdict { return lease.Verdict{Held: true, Adopt: true, Runs: runs(ids...)} }
	for _, tc := range []struct {
		name string
		lock lease.Lock
		says *lease.Standing // nil: nobody is asked
		want lease.Verdict
		why  string
	}{
		{"fresh, a poller at work", aged(lease.Pending, 3*time.Minute), nil, held(), "3m0s old"},
		{"fresh and running without a run that is known", aged(lease.Running, 9*time.Minute), nil, held(), "9m0s old"},
		{"just written, its runs are not asked about", aged(lease.Pending, 30*s-1, 7), nil, held(), ""},
		{"a little ahead, its runs are not asked about", aged(lease.Pending, -59*s, 7), nil, held(), ""},
		{"fresh, all runs ended", aged(lease.Running, 30*s, 7, 8), over(7, 8), free(7, 8), "all its 2 runs have ended"},
		{"fresh, its one run ended", aged(lease.Running, 30*s, 7), over(7), free(7), "its run 7 has ended"},
		{"fresh, a run alive", aged(lease.Running, 30*s, 7), alive(7), held(7), "its run 7 has not ended"},
		{"fresh, nobody answers", aged(lease.Running, 30*s, 7), unknown, held(7), "30s old"},
		{"fresh, runs named that were never started", aged(lease.Running, 30*s, 7), none, held(7), "30s old"},
		{"stale, all runs ended", aged(lease.Running, stale, 7), over(7), free(7), "its run 7 has ended"},
		{"stale, a run alive", aged(lease.Running, stale, 7, 8), alive(7, 8), held(7, 8), "of its 2 runs at least one has not ended"},
		{"stale, another run found that is alive", aged(lease.Running, stale, 7), alive(8), held(7, 8), "at least one"},
		{"stale, a run alive for almost max_hold", aged(lease.Running, maxHold-1, 7), alive(7), held(7), "has not ended"},
		{"stale, a run alive for max_hold", aged(lease.Running, maxHold, 7), alive(7), free(7), "longer than max_hold"},
		{"stale, runs named, nobody answers", aged(lease.Running, stale, 7), unknown, free(7), "10m0s old"},
		{"stale, runs named that were never started", aged(lease.Running, stale, 7), none, free(7), "10m0s old"},
		{"a pending lock is stale sooner", aged(lease.Pending, pendingTTL), none, free(), "4m0s old"},
		{"pending and almost stale", aged(lease.Pending, pendingTTL-1), nil, held(), ""},
		{"a running lock as old is not", aged(lease.Running, pendingTTL), nil, held(), ""},
		{"stale, nothing was started", aged(lease.Pending, stale), none, free(), "10m0s old"},
		{"stale, a run of a dead poller is alive", aged(lease.Pending, stale), alive(7), adopt(7), "its run 7 has not ended"},
		{"stale, a run of a dead poller has ended", aged(lease.Pending, stale), over(7), free(7), "its run 7 has ended"},
		{"stale, nobody answers whether anything was started", aged(lease.Pending, stale), unknown, held(), "boom"},
		{"the same for almost max_hold", aged(lease.Pending, maxHold-1), unknown, held(), "boom"},
		{"the same for max_hold", aged(lease.Pending, maxHold), unknown, free(), "1h0m0s old"},
		{"a run of a dead poller alive for max_hold", aged(lease.Pending, maxHold), alive(7), free(7), "longer than max_hold"},
		{"dated ahead, nothing was started", aged(lease.Pending, -time.Minute), none, free(), "dated ahead"},
		{"dated ahead, nobody answers", aged(lease.Pending, -time.Minute), unknown, free(), "dated ahead"},
		{"dated ahead, a run alive", aged(lease.Running, -time.Hour, 7), alive(7), free(7), ""},
		{"dated ahead, all ended", aged(lease.Running, -time.Hour, 7), over(7), free(7), "has ended"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := &witness{knows: map[string]lease.Standing{}}
			if tc.says != nil {
				w.knows["it"] = *tc.says
			}
			j := &lease.Judge{Rules: lease.Rules{StaleThreshold: stale, PendingTTL: pendingTTL, MaxHold: maxHold}, Evidence: w, ServerNow: noon}
			got := j.Judge(t.Context(), []lease.Lock{tc.lock})[0]
			if !strings.Contains(got.Why, tc.why) || got.Why == "" {
				t.Errorf("why: %q, want %q", got.Why, tc.why)
			}
			got.Why = ""
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
			if asked := len(w.asked) > 0; asked != (tc.says != nil) || len(w.sought) > 0 {
				t.Errorf("asked %v, sought %v", w.asked, w.sought)
			}
			// without evidence age alone decides
			j.Evidence = nil
			if got := j.Judge(t.Context(), []lease.Lock{tc.lock})[0]; got.Held != j.Fresh(tc.lock, noon()) || got.Adopt || got.Runs != nil {
				t.Errorf("without evidence: %+v", got)
			}
		})
	}
}

func TestManyLocksAreJudgedByOneQuestionAboutThoseThatNeedIt(t *testing.T) {
	t.Parallel()
	named := func(id string, l lease.Lock) lease.Lock { l.ID = id; return l }
	locks := []lease.Lock{
		named("young", aged(lease.Pending, time.Minute)),
		named("old", aged(lease.Pending, time.Hour)),
		named("just handed over", aged(lease.Pending, time.Second, 1)),
		named("at work", aged(lease.Running, time.Minute, 2)),
		named("ended", aged(lease.Running, time.Minute, 3)),
	}
	w := &witness{knows: map[string]lease.Standing{
		"old": {Life: lease.None}, "at work": {Life: lease.Alive}, "ended": {Life: lease.Over}, "young": {Life: lease.Over}, "just handed over": {Life: lease.Over},
	}}
	j := &lease.Judge{Rules: lease.Rules{StaleThreshold: stale}, Evidence: w, ServerNow: noon}
	var held []bool
	for _, v := range j.Judge(t.Context(), locks) {
		held = append(held, v.Held)
	}
	if diff := cmp.Diff([]bool{true, false, true, true, false}, held); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([][]string{{"old", "at work", "ended"}}, w.asked); diff != "" {
		t.Error(diff)
	}
	if v := j.Judge(t.Context(), nil); len(v) != 0 || len(w.asked) != 1 {
		t.Error("nothing is asked about no locks")
	}
}

// brief is evidence that answers too little or too much.
type brief struct {
	*witness
	answers []lease.Standing
}

func (b brief) Standings(context.Context, []lease.Lock) []lease.Standing { return b.answers }

func TestEvidenceThatAnswersTheWrongNumberHarmsNothing(t *testing.T) {
	t.Parallel()
	locks := []lease.Lock{aged(lease.Running, time.Minute, 1), aged(lease.Running, time.Minute, 2)}
	for n := range 4 {
		j := &lease.Judge{Rules: lease.Rules{StaleThreshold: stale}, Evidence: brief{answers: slices.Repeat([]lease.Standing{{Life: lease.Over}}, n)}, ServerNow: noon}
		for i, v := range j.Judge(t.Context(), locks) {
			if v.Held != (i >= n) {
				t.Errorf("%d answers, lock %d: %+v", n, i, v)
			}
		}
	}
}

func TestTheRulesDefaults(t *testing.T) {
	t.Parallel()
	alive := &witness{knows: map[string]lease.Standing{"it": {Life: lease.Alive}}}
	j := &lease.Judge{Rules: lease.Rules{StaleThreshold: stale}, Evidence: alive, ServerNow: noon}
	for age, want := range map[time.Duration]bool{lease.DefaultMaxHold - 1: true, lease.DefaultMaxHold: false} {
		if v := j.Judge(t.Context(), []lease.Lock{aged(lease.Running, age, 7)})[0]; v.Held != want {
			t.Errorf("a run alive under a lock %v old: %+v", age, v)
		}
	}
	for age, want := range map[time.Duration]bool{stale - 1: true, stale: false} {
		if j.Fresh(aged(lease.Pending, age), noon()) != want {
			t.Errorf("pending, %v old", age)
		}
	}
}

func TestPropertyOfVerdicts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		span := func(name string, limit time.Duration) time.Duration {
			return time.Duration(rapid.Int64Range(-int64(limit), int64(limit)).Draw(t, name))
		}
		rules := lease.Rules{StaleThreshold: span("stale", 20*time.Minute).Abs() + time.Minute, PendingTTL: span("ttl", 20*time.Minute), MaxHold: span("hold", 8*time.Hour)}
		hold := rules.MaxHold
		if hold <= 0 {
			hold = lease.DefaultMaxHold
		}
		hold = max(hold, rules.StaleThreshold, rules.PendingTTL)
		someRuns := rapid.SliceOfNDistinct(rapid.Int64Range(1, 5), 0, 3, rapid.ID[int64])
		age := rapid.OneOf(
			rapid.Map(rapid.Int64Range(-int64(3*time.Minute), int64(3*time.Minute)), func(n int64) time.Duration { return time.Duration(n) }),
			rapid.Map(rapid.Int64Range(0, int64(10*time.Hour)), func(n int64) time.Duration { return time.Duration(n) }),
		).Draw(t, "age")
		l := aged(rapid.SampledFrom([]lease.Phase{lease.Pending, lease.Running}).Draw(t, "phase"), age, someRuns.Draw(t, "named")...)
		s := lease.Standing{Life: lease.Life(rapid.IntRange(0, 3).Draw(t, "life")), Runs: runs(someRuns.Draw(t, "found")...), Err: errBoom}
		j := &lease.Judge{Rules: rules, Evidence: &witness{knows: map[string]lease.Standing{"it": s}}, ServerNow: noon}
		v := j.Judge(t.Context(), []lease.Lock{l})[0]
		fresh := j.Fresh(l, noon())
		switch {
		case fresh && len(l.Runs) == 0 && !v.Held:
			t.Errorf("a fresh lock without runs was freed: %+v", v)
		case fresh && age < 30*time.Second && !v.Held:
			t.Errorf("freed %v after it was written: %+v", age, v)
		case v.Held && age >= hold:
			t.Errorf("held for %v with max_hold %v: %+v", age, hold, v)
		case v.Held && age <= -lease.MaxSkew:
			t.Errorf("dated ahead and held: %+v", v)
		case s.Life == lease.Alive && !fresh && age > -lease.MaxSkew && age < rules.MaxHold && !v.Held:
			t.Errorf("a run is alive, and the lock was freed: %+v", v)
		case v.Adopt && (len(l.Runs) > 0 || !v.Held || fresh):
			t.Errorf("adopted: %+v", v)
		case v.Why == "":
			t.Error("no reason is given")
		}
		for _, r := range v.Runs {
			if !l.Names(r.ID) && !slices.Contains(s.Runs, r) {
				t.Errorf("run %d comes from nowhere", r.ID)
			}
		}
	})
}
