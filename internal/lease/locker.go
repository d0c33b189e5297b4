package lease

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// Register is where locks live: one value per item. Implementations read and
// write the store directly (never a search index) and never repeat a Put by
// themselves.
type Register interface {
	// Get returns the stored value, or [ErrAbsent].
	Get(ctx context.Context, item string) ([]byte, error)
	// Put overwrites the value; created says that there was none before, as the
	// store itself answered.
	Put(ctx context.Context, item string, value []byte) (created bool, err error)
	// Delete removes the value; one that is already gone is no error.
	Delete(ctx context.Context, item string) error
}

// BulkRegister is an optional ability of a [Register]: GetAll reads many items in
// one request. A nil value is an item without a lock; an item that is not in the
// result could not be read. [errors.ErrUnsupported] sends the caller back to Get.
type BulkRegister interface {
	GetAll(ctx context.Context, items []string) (map[string][]byte, error)
}

var (
	// ErrAbsent says that there is no value.
	ErrAbsent = errors.New("no lock")
	// ErrLost says that the lock is not ours (any more).
	ErrLost = errors.New("the lock is lost")
	// ErrSlow says that reading and writing took longer than the bound W that
	// all contenders share, so this turn was given up.
	ErrSlow = errors.New("the turn was given up: read and write took longer than the lock's guard allows")
)

// HeldError says who holds an item. It is data, not a failure: the item is left
// for a later cycle.
type HeldError struct {
	Item   string
	Holder Lock
	Age    time.Duration
	// Kept: by its age, or by what became of the runs that it names, the lock would
	// be free; Why says what keeps it.
	Kept bool
	Why  string
	// Adopted are runs that a dead poller had started under the lock without
	// having written so; they stand in the lock now.
	Adopted []Run
}

// Error names item, holder and age.
func (e *HeldError) Error() string {
	run := ""
	if e.Holder.RunID > 0 {
		run = fmt.Sprintf(", run %d", e.Holder.RunID)
	}
	why := ""
	if e.Kept && e.Why != "" {
		why = "; the lock is kept: " + e.Why
	}
	return fmt.Sprintf("item %s is locked by %q (%s%s) since %s%s", e.Item, e.Holder.ID, e.Holder.Phase, run, e.Age.Round(time.Second), why)
}

// Contended reports whether err means that somebody else is at the item, as
// opposed to a store that does not answer.
func Contended(err error) bool {
	var held *HeldError
	return errors.As(err, &held) || errors.Is(err, ErrLost) || errors.Is(err, ErrSlow)
}

// Options make a [Locker]. All durations are used as given; the caller applies
// defaults.
type Options struct {
	Register Register
	// Conditional takes locks by compare-and-swap, which Register must then be able
	// to do ([ConditionalRegister]).
	Conditional bool
	// Driver is written into every lock.
	Driver string
	// Rules say for how long a lock keeps others out, Evidence (nil is allowed)
	// what became of its runs.
	Rules
	Evidence Evidence
	// Guard plus JitterMin is the bound W on read and write together; Guard
	// plus a random time from JitterMin to JitterMax is the wait before verify.
	Guard, JitterMin, JitterMax time.Duration
	// CleanUp bounds what is still done after the context was cancelled.
	CleanUp time.Duration
	// Now is the local, monotonic clock; ServerNow is the store's clock, by
	// which staleness is judged.
	Now, ServerNow func() time.Time
	// Rand returns a number in [0, 1).
	Rand func() float64
	// NewID returns a fresh UUID.
	NewID func() string
	// Note is told what is worth a line in the log: a stale or malformed lock
	// that is taken over. Nil is allowed.
	Note func(item, what string)
}

// Locker takes locks by write-then-verify. The rule it keeps, and on which
// mutual exclusion rests: (a) from just before the read to the end of the write
// no more than W passes, else the turn is given up; (b) after the write it
// waits at least W, then verifies by a direct read; (c) the holder verifies
// again right before output ([Lease.Verify]).
type Locker struct {
	o     Options
	judge *Judge
	swaps conditional
}

