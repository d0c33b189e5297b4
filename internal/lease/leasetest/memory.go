// Package leasetest has what tests of locks need: [Memory], a register in memory
// whose requests take time and go wrong by script, and [Run], the conformance
// suite that every [lease.Register] must pass.
package leasetest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fullsend/poll-action/internal/lease"
)

// Op names a request.
type Op string

// The requests of a register.
const (
	Get    Op = "get"
	Put    Op = "put"
	Delete Op = "delete"
)

// Call is one request.
type Call struct {
	Op   Op
	Item string
	// Value is what a Put writes.
	Value []byte
	// N counts the register's requests of this kind from 1.
	N int
	// At is when it began.
	At time.Time
}

// Fault is what befalls a request. The zero value is no fault.
type Fault struct {
	// Before and After are how long the request takes until its effect and from
	// there to its answer. A context that ends before the effect prevents it; one
	// that ends after it loses the answer.
	Before, After time.Duration
	// Err is answered instead of success; the effect takes place all the same.
	Err error
	// Drop prevents the effect.
	Drop bool
	// Lands delays the effect by that much after the answer, whatever becomes of
	// the context: a request that is still on its way when its sender gave up.
	Lands time.Duration
}

// Memory is a register in memory. Its requests are atomic in their effect: a
// read sees every write whose effect came before. It may be used by many
// goroutines.
type Memory struct {
	// Script decides what befalls a request; nil lets all succeed at once. It is
	// called while no other request is decided.
	Script func(c Call) Fault
	// Effect is called after a request had its effect, while no other has one.
	Effect func(c Call)
	// Now is the clock for [Call.At].
	Now func() time.Time

	mu     sync.Mutex
	values map[string][]byte
	counts map[Op]int
	calls  []Call
}

// Set stores a value without a request; nil removes it.
func (m *Memory) Set(item string, value []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.store(item, value)
}

func (m *Memory) store(item string, value []byte) {
	if m.values == nil {
		m.values = map[string][]byte{}
	}
	if value == nil {
		delete(m.values, item)
		return
	}
	m.values[item] = slices.Clone(value)
}

// Value returns what is stored, nil where there is nothing.
func (m *Memory) Value(item string) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.values[item])
}

// Calls returns the requests so far, in the order in which they began.
func (m *Memory) Calls() []Call {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.calls)
}

// Get implements [lease.Register].
func (m *Memory) Get(ctx context.Context, item string) ([]byte, error) {
	var value []byte
	err := m.request(ctx, Call{Op: Get, Item: item}, func() { value = slices.Clone(m.values[item]) })
	switch {
	case err != nil:
		return nil, err
	case value == nil:
		return nil, lease.ErrAbsent
	}
	return value, nil
}

// Put implements [lease.Register].
func (m *Memory) Put(ctx context.Context, item string, value []byte) (created bool, err error) {
	err = m.request(ctx, Call{Op: Put, Item: item, Value: slices.Clone(value)}, func() {
		created = m.values[item] == nil
		m.store(item, value)
	})
	return created && err == nil, err
}

// Delete implements [lease.Register].
func (m *Memory) Delete(ctx context.Context, item string) error {
	return m.request(ctx, Call{Op: Delete, Item: item}, func() { m.store(item, nil) })
}

func (m *Memory) request(ctx context.Context, c Call, effect func()) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	f := m.begin(&c)
	apply := func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		effect()
		if m.Effect != nil {
			m.Effect(c)
		}
	}
	err := pause(ctx, f.Before)
	switch {
	case f.Lands > 0:
		if err == nil {
			err = f.Err
		}
		time.AfterFunc(f.Lands, apply)
		return err
	case err != nil:
		return err
	}
	if !f.Drop {
		apply()
	}
	if err := pause(ctx, f.After); err != nil {
		return err
	}
	return f.Err
}

func (m *Memory) begin(c *Call) Fault {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.counts == nil {
		m.counts = map[Op]int{}
	}
	m.counts[c.Op]++
	c.N = m.counts[c.Op]
	if m.Now != nil {
		c.At = m.Now()
	}
	m.calls = append(m.calls, *c)
	if m.Script == nil {
		return Fault{}
	}
	return m.Script(*c)
}

func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
