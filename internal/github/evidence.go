package github

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/go-github/v62/github"

	"github.com/fullsend/poll-action/internal/dispatch"
	"github.com/fullsend/poll-action/internal/lease"
)

const (
	// knownFor is how long a run is taken to be as it was seen last. One that has
	// ended may be started again by somebody.
	knownFor = 15 * time.Second
	// maxRemembered bounds the runs that are remembered.
	maxRemembered = 4096
	// oneByOne is how many runs of one call are asked for without a list, maxSingles
	// how many at all, maxLooks how many locks are looked for by their ids.
	oneByOne   = 5
	maxSingles = 20
	maxLooks   = 10
	// maxFailures in a row end a call: GitHub has an outage.
	maxFailures = 3
	// A lock's ts is when it was taken, handed over or refreshed last. Its runs were
	// created from shortly before it (clocks differ, and a hand-over follows the
	// dispatches) to as long after it as a poller may go on; those of a lock that was
	// refreshed since, or given runs, up to a job's longest time before it.
	beforeTaken     = 10 * time.Minute
	beforeRefreshed = lease.DefaultMaxHold
	afterTaken      = 2 * time.Hour
)

// Evidence is what GitHub knows of the runs under locks. It remembers its answers for
// 15 seconds. It may be used by many goroutines.
type Evidence struct {
	d   *Dispatcher
	now func() time.Time

	mu    sync.Mutex
	known map[int64]memory
	order []int64 // the keys of known, the oldest first
}

var _ lease.Evidence = (*Evidence)(nil)

type memory struct {
	at      time.Time
	created time.Time
	over    bool
}

// Evidence returns what GitHub knows of the runs under locks; now is the local
// clock. Make one per process: what it remembers is what saves requests.
func (d *Dispatcher) Evidence(now func() time.Time) *Evidence {
	return &Evidence{d: d, now: now, known: map[int64]memory{}}
}

// Standings implements [lease.Evidence]. Runs that locks name are asked for by
// id, the newest of a lock first, and not further than to one that is alive; a run
// that does not exist has ended. Are more than 5 of them unknown, the newest 100
// runs of the workflow are read first, by one request; more than 20 single requests
// are not made. Locks that name no run are looked for by their ids, 10 of them. What
// is beyond these bounds, or was not answered, is [lease.Unknown] with an error that
// says so.
func (e *Evidence) Standings(ctx context.Context, locks []lease.Lock) []lease.Standing {
	q := e.inquire()
	q.list(ctx, locks)
	standings := make([]lease.Standing, len(locks))
	for i, l := range locks {
		if len(l.Runs) > 0 {
			standings[i] = q.weigh(ctx, l.Runs)
		} else {
			standings[i] = q.search(ctx, l)
		}
	}
	return standings
}

// Search implements [lease.Evidence]: it looks for runs with the lock's id in their
// names that were dispatched from 10 minutes before its ts to 2 hours after it; of a
// lock that was refreshed or names runs, from 6 hours before it, which is as long as
// a job on GitHub's own runners may take. Life is that of the runs named and found.
func (e *Evidence) Search(ctx context.Context, lock lease.Lock) lease.Standing {
	return e.inquire().search(ctx, lock)
}

// inquiry is one call's questions.
type inquiry struct {
	e        *Evidence
	failed   map[int64]error
	singles  int
	looks    int
	failures int
	// stop, once set, is why nothing more is asked.
	stop error
}

func (e *Evidence) inquire() *inquiry {
	return &inquiry{e: e, failed: map[int64]error{}}
}

// list reads the newest runs of the workflow where that saves requests.
func (q *inquiry) list(ctx context.Context, locks []lease.Lock) {
	unknown := map[int64]struct{}{}
	for _, l := range locks {
		for _, r := range l.Runs {
			if _, ok := q.recall(r.ID); !ok {
				unknown[r.ID] = struct{}{}
			}
		}
	}
	if len(unknown) <= oneByOne {
		return
	}
	runs, _, err := q.e.d.listRuns(ctx, &github.ListWorkflowRunsOptions{Event: "workflow_dispatch", ListOptions: github.ListOptions{PerPage: 100}})
	q.answered(err)
	for _, r := range runs {
		q.learn(r.ID, memory{over: r.Completed, created: r.CreatedAt})
	}
}

// weigh sums up runs that are known by their ids.
func (q *inquiry) weigh(ctx context.Context, runs []lease.Run) lease.Standing {
	runs = slices.Clone(runs)
	s := lease.Standing{Life: lease.Over, Runs: runs}
	for i, r := range slices.Backward(runs) {
		over, err := q.ask(ctx, r.ID)
		if runs[i].Created.IsZero() {
			runs[i].Created = q.created(r.ID)
		}
		switch {
		case err != nil:
			s.Life = lease.Unknown
			if s.Err == nil {
				s.Err = err
			}
		case !over:
			return lease.Standing{Life: lease.Alive, Runs: runs}
		}
	}
	return s
}