// New makes a locker.
func New(o Options) *Locker {
	if o.Note == nil {
		o.Note = func(string, string) {}
	}
	return &Locker{o: o, swaps: conditional{turn: make(chan struct{}, 1)}, judge: &Judge{Rules: o.Rules, Evidence: o.Evidence, ServerNow: o.ServerNow}}
}

// Attempt is the end of one acquisition: a lease or an error.
type Attempt struct {
	Item  string
	Lease *Lease
	Err   error
}

// parallel bounds the requests that one locker has under way at once.
const parallel = 16

// Acquire takes one lock; see [Locker.AcquireAll].
func (l *Locker) Acquire(ctx context.Context, item string) (*Lease, error) {
	a := l.AcquireAll(ctx, []string{item})[0]
	return a.Lease, a.Err
}

// AcquireAll takes the locks of all items at once, with one wait for all, and
// returns one attempt per item, in the order of items. Contention is a
// [*HeldError], [ErrLost] or [ErrSlow]; see [Contended]. Whatever was written
// and is not returned as a lease has been taken back, also when ctx ends.
func (l *Locker) AcquireAll(ctx context.Context, items []string) []Attempt {
	if l.o.Conditional {
		return l.acquireConditionally(ctx, items)
	}
	attempts := make([]Attempt, len(items))
	after, done := l.afterwards(ctx)
	defer done()
	each(len(items), func(i int) {
		attempts[i].Item = items[i]
		attempts[i].Lease, attempts[i].Err = l.claim(ctx, after, items[i])
	})
	if !anyLease(attempts) {
		return attempts
	}
	jitter := l.o.JitterMin + time.Duration(l.o.Rand()*float64(l.o.JitterMax-l.o.JitterMin))
	waited := sleep(ctx, l.o.Guard+jitter)
	var bulk map[string][]byte
	if waited == nil {
		bulk = l.readAll(ctx, attempts)
	}
	each(len(items), func(i int) {
		a := &attempts[i]
		if a.Err != nil {
			return
		}
		err := waited
		if raw, ok := bulk[a.Item]; err == nil && ok {
			err = a.Lease.Confirm(raw)
		} else if err == nil {
			err = a.Lease.Verify(ctx)
		}
		if err != nil {
			l.takeBack(after, a.Lease, false)
			a.Lease, a.Err = nil, err
		}
	})
	return attempts
}

// readAll reads the locks that were written in one request, where the register
// can. What is not in the result is read by itself.
func (l *Locker) readAll(ctx context.Context, attempts []Attempt) map[string][]byte {
	var items []string
	for _, a := range attempts {
		if a.Err == nil {
			items = append(items, a.Item)
		}
	}
	register, ok := l.o.Register.(BulkRegister)
	if !ok || len(items) < 2 {
		return nil
	}
	all, err := register.GetAll(ctx, items)
	if err != nil {
		return nil
	}
	return all
}

// claim reads and, where nobody holds the item, writes a fresh lock; after is
// for taking it back.
func (l *Locker) claim(ctx, after context.Context, item string) (*Lease, error) {
	start := l.o.Now()
	raw, err := l.o.Register.Get(ctx, item)
	absent := errors.Is(err, ErrAbsent)
	if err != nil && !absent {
		return nil, err
	}
	var inherited []Run
	if !absent {
		if inherited, err = l.mayTakeOver(ctx, item, raw); err != nil {
			return nil, err
		}
		if l.o.Evidence != nil { // asking took its time: the bound counts from a new read
			start = l.o.Now()
			again, err := l.o.Register.Get(ctx, item)
			if err != nil && !errors.Is(err, ErrAbsent) {
				return nil, err
			}
			if !same(raw, again) {
				return nil, fmt.Errorf("%w: somebody else took it over", ErrLost)
			}
		}
	}
	return l.write(ctx, after, item, start, absent, inherited)
}

