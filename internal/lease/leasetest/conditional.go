package leasetest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fullsend/poll-action/internal/lease"
)

// The requests of a conditional register.
const (
	Swap     Op = "swap"
	DeleteIf Op = "deleteIf"
)

// Flaw is what a store's conditional writes do wrong.
type Flaw int

// The flaws.
const (
	Sound Flaw = iota
	// TestsEarly: the condition is tested when the request begins, not together
	// with the write.
	TestsEarly
	// Unconditional: the condition is not looked at.
	Unconditional
	// IgnoresValue: only whether there is a value is looked at.
	IgnoresValue
	// NoEffect: nothing is ever changed.
	NoEffect
)

// ConditionalMemory is a [Memory] that can compare and swap.
type ConditionalMemory struct {
	Memory
	Flaw Flaw
	// Refuses makes every self-test end with it.
	Refuses error
}

// Swap implements [lease.Swapper].
func (m *ConditionalMemory) Swap(ctx context.Context, item string, old, value []byte) error {
	return m.change(ctx, Call{Op: Swap, Item: item, Value: slices.Clone(value)}, old)
}

// DeleteIf implements [lease.Swapper].
func (m *ConditionalMemory) DeleteIf(ctx context.Context, item string, old []byte) error {
	return m.change(ctx, Call{Op: DeleteIf, Item: item}, old)
}

func (m *ConditionalMemory) change(ctx context.Context, c Call, old []byte) error {
	early := bytes.Equal(m.Value(c.Item), old)
	return m.request(ctx, c, func() {
		holds := bytes.Equal(m.values[c.Item], old)
		switch m.Flaw {
		case TestsEarly:
			holds = early
		case Unconditional:
			holds = true
		case IgnoresValue:
			holds = (m.values[c.Item] == nil) == (old == nil)
		case NoEffect:
			holds = false
		case Sound:
		}
		if holds {
			m.store(c.Item, c.Value)
		}
	})
}

// SelfTest implements [lease.ConditionalRegister] on an item of its own.
func (m *ConditionalMemory) SelfTest(ctx context.Context, item string, fresh func() lease.Lock) error {
	if m.Refuses != nil {
		return m.Refuses
	}
	return lease.Race(ctx, m, Scratch(item), fresh)
}

// Scratch is the item of a [ConditionalMemory]'s self-test.
func Scratch(item string) string { return item + ".selftest" }

// RunConditional checks what [lease.ConditionalRegister] promises, each part in a
// bubble of its own, in which newSubject is called.
func RunConditional(t *testing.T, newSubject func(t *testing.T) Subject) {
	t.Helper()
	for _, tc := range []struct {
		name string
		run  func(t *testing.T, s Subject)
	}{
		{"a write for an empty place happens only there", swapEmpty},
		{"a write for a value happens only in its place", swapValue},
		{"a deletion of a value deletes no other", deleteValue},
		{"of many racing writes exactly one wins", swapRace},
		{"an ended context is an error and changes nothing", swapEnded},
		{"the self-test passes and leaves nothing", selfTested},
		{"self-tests do not mistake each other for a fault", selfTests},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { tc.run(t, newSubject(t)) })
		})
	}
}

func swapper(t *testing.T, s Subject) lease.ConditionalRegister {
	t.Helper()
	register, ok := s.Register.(lease.ConditionalRegister)
	if !ok {
		t.Fatal("the register has no conditional writes")
	}
	return register
}

