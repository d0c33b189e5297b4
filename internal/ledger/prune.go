package ledger

import "time"

// How long evidence is needed (ADR 132; specification, section 6.3).
const (
	// WebhookWindow is how old the evidence of a webhook may be; exactly that old is
	// accepted.
	WebhookWindow = 30 * time.Minute
	// ClockSkew is how far in the future it may be.
	ClockSkew = 2 * time.Minute
	// Retention is how far behind the watermark dispatched keys are kept, so that a
	// webhook that is still accepted finds its pipeline.
	Retention = WebhookWindow + ClockSkew
)

// prune drops dispatched keys that are more than Retention behind the watermark,
// except those of pending occurrences under any of their names.
func (s *State) prune(watermark time.Time) {
	pending := map[string]bool{}
	for key, h := range s.Pending {
		e := h.Event()
		for _, name := range []string{key, e.Key(), e.MillisecondKey(), e.LegacyKey()} {
			pending[name] = true
		}
	}
	delete(pending, "") // what has no such name
	cut := watermark.Add(-Retention).Unix()
	for key, at := range s.Dispatched {
		if at < cut && !pending[eventKey(key)] {
			delete(s.Dispatched, key)
		}
	}
}

// pruneMirrors drops the lines of the ledger whose mirrored key is gone.
func (s *State) pruneMirrors() {
	for m := range s.Mirrors {
		_, kept := s.Dispatched[m.Legacy]
		if m.Kind == FailureMirror {
			_, kept = s.Failed[m.Legacy]
		}
		if !kept {
			delete(s.Mirrors, m)
		}
	}
}