// ask says whether a run has ended.
func (q *inquiry) ask(ctx context.Context, id int64) (over bool, err error) {
	if over, ok := q.recall(id); ok {
		return over, nil
	}
	if err := q.failed[id]; err != nil {
		return false, err
	}
	if q.stop != nil {
		return false, q.stop
	}
	if q.singles == maxSingles {
		return false, fmt.Errorf("run %d: not asked for, there were %d others before it", id, maxSingles)
	}
	q.singles++
	run, found, err := q.e.d.GetRun(ctx, id)
	q.answered(err)
	if err != nil {
		q.failed[id] = err
		return false, err
	}
	over = !found || run.Completed
	q.learn(id, memory{over: over, created: run.CreatedAt})
	return over, nil
}

// search looks for a lock's runs by its id.
func (q *inquiry) search(ctx context.Context, l lease.Lock) lease.Standing {
	unknown := func(err error) lease.Standing { return lease.Standing{Runs: l.Runs, Err: err} }
	found := looked{}
	if searchable(l.ID) && dated(l) {
		switch {
		case q.stop != nil:
			return unknown(q.stop)
		case q.looks == maxLooks:
			return unknown(fmt.Errorf("lock %q: not looked for, there were %d others before it", l.ID, maxLooks))
		}
		q.looks++
		before := beforeTaken
		if l.Phase == lease.Running || len(l.Runs) > 0 {
			before = beforeRefreshed
		}
		var err error
		found, err = q.e.d.look(ctx, l.ID, l.TS.Add(-before), l.TS.Add(afterTaken))
		q.answered(err)
		if err != nil {
			return unknown(err)
		}
	}
	runs := slices.Clone(l.Runs)
	for _, r := range slices.Backward(found.found) {
		q.learn(r.ID, memory{over: r.Completed, created: r.CreatedAt})
		if !l.Names(r.ID) {
			runs = append(runs, lease.Run{Agent: q.e.d.agentIn(r.Title, l.ID), ID: r.ID, URL: r.URL, Created: r.CreatedAt})
		}
	}
	s := lease.Standing{Runs: runs}
	if len(runs) > 0 {
		s = q.weigh(ctx, runs)
	}
	switch {
	case s.Life == lease.Alive, s.Err != nil:
	case found.more:
		s.Life, s.Err = lease.Unknown, q.e.d.tooMany(found)
	case len(runs) == 0 && found.seen > 0 && q.e.d.untitled():
		s.Err = fmt.Errorf("the run-name of %s lacks the lock id, and any of %d runs may be the lock's", q.e.d.file, found.seen)
	case len(runs) == 0:
		s.Life = lease.None
	}
	return s
}

// answered notes how a request ended. Nothing is asked after an error that the next
// request would meet too.
func (q *inquiry) answered(err error) {
	if err == nil {
		q.failures = 0
		return
	}
	q.failures++
	if q.failures >= maxFailures || dispatch.ClassOf(err) == dispatch.Fatal {
		q.stop = err
	}
}

// learn remembers a run.
func (q *inquiry) learn(id int64, m memory) {
	m.at = q.e.now()
	e := q.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, ok := e.known[id]; !ok {
		if len(e.order) >= maxRemembered {
			delete(e.known, e.order[0])
			e.order = e.order[1:]
		}
		e.order = append(e.order, id)
	}
	e.known[id] = m
}

// recall says what is known of a run without a request.
func (q *inquiry) recall(id int64) (over, ok bool) {
	now := q.e.now()
	q.e.mu.Lock()
	defer q.e.mu.Unlock()
	m, ok := q.e.known[id]
	if age := now.Sub(m.at); !ok || age < 0 || age >= knownFor {
		return false, false
	}
	return m.over, true
}

// created says when a run was created, as far as that was answered.
func (q *inquiry) created(id int64) time.Time {
	q.e.mu.Lock()
	defer q.e.mu.Unlock()
	return q.e.known[id].created
}

// dated says that a lock's time is one that GitHub's filter can tell.
func dated(l lease.Lock) bool { return l.TS.Year() >= 2000 && l.TS.Year() < 9999 }

// untitled says that the names of runs are known to lack the lock's id.
func (d *Dispatcher) untitled() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.target != nil && !d.target.titled
}

// agentIn returns the agent that the name of a lock's run begins with; empty where
// the workflow's run-name is known to begin with something else.
func (d *Dispatcher) agentIn(title, lockID string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.target != nil && !d.target.agentFirst {
		return ""
	}
	return firstAgent(title, lockID)
}

// firstAgent returns the first word of a run's name when it could be an agent's and
// the name has the lock's id after it. A wrong name would be worse than none.
func firstAgent(title, lockID string) string {
	words := strings.Fields(title)
	if len(words) < 2 || lockID == "" || strings.Contains(words[0], lockID) || !strings.Contains(title, lockID) {
		return ""
	}
	key := true // of an issue: PROJ-7
	for i := range len(words[0]) {
		c := words[0][i]
		if !nameByte(c) {
			return ""
		}
		key = key && (c < 'a' || c > 'z')
	}
	if key && strings.ContainsAny(words[0], "0123456789") {
		return ""
	}
	return words[0]
}
