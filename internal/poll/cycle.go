package poll

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fullsend/poll-action/internal/dispatch"
	"github.com/fullsend/poll-action/internal/lease"
)

// Options make a [Cycle].
type Options struct {
	// Driver is the input driver's type; it goes into locks and reports.
	Driver string
	// Property is where the driver keeps its locks; runs are told.
	Property    string
	Input       Input
	Checkpoints Checkpoints
	Locker      *lease.Locker
	Core        *dispatch.Core
	Output      dispatch.Output
	// KillSwitch: nothing is read, dispatched or moved.
	KillSwitch bool
	// DryRun: everything is read and judged, nothing is written.
	DryRun bool
	// N is how many items one cycle locks.
	N int
	// Parallel is how many items are read at once; 0 means 8.
	Parallel int
	// Grace is how long work that must not be cut off may go on after the
	// context has ended; 0 means 4 s, within the 5 s that a runner leaves.
	Grace time.Duration
	Now   func() time.Time
	// IntN returns a random number in [0, n).
	IntN func(n int) int
	// NewID returns a fresh id for the cycle.
	NewID func() string
}

// Cycle runs poll cycles of one input driver. Cycles of one value run one after
// the other.
type Cycle struct{ o Options }

// New makes a cycle.
func New(o Options) *Cycle {
	if o.Parallel == 0 {
		o.Parallel = 8
	}
	if o.Grace == 0 {
		o.Grace = 4 * time.Second
	}
	return &Cycle{o: o}
}

// run is the state of one cycle.
type run struct {
	*Cycle
	rep  *Report
	mu   sync.Mutex // guards rep
	stop atomic.Bool
}

// view is one item as it was inspected.
type view struct {
	item    WorkItem
	state   State
	delta   Delta
	judged  []dispatch.Assessment
	orders  [][]dispatch.Order // per assessment, only what is still to do
	orphans []string           // retry keys whose events do not exist
	todo    int
}

// Started is a cycle that has discovered and touched nothing yet.
type Started struct {
	run   *run
	found Discovery
	err   error
	start time.Time
}

// Begin starts a cycle: it discovers candidates and only reads. Err tells how
// that went; Finish does the rest and must be called.
func (c *Cycle) Begin(ctx context.Context) *Started {
	s := &Started{start: c.o.Now(), run: &run{Cycle: c, rep: &Report{Driver: c.o.Driver, CycleID: c.o.NewID(), Mode: "poll", Items: []Row{}}}}
	if c.o.DryRun {
		s.run.rep.Mode = "dry-run"
	}
	if !c.o.KillSwitch {
		s.found, s.err = c.o.Input.Discover(ctx)
	}
	return s
}

// Err is what kept discovery from succeeding, nil where it succeeded.
func (s *Started) Err() error { return s.err }

// Finish does the rest of the cycle. It always returns a report; what failed
// stands in it (see [Report.OK]). When ctx ends, what was begun is brought to a
// safe end within the grace time: no lock stays behind that has no run.
func (s *Started) Finish(ctx context.Context) *Report {
	r := s.run
	grace, done := withGrace(ctx, r.o.Grace)
	defer done()
	r.cycle(ctx, grace, s.found, s.err)
	r.rep.Interrupted = ctx.Err() != nil
	r.rep.finish(s.start, r.o.Now())
	return r.rep
}

// Run is Begin and Finish.
func (c *Cycle) Run(ctx context.Context) *Report { return c.Begin(ctx).Finish(ctx) }

// cycle does everything after discovery. Work that must not be cut off runs under
// grace, which outlives ctx by a bounded time.
func (r *run) cycle(ctx, grace context.Context, found Discovery, err error) {
	if r.o.KillSwitch {
		r.rep.Notes = append(r.rep.Notes, "the kill switch is on: nothing is read, dispatched or moved; events follow when it is lifted")
		return
	}
	r.rep.Candidates, r.rep.Pending, r.rep.Held = found.Scanned, found.Pending, found.Held
	r.rep.Notes = append(r.rep.Notes, found.Notes...)
	if err != nil {
		if ctx.Err() == nil {
			r.rep.errorf("discover: %s", oneLine(err))
		}
		return
	}
	work := r.prescreen(ctx, found.Items)
	if r.halted(ctx) {
		for _, v := range work {
			r.row(v, r.unserved(ctx))
		}
		return
	}
	if len(work) == 0 || r.o.DryRun {
		return
	}
	if p, ok := r.o.Output.(dispatch.Preparer); ok {
		if err := p.Prepare(ctx); err != nil {
			if ctx.Err() == nil {
				r.rep.errorf("%s: %s", r.o.Output.Name(), oneLine(err))
			}
			for _, v := range work {
				r.row(v, Row{Status: ItemWaiting, Reason: "the output is not ready"})
			}
			return
		}
	}
	chosen, rest := choose(work, r.o.N, r.o.IntN)
	for _, v := range rest {
		r.row(v, Row{Status: ItemWaiting, Reason: "left for a later cycle (lock.n)"})
	}
	r.serveAll(ctx, grace, chosen)
}

