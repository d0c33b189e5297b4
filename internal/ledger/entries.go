package ledger

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// The prefixes of in-band entries (ADR 132; specification, section 5). An entry is
// its prefix and the base64url form, without padding, of a compact JSON object.
const (
	pendingPrefix = "fullsend-pending-label:"
	replayPrefix  = "fullsend-replay-key:"
	mirrorPrefix  = "fullsend-legacy-mirror:"
)

// inBand is the count of every in-band entry: an older poller keeps 1 to 3.
const inBand = 1

// Handoff is a label addition that a writer could not dispatch and that the events
// poll retries, or a marker that says where to look for one. Times are Unix
// milliseconds. The order of the fields is that of the wire (ADR 132; specification,
// section 5).
type Handoff struct {
	// IID is the issue's number in its project.
	IID int64 `json:"iid"`
	// Label is the label's name.
	Label string `json:"label"`
	// EventID is the id of the resource label event; 0 when it is not known.
	EventID int64 `json:"event_id,omitempty"`
	// At is the event time: the webhook's is the label event's own time, the poll's
	// the issue's updated_at; of a marker, when it was queued.
	At int64 `json:"at"`
	// Labels is the issue's full set of labels.
	Labels []string `json:"labels,omitempty"`
	// ActorID, ActorLogin and ActorBot are the validated actor of this very
	// occurrence, under whose current access a retry is routed.
	ActorID    int64  `json:"actor_id,omitempty"`
	ActorLogin string `json:"actor_login,omitempty"`
	ActorBot   bool   `json:"actor_bot,omitempty"`
	// OccurredAt is the label event's own time where At is another; else 0.
	OccurredAt int64 `json:"occurred_at,omitempty"`
	// SnapshotAt is the issue's updated_at where At is the label event's own time;
	// else 0.
	SnapshotAt int64 `json:"snapshot_at,omitempty"`
	// Unresolved says that this is a marker: the issue had an addition of Label that
	// could not be read; only IID, Label and At are set.
	Unresolved bool `json:"unresolved,omitempty"`
}

// Event is the occurrence that the handoff stands for; of a marker, an event of type
// [UnresolvedLabel]. Its Key is the handoff's own.
func (h Handoff) Event() Event {
	e := Event{Type: IssueLabel, IID: h.IID, Label: h.Label, LabelEventID: h.EventID, At: time.UnixMilli(h.At)}
	if h.Unresolved {
		e.Type = UnresolvedLabel
	}
	if h.OccurredAt != 0 {
		e.OccurredAt = time.UnixMilli(h.OccurredAt)
	}
	if h.SnapshotAt != 0 {
		e.SnapshotAt = time.UnixMilli(h.SnapshotAt)
	}
	return e
}

// HandoffOf is the handoff of a label addition or, for an event of type
// [UnresolvedLabel], a marker; labels and actor are left to the caller.
func HandoffOf(e Event) Handoff {
	h := Handoff{IID: e.IID, Label: e.Label, At: e.At.UnixMilli()}
	if e.Type == UnresolvedLabel {
		h.Unresolved = true
		return h
	}
	h.EventID = e.LabelEventID
	if !e.OccurredAt.IsZero() {
		h.OccurredAt = e.OccurredAt.UnixMilli()
	}
	if !e.SnapshotAt.IsZero() {
		h.SnapshotAt = e.SnapshotAt.UnixMilli()
	}
	return h
}

// named reports whether the handoff says who acted.
func (h Handoff) named() bool { return h.ActorID != 0 || h.ActorLogin != "" }

// MirrorKind says which map a mirrored key is in.
type MirrorKind string

// The kinds of mirrors (specification, section 5).
const (
	// DispatchMirror mirrors a dispatched key; both keys carry their stage.
	DispatchMirror MirrorKind = "d"
	// FailureMirror mirrors a count; neither key carries a stage.
	FailureMirror MirrorKind = "f"
)

// Mirror is one line of the mirror ledger: a key in seconds that was written for
// older pollers only, and the key that it stands for. A key in seconds that no
// mirror names is an older poller's own. The order of the fields is that of the wire
// (specification, section 5).
type Mirror struct {
	Kind   MirrorKind `json:"m"`
	Legacy string     `json:"l"`
	Owner  string     `json:"o"`
}

