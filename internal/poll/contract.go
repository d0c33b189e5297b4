// Package poll runs one cycle of pull-based work discovery: discover, pre-screen
// without a lock, lock, detect again, dispatch, advance. It promises that no
// occurrence is passed over before its outcome is final and that none is
// dispatched whose key the journal has. It knows no vendor: drivers stand
// behind [Input] and [Checkpoints].
package poll

import (
	"context"
	"time"

	"github.com/fullsend/poll-action/internal/dispatch"
	"github.com/fullsend/poll-action/internal/event"
)

// Ref names a work item.
type Ref struct {
	// ID is the source's stable id; lock, checkpoint and journal live under it.
	ID string
	// Key and URL are for humans; a key may change.
	Key, URL string
	// Waiting is since when something has been pending at the earliest: the last
	// checkpoint, or the creation where there is none.
	Waiting time.Time
}

// Checkpoint bounds what is read again: everything up to At was inspected. It
// is never evidence that something was dispatched. The zero value means none.
type Checkpoint struct {
	At time.Time
	// Trusted says that nobody else can have written it (it is signed), so that
	// no window bounds how far back it is believed.
	Trusted bool
}

// IsZero reports whether there is no checkpoint.
func (c Checkpoint) IsZero() bool { return c.At.IsZero() }

// Delta is what happened on one item.
type Delta struct {
	// Events are the occurrences after the checkpoint that was asked for, in the
	// order of [event.Compare].
	Events []event.Occurrence
	// Next is how far the item was inspected, already lowered by the driver's
	// safety margin and by its cap on events. It equals the checkpoint that was
	// asked for where nothing is worth writing.
	Next Checkpoint
	// Skipped are occurrences that are reported instead of dispatched, because
	// they lie further back than the driver's window.
	Skipped []Skipped
	// Complete says that everything after the checkpoint is in Events, so that a
	// retry key that matches none of them will never match.
	Complete bool
	// Notes are worth a warning each: parts of the item that could not be read
	// and do not keep the rest from being handled.
	Notes []string
}

// Skipped is one occurrence that is reported instead of dispatched.
type Skipped struct {
	Key string    `json:"key"`
	At  time.Time `json:"at"`
	Why string    `json:"why"`
}

// WorkItem is one candidate with something pending.
type WorkItem interface {
	Ref() Ref
	// Detect reads what happened after since (the zero checkpoint: since the
	// item's creation, bounded by the driver's first-poll window).
	Detect(ctx context.Context, since Checkpoint) (Delta, error)
}

// Discovery is the result of looking for candidates.
type Discovery struct {
	// Items have something pending and are not known to be locked, longest
	// waiting first, at most M of them.
	Items []WorkItem
	// Scanned counts all candidates that were seen, Pending those with something
	// pending, Held those of them that are left out because somebody works on
	// them.
	Scanned, Pending, Held int
	// Notes are worth a warning each.
	Notes []string
}

// Input finds candidates in one source.
type Input interface {
	Name() string
	Discover(ctx context.Context) (Discovery, error)
}

// Seed is an item and the checkpoint that a baseline gives it.
type Seed struct {
	Ref        Ref
	Checkpoint Checkpoint
}

// Baseliner is an optional ability of an [Input]: it lists everything that its
// queries find, to be seeded with a checkpoint before the first cycle. Items
// that have a checkpoint already come with a zero one.
type Baseliner interface {
	Baseline(ctx context.Context) ([]Seed, error)
}

// State is an item's coordination state: its checkpoint and what its journal
// says.
type State struct {
	Checkpoint Checkpoint
	// Keys are the dispatch keys that were dispatched or refused for good.
	Keys map[string]bool
	// Runs are the ids of the runs that the journal names.
	Runs map[int64]bool
	// Nameless are the agents of which the journal has a key without a run's id:
	// an unknown run of theirs may belong to that.
	Nameless map[string]bool
	// Retry maps dispatch keys that must be dispatched again, though the
	// checkpoint is past them, to the times of their events.
	Retry map[string]time.Time
	// Lock is the item's lock, where the read that brought the state was made for
	// it alone, after the lock had been verified; else nil.
	Lock []byte
	// Notes say what was stored and could not be understood.
	Notes []string
}

// Todo reports whether key, of an event at the given time, still has to be
// dispatched.
func (s State) Todo(key string, at time.Time) bool {
	if _, again := s.Retry[key]; again {
		return true
	}
	return !s.Keys[key] && at.After(s.Checkpoint.At)
}

// since is where detection starts: the checkpoint, or just before the oldest
// event that must be dispatched again.
func (s State) since() Checkpoint {
	from := s.Checkpoint
	if from.IsZero() {
		return from
	}
	for _, at := range s.Retry {
		if at = at.Add(-time.Nanosecond); at.Before(from.At) {
			from.At = at
		}
	}
	return from
}

// Checkpoints keeps the coordination state of items.
type Checkpoints interface {
	// Peek returns what discovery saw; it may be stale and costs no request.
	Peek(item Ref) State
	// Load reads the state directly; call it under the lock.
	Load(ctx context.Context, item Ref) (State, error)
	// Advance stores the checkpoint.
	Advance(ctx context.Context, item Ref, to Checkpoint) error
	// Journal returns the item's journal as of the last Load.
	Journal(item Ref) Journal
}

// Journal is an item's journal.
type Journal interface {
	dispatch.Journal
	// Forget removes retry keys whose events do not exist (any more).
	Forget(ctx context.Context, keys []string) error
}