// prescreen inspects items without a lock. What has nothing to dispatch is
// checkpointed; the rest is returned in the order of items.
func (r *run) prescreen(ctx context.Context, items []WorkItem) []*view {
	views := make([]*view, len(items))
	var g errgroup.Group
	g.SetLimit(r.o.Parallel)
	for i, item := range items {
		g.Go(func() error {
			if r.halted(ctx) {
				r.row(&view{item: item}, r.unserved(ctx))
				return nil
			}
			views[i] = r.screen(ctx, item)
			return nil
		})
	}
	_ = g.Wait()
	work := make([]*view, 0, len(views))
	for _, v := range views {
		if v != nil {
			work = append(work, v)
		}
	}
	return work
}

// screen returns the item's view when it needs a lock, else nil.
func (r *run) screen(ctx context.Context, item WorkItem) *view {
	v, err := r.inspect(ctx, item, r.o.Checkpoints.Peek(item.Ref()))
	if err != nil {
		r.fail(ctx, &view{item: item}, err)
		return nil
	}
	if r.o.DryRun {
		r.count(v)
		r.row(v, v.would())
		return nil
	}
	if v.todo > 0 || len(v.orphans) > 0 {
		return v
	}
	r.count(v)
	row := Row{Status: ItemNothing, Reason: v.why()}
	if err := r.advance(ctx, v, v.delta.Next); err != nil {
		r.fail(ctx, v, err)
		return nil
	}
	r.row(v, row)
	return nil
}

// inspect reads and judges one item from the given state.
func (r *run) inspect(ctx context.Context, item WorkItem, state State) (*view, error) {
	delta, err := item.Detect(ctx, state.since())
	if err != nil {
		return nil, err
	}
	v := &view{item: item, state: state, delta: delta}
	retried := map[string]bool{}
	for _, occ := range delta.Events {
		a := r.o.Core.Assess(ctx, occ)
		if err := ctx.Err(); err != nil {
			return nil, err // what was not judged must not count as not matched
		}
		var open []dispatch.Order
		for _, o := range a.Orders() {
			retried[o.Key] = true
			if state.Todo(o.Key, occ.At) {
				o.Lock = dispatch.LockRef{Driver: r.o.Driver, Property: r.o.Property}
				open = append(open, o)
			}
		}
		v.todo += len(open)
		v.judged, v.orders = append(v.judged, a), append(v.orders, open)
	}
	for key, at := range state.Retry {
		// What lies before Next was read, also where more follows.
		if !retried[key] && (delta.Complete || !at.After(delta.Next.At)) {
			v.orphans = append(v.orphans, key)
		}
	}
	return v, nil
}

// serveAll locks the chosen items, all at once, and serves those it got.
func (r *run) serveAll(ctx, grace context.Context, chosen []*view) {
	ids := make([]string, len(chosen))
	for i, v := range chosen {
		ids[i] = v.item.Ref().ID
	}
	var g errgroup.Group
	for i, a := range r.o.Locker.AcquireAll(ctx, ids) {
		v := chosen[i]
		switch {
		case a.Err == nil:
			r.add(func(rep *Report) { rep.Locked++ })
			g.Go(func() error { r.serve(ctx, grace, v, a.Lease); return nil })
		case lease.Contended(a.Err):
			r.add(func(rep *Report) { rep.Contended++ })
			row := Row{Status: ItemContended, Reason: a.Err.Error()}
			var held *lease.HeldError
			if errors.As(a.Err, &held) && len(held.Adopted) > 0 {
				g.Go(func() error { r.adoptHeld(ctx, grace, v, row, held.Adopted); return nil })
				continue
			}
			r.row(v, row)
		default:
			r.fail(ctx, v, a.Err)
		}
	}
	_ = g.Wait()
}

