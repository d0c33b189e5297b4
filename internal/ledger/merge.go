package ledger

import (
	"slices"
	"time"
)

// Apply merges one writer's delta onto the state just loaded, by the rules and in
// the order of specification, section 1.4; it changes neither argument. Applying a
// delta twice is applying it once, up to the order of an issue's labels. Of a [Slash] state the fields are dispatched and
// failed keys and the watermark, and the delta's other parts must be empty:
// [Seal.Encode] refuses what they leave.
//
// Handoffs are added unless present and deleted by exact key only; dispatched keys
// keep the later time; of counts the larger stays, 0 or less deletes, and what is
// not 1 to 3 goes; labels merge three-way for each issue in Incoming, where a
// snapshot equal to its base changes nothing and one without a base replaces; the
// watermark never moves back.
func Apply(loaded State, d Delta) State {
	s := loaded.clone()
	s.mergePending(d)
	s.mergeMirrors(loaded, d)
	for key, at := range d.Dispatched {
		s.Dispatched[key] = later(s.Dispatched, key, at)
	}
	moved, ok := s.watermark(d.Watermark)
	if ok {
		s.prune(d.Watermark)
	}
	s.mergeFailed(loaded, d)
	s.pruneMirrors()
	s.LastPollAt = moved
	s.mergeLabels(d)
	return s
}

func (s *State) mergePending(d Delta) {
	for key, h := range d.Hand {
		s.hand(key, h)
	}
	for key := range d.Clear {
		if _, again := d.Hand[key]; !again {
			delete(s.Pending, key)
		}
	}
}

// mergeMirrors adds to the ledger, but does not make an older poller's own key a
// mirror: that one is evidence for whoever asks.
func (s *State) mergeMirrors(loaded State, d Delta) {
	registered := map[string]bool{}
	for m := range loaded.Mirrors {
		registered[m.Legacy] = true // keys with a stage are of dispatch mirrors
	}
	for m := range d.Mirrors {
		_, stored := loaded.Dispatched[m.Legacy]
		if m.Kind == DispatchMirror && stored && !registered[m.Legacy] {
			continue
		}
		s.Mirrors[m] = struct{}{}
	}
}

// mergeFailed merges counts, then brings the mirrored ones in step with their owners.
func (s *State) mergeFailed(loaded State, d Delta) {
	for key, n := range d.Failed {
		if n <= 0 {
			delete(s.Failed, key)
			continue
		}
		s.Failed[key] = max(s.Failed[key], n)
	}
	for key, n := range s.Failed {
		if !counts(n) {
			delete(s.Failed, key)
		}
	}
	for legacy, owners := range s.failureOwners() {
		s.mirrorCount(loaded, d, legacy, owners)
	}
}

// mirrorCount sets the count that older pollers see to the largest of its owners'.
// One that was above all of theirs was advanced by an older poller: it stays, and
// goes to the owner when there is one only, unless this writer cleared it.
func (s *State) mirrorCount(loaded State, d Delta, legacy string, owners []string) {
	before, advanced := 0, loaded.Failed[legacy]
	if !counts(advanced) || d.clears(legacy) {
		advanced = 0
	}
	for _, owner := range owners {
		before = max(before, loaded.Failed[owner])
	}
	if advanced <= before {
		advanced = 0
	}
	if len(owners) == 1 && advanced > 0 {
		if owner := owners[0]; d.clears(owner) {
			advanced = 0
		} else {
			s.Failed[owner] = max(s.Failed[owner], advanced)
		}
	}
	for _, owner := range owners {
		advanced = max(advanced, s.Failed[owner])
	}
	if advanced == 0 {
		delete(s.Failed, legacy)
		return
	}
	s.Failed[legacy] = advanced
}

// clears reports whether the delta deletes a count.
func (d Delta) clears(key string) bool {
	n, named := d.Failed[key]
	return named && n <= 0
}

// counts reports whether a count is one that is kept.
func counts(n int) bool { return n >= 1 && n <= MaxAttempts }

// watermark returns the later of the stored watermark and the new one, and whether
// there is a new one to compare. A stored one that is no time stays: the poll that
// reads it fails (specification, section 6.2).
func (s *State) watermark(at time.Time) (string, bool) {
	if at.IsZero() {
		return s.LastPollAt, false
	}
	stored, err := s.Since(at)
	if err != nil {
		return s.LastPollAt, false
	}
	if at = at.UTC().Truncate(time.Second); at.After(stored) {
		return at.Format(time.RFC3339), true
	}
	return s.LastPollAt, true
}

func (s *State) mergeLabels(d Delta) {
	for iid, incoming := range d.Incoming {
		switch {
		case d.Base == nil:
			s.setLabels(iid, slices.Clone(incoming))
		case !slices.Equal(d.Base[iid], incoming):
			s.setLabels(iid, merged(s.Labels[iid], d.Base[iid], incoming))
		}
	}
	for _, p := range ordered(keys(d.Record)) {
		if !s.Recorded(p) {
			s.setLabels(p.IID, append(slices.Clone(s.Labels[p.IID]), p.Label))
		}
	}
	for p := range d.Remove {
		if s.Recorded(p) {
			s.setLabels(p.IID, slices.DeleteFunc(slices.Clone(s.Labels[p.IID]), func(l string) bool { return l == p.Label }))
		}
	}
}

// setLabels stores an issue's labels; none at all deletes the issue.
func (s *State) setLabels(iid int64, labels []string) {
	if len(labels) == 0 {
		delete(s.Labels, iid)
		return
	}
	s.Labels[iid] = labels
}

// merged is the three-way merge of an issue's labels:
// (loaded ∪ (incoming∖base)) ∖ (base∖incoming), order kept, duplicates removed.
func merged(loaded, base, incoming []string) []string {
	var out []string
	add := func(label string) {
		if !slices.Contains(out, label) {
			out = append(out, label)
		}
	}
	for _, label := range loaded {
		if slices.Contains(incoming, label) || !slices.Contains(base, label) {
			add(label)
		}
	}
	for _, label := range incoming {
		if !slices.Contains(base, label) {
			add(label)
		}
	}
	return out
}

// keys are the members of a set, in no order.
func keys[K comparable](set map[K]struct{}) []K {
	out := make([]K, 0, len(set))
	for k := range set {
		out = append(out, k)
	}
	return out
}