// stored reads a value as the caller of a conditional write has to.
func stored(t *testing.T, s Subject, item string) []byte {
	t.Helper()
	raw, err := s.Register.Get(t.Context(), item)
	if err != nil && !errors.Is(err, lease.ErrAbsent) {
		t.Fatalf("get: %v", err)
	}
	return raw
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func swapEmpty(t *testing.T, s Subject) {
	t.Helper()
	r := swapper(t, s)
	expectAbsent(t, s, s.Item)
	must(t, r.Swap(t.Context(), s.Item, nil, encode(t, lock("a"))))
	expect(t, s, s.Item, lock("a"))
	must(t, r.Swap(t.Context(), s.Item, nil, encode(t, lock("b"))))
	expect(t, s, s.Item, lock("a"))
	expectAbsent(t, s, s.Other)
}

func swapValue(t *testing.T, s Subject) {
	t.Helper()
	r := swapper(t, s)
	full := lock(`fi"rst <&> é 😀`).WithRun(lease.Run{Agent: "triage", ID: 1 << 40, URL: "https://example.com/1?a=b&c"})
	put(t, s, s.Item, full)
	put(t, s, s.Other, full)
	old := stored(t, s, s.Item)
	must(t, r.Swap(t.Context(), s.Item, old, encode(t, lock("b"))))
	expect(t, s, s.Item, lock("b"))
	must(t, r.Swap(t.Context(), s.Item, old, encode(t, lock("c"))))
	expect(t, s, s.Item, lock("b"))
	expect(t, s, s.Other, full)
	must(t, s.Register.Delete(t.Context(), s.Item))
	must(t, r.Swap(t.Context(), s.Item, old, encode(t, lock("c"))))
	expectAbsent(t, s, s.Item)
}

func deleteValue(t *testing.T, s Subject) {
	t.Helper()
	r := swapper(t, s)
	put(t, s, s.Item, lock("a"))
	put(t, s, s.Other, lock("a"))
	old := stored(t, s, s.Item)
	put(t, s, s.Item, lock("b"))
	must(t, r.DeleteIf(t.Context(), s.Item, old))
	expect(t, s, s.Item, lock("b"))
	must(t, r.DeleteIf(t.Context(), s.Item, stored(t, s, s.Item)))
	expectAbsent(t, s, s.Item)
	must(t, r.DeleteIf(t.Context(), s.Item, old))
	expect(t, s, s.Other, lock("a"))
}

func swapRace(t *testing.T, s Subject) {
	t.Helper()
	r := swapper(t, s)
	expectAbsent(t, s, s.Item)
	var wg sync.WaitGroup
	for i := range 5 {
		wg.Go(func() {
			if err := r.Swap(t.Context(), s.Item, nil, encode(t, lock("racer-"+strconv.Itoa(i)))); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	first, err := lease.Decode(stored(t, s, s.Item))
	must(t, err)
	time.Sleep(time.Minute)
	expect(t, s, s.Item, lock(first.ID))
}

func swapEnded(t *testing.T, s Subject) {
	t.Helper()
	r := swapper(t, s)
	put(t, s, s.Item, lock("a"))
	old := stored(t, s, s.Item)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r.Swap(ctx, s.Item, old, encode(t, lock("b"))) == nil || r.DeleteIf(ctx, s.Item, old) == nil || r.SelfTest(ctx, s.Item, fresh("x")) == nil {
		t.Error("a request succeeded")
	}
	time.Sleep(time.Minute)
	expect(t, s, s.Item, lock("a"))
}

// fresh makes values for a self-test.
func fresh(name string) func() lease.Lock {
	n := 0
	return func() lease.Lock {
		n++
		l := lock(name + "-" + strconv.Itoa(n))
		l.TS = time.Now()
		return l
	}
}

func selfTested(t *testing.T, s Subject) {
	t.Helper()
	r := swapper(t, s)
	put(t, s, s.Item, lock("a"))
	for _, name := range []string{"x", "y"} {
		if err := r.SelfTest(t.Context(), s.Item, fresh(name)); err != nil {
			t.Error(err)
		}
	}
	expect(t, s, s.Item, lock("a"))
}

func selfTests(t *testing.T, s Subject) {
	t.Helper()
	r := swapper(t, s)
	expectAbsent(t, s, s.Item)
	passed := make([]error, 3)
	var wg sync.WaitGroup
	for i := range passed {
		wg.Go(func() {
			time.Sleep(time.Duration(i) * 170 * time.Millisecond)
			passed[i] = r.SelfTest(t.Context(), s.Item, fresh("tester-"+strconv.Itoa(i)))
		})
	}
	wg.Wait()
	good := 0
	for _, err := range passed {
		if err == nil {
			good++
		} else if !lease.Contended(err) {
			t.Errorf("one of three self-tests: %v", err)
		}
	}
	if good == 0 {
		t.Error("no self-test passed")
	}
}