// serve handles one item under its lock. The lock is kept only when a run was
// dispatched or may have been.
func (r *run) serve(ctx, grace context.Context, v *view, l *lease.Lease) {
	// No wait outlasts the lock: what cannot be done before it would go stale is
	// left for the next cycle, and the lock is given back.
	ctx, free := context.WithDeadline(ctx, l.Until())
	defer free()
	keep := false
	defer func() {
		if keep {
			return
		}
		if err := l.Release(grace); err != nil {
			r.add(func(rep *Report) {
				rep.Notes = append(rep.Notes, fmt.Sprintf("%s: the lock could not be released, it goes stale by itself: %v", v.item.Ref().Key, err))
			})
			return
		}
		r.add(func(rep *Report) { rep.Released++ })
	}()
	v, guard, err := r.underLock(ctx, v, l)
	if err != nil {
		r.fail(ctx, v, err)
		return
	}
	r.count(v)
	row := Row{Status: ItemNothing, Reason: v.why()}
	next := v.delta.Next
	journal := r.o.Checkpoints.Journal(v.item.Ref())
	var problems []error
	var lost, unclear, left bool // the lock is somebody else's; a run may exist; orders are left over
	if runs := l.Inherited(); len(runs) > 0 {
		if err := r.adopt(grace, v, journal, runs, &row); err != nil {
			r.close(v, row, []error{err}, false)
			return // the lock still carries the runs, and a later cycle adopts them
		}
		l.Settled()
	}
	behind := map[string]bool{} // agents with an order that failed: their later ones wait, see adopt
	for i, a := range v.judged {
		var runs []lease.Run
		final := true
		for _, o := range v.orders[i] {
			if lost || unclear || r.halted(ctx) {
				final, left = false, true
				break
			}
			if behind[o.Agent] {
				final = false
				continue
			}
			o.Lock.ID = l.ID()
			placing, placed := grace, context.CancelFunc(func() {})
			if keep || len(l.Inherited()) > 0 { // the lock names runs, whose end frees it
				placing, placed = context.WithTimeout(grace, lease.OrderTime)
			}
			oc := dispatch.Place(placing, r.o.Output, journal, guard, o, a.Occurrence.At)
			placed()
			r.settle(&row, oc)
			final = final && oc.Status.Final()
			switch oc.Status {
			case dispatch.Dispatched:
				keep = true
				if oc.Err != nil { // not journalled: the lock is the evidence, and a later cycle adopts the run
					final, unclear = false, true
				}
				runs = append(runs, lease.Run{Agent: o.Agent, ID: oc.Receipt.RunID, URL: oc.Receipt.RunURL})
			case dispatch.Uncertain:
				keep, unclear = true, true
			case dispatch.Lost:
				lost = true
			case dispatch.Failed:
				behind[o.Agent] = true
				if dispatch.ClassOf(oc.Err) == dispatch.Fatal {
					r.halt(oc.Err)
				}
			case dispatch.Duplicate, dispatch.Adopted, dispatch.Refused:
			}
			if oc.Err != nil {
				problems = append(problems, oc.Err)
			}
		}
		if len(runs) > 0 {
			if err := l.Handover(grace, runs...); err != nil {
				problems = append(problems, fmt.Errorf("write the run into the lock: %w", err))
			}
		}
		if before := a.Occurrence.At.Add(-time.Nanosecond); !final && before.Before(next.At) {
			next.At = before
		}
	}
	if !lost { // else checkpoint and journal are the new holder's
		if len(v.orphans) > 0 {
			problems = append(problems, journal.Forget(grace, v.orphans))
		}
		problems = append(problems, r.advance(grace, v, next))
	}
	if left {
		row.Status, row.Reason = ItemWaiting, r.unserved(ctx).Reason
	}
	r.close(v, row, problems, lost)
}

// unserved is the row of an item that the cycle did not come to any more.
func (r *run) unserved(ctx context.Context) Row {
	if ctx.Err() != nil {
		return Row{Status: ItemWaiting, Reason: "interrupted"}
	}
	return Row{Status: ItemWaiting, Reason: "the cycle was stopped"}
}

