package ledger

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// FirstLook is how far back the first poll of a project looks (specification,
// section 6.2).
const FirstLook = time.Hour

// MaxAttempts is the retry budget of one occurrence, over all its stages
// (specification, section 6.4).
const MaxAttempts = 3

// State is one mode's document, decoded. The fields are for reading; changes are
// made by [Apply], which copies.
type State struct {
	Mode Mode
	// LastPollAt is the watermark as stored, RFC 3339, or "" before the first poll;
	// see [State.Since].
	LastPollAt string
	// Labels has the routable labels that were last seen on each issue, by IID; of
	// mode [Events] only, like Pending and Mirrors.
	Labels map[int64][]string
	// Dispatched has the dispatch keys ("<stage>:<event key>") of the pipelines that
	// exist, with a time in Unix seconds.
	Dispatched map[string]int64
	// Failed has the failed attempts by event key, and entries that this version
	// does not know, which it keeps.
	Failed map[string]int
	// Pending has the handoffs by event key.
	Pending map[string]Handoff
	// Mirrors is the ledger of the keys that were written for older pollers only.
	Mirrors map[Mirror]struct{}
}

// Empty is the state of a branch or file that does not exist (specification,
// section 1.3).
func Empty(mode Mode) State {
	return State{
		Mode:       mode,
		Labels:     map[int64][]string{},
		Dispatched: map[string]int64{},
		Failed:     map[string]int{},
		Pending:    map[string]Handoff{},
		Mirrors:    map[Mirror]struct{}{},
	}
}

// clone copies the state as deep as Apply changes it.
func (s State) clone() State {
	c := Empty(s.Mode)
	c.LastPollAt = s.LastPollAt
	maps.Copy(c.Labels, s.Labels)
	maps.Copy(c.Dispatched, s.Dispatched)
	maps.Copy(c.Failed, s.Failed)
	maps.Copy(c.Pending, s.Pending)
	maps.Copy(c.Mirrors, s.Mirrors)
	return c
}

// Since is the watermark: the stored one, or [FirstLook] before now when there is
// none. It is an error, and the cycle fails, when the stored one is no time
// (specification, section 6.2). A watermark is never evidence that something was
// dispatched (ADR 132).
func (s State) Since(now time.Time) (time.Time, error) {
	if s.LastPollAt == "" {
		return now.Add(-FirstLook), nil
	}
	at, err := time.Parse(time.RFC3339, s.LastPollAt)
	if err != nil {
		return time.Time{}, fmt.Errorf("the watermark %q on branch %q is not an RFC 3339 time: delete the branch to start from the baseline", short(s.LastPollAt), s.Mode.Branch())
	}
	return at, nil
}

// Suppressed reports whether the stage's pipeline for the occurrence counts as
// dispatched: by its own key, or, for a label addition, by an older poller's key in
// seconds or a timestamp key at or after the event time (ADR 132; specification,
// section 4.4). Keys that are mirrors of another occurrence do not count. It errs
// toward not dispatching: an older poller's key at or after the event time may be of
// another addition.
func (s State) Suppressed(stage string, e Event) bool {
	own := e.DispatchKey(stage)
	if _, done := s.Dispatched[own]; done {
		return true
	}
	if e.Type != IssueLabel {
		return false
	}
	mirrors := map[string][]string{}
	for m := range s.Mirrors {
		if m.Kind == DispatchMirror {
			mirrors[m.Legacy] = append(mirrors[m.Legacy], m.Owner)
		}
	}
	legacy := stage + ":" + e.LegacyKey()
	if _, done := s.Dispatched[legacy]; done {
		owners := mirrors[legacy]
		if len(owners) == 0 || slices.Contains(owners, own) || slices.Contains(owners, stage+":"+e.MillisecondKey()) {
			return true
		}
	}
	prefix := stage + ":" + e.prefix()
	for key := range s.Dispatched {
		suffix, found := strings.CutPrefix(key, prefix)
		if found && len(mirrors[key]) == 0 && notBefore(suffix, e.At) {
			return true
		}
	}
	return false
}

// DispatchedAnyStage reports whether the event key was dispatched for any stage
// (specification, section 9, "Superseding?").
func (s State) DispatchedAnyStage(key string) bool {
	for dispatched := range s.Dispatched {
		if eventKey(dispatched) == key {
			return true
		}
	}
	return false
}

// Attempts is the number of failed attempts of the occurrence, also those counted
// under the keys that it had before its id was known or under an older poller
// (ADR 132; specification, section 4.5).
func (s State) Attempts(e Event) int {
	n := max(0, s.Failed[e.Key()])
	if e.Type != IssueLabel {
		return n
	}
	n = max(n, s.Failed[e.MillisecondKey()])
	if s.ownsLegacyCount(e) {
		n = max(n, s.Failed[e.LegacyKey()])
	}
	return n
}

// Exhausted reports whether the occurrence's retry budget is spent: it is skipped,
// the watermark may pass it, and its handoff is retired (specification, section 6.4).
func (s State) Exhausted(e Event) bool { return s.Attempts(e) >= MaxAttempts }

// ownsLegacyCount reports whether the count under the addition's key in seconds is
// evidence for it: no other occurrence mirrors its count there.
func (s State) ownsLegacyCount(e Event) bool {
	for _, owner := range s.failureOwners()[e.LegacyKey()] {
		if owner != e.Key() && owner != e.MillisecondKey() {
			return false
		}
	}
	return true
}

// failureOwners has the owners of each mirrored count.
func (s State) failureOwners() map[string][]string {
	owners := map[string][]string{}
	for m := range s.Mirrors {
		if m.Kind == FailureMirror {
			owners[m.Legacy] = append(owners[m.Legacy], m.Owner)
		}
	}
	return owners
}

// PendingKeys are the keys of the handoffs and markers in the order in which a poll
// takes them (specification, section 7).
func (s State) PendingKeys() []string { return slices.Sorted(maps.Keys(s.Pending)) }

// Recorded reports whether label_state has the label.
func (s State) Recorded(p Presence) bool { return slices.Contains(s.Labels[p.IID], p.Label) }
