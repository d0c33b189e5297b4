package ledger

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The failures of the specification, section 15, that the document prevents.

func TestFailure1AnEventThatAlwaysFailsIsSkippedAfterThreeAttempts(t *testing.T) {
	t.Parallel()
	e := Event{Type: MREvent, IID: 3, At: at()}
	s := Empty(Events)
	for n := 1; n <= 3; n++ {
		if s.Exhausted(e) {
			t.Fatalf("exhausted before attempt %d", n)
		}
		var d Delta
		d.RecordFailure(s, e)
		s = decode(t, Events, encode(t, Apply(s, d)))
	}
	if !s.Exhausted(e) {
		t.Error("there is a fourth attempt")
	}
}

func TestFailure2AStageThatSucceededDoesNotHideOneThatFailed(t *testing.T) {
	t.Parallel()
	e := Event{Type: MREvent, IID: 3, At: at()}
	var d Delta
	d.RecordDispatch("retro", e)
	d.RecordFailure(Empty(Events), e)
	s := Apply(Empty(Events), d)
	if !s.Suppressed("retro", e) || s.Suppressed("review", e) || s.Attempts(e) != 1 {
		t.Errorf("got %+v", s)
	}
}

func TestFailure4AnIssueWithoutRoutableLabelsLeavesTheDocument(t *testing.T) {
	t.Parallel()
	s := stateV2()
	got := Apply(s, Delta{Base: s.Labels, Incoming: map[int64][]string{5: nil, 10: {}}})
	if d := cmp.Diff(map[int64][]string{9: {"ready-for-review"}}, got.Labels); d != "" {
		t.Error(d)
	}
}

func TestFailure21AReAddedLabelIsAnotherOccurrenceAlsoBehindTheWatermark(t *testing.T) {
	t.Parallel()
	again := added(3)
	again.At = at().Add(time.Minute)
	var d Delta
	d.RecordDispatch("code", added(1))
	d.Watermark = at().Add(10 * time.Minute)
	s := decode(t, Events, encode(t, Apply(Empty(Events), d)))
	if s.Suppressed("code", again) {
		t.Fatal("the second addition is suppressed")
	}
	d = Delta{}
	d.RecordDispatch("code", again)
	if s = Apply(s, d); !s.Suppressed("code", again) || !s.Suppressed("code", added(1)) {
		t.Error("a replay is not suppressed")
	}
}

func TestFailure22AStalePollDoesNotEraseThePresenceThatAWebhookRecorded(t *testing.T) {
	t.Parallel()
	p := Presence{IID: 5, Label: readyToCode}
	hook := Delta{Record: set(p)}
	hook.RecordDispatch("code", added(3))
	loaded := Apply(Empty(Events), hook)
	unaware := Delta{Base: map[int64][]string{}, Incoming: labels()} // its snapshot had no label, before and after
	if got := Apply(loaded, unaware); !got.Recorded(p) {
		t.Error("a snapshot that saw no change erased it")
	}
	stale := Delta{Base: labels(readyToCode), Incoming: labels()}
	if !loaded.DispatchedAnyStage(added(3).Key()) {
		t.Fatal("the superseding addition does not count as dispatched")
	}
	stale.KeepPresence(p)
	if got := Apply(loaded, stale); !got.Recorded(p) {
		t.Error("a stale removal erased it")
	}
}

func TestFailure23AWebhookReplayedAfterAnOlderPollersPruneIsSuppressed(t *testing.T) {
	t.Parallel()
	var d Delta
	d.RecordDispatch("code", added(3))
	raw := throughOlder(t, Events, encode(t, Apply(Empty(Events), d)), at().Add(10*time.Minute))
	if s := decode(t, Events, raw); !s.Suppressed("code", added(3)) || s.Suppressed("code", added(4)) {
		t.Errorf("got %+v", s)
	}
}

func TestFailure24AFailingOccurrenceSurvivesAnotherPollsAdvance(t *testing.T) {
	t.Parallel()
	var failing, other Delta
	failing.HandOff(aliceHandoff())
	failing.RecordFailure(Empty(Events), added(3))
	other.Watermark = at().Add(time.Hour)
	s := decode(t, Events, encode(t, Apply(Apply(Empty(Events), failing), other)))
	if d := cmp.Diff(map[string]Handoff{pendingKey: aliceHandoff()}, s.Pending); d != "" || s.Attempts(added(3)) != 1 {
		t.Errorf("%s, %d attempts", d, s.Attempts(added(3)))
	}
}

func TestFailure26AHeldWatermarkHoldsThePruneCutToo(t *testing.T) {
	t.Parallel()
	s := Empty(Events)
	s.Dispatched["code:note-1"] = at().Add(-time.Hour).Unix()
	d := Delta{Watermark: at()}
	if got := Apply(s, d); len(got.Dispatched) != 0 {
		t.Fatal("the key is not old enough to be pruned")
	}
	d.Hold()
	if got := Apply(s, d); len(got.Dispatched) != 1 || got.LastPollAt != "" {
		t.Errorf("got %+v", got)
	}
}