// close gives the item its row.
func (r *run) close(v *view, row Row, problems []error, lost bool) {
	for _, o := range row.Runs {
		switch {
		case o.Status == string(dispatch.Dispatched):
			row.Status, row.Reason = ItemDispatched, ""
		case o.Status == string(dispatch.Adopted) && row.Status == ItemNothing:
			row.Status, row.Reason = ItemAdopted, ""
		}
	}
	switch err := errors.Join(problems...); {
	case err == nil:
	case lost && errors.Is(err, lease.ErrLost):
		row.Status, row.Reason = ItemContended, oneLine(err)
	default:
		row.Status, row.Reason = ItemFailed, oneLine(err)
	}
	r.row(v, row)
}

// underLock reads checkpoint and journal again: unchanged means that the
// pre-screen's events stand, changed means detect again.
func (r *run) underLock(ctx context.Context, v *view, l *lease.Lease) (*view, dispatch.Guard, error) {
	state, err := r.o.Checkpoints.Load(ctx, v.item.Ref())
	if err != nil {
		return v, nil, err
	}
	if state.Checkpoint.At.Equal(v.state.Checkpoint.At) && maps.Equal(state.Keys, v.state.Keys) && maps.EqualFunc(state.Retry, v.state.Retry, time.Time.Equal) {
		return v, firstBy(l, state.Lock), nil
	}
	again, err := r.inspect(ctx, v.item, state)
	if err != nil {
		return v, nil, err
	}
	return again, l.Verify, nil
}

// firstBy is the guard of an item's orders: the first is guarded by the lock that
// was read with the state, just now, if it was; all others by reading it.
func firstBy(l *lease.Lease, lock []byte) dispatch.Guard {
	if lock == nil {
		return l.Verify
	}
	return func(ctx context.Context) error {
		if raw := lock; raw != nil {
			lock = nil
			return l.Confirm(raw)
		}
		return l.Verify(ctx)
	}
}

// advance moves the item's checkpoint, never backwards.
func (r *run) advance(ctx context.Context, v *view, to Checkpoint) error {
	if to.IsZero() || !to.At.After(v.state.Checkpoint.At) {
		return nil
	}
	return r.o.Checkpoints.Advance(ctx, v.item.Ref(), to)
}

// settle books one order's end.
func (r *run) settle(row *Row, oc dispatch.Outcome) {
	run := Run{Agent: oc.Order.Agent, Key: oc.Order.Key, Status: string(oc.Status), RunID: oc.Receipt.RunID, RunURL: oc.Receipt.RunURL}
	if oc.Err != nil {
		run.Reason = oneLine(oc.Err)
	}
	row.Runs = append(row.Runs, run)
	r.add(func(rep *Report) {
		switch oc.Status {
		case dispatch.Dispatched:
			rep.Dispatched++
		case dispatch.Duplicate:
			rep.Duplicates++
		case dispatch.Refused:
			rep.Refused++
		case dispatch.Failed, dispatch.Uncertain:
			rep.Failed++
		case dispatch.Adopted:
			rep.Adopted++
		case dispatch.Lost:
			rep.Contended++
		}
	})
}

func (r *run) add(f func(*Report)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(r.rep)
}

func (r *run) count(v *view) {
	r.add(func(rep *Report) { rep.Events += len(v.delta.Events) })
}

// row completes and books the item's row.
func (r *run) row(v *view, row Row) {
	ref := v.item.Ref()
	row.Key, row.URL = ref.Key, ref.URL
	row.Events = len(v.delta.Events)
	row.Skipped = v.delta.Skipped
	row.Notes = append(append([]string(nil), v.state.Notes...), v.delta.Notes...)
	r.add(func(rep *Report) { rep.Items = append(rep.Items, row) })
}

// fail books an item that could not be handled; when the cycle was interrupted,
// that is no failure.
func (r *run) fail(ctx context.Context, v *view, err error) {
	if ctx.Err() != nil {
		r.row(v, r.unserved(ctx))
		return
	}
	r.row(v, Row{Status: ItemFailed, Reason: oneLine(err)})
	if dispatch.ClassOf(err) == dispatch.Fatal {
		r.halt(err)
	}
}

// halt stops the cycle: what is not begun is left for the next one.
func (r *run) halt(err error) {
	if !r.stop.Swap(true) {
		r.add(func(rep *Report) { rep.errorf("%s", oneLine(err)) })
	}
}

func (r *run) halted(ctx context.Context) bool { return r.stop.Load() || ctx.Err() != nil }

// withGrace returns a context that ends d after ctx does.
func withGrace(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	g, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
			cancel()
		case <-g.Done():
		}
	})
	return g, func() { stop(); cancel() }
}