// pendingEntry and replayEntry are the payloads of two kinds of entries; a Mirror is
// the third.
type (
	pendingEntry struct {
		Key     string  `json:"k"`
		Handoff Handoff `json:"p"`
	}
	replayEntry struct {
		Key string `json:"k"`
		At  int64  `json:"t"`
	}
)

// entry encodes an in-band entry.
func entry[P pendingEntry | replayEntry | Mirror](prefix string, payload P) string {
	raw, _ := json.Marshal(payload) //nolint:errchkjson // strings, integers, booleans and lists of them always encode
	return prefix + base64.RawURLEncoding.EncodeToString(raw)
}

// payload decodes what follows an entry's prefix.
func payload[P pendingEntry | replayEntry | Mirror](text string) (P, bool) {
	var p P
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return p, false
	}
	return p, json.Unmarshal(raw, &p) == nil
}

// take moves what an in-band entry says into the state. known is false for a key
// that is no entry in this mode's map; ok is false for an entry that is malformed.
func (s *State) take(key string) (known, ok bool) {
	if text, found := strings.CutPrefix(key, replayPrefix); found {
		p, ok := payload[replayEntry](text)
		if ok = ok && p.Key != ""; ok {
			s.Dispatched[p.Key] = later(s.Dispatched, p.Key, p.At)
		}
		return true, ok
	}
	if s.Mode != Events {
		return false, false
	}
	if text, found := strings.CutPrefix(key, pendingPrefix); found {
		p, ok := payload[pendingEntry](text)
		if ok = ok && p.Key != ""; ok {
			s.hand(p.Key, p.Handoff)
		}
		return true, ok
	}
	if text, found := strings.CutPrefix(key, mirrorPrefix); found {
		m, ok := payload[Mirror](text)
		if ok = ok && m.Legacy != "" && m.Owner != "" && (m.Kind == DispatchMirror || m.Kind == FailureMirror); ok {
			s.Mirrors[m] = struct{}{}
		}
		return true, ok
	}
	return false, false
}

// hand adds a handoff. One that is there stays, unless it names no actor and the new
// one does: both are of one occurrence, which has one actor.
func (s *State) hand(key string, h Handoff) {
	if old, found := s.Pending[key]; !found || !old.named() && h.named() {
		h.Labels = slices.Clone(h.Labels)
		s.Pending[key] = h
	}
}

// later is the larger of a key's timestamp and another.
func later(m map[string]int64, key string, at int64) int64 {
	if old, found := m[key]; found {
		return max(old, at)
	}
	return at
}

// open decodes this mode's fields of a verified document.
func open(mode Mode, d document) (state State, warnings []string) {
	state = Empty(mode)
	failed := d.FailedKeysFull
	if mode == Slash {
		state.LastPollAt, failed = d.LastPollAtFast, d.FailedKeysFast
		maps.Copy(state.Dispatched, d.DispatchedKeysFast)
	} else {
		state.LastPollAt = d.LastPollAtFull
		maps.Copy(state.Labels, d.LabelState)
		maps.Copy(state.Dispatched, d.DispatchedKeysFull)
	}
	for _, key := range slices.Sorted(maps.Keys(failed)) {
		switch known, ok := state.take(key); {
		case !known:
			state.Failed[key] = failed[key]
		case !ok:
			warnings = append(warnings, fmt.Sprintf("the entry %q of %s cannot be decoded and is dropped: look for a writer of another version", short(key), mode.failedField()))
		}
	}
	return state, warnings
}

// short cuts a key for a message.
func short(key string) string {
	const most = 80
	if len(key) > most {
		return key[:most] + "…"
	}
	return key
}

// document is the state as its document, not yet signed.
func (s State) document() document {
	failed := maps.Clone(s.Failed)
	if failed == nil {
		failed = map[string]int{}
	}
	for key, at := range s.Dispatched {
		if key != "" { // an entry without a key is malformed
			failed[entry(replayPrefix, replayEntry{Key: key, At: at})] = inBand
		}
	}
	if s.Mode == Slash {
		return document{LastPollAtFast: s.LastPollAt, DispatchedKeysFast: s.Dispatched, FailedKeysFast: failed}
	}
	for key, h := range s.Pending {
		failed[entry(pendingPrefix, pendingEntry{Key: key, Handoff: h})] = inBand
	}
	for m := range s.Mirrors {
		failed[entry(mirrorPrefix, m)] = inBand
	}
	return document{LastPollAtFull: s.LastPollAt, LabelState: s.Labels, DispatchedKeysFull: s.Dispatched, FailedKeysFull: failed}
}
