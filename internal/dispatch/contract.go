// Package dispatch is the core that every path shares (poll, webhook,
// reconciliation): it authorizes an event, matches it against the harnesses'
// triggers, projects it into an execution ref and hands it to an output under
// an idempotency key. It knows no vendor, no store and no protocol: those are
// plugged in behind [Output] and [Journal].
package dispatch

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/fullsend/poll-action/internal/event"
)

// LockRef names the lock under which an order is placed, so that the run can
// verify and keep it. Its zero value means that no lock is held.
type LockRef struct {
	// ID is the lock's UUID, fresh for every acquisition.
	ID string
	// Driver is the input driver's type, for example "jira-poll".
	Driver string
	// Property is where the driver keeps the lock.
	Property string
}

// Order asks an output for exactly one run.
type Order struct {
	// Key is the dispatch key, "{agent}:{occurrence key}".
	Key string
	// Agent and Role name the harness.
	Agent, Role string
	// Event is the normalized event; Ref is its projection for agent workflows.
	Event event.NormalizedEvent
	Ref   ExecutionRef
	// Lock is handed over to the run.
	Lock LockRef
}

// Receipt is an output's confirmation that a run was scheduled.
type Receipt struct {
	// RunID is the run's id; 0 where the output has none.
	RunID int64
	// RunURL is where a human finds the run; may be empty.
	RunURL string
}

// Output schedules runs. Dispatch returns a receipt only when the run is
// confirmed; every error carries a [Class] (see [ClassOf]).
type Output interface {
	Name() string
	Dispatch(ctx context.Context, o Order) (Receipt, error)
}

// Preparer is an optional ability of an [Output]: Prepare reads once what all
// orders of a cycle need (for example the target workflow's inputs), before
// anything is locked. An error stops the cycle with nothing touched.
type Preparer interface {
	Prepare(ctx context.Context) error
}

// Journal is the evidence of what was dispatched. A checkpoint is never that
// evidence; the dispatch key in the journal is.
type Journal interface {
	// Begin says whether key still has to be dispatched. fresh is false for a
	// key that was dispatched (or refused for good) before.
	Begin(ctx context.Context, key string) (fresh bool, err error)
	// Commit records the receipt under key. at is the time of the event.
	Commit(ctx context.Context, key string, at time.Time, r Receipt) error
	// Abort ends a Begin without a receipt. A cause of class [Permanent] is
	// recorded, so that the order is never tried again; all others leave no
	// trace and the order is tried again later.
	Abort(ctx context.Context, key string, at time.Time, cause error) error
}

// Class says what an error means for the event that met it.
type Class int

// The classes of errors. One place decides by them: [Core.Run] and the cycle.
const (
	// Transient: the checkpoint stays, the next cycle tries again.
	Transient Class = iota
	// Permanent: the order can never succeed; it is journalled as refused, the
	// checkpoint passes, the report says so.
	Permanent
	// Fatal: nothing else can succeed either (credentials, configuration); the
	// cycle stops, checkpoints stay.
	Fatal
	// Unknown: whether the run exists could not be found out. The lock is kept,
	// nothing is dispatched, the report says so.
	Unknown
)

// String returns the class's name for logs.
func (c Class) String() string {
	switch c {
	case Transient:
		return "transient"
	case Permanent:
		return "permanent"
	case Fatal:
		return "fatal"
	case Unknown:
		return "unknown"
	}
	return "class(" + strconv.Itoa(int(c)) + ")"
}

// Error is an error with a class. Its text names the cause and the thing it
// concerns; Cure says what an operator can do and may be empty.
type Error struct {
	Class Class
	Cure  string
	Err   error
}

// Error returns cause and cure as one line.
func (e *Error) Error() string {
	if e.Cure == "" {
		return e.Err.Error()
	}
	return e.Err.Error() + "; " + e.Cure
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// ClassOf returns the class of err: that of the outermost [*Error] in its
// chain, else [Transient].
func ClassOf(err error) Class {
	var e *Error
	if errors.As(err, &e) {
		return e.Class
	}
	return Transient
}
