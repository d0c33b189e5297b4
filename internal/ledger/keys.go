package ledger

import (
	"strconv"
	"strings"
	"time"

	"github.com/fullsend/poll-action/internal/event"
)

// EventType is the kind of an occurrence, as keys and pipelines spell it
// (specification, sections 4.1 and 12.2).
type EventType string

// The event types.
const (
	IssueLabel EventType = "issue_label"
	IssueNote  EventType = "issue_note"
	IssueEvent EventType = "issue_event"
	MRNote     EventType = "mr_note"
	MREvent    EventType = "mr_event"
	// UnresolvedLabel is a marker: a label addition that could not be read. It is
	// never dispatched.
	UnresolvedLabel EventType = "unresolved-label"
)

// secondsBelow tells the two units of a timestamp key apart: a value below it is
// Unix seconds, never milliseconds (ADR 132; specification, section 4.3).
const secondsBelow = 100_000_000_000

// Event is the identity of one occurrence in GitLab.
type Event struct {
	Type EventType
	// IID is the number of the issue or merge request in its project.
	IID int64
	// Action is "opened" or "closed"; empty for a merge, a note and a label.
	Action string
	// NoteID is the id of a note.
	NoteID int64
	// Label is the name of an added label.
	Label string
	// LabelEventID is the id of the addition's resource label event; 0 when it is
	// not known.
	LabelEventID int64
	// At is the event time: created_at of what was opened or noted, merged_at,
	// closed_at, the label event's created_at from a webhook, the issue's updated_at
	// from a poll (specification, section 4.1).
	At time.Time
	// OccurredAt is the label event's created_at where At is another time.
	OccurredAt time.Time
	// SnapshotAt is the issue's updated_at where At is another time.
	SnapshotAt time.Time
}

// Key is the occurrence's key (ADR 132; specification, section 4.1): by the id that
// GitLab gave, or else by the event time, of labels and markers in Unix
// milliseconds, of everything else in Unix seconds.
func (e Event) Key() string {
	switch {
	case e.Type == IssueNote || e.Type == MRNote:
		return "note-" + strconv.FormatInt(e.NoteID, 10)
	case e.Type == IssueLabel && e.LabelEventID != 0:
		return e.prefix() + "e" + strconv.FormatInt(e.LabelEventID, 10)
	case e.Type == IssueLabel:
		return e.MillisecondKey()
	case e.Type == UnresolvedLabel:
		return e.prefix() + strconv.FormatInt(e.At.UnixMilli(), 10)
	case e.Action != "":
		return string(e.Type) + "-" + strconv.FormatInt(e.IID, 10) + "-" + e.Action + "-" + strconv.FormatInt(e.At.Unix(), 10)
	default:
		return string(e.Type) + "-" + strconv.FormatInt(e.IID, 10) + "-" + strconv.FormatInt(e.At.Unix(), 10)
	}
}

// MillisecondKey is the key that a label addition has while its id is not known; ""
// for anything else (specification, section 4.1).
func (e Event) MillisecondKey() string {
	if e.Type != IssueLabel {
		return ""
	}
	return e.prefix() + strconv.FormatInt(e.At.UnixMilli(), 10)
}

// LegacyKey is the key by which pollers before ADR 132 know a label addition: the
// issue's updated_at in Unix seconds; "" for anything else (specification, section
// 4.1).
func (e Event) LegacyKey() string {
	if e.Type != IssueLabel {
		return ""
	}
	at := e.At
	if !e.SnapshotAt.IsZero() {
		at = e.SnapshotAt
	}
	return e.prefix() + strconv.FormatInt(at.Unix(), 10)
}

// DispatchKey is the key of one stage's pipeline for the occurrence,
// "<stage>:<event key>".
func (e Event) DispatchKey(stage string) string { return event.DispatchKey(stage, e.Key()) }

// DispatchedAt is the timestamp that a dispatched key is stored with, in Unix
// seconds: the event time, or the label event's own if that is later, so that a
// fresh addition seen through an old snapshot is not pruned at once (specification,
// section 4.2).
func (e Event) DispatchedAt() int64 {
	if e.OccurredAt.After(e.At) {
		return e.OccurredAt.Unix()
	}
	return e.At.Unix()
}

// prefix is what the keys of all additions of one label to one issue begin with.
func (e Event) prefix() string {
	return string(e.Type) + "-" + strconv.FormatInt(e.IID, 10) + "-" + e.Label + "-"
}

// notBefore reports whether the end of a timestamp key is a time at or after t, in
// the unit that the value has.
func notBefore(suffix string, t time.Time) bool {
	n, err := strconv.ParseInt(suffix, 10, 64)
	switch {
	case err != nil:
		return false
	case n < secondsBelow:
		return n >= t.Unix()
	default:
		return n >= t.UnixMilli()
	}
}

// eventKey is a dispatch key without its stage, which ends at the first colon.
func eventKey(dispatchKey string) string {
	_, key, _ := strings.Cut(dispatchKey, ":")
	return key
}
