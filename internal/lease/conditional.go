package lease

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

// Swapper writes and deletes only where the stored value is the one that the
// caller has read: a compare-and-swap by the store itself. An error says that it
// is not known what came of it; without one, a read tells.
type Swapper interface {
	// Swap writes value where old is stored; old nil: only where there is nothing.
	Swap(ctx context.Context, item string, old, value []byte) error
	// DeleteIf deletes the value where it is old.
	DeleteIf(ctx context.Context, item string, old []byte) error
}

// ConditionalRegister is an optional ability of a [Register], for
// [Options.Conditional].
type ConditionalRegister interface {
	Swapper
	// SelfTest tries the store's conditional writes on a scratch value beside the
	// lock of item, see [Race]. fresh returns values that no other test has.
	SelfTest(ctx context.Context, item string, fresh func() Lock) error
}

// ErrUnfit says that a store's conditional writes cannot make locks.
var ErrUnfit = errors.New("the conditional writes of this site cannot be relied on")

// conditional is what a locker knows of its store's conditional writes.
type conditional struct {
	// turn is taken by whoever looks at the rest.
	turn   chan struct{}
	tested bool
	unfit  error
}

// maxSelfTests is on how many items the self-test is tried in one acquisition.
const maxSelfTests = 3

// tested returns the register once its self-test has passed; the first
// acquisition makes it. What a store cannot do stays so for the locker's life;
// a test that could not be made is made again by the next acquisition.
func (l *Locker) tested(ctx context.Context, items []string) (ConditionalRegister, error) {
	const cure = "set lock.mode: verify for all pollers of the repository"
	register, ok := l.o.Register.(ConditionalRegister)
	if !ok {
		return nil, fmt.Errorf("lock.mode: conditional is refused: %w; %s", errors.ErrUnsupported, cure)
	}
	select {
	case l.swaps.turn <- struct{}{}:
		defer func() { <-l.swaps.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if l.swaps.tested || l.swaps.unfit != nil {
		return register, l.swaps.unfit
	}
	var err error
	for _, item := range items[:min(len(items), maxSelfTests)] {
		err = register.SelfTest(ctx, item, l.scratch)
		unfit := errors.Is(err, ErrUnfit) || errors.Is(err, errors.ErrUnsupported)
		switch {
		case err == nil:
			l.swaps.tested = true
			return register, nil
		case unfit:
			l.swaps.unfit = fmt.Errorf("lock.mode: conditional is refused: %w; %s", err, cure)
			return nil, l.swaps.unfit
		case ctx.Err() != nil:
			return nil, err
		}
	}
	if Contended(err) {
		return nil, err
	}
	return nil, fmt.Errorf("lock.mode: conditional could not be tried and is refused for now: %w; if this stays, %s", err, cure)
}

// scratch makes a value for the self-test that looks like any lock.
func (l *Locker) scratch() Lock {
	return Lock{
		ID: l.o.NewID(), TS: l.o.ServerNow(), Phase: Pending, Driver: l.o.Driver,
		Runs: []Run{{Agent: "self-test", ID: 1 << 34, URL: "https://example.com/?a=b&c=<é>"}},
	}
}

// acquireConditionally is [Locker.AcquireAll] by compare-and-swap. Nobody has to
// wait for the writes of others, except where a lock is taken over.
func (l *Locker) acquireConditionally(ctx context.Context, items []string) []Attempt {
	attempts := make([]Attempt, len(items))
	var register ConditionalRegister
	var err error
	if len(items) > 0 {
		register, err = l.tested(ctx, items)
	}
	after, done := l.afterwards(ctx)
	defer done()
	each(len(items), func(i int) {
		attempts[i].Item, attempts[i].Err = items[i], err
		if err == nil {
			attempts[i].Lease, attempts[i].Err = l.swapIn(ctx, after, register, items[i])
		}
	})
	return attempts
}

// errNoEffect says that a conditional write whose condition held changed nothing.
var errNoEffect = errors.New("a conditional write changed nothing although nobody else wrote; check that the account has Edit Issues there")

// swapIn reads and, where nobody holds the item, puts a fresh lock in the place of
// what was read. A write without effect that nobody else's explains is tried once
// more: somebody may have come and gone.
func (l *Locker) swapIn(ctx, after context.Context, register ConditionalRegister, item string) (*Lease, error) {
	start := l.o.Now()
	old, inherited, err := l.seen(ctx, item)
	if err != nil {
		return nil, err
	}
	for range 2 {
		lock := Lock{ID: l.o.NewID(), TS: l.o.ServerNow(), Phase: Pending, Driver: l.o.Driver, Runs: inherited}
		value, err := lock.Encode()
		if err != nil {
			return nil, err
		}
		lease := &Lease{locker: l, item: item, lock: lock, asked: start, inherited: inherited}
		if err := register.Swap(ctx, item, old, value); err != nil {
			l.takeBack(after, lease, true)
			return nil, err
		}
		raw, err := l.outcome(ctx, item, old)
		if err == nil && bytes.Equal(raw, old) {
			continue
		}
		if err == nil {
			err = lease.Confirm(raw)
		}
		if err == nil {
			return lease, nil
		}
		if held, bad := Decode(raw); raw == nil || bad == nil && held.ID == lock.ID {
			l.takeBack(after, lease, false)
		}
		return nil, err
	}
	return nil, fmt.Errorf("item %s: %w", item, errNoEffect)
}

// seen reads an item's lock and returns it as stored, nil for none, with the runs
// under it; a [*HeldError] when it keeps others out.
func (l *Locker) seen(ctx context.Context, item string) (raw []byte, inherited []Run, err error) {
	raw, err = l.o.Register.Get(ctx, item)
	if errors.Is(err, ErrAbsent) {
		return nil, nil, nil
	}
	if err == nil {
		inherited, err = l.mayTakeOver(ctx, item, raw)
	}
	return raw, inherited, err
}

// outcome reads what came of a swap, nil for no lock. A run refreshes its lock by
// a plain write, and one that read before the swap may still be under way: whoever
// took a lock over waits for it, as it is waited for without conditional writes.
func (l *Locker) outcome(ctx context.Context, item string, old []byte) ([]byte, error) {
	if old != nil {
		if err := sleep(ctx, l.o.Guard+l.o.JitterMin); err != nil {
			return nil, err
		}
	}
	raw, err := l.o.Register.Get(ctx, item)
	if errors.Is(err, ErrAbsent) {
		return nil, nil
	}
	return raw, err
}

// replace writes value over what was read as old, and reports whether it stands
// there; a lock that was deleted must not come back.
func (l *Locker) replace(ctx context.Context, item string, old, value []byte) (bool, error) {
	if register, ok := l.o.Register.(ConditionalRegister); ok && l.o.Conditional {
		if err := register.Swap(ctx, item, old, value); err != nil {
			return false, err
		}
		raw, err := l.o.Register.Get(ctx, item)
		if errors.Is(err, ErrAbsent) {
			return false, nil
		}
		return err == nil && same(raw, value), err
	}
	created, err := l.o.Register.Put(ctx, item, value)
	if err != nil || !created {
		return err == nil, err
	}
	return false, l.o.Register.Delete(ctx, item) // deleted in between, by an operator
}

// remove deletes a lock that was read as raw.
func (l *Locker) remove(ctx context.Context, item string, raw []byte) error {
	if register, ok := l.o.Register.(ConditionalRegister); ok && l.o.Conditional {
		return register.DeleteIf(ctx, item, raw)
	}
	return l.o.Register.Delete(ctx, item)
}

// The times of a self-test: for how long the value of another one is respected,
// which is longer than any takes, between two looks at it, and for cleaning up.
const (
	scratchTTL     = 2 * time.Minute
	scratchPause   = 2 * time.Second
	scratchCleanUp = 4 * time.Second
	scratchTries   = 5
)

// errDisturbed says that somebody else's self-test came in between.
var errDisturbed = fmt.Errorf("%w: another self-test is at work there", ErrLost)

// Race is the self-test of conditional writes on a register that holds nothing of
// value. Two writes race for an empty place and exactly one must win; a write and
// a deletion that expect the loser's value must change nothing, those that expect
// what is stored must change it. An error matches [ErrUnfit] where the store
// failed, and [ErrLost] where another test was at work on item; any other says
// that the test could not be made. It leaves nothing behind.
//
// It refutes and does not prove: a store that tests first and writes later passes
// when both racing writes end between two of the reads.
func Race(ctx context.Context, scratch interface {
	Register
	Swapper
}, item string, fresh func() Lock,
) error {
	err := errDisturbed
	for try := 0; try < scratchTries && errors.Is(err, errDisturbed); try++ {
		if try > 0 {
			if err := sleep(ctx, scratchPause); err != nil {
				return err
			}
		}
		r := &race{Swapper: scratch, register: scratch, item: item}
		err = r.run(ctx, fresh)
		r.cleanUp(ctx)
	}
	return err
}

// race is one self-test.
type race struct {
	Swapper
	register Register
	item     string
	// ids are those of the three values, which are stored as values.
	ids    [3]string
	values [3][]byte
	// dirty says that one of them may be stored.
	dirty bool
}

// The results of a look at the scratch value: the first three are those of the
// race's own.
const (
	valueA = iota
	valueB
	valueC
	nothing
	foreign
)

func (r *race) run(ctx context.Context, fresh func() Lock) error {
	var now time.Time
	for i := range r.values {
		lock := fresh()
		value, err := lock.Encode()
		if err != nil {
			return err
		}
		r.ids[i], r.values[i], now = lock.ID, value, lock.TS
	}
	if err := r.clear(ctx, now); err != nil {
		return err
	}
	r.dirty = true
	winner, err := r.compete(ctx)
	if err != nil {
		return err
	}
	loser := valueA + valueB - winner
	var g errgroup.Group
	g.Go(func() error { return r.Swap(ctx, r.item, r.values[loser], r.values[valueC]) })
	g.Go(func() error { return r.DeleteIf(ctx, r.item, r.values[loser]) })
	if err := g.Wait(); err != nil {
		return err
	}
	switch is, err := r.look(ctx); {
	case err != nil:
		return err
	case is == foreign:
		return errDisturbed
	case is == loser:
		return fmt.Errorf("%w: both of two racing writes took effect", ErrUnfit)
	case is != winner:
		return fmt.Errorf("%w: one took effect although another value was stored than the expected one", ErrUnfit)
	}
	if err := r.must(ctx, valueC, func() error { return r.Swap(ctx, r.item, r.values[winner], r.values[valueC]) }); err != nil {
		return err
	}
	err = r.must(ctx, nothing, func() error { return r.DeleteIf(ctx, r.item, r.values[valueC]) })
	r.dirty = err != nil
	return err
}

// clear removes what a test that died has left; a fresh value of another test is
// left alone.
func (r *race) clear(ctx context.Context, now time.Time) error {
	raw, err := r.register.Get(ctx, r.item)
	switch left, bad := Decode(raw); {
	case errors.Is(err, ErrAbsent):
		return nil
	case err != nil:
		return err
	case bad == nil && now.Sub(left.TS).Abs() < scratchTTL:
		return errDisturbed
	}
	return r.register.Delete(ctx, r.item)
}

// compete lets two writes race for the empty place and returns the winner. Each
// racer looks right after its own, so that a first winner is seen even when the
// second overwrites it.
func (r *race) compete(ctx context.Context) (winner int, err error) {
	var seen [3]int
	var g errgroup.Group
	for i := valueA; i <= valueB; i++ {
		g.Go(func() (err error) {
			if err = r.Swap(ctx, r.item, nil, r.values[i]); err == nil {
				seen[i], err = r.look(ctx)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	if seen[2], err = r.look(ctx); err != nil {
		return 0, err
	}
	saw := [foreign + 1]int{}
	for _, is := range seen {
		saw[is]++
	}
	switch {
	case saw[valueA] > 0 && saw[valueB] > 0:
		return 0, fmt.Errorf("%w: both of two racing writes took effect", ErrUnfit)
	case saw[nothing] == len(seen):
		return 0, errNoEffect
	case saw[nothing] > 0 || saw[foreign] > 0:
		return 0, errDisturbed
	}
	return seen[2], nil
}

// must makes a change whose condition holds and requires its result.
func (r *race) must(ctx context.Context, want int, change func() error) error {
	if err := change(); err != nil {
		return err
	}
	switch is, err := r.look(ctx); {
	case err != nil:
		return err
	case is == foreign:
		return errDisturbed
	case is != want:
		return fmt.Errorf("%w: one changed nothing although the expected value was stored", ErrUnfit)
	}
	return nil
}

// look reads the scratch value.
func (r *race) look(ctx context.Context) (int, error) {
	raw, err := r.register.Get(ctx, r.item)
	if errors.Is(err, ErrAbsent) {
		return nothing, nil
	}
	if err != nil {
		return 0, err
	}
	held, err := Decode(raw)
	for i, id := range r.ids {
		if err == nil && held.ID == id {
			return i, nil
		}
	}
	return foreign, nil
}

// cleanUp deletes a value of the race that is still there, also when ctx has
// ended. The next test removes what this cannot.
func (r *race) cleanUp(ctx context.Context) {
	if !r.dirty {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), scratchCleanUp)
	defer cancel()
	for try := range 2 { // what was under way when the test ended may come a little later
		if try > 0 && sleep(ctx, scratchPause/2) != nil {
			return
		}
		if is, err := r.look(ctx); err == nil && is < nothing {
			_ = r.register.Delete(ctx, r.item) // see above
			return
		}
	}
}
