package ledger

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// occurrences is a small world, so that writers meet: additions of two labels, two
// in the same second, one whose id is known late, and events without a label.
func occurrences() []Event {
	early := at().Add(-40 * time.Minute)
	return []Event{
		added(1), added(3), added(0),
		{Type: IssueLabel, IID: 5, Label: readyToCode, LabelEventID: 7, At: at().Add(500 * time.Millisecond), SnapshotAt: at().Add(time.Minute)},
		{Type: IssueLabel, IID: 6, Label: "ready-for-review", LabelEventID: 8, At: early, OccurredAt: early.Add(time.Second)},
		{Type: IssueNote, NoteID: 12, At: early},
		{Type: MREvent, IID: 3, At: at()},
	}
}

func drawEvent(t *rapid.T) Event { return rapid.SampledFrom(occurrences()).Draw(t, "event") }

func drawLabels(t *rapid.T, name string) map[int64][]string {
	return rapid.MapOfN(rapid.Int64Range(5, 6), rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 3, rapid.ID), 0, 2).Draw(t, name)
}

func drawPresences(t *rapid.T, name string) map[Presence]struct{} {
	p := rapid.Custom(func(t *rapid.T) Presence {
		return Presence{IID: rapid.Int64Range(5, 6).Draw(t, "iid"), Label: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "label")}
	})
	return set(rapid.SliceOfN(p, 0, 2).Draw(t, name)...)
}

// drawAdditive is a delta that only adds: what two writers may do in any order.
func drawAdditive(t *rapid.T, loaded State) Delta {
	var d Delta
	for range rapid.IntRange(0, 4).Draw(t, "steps") {
		e := drawEvent(t)
		switch rapid.IntRange(0, 2).Draw(t, "step") {
		case 0:
			d.RecordDispatch(rapid.SampledFrom([]string{"code", "fix"}).Draw(t, "stage"), e)
		case 1:
			if e.Type == IssueLabel {
				d.HandOff(HandoffOf(e))
			}
		default:
			if e.Type != IssueLabel { // mirrored counts go by the number of owners
				d.RecordFailure(loaded, e)
			}
		}
	}
	return d
}

// drawDelta is what a writer may do at all.
func drawDelta(t *rapid.T, loaded State) Delta {
	d := drawAdditive(t, loaded)
	for range rapid.IntRange(0, 3).Draw(t, "more steps") {
		e := drawEvent(t)
		switch rapid.IntRange(0, 2).Draw(t, "step") {
		case 0:
			d.RecordFailure(loaded, e)
		case 1:
			d.RecordSuccess(loaded, e)
		default:
			d.Retire(e.Key())
		}
	}
	if rapid.Bool().Draw(t, "advance") {
		d.Watermark = at().Add(time.Duration(rapid.IntRange(-60, 60).Draw(t, "minutes")) * time.Minute)
	}
	if rapid.Bool().Draw(t, "base known") {
		d.Base = drawLabels(t, "base")
	}
	d.Incoming, d.Record, d.Remove = drawLabels(t, "incoming"), drawPresences(t, "record"), drawPresences(t, "remove")
	return d
}

func drawState(t *rapid.T) State {
	s := Empty(Events)
	for range rapid.IntRange(0, 3).Draw(t, "writers") {
		s = Apply(s, drawDelta(t, s))
	}
	for _, key := range rapid.SliceOfN(rapid.SampledFrom([]string{legacySecond, "issue_label-6-ready-for-review-1791028680"}), 0, 1).Draw(t, "older poller's keys") {
		s.Dispatched["code:"+key] = at().Unix()
	}
	return s
}

// deepCopy copies the lists of labels too.
func deepCopy(s State) State {
	c := s.clone()
	for iid, names := range c.Labels {
		c.Labels[iid] = slices.Clone(names)
	}
	return c
}

func TestMergingTwiceIsMergingOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawState(t)
		if rapid.Bool().Draw(t, "older poller failed too") {
			s.Failed[legacySecond] = rapid.IntRange(1, 3).Draw(t, "count")
		}
		d := drawDelta(t, s)
		before, original := deepCopy(s), d.Clone()
		once := Apply(s, d)
		twice := Apply(once, d)
		anyOrder := cmpopts.SortSlices(func(a, b string) bool { return a < b })
		if d := cmp.Diff(once, twice, cmpopts.EquateEmpty(), anyOrder); d != "" {
			t.Fatal(d)
		}
		if d := diff(before, s) + cmp.Diff(original, d); d != "" {
			t.Fatalf("the arguments changed: %s", d)
		}
	})
}

func TestWhatTwoWritersAddDoesNotDependOnTheirOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawState(t)
		a, b := drawAdditive(t, s), drawAdditive(t, s)
		if d := diff(Apply(Apply(s, a), b), Apply(Apply(s, b), a)); d != "" {
			t.Fatal(d)
		}
	})
}

