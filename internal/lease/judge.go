package lease

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Rules say for how long a lock keeps others out. The zero value of a duration
// means its default.
type Rules struct {
	// StaleThreshold is the age at which a running lock is taken to be abandoned.
	StaleThreshold time.Duration
	// PendingTTL is the same for a lock that its run has not refreshed yet; the
	// default is StaleThreshold.
	PendingTTL time.Duration
	// MaxHold is the age at which a lock goes even while a run that it names is
	// still at work; the default is [DefaultMaxHold].
	MaxHold time.Duration
}

const (
	// DefaultMaxHold is as long as a job on GitHub's own runners may take.
	DefaultMaxHold = 6 * time.Hour
	// freeAfter is how long a lock stands after its last write whatever its runs
	// say: its poller may still be placing orders. quiet is the poller's half of
	// that bargain: with runs in the lock, it places no order when the last write
	// is older than that.
	freeAfter = 30 * time.Second
	quiet     = 10 * time.Second
	// OrderTime is how long an order may take, from the read that verifies its lock
	// to its place in the journal, under a lock that names runs.
	OrderTime = freeAfter - quiet - 5*time.Second
)

// ttl is the age at which a lock of the phase is stale.
func (r Rules) ttl(p Phase) time.Duration {
	if p != Running && r.PendingTTL > 0 {
		return r.PendingTTL
	}
	return r.StaleThreshold
}

func (r Rules) maxHold() time.Duration {
	if r.MaxHold > 0 {
		return r.MaxHold
	}
	return DefaultMaxHold
}

// Fresh reports whether the lock keeps others out at now by its age alone.
func (r Rules) Fresh(l Lock, now time.Time) bool { return l.Fresh(now, r.ttl(l.Phase)) }

// Life is what the output knows of the runs under a lock.
type Life int

// The lives of a lock's runs.
const (
	// Unknown: the output did not answer.
	Unknown Life = iota
	// None: no run was ever started under the lock.
	None
	// Alive: at least one run may still do something.
	Alive
	// Over: every run has ended, or does not exist any more.
	Over
)

// Standing is what became of a lock's runs.
type Standing struct {
	Life Life
	// Runs are those that the lock names and those that were found by its id, the
	// newest last.
	Runs []Run
	// Err says why Life is Unknown.
	Err error
}

// Evidence knows the runs that were started under locks. Standings returns one
// standing for each lock, in their order: of a lock that names runs, how those
// are; of one that names none, what is found by its id. Search asks by the id in
// any case. Both may remember an answer for some seconds.
type Evidence interface {
	Standings(ctx context.Context, locks []Lock) []Standing
	Search(ctx context.Context, lock Lock) Standing
}

// Judge decides whether a stored lock still keeps others out: by its age, and by
// what became of the runs that it names. Evidence may be nil; then age decides.
type Judge struct {
	Rules
	Evidence Evidence
	// ServerNow is the store's clock.
	ServerNow func() time.Time
}

// Verdict is a judge's decision on one lock.
type Verdict struct {
	// Held: the lock keeps others out.
	Held bool
	// Why explains the verdict in a part of a sentence.
	Why string
	// Runs are those that are known to have been started under the lock.
	Runs []Run
	// Adopt: the lock names no run, and its poller is gone; Runs belong into it.
	Adopt bool
}

// Judge returns a verdict for each lock, in their order. It asks for evidence
// once, and only about locks for which that matters:
//
//   - fresh, and no run named: held. A poller is at work.
//   - fresh, runs named: free when all of them have ended, else held.
//   - stale, runs named: held while one is alive, up to MaxHold; when nobody
//     knows, free.
//   - stale, no run named: the poller died, or did not learn what became of its
//     dispatch. What is found by the lock's id decides; when nobody answers, it
//     is held up to MaxHold, for a second run would be worse than a late one.
func (j *Judge) Judge(ctx context.Context, locks []Lock) []Verdict {
	now := j.ServerNow()
	verdicts := make([]Verdict, len(locks))
	var ask []int
	for i, l := range locks {
		age := now.Sub(l.TS)
		fresh := j.Fresh(l, now)
		verdicts[i] = Verdict{Held: fresh, Why: "its last sign of life is " + age.Round(time.Second).String() + " old"}
		if age <= -MaxSkew {
			verdicts[i].Why = "it is dated ahead"
		}
		if j.Evidence != nil && (!fresh || len(l.Runs) > 0 && age >= freeAfter) {
			ask = append(ask, i)
		}
	}
	if len(ask) == 0 {
		return verdicts
	}
	asked := make([]Lock, len(ask))
	for k, i := range ask {
		asked[k] = locks[i]
	}
	for k, s := range j.Evidence.Standings(ctx, asked) {
		if k < len(ask) {
			i := ask[k]
			verdicts[i] = j.weigh(locks[i], verdicts[i], s, now)
		}
	}
	return verdicts
}

// weigh corrects a verdict that age alone gave.
func (j *Judge) weigh(l Lock, v Verdict, s Standing, now time.Time) Verdict {
	age := now.Sub(l.TS)
	v.Runs = merged(l.Runs, s.Runs)
	within := age > -MaxSkew && age < j.maxHold()
	switch s.Life {
	case Over:
		return Verdict{Why: ended(v.Runs), Runs: v.Runs}
	case Alive:
		if v.Held || within {
			return Verdict{Held: true, Why: working(v.Runs), Runs: v.Runs, Adopt: len(l.Runs) == 0}
		}
		v.Why = "a run is still at work, longer than max_hold after its last sign of life"
	case Unknown:
		if !v.Held && len(l.Runs) == 0 && within {
			return Verdict{Held: true, Why: fmt.Sprintf("it is stale, but whether a run was started under it could not be found out (%v)", s.Err)}
		}
	case None:
	}
	return v
}

func ended(runs []Run) string {
	if len(runs) == 1 {
		return fmt.Sprintf("its run %d has ended", runs[0].ID)
	}
	return fmt.Sprintf("all its %d runs have ended", len(runs))
}

func working(runs []Run) string {
	if len(runs) == 1 {
		return fmt.Sprintf("its run %d has not ended", runs[0].ID)
	}
	return fmt.Sprintf("of its %d runs at least one has not ended", len(runs))
}

// merged returns the runs of both lists, each once, what the first says of one
// completed by the second.
func merged(a, b []Run) []Run {
	all := slices.Clone(a)
	for _, r := range b {
		i := slices.IndexFunc(all, func(have Run) bool { return have.ID == r.ID })
		if i < 0 {
			all = append(all, r)
			continue
		}
		if all[i].Agent == "" {
			all[i].Agent = r.Agent
		}
		if all[i].URL == "" {
			all[i].URL = r.URL
		}
		if all[i].Created.IsZero() {
			all[i].Created = r.Created
		}
	}
	if len(all) > maxRuns {
		all = all[:maxRuns]
	}
	return all
}