// same reports whether two reads of a lock found the same value.
func same(a, b []byte) bool {
	x, errx := Decode(a)
	y, erry := Decode(b)
	if errx != nil || erry != nil {
		return bytes.Equal(a, b)
	}
	return x.ID == y.ID && x.TS.Equal(y.TS) && x.Phase == y.Phase
}

// write writes a fresh lock over what was read at start. It carries the runs of
// the lock that it replaces: should this poller die too, the next one still knows
// of them.
func (l *Locker) write(ctx, after context.Context, item string, start time.Time, absent bool, inherited []Run) (*Lease, error) {
	bound := l.o.Guard + l.o.JitterMin
	lock := Lock{ID: l.o.NewID(), TS: l.o.ServerNow(), Phase: Pending, Driver: l.o.Driver, Runs: inherited}
	value, err := lock.Encode()
	if err != nil {
		return nil, err
	}
	left := bound - l.o.Now().Sub(start)
	if left <= 0 {
		return nil, ErrSlow
	}
	lease := &Lease{locker: l, item: item, lock: lock, asked: start, inherited: inherited}
	wctx, cancel := context.WithTimeout(ctx, left)
	created, err := l.o.Register.Put(wctx, item, value)
	cancel()
	slow := l.o.Now().Sub(start) > bound
	switch {
	case err != nil:
		l.takeBack(after, lease, true)
		if slow || errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			return nil, fmt.Errorf("%w (%w)", ErrSlow, err)
		}
		return nil, err
	case slow:
		l.takeBack(after, lease, false)
		return nil, ErrSlow
	case absent && !created: // somebody wrote between our read and our write
		l.takeBack(after, lease, false)
		return nil, ErrLost
	}
	return lease, nil
}

// mayTakeOver returns a [*HeldError] when the stored lock keeps others out, else
// the runs that were started under it.
func (l *Locker) mayTakeOver(ctx context.Context, item string, raw []byte) ([]Run, error) {
	held, err := Decode(raw)
	if err != nil {
		l.o.Note(item, "the stored lock cannot be understood, it is overwritten: "+err.Error())
		return nil, nil //nolint:nilerr // it counts as no lock
	}
	v := l.judge.Judge(ctx, []Lock{held})[0]
	now := l.o.ServerNow()
	if v.Held {
		e := &HeldError{Item: item, Holder: held, Age: now.Sub(held.TS), Kept: !l.o.Fresh(held, now), Why: v.Why}
		if v.Adopt {
			if e.Adopted, err = l.adopt(ctx, item, held, v.Runs); err != nil {
				return nil, err
			}
		}
		return nil, e
	}
	runs := v.Runs
	if l.o.Evidence != nil && len(held.Runs) > 0 {
		// A run that its poller did not live to write down is found by the lock's id
		// only. When nobody answers, the threshold decides.
		s := l.o.Evidence.Search(ctx, held)
		if s.Life == Unknown && s.Err != nil && l.o.Fresh(held, now) {
			return nil, &HeldError{Item: item, Holder: held, Age: now.Sub(held.TS), Kept: true, Why: fmt.Sprintf("whether it has further runs could not be found out (%v)", s.Err)}
		}
		if s.Life == Alive && now.Sub(held.TS) < l.o.maxHold() {
			e := &HeldError{Item: item, Holder: held, Age: now.Sub(held.TS), Kept: true, Why: working(s.Runs)}
			if e.Adopted, err = l.adopt(ctx, item, held, s.Runs); err != nil {
				return nil, err
			}
			return nil, e
		}
		runs = merged(runs, s.Runs)
	}
	l.o.Note(item, fmt.Sprintf("the stored lock %q (%s, %s) is taken over: %s", held.ID, held.Phase, held.TS.UTC().Format(time.RFC3339), v.Why))
	return runs, nil
}