func TestNoHandoffAndNoDispatchedKeyIsLost(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawState(t)
		d := drawDelta(t, s)
		got := Apply(s, d)
		protected := func(key string) bool { // by a handoff that is still there
			for _, h := range got.Pending {
				e := h.Event()
				if slices.Contains([]string{e.Key(), e.MillisecondKey(), e.LegacyKey()}, eventKey(key)) {
					return true
				}
			}
			return false
		}
		for _, pending := range []map[string]Handoff{s.Pending, d.Hand} {
			for key := range pending {
				_, cleared := d.Clear[key]
				_, again := d.Hand[key]
				if _, kept := got.Pending[key]; kept == (cleared && !again) {
					t.Fatalf("handoff %q: kept %v, cleared %v, added %v", key, kept, cleared, again)
				}
			}
		}
		for _, dispatched := range []map[string]int64{s.Dispatched, d.Dispatched} {
			for key, ts := range dispatched {
				now, kept := got.Dispatched[key]
				latest := max(s.Dispatched[key], d.Dispatched[key])
				old := !d.Watermark.IsZero() && latest < d.Watermark.Unix()-32*60
				if kept == (old && !protected(key)) || kept && now < ts {
					t.Fatalf("key %q of %d: kept %v with %d, old %v", key, ts, kept, now, old)
				}
			}
		}
		for m := range got.Mirrors {
			if _, found := got.Dispatched[m.Legacy]; m.Kind == DispatchMirror && !found {
				t.Fatalf("the ledger names a key that is gone: %+v", m)
			}
		}
	})
}

func TestEveryStoredStateIsReadBackAndSurvivesAnOlderPoller(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawState(t)
		sl, err := NewSeal(Events, testProject, testSecret)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := sl.Encode(s)
		if err != nil {
			t.Fatal(err)
		}
		got, warnings, err := sl.Decode(raw)
		if err != nil || len(warnings) > 0 {
			t.Fatalf("%v, %q", err, warnings)
		}
		if d := diff(s, got); d != "" {
			t.Fatal(d)
		}
		watermark := at().Add(time.Duration(rapid.IntRange(-60, 60).Draw(t, "minutes")) * time.Minute)
		got, warnings, err = sl.Decode(readByOlder(t, Events, raw).write(Events, watermark))
		if err != nil || len(warnings) > 0 {
			t.Fatalf("%v, %q", err, warnings)
		}
		s.LastPollAt = watermark.Format(time.RFC3339)
		if d := diff(s, got); d != "" {
			t.Fatalf("the older poller lost evidence: %s", d)
		}
	})
}

func TestAnyChangedByteIsRejectedOrChangesNoValue(t *testing.T) {
	t.Parallel()
	whole := []byte(stored(v2, hmacV2))
	sl, want := seal(t, Events), decode(t, Events, whole)
	accepted := 0
	for i := range whole {
		for _, flip := range []byte{0x01, 0x20} {
			raw := slices.Clone(whole)
			raw[i] ^= flip
			got, _, err := sl.Decode(raw)
			switch {
			case err == nil:
				accepted++
				if d := diff(want, got); d != "" {
					t.Fatalf("byte %d changed by %#x is accepted: %s", i, flip, d)
				}
			case !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrTampered):
				t.Fatalf("byte %d: %v", i, err)
			}
		}
	}
	// Names of fields are read in either case.
	if accepted > len("last_poll_at_fulllabel_statedispatched_keys_fullfailed_keys_fullhmac") {
		t.Errorf("%d changes are accepted", accepted)
	}
}

func FuzzDecodeReadsAnyBytes(f *testing.F) {
	for _, seed := range []string{
		v1, v2, v3, stored(v1, hmacV1), stored(v2, hmacV2), "", "{}", "null", "[]", `{"hmac":1}`, `{"label_state":{"x":[]}}`,
		`{"label_state":{"5":null,"05":["a","a"]},"failed_keys_full":{"a":null,"b":9,"":1,"fullsend-replay-key:":1,"fullsend-pending-label:e30":1}}`,
		"{\"dispatched_keys_full\":{\"\":1,\"\xff\":1,\"\xfe\":2,\"\\ud800\":3},\"failed_keys_full\":{\"\\u2028<\":2}}", `{"last_poll_at_full":"x"}{}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, mode := range []Mode{Slash, Events} {
			sl := seal(t, mode)
			s, _, err := sl.Decode(raw)
			if (err == nil) == (s.Mode == "") {
				t.Fatalf("a state and an error: %+v, %v", s, err)
			}
			var d document // the same bytes from a holder of the secret
			if json.Unmarshal(raw, &d) != nil || d.excess() != "" {
				continue
			}
			s, _, err = sl.Decode(signed(t, mode, d))
			if err != nil {
				t.Fatal(err)
			}
			back := decode(t, mode, encode(t, s))
			if d := diff(s, back); d != "" {
				t.Fatal(d)
			}
			merged := decode(t, mode, encode(t, Apply(back, Delta{Watermark: at()})))
			if !maps.Equal(merged.Dispatched, Apply(s, Delta{Watermark: at()}).Dispatched) {
				t.Fatal("the merge depends on the way through the document")
			}
		}
	})
}
