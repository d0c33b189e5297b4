package lease

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"
)

// Latency is how long a store takes: the worst of some tries of a read, of a
// write, and of a read and a write together.
type Latency struct{ Read, Write, Both time.Duration }

// ErrNotRead says that a read did not find what had just been written. No lock can
// work on such a store.
var ErrNotRead = errors.New("a value that was just written is not what is read")

// Measure reads and writes value on item tries times (at least once), as a locker
// does, and reads once more after each write: what stands there must be
// value, formatting aside, else the error matches [ErrNotRead].
func Measure(ctx context.Context, r Register, item string, tries int, now func() time.Time, value []byte) (Latency, error) {
	var l Latency
	for range max(tries, 1) {
		start := now()
		if _, err := r.Get(ctx, item); err != nil && !errors.Is(err, ErrAbsent) {
			return l, err
		}
		read := now()
		if _, err := r.Put(ctx, item, value); err != nil {
			return l, err
		}
		written := now()
		l.Read = max(l.Read, read.Sub(start))
		l.Write = max(l.Write, written.Sub(read))
		l.Both = max(l.Both, written.Sub(start))
		after, err := r.Get(ctx, item)
		if err != nil && !errors.Is(err, ErrAbsent) {
			return l, err
		}
		if !sameJSON(value, after) {
			return l, ErrNotRead
		}
	}
	return l, nil
}

// Fit says how a latency compares with the bound W of [Locker].
type Fit int

// The degrees of fitting.
const (
	// Fits: with room to spare.
	Fits Fit = iota
	// Tight: more than half of the bound is used up.
	Tight
	// TooSlow: no lock could be taken.
	TooSlow
)

// Fits compares a read and a write together with bound, which is guard plus the
// least jitter.
func (l Latency) Fits(bound time.Duration) Fit {
	switch {
	case l.Both > bound:
		return TooSlow
	case l.Both > bound/2:
		return Tight
	}
	return Fits
}

// String names the worst of a read and a write together.
func (l Latency) String() string {
	return fmt.Sprintf("a read and a write took %s", l.Both.Round(time.Millisecond))
}

// sameJSON compares values as stores do that keep no formatting.
func sameJSON(a, b []byte) bool {
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return bytes.Equal(a, b)
	}
	return reflect.DeepEqual(x, y)
}