// adopt writes runs into a lock whose poller died before it could. The run itself
// may refresh the lock at the same moment; it confirms its own write.
func (l *Locker) adopt(ctx context.Context, item string, held Lock, runs []Run) ([]Run, error) {
	next := held
	for _, r := range runs {
		next = next.WithRun(r)
	}
	if len(next.Runs) == 0 {
		return nil, nil
	}
	next.TS = l.o.ServerNow()
	value, err := next.Encode()
	if err != nil {
		return nil, err
	}
	raw, err := l.o.Register.Get(ctx, item)
	if err != nil && !errors.Is(err, ErrAbsent) {
		return nil, err
	}
	if again, err := Decode(raw); err != nil || again.ID != held.ID || again.Phase != held.Phase || !again.TS.Equal(held.TS) {
		return nil, nil //nolint:nilerr // it lives, or went: nothing to adopt any more
	}
	if stands, err := l.replace(ctx, item, raw, value); err != nil || !stands {
		return nil, err
	}
	return next.Runs, nil
}

// takeBack removes what was written for lease if it is still there. A write
// whose answer was lost may land later, so it is looked for twice. ctx is that
// of [Locker.afterwards].
func (l *Locker) takeBack(ctx context.Context, lease *Lease, lostAnswer bool) {
	ctx, cancel := context.WithTimeout(ctx, l.o.CleanUp)
	defer cancel()
	found := false
	look := func() (err error) {
		found, err = lease.release(ctx, l.o.Guard+l.o.JitterMin)
		return err
	}
	err := retried(ctx, l.o.Guard, look)
	if err == nil && !found && lostAnswer && sleep(ctx, l.o.Guard) == nil {
		err = retried(ctx, l.o.Guard, look)
	}
	if err != nil {
		l.o.Note(lease.item, "a lock could not be taken back, it goes stale by itself: "+err.Error())
	}
}

// afterwards returns a context that outlives ctx by the time to clean up.
func (l *Locker) afterwards(ctx context.Context) (context.Context, context.CancelFunc) {
	return afterwards(ctx, l.o.CleanUp)
}

// afterwards returns a context that outlives ctx by d.
func afterwards(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	after, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		_ = sleep(after, d)
		cancel()
	})
	return after, func() { stop(); cancel() }
}

// Lease is a lock that was verified to be ours.
type Lease struct {
	locker *Locker
	item   string
	lock   Lock
	asked  time.Time // when the lock was asked for
	// inherited are the runs of the lock that this one replaced, settled says that
	// they are journalled.
	inherited []Run
	settled   bool
}

// Inherited returns the runs that were started under the lock that this one
// replaced. Their orders may be missing in the journal: whoever placed them may
// have died before it wrote them down.
func (l *Lease) Inherited() []Run { return slices.Clone(l.inherited) }

// Settled says that the inherited runs are journalled, so that the lock need not
// carry them any more: the next [Lease.Handover] leaves them out, and
// [Lease.Release] deletes the lock. Before that, Release leaves it: it names runs
// that have ended, so that it keeps nobody out for long.
func (l *Lease) Settled() { l.settled = true }

// Until is when, by the local clock, the holder should have finished: a quarter
// of the time to live before the lock could be taken over, counted from before it
// was written.
func (l *Lease) Until() time.Time {
	ttl := l.locker.o.ttl(Pending)
	return l.asked.Add(ttl - ttl/4)
}

// ID returns the lock's id.
func (l *Lease) ID() string { return l.lock.ID }

// Item returns the item that is locked.
func (l *Lease) Item() string { return l.item }

// Verify reads the store and returns an error that matches [ErrLost] when the
// lock is gone, somebody else's or stale. Ask it right before every output.
func (l *Lease) Verify(ctx context.Context) error {
	raw, err := l.locker.o.Register.Get(ctx, l.item)
	if err != nil && !errors.Is(err, ErrAbsent) {
		return err
	}
	return l.Confirm(raw)
}

// Confirm is Verify on a value that was read just now; nil is an item without a
// lock.
func (l *Lease) Confirm(raw []byte) error {
	if raw == nil {
		return fmt.Errorf("%w: it is gone", ErrLost)
	}
	held, err := Decode(raw)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
	if held.ID != l.lock.ID {
		return fmt.Errorf("%w: %q holds it now", ErrLost, held.ID)
	}
	now := l.locker.o.ServerNow()
	if !l.locker.o.Fresh(held, now) {
		return fmt.Errorf("%w: it went stale", ErrLost)
	}
	if len(held.Runs) > 0 && now.Sub(held.TS) > quiet {
		return fmt.Errorf("%w: it names runs and was last written %s ago, so that others may take it as soon as those have ended", ErrLost, now.Sub(held.TS).Round(time.Second))
	}
	return nil
}

