package ledger

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Presence is one label on one issue.
type Presence struct {
	IID   int64
	Label string
}

// Delta is what one writer changes. The zero value changes nothing. A writer keeps
// the original and revalidates a [Delta.Clone] on every attempt to commit
// (specification, section 1.4).
type Delta struct {
	// Dispatched has dispatch keys with their time in Unix seconds.
	Dispatched map[string]int64
	// Failed has counts by event key; 0 or less deletes the key.
	Failed map[string]int
	// Hand has handoffs to add, by event key.
	Hand map[string]Handoff
	// Clear names the handoffs to delete, by exact key; one that is also in Hand
	// stays.
	Clear map[string]struct{}
	// Mirrors has lines to add to the mirror ledger.
	Mirrors map[Mirror]struct{}
	// Watermark is how far the poll got; zero when it did not advance, is held, or
	// the writer is a webhook, and then nothing is pruned (specification, sections
	// 6.2 and 6.3).
	Watermark time.Time
	// Base is what label_state held when the writer read it, nil when that is not
	// known; Incoming is what the writer saw, with an entry for each issue that it
	// looked at, an empty one where no routable label is left.
	Base, Incoming map[int64][]string
	// Record has labels to add whatever Base says: occurrences that were found to be
	// current (specification, section 9A).
	Record map[Presence]struct{}
	// Remove has labels to take out after everything else: stale presence and the
	// presence of failed additions (specification, sections 1.4 and 9).
	Remove map[Presence]struct{}
}

// Clone copies the delta, so that the copy can be revalidated.
func (d Delta) Clone() Delta {
	d.Dispatched = maps.Clone(d.Dispatched)
	d.Failed = maps.Clone(d.Failed)
	d.Hand = maps.Clone(d.Hand)
	d.Clear = maps.Clone(d.Clear)
	d.Mirrors = maps.Clone(d.Mirrors)
	d.Base = maps.Clone(d.Base)
	d.Incoming = maps.Clone(d.Incoming)
	d.Record = maps.Clone(d.Record)
	d.Remove = maps.Clone(d.Remove)
	return d
}

// RecordDispatch notes that the stage's pipeline for the occurrence exists; of a
// label addition also under the key that older pollers know, as a mirror
// (specification, sections 4.2 and 5).
func (d *Delta) RecordDispatch(stage string, e Event) {
	own := e.DispatchKey(stage)
	put(&d.Dispatched, own, later(d.Dispatched, own, e.DispatchedAt()))
	if e.Type == IssueLabel {
		legacy := stage + ":" + e.LegacyKey()
		put(&d.Dispatched, legacy, later(d.Dispatched, legacy, e.DispatchedAt()))
		put(&d.Mirrors, Mirror{Kind: DispatchMirror, Legacy: legacy, Owner: own}, struct{}{})
	}
}

// RecordFailure counts one more failed attempt of the occurrence and returns the
// count, at most [MaxAttempts]. Counts under its earlier keys move to its own;
// loaded is the state that the attempt was based on (ADR 132; specification,
// sections 4.5 and 5).
func (d *Delta) RecordFailure(loaded State, e Event) int {
	n := min(loaded.Attempts(e)+1, MaxAttempts)
	d.forgetMillisecondKey(e)
	put(&d.Failed, e.Key(), n)
	if e.Type == IssueLabel {
		put(&d.Mirrors, Mirror{Kind: FailureMirror, Legacy: e.LegacyKey(), Owner: e.Key()}, struct{}{})
	}
	return n
}

// RecordSuccess deletes the occurrence's counts: all its stages are done. The count
// under an older poller's key goes too, unless it is another occurrence's as well;
// loaded is the state that the attempt was based on (specification, section 6.4).
func (d *Delta) RecordSuccess(loaded State, e Event) {
	d.forgetMillisecondKey(e)
	put(&d.Failed, e.Key(), 0)
	if e.Type == IssueLabel && loaded.ownsLegacyCount(e) {
		put(&d.Failed, e.LegacyKey(), 0)
	}
}

// forgetMillisecondKey deletes the count that an addition had before its id was
// known; where it is not known, the caller sets that very count next.
func (d *Delta) forgetMillisecondKey(e Event) {
	if ms := e.MillisecondKey(); ms != "" {
		put(&d.Failed, ms, 0)
	}
}

// HandOff queues a handoff or marker under its occurrence's key.
func (d *Delta) HandOff(h Handoff) { put(&d.Hand, h.Event().Key(), h) }

// Retire deletes the handoff under exactly this key.
func (d *Delta) Retire(key string) { put(&d.Clear, key, struct{}{}) }

// Empty reports whether there is nothing to commit.
func (d Delta) Empty() bool {
	return len(d.Dispatched)+len(d.Failed)+len(d.Hand)+len(d.Clear)+len(d.Mirrors)+
		len(d.Incoming)+len(d.Record)+len(d.Remove) == 0 && d.Watermark.IsZero()
}

// Removals are the labels that the merge would take out of the loaded document and
// that the writer must look up first; a label that the document no longer has needs
// no look-up (specification, section 9B).
func (d Delta) Removals(loaded State) []Presence {
	var removed []Presence
	for iid, incoming := range d.Incoming {
		for _, label := range d.base(loaded, iid) {
			p := Presence{IID: iid, Label: label}
			if !slices.Contains(incoming, label) && loaded.Recorded(p) {
				removed = append(removed, p)
			}
		}
	}
	return ordered(removed)
}

// Additions are the labels that the writer saw and did not know of, which it must
// look up before they are recorded (specification, section 9C).
func (d Delta) Additions(loaded State) []Presence {
	var added []Presence
	for iid, incoming := range d.Incoming {
		base := d.base(loaded, iid)
		for _, label := range incoming {
			if !slices.Contains(base, label) {
				added = append(added, Presence{IID: iid, Label: label})
			}
		}
	}
	return ordered(added)
}

// base is what the writer's snapshot of an issue is compared with: an unknown base
// is taken to be what is loaded, so that the snapshot replaces it.
func (d Delta) base(loaded State, iid int64) []string {
	if d.Base == nil {
		return loaded.Labels[iid]
	}
	return d.Base[iid]
}

// KeepPresence withdraws the removal of a label: the forge says that it was added
// again and dispatched, or could not be asked (specification, section 9B).
func (d *Delta) KeepPresence(p Presence) {
	if labels := d.Incoming[p.IID]; !slices.Contains(labels, p.Label) {
		put(&d.Incoming, p.IID, append(slices.Clone(labels), p.Label))
	}
}

// DropAddition withdraws the addition of a label: the forge says that it is no
// longer current, or could not be asked, or its dispatch failed (specification,
// sections 7 and 9C).
func (d *Delta) DropAddition(p Presence) {
	if labels, found := d.Incoming[p.IID]; found {
		put(&d.Incoming, p.IID, slices.DeleteFunc(slices.Clone(labels), func(l string) bool { return l == p.Label }))
	}
}

// Hold keeps the watermark where it is, and with it every dispatched key
// (specification, sections 6.2 and 9).
func (d *Delta) Hold() { d.Watermark = time.Time{} }

// ordered sorts presences and removes duplicates.
func ordered(ps []Presence) []Presence {
	slices.SortFunc(ps, func(a, b Presence) int {
		return cmp.Or(cmp.Compare(a.IID, b.IID), cmp.Compare(a.Label, b.Label))
	})
	return slices.Compact(ps)
}

// put stores into a map that may not exist yet.
func put[K comparable, V any](m *map[K]V, key K, value V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[key] = value
}