// Handover writes the dispatched runs into the lock, whatever stands there: by
// the rule nobody else can have won. A phase that a run has already set to
// running stays running. It is tried three times.
func (l *Lease) Handover(ctx context.Context, runs ...Run) error {
	carried := l.inherited
	if !l.settled {
		carried = nil
	}
	return retried(ctx, l.locker.o.Guard, func() error {
		next := l.lock.without(carried)
		held, _, err := l.read(ctx)
		switch {
		case err == nil && held.ID == l.lock.ID:
			next = held.without(carried)
		case err != nil && !errors.Is(err, ErrAbsent) && !errors.Is(err, ErrMalformed):
			return err
		}
		for _, r := range runs {
			next = next.WithRun(r)
		}
		next.TS = l.locker.o.ServerNow()
		value, err := next.Encode()
		if err != nil {
			return err
		}
		if _, err := l.locker.o.Register.Put(ctx, l.item, value); err != nil {
			return err
		}
		l.lock = next
		return nil
	})
}

// Release deletes the lock if it is still ours; one that is gone or somebody
// else's is left alone. It is tried three times; the stale threshold is the
// backstop. Call it with a context that survives cancellation.
func (l *Lease) Release(ctx context.Context) error {
	return retried(ctx, l.locker.o.Guard, func() error {
		_, err := l.release(ctx, 0)
		return err
	})
}

// release deletes what is ours. A bound, where not 0, holds from just before
// the read to the end of the deletion, as it does for a write: a lock that was
// never verified may be overwritten in between, and its deletion must come
// before whoever did that verifies. A verified one is nobody else's to overwrite.
func (l *Lease) release(ctx context.Context, bound time.Duration) (found bool, err error) {
	if bound > 0 && !l.locker.o.Conditional {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, bound)
		defer cancel()
	}
	held, raw, err := l.read(ctx)
	switch {
	case err == nil && held.ID == l.lock.ID && len(l.inherited) > 0 && !l.settled:
		return true, nil // it is the only evidence of what a dead poller did
	case err == nil && held.ID == l.lock.ID:
		return true, l.locker.remove(ctx, l.item, raw)
	case err == nil, errors.Is(err, ErrAbsent), errors.Is(err, ErrMalformed):
		return false, nil // what is not ours needs no release
	}
	return false, err
}

func (l *Lease) read(ctx context.Context) (held Lock, raw []byte, err error) {
	if raw, err = l.locker.o.Register.Get(ctx, l.item); err != nil {
		return Lock{}, nil, err
	}
	if held, err = Decode(raw); err != nil {
		// somebody wrote rubbish over it; for Verify that is a lost lock
		return Lock{}, nil, fmt.Errorf("%w: %w", ErrLost, err)
	}
	return held, raw, nil
}

func anyLease(attempts []Attempt) bool {
	for _, a := range attempts {
		if a.Err == nil {
			return true
		}
	}
	return false
}

// each runs f(0) … f(n-1) side by side and waits for all.
func each(n int, f func(int)) {
	var g errgroup.Group
	g.SetLimit(parallel)
	for i := range n {
		g.Go(func() error { f(i); return nil })
	}
	_ = g.Wait()
}

// sleep waits for d and returns nil, or ctx's error when that ends first.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// retried runs f up to three times with pause between the tries.
func retried(ctx context.Context, pause time.Duration, f func() error) error {
	var err error
	for try := range 3 {
		if try > 0 {
			if sleep(ctx, min(pause, time.Second)) != nil {
				break
			}
		}
		if err = f(); err == nil || ctx.Err() != nil {
			return err
		}
	}
	return err
}
