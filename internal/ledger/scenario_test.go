package ledger

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// The scenarios of the specification, section 16, as far as they are about the
// document alone; those of the drivers have their part of the merge here.

// labels are those of issue 5.
func labels(names ...string) map[int64][]string { return map[int64][]string{5: names} }

func set[K comparable](ks ...K) map[K]struct{} {
	m := map[K]struct{}{}
	for _, k := range ks {
		m[k] = struct{}{}
	}
	return m
}

func TestScenario1NoDocumentIsAnEmptyStateFromAnHourAgo(t *testing.T) {
	t.Parallel()
	s := Empty(Events)
	since, err := s.Since(at())
	if err != nil || !since.Equal(at().Add(-time.Hour)) {
		t.Errorf("got %v, %v", since, err)
	}
	if raw := encode(t, Apply(s, Delta{Watermark: at()})); !strings.HasPrefix(string(raw), `{"last_poll_at_full":"2026-10-03T11:58:00Z","hmac":`) {
		t.Errorf("the first save is %s", raw)
	}
}

func TestAWatermarkThatIsNoTimeFailsTheCycleAndStays(t *testing.T) {
	t.Parallel()
	s := Empty(Slash)
	s.LastPollAt = "yesterday\n::error::"
	s.Dispatched["code:note-1"] = 1
	if _, err := s.Since(at()); err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v", err)
	}
	if d := diff(s, Apply(s, Delta{Watermark: at()})); d != "" {
		t.Error(d)
	}
}

func TestScenario2AnyChangedByteOfAValueIsRejected(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, old, changed string
		want               error
	}{
		{"watermark", "11:50:00Z", "11:50:01Z", ErrTampered},
		{"label", `"9":["ready-for-review"]`, `"9":["ready-for-reviex"]`, ErrTampered},
		{"dispatched key", "ready-to-code-e1\":17", "ready-to-code-e2\":17", ErrTampered},
		{"timestamp", "1791028680}", "1791028681}", ErrTampered},
		{"count", `code-e3":1`, `code-e3":2`, ErrTampered},
		{"signature", hmacV2[:8], "00000000", ErrTampered},
		{"signature in upper case", hmacV2, strings.ToUpper(hmacV2), ErrTampered},
		{"signature empty", hmacV2, "", ErrTampered},
		{"signature absent", `,"hmac":"` + hmacV2 + `"`, "", ErrTampered},
		{"count that is no integer", `code-e3":1`, `code-e3":1.0`, ErrMalformed},
		{"count that is text", `code-e3":1`, `code-e3":"1"`, ErrMalformed},
		{"IID that is no number", `"9":[`, `"x":[`, ErrMalformed},
		{"end", "}", "", ErrMalformed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			whole := stored(v2, hmacV2)
			raw := strings.ReplaceAll(whole, tc.old, tc.changed)
			if raw == whole {
				t.Fatal("nothing was changed")
			}
			if s, _, err := seal(t, Events).Decode([]byte(raw)); !errors.Is(err, tc.want) || s.Mode != "" {
				t.Errorf("got %+v, %v; want %v", s, err, tc.want)
			}
		})
	}
}

func TestOnlyValuesAreSignedAndUnknownFieldsAreIgnored(t *testing.T) {
	t.Parallel()
	raw := "\n { \"hmac\": \"" + hmacV1 + `", "future": {"a": [1]}, ` + strings.TrimPrefix(v1, "{")
	if d := diff(stateV1(), decode(t, Slash, []byte(raw))); d != "" {
		t.Error(d)
	}
}

func TestScenario3ADocumentOfAnotherBranchProjectOrSecretIsRejected(t *testing.T) {
	t.Parallel()
	raw := encode(t, stateV1())
	for _, tc := range []struct {
		name, project, secret string
		mode                  Mode
	}{
		{"branch", testProject, testSecret, Events},
		{"project", "group/other", testSecret, Slash},
		{"secret", testProject, "other-secret", Slash},
	} {
		s, err := NewSeal(tc.mode, tc.project, tc.secret)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.Decode(raw); !errors.Is(err, ErrTampered) {
			t.Errorf("another %s: got %v, want %v", tc.name, err, ErrTampered)
		}
	}
}

func TestScenario4WithoutASecretNothingIsReadOrWritten(t *testing.T) {
	t.Parallel()
	s, err := NewSeal(Slash, testProject, "")
	if !errors.Is(err, ErrNoSecret) {
		t.Errorf("a seal: %v", err)
	}
	if _, _, err := s.Decode(encode(t, stateV1())); !errors.Is(err, ErrNoSecret) {
		t.Errorf("reading: %v", err)
	}
	if raw, err := s.Encode(stateV1()); !errors.Is(err, ErrNoSecret) || raw != nil {
		t.Errorf("writing: %s, %v", raw, err)
	}
}

func TestSealsAreOfOneModeAndOneProject(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		mode    Mode
		project string
	}{{"", testProject}, {"full", testProject}, {Slash, ""}, {Slash, "group\nproject"}} {
		if _, err := NewSeal(tc.mode, tc.project, testSecret); err == nil {
			t.Errorf("mode %q and project %q are accepted", tc.mode, tc.project)
		}
	}
	if _, err := seal(t, Slash).Encode(stateV2()); err == nil {
		t.Error("an events state is written to the slash branch")
	}
	if _, err := seal(t, Events).Encode(stateV1()); err == nil {
		t.Error("a slash state is written to the events branch")
	}
	s := stateV1()
	s.Pending[pendingKey] = aliceHandoff()
	if _, err := seal(t, Slash).Encode(s); err == nil {
		t.Error("a handoff is lost in the slash document")
	}
}

func TestADocumentOfBothColumnsIsReadByItsModeOnly(t *testing.T) {
	t.Parallel()
	d := document{
		LastPollAtFast: "2026-10-03T11:50:00Z", LastPollAtFull: "2026-10-03T11:40:00Z", LabelState: labels(readyToCode),
		DispatchedKeysFast: map[string]int64{"a:note-1": 1}, DispatchedKeysFull: map[string]int64{"b:note-2": 2},
		FailedKeysFast: map[string]int{"note-3": 3, pendingText: 1}, FailedKeysFull: map[string]int{"note-4": 2},
	}
	slash := Empty(Slash)
	slash.LastPollAt, slash.Dispatched, slash.Failed = d.LastPollAtFast, d.DispatchedKeysFast, d.FailedKeysFast
	if diff := diff(slash, decode(t, Slash, signed(t, Slash, d))); diff != "" {
		t.Error(diff)
	}
	events := Empty(Events)
	events.LastPollAt, events.Labels, events.Dispatched, events.Failed = d.LastPollAtFull, d.LabelState, d.DispatchedKeysFull, d.FailedKeysFull
	if diff := diff(events, decode(t, Events, signed(t, Events, d))); diff != "" {
		t.Error(diff)
	}
}

func TestScenario6AnOlderPollerKeepsAHandoffWithItsActor(t *testing.T) {
	t.Parallel()
	s := stateV2()
	s.Failed["note-9"] = 4 // which the older poller drops
	got := decode(t, Events, throughOlder(t, Events, encode(t, s), at()))
	if d := cmp.Diff(map[string]Handoff{pendingKey: aliceHandoff()}, got.Pending); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(map[string]int{pendingKey: 1}, got.Failed); d != "" {
		t.Error(d)
	}
}

func TestScenario7EditedAddedAndRemovedHandoffsAreRejected(t *testing.T) {
	t.Parallel()
	mallory := aliceHandoff()
	mallory.ActorID, mallory.ActorLogin = 66, "mallory"
	forged := entry(pendingPrefix, pendingEntry{Key: pendingKey, Handoff: mallory})
	whole := stored(v2, hmacV2)
	for name, raw := range map[string]string{
		"edited actor": strings.Replace(whole, pendingText, forged, 1),
		"added":        strings.Replace(whole, `"failed_keys_full":{`, `"failed_keys_full":{"`+forged+`":1,`, 1),
		"removed":      strings.Replace(whole, `"`+pendingText+`":1,`, "", 1),
	} {
		if raw == whole {
			t.Fatalf("%s: nothing was changed", name)
		}
		if _, _, err := seal(t, Events).Decode([]byte(raw)); !errors.Is(err, ErrTampered) {
			t.Errorf("%s: got %v, want %v", name, err, ErrTampered)
		}
	}
}

func TestScenario8KeysThatAnOlderPollerPrunedReturnWithTheirTimes(t *testing.T) {
	t.Parallel()
	for _, mode := range []Mode{Slash, Events} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			s := Empty(mode)
			s.Dispatched = map[string]int64{"code:note-1": at().Unix(), "fix:note-2": at().Unix() - 60}
			s.Failed = map[string]int{"note-3": 2}
			later := at().Add(time.Hour)
			raw := throughOlder(t, mode, encode(t, s), later)
			if o := readByOlder(t, mode, raw); len(o.DispatchedKeysFast)+len(o.DispatchedKeysFull) != 0 {
				t.Fatal("the older poller pruned nothing")
			}
			got := decode(t, mode, raw)
			s.LastPollAt = later.Format(time.RFC3339)
			if d := diff(s, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestReplayEntriesAreRebuiltAndTheLaterTimeCounts(t *testing.T) {
	t.Parallel()
	replay := func(at int64) string { return entry(replayPrefix, replayEntry{Key: "code:note-1", At: at}) }
	d := document{DispatchedKeysFull: map[string]int64{"code:note-1": 5}, FailedKeysFull: map[string]int{replay(3): 1, replay(9): 1, replay(7): 1}}
	s := decode(t, Events, signed(t, Events, d))
	if d := cmp.Diff(map[string]int64{"code:note-1": 9}, s.Dispatched); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(map[string]int{replay(9): 1}, readByOlder(t, Events, encode(t, s)).FailedKeysFull); d != "" {
		t.Error(d)
	}
}

func TestWhatCannotBeDecodedIsDroppedAndWhatIsUnknownIsKept(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		key  string
		keep bool
	}{
		"pending, no base64":           {pendingPrefix + "%%\n::error::", false},
		"pending, padded base64":       {pendingPrefix + "e30=", false},
		"pending, no JSON":             {pendingPrefix + "YWJj", false},
		"pending, empty key":           {entry(pendingPrefix, pendingEntry{Handoff: aliceHandoff()}), false},
		"replay, empty key":            {entry(replayPrefix, replayEntry{At: 5}), false},
		"mirror, unknown kind":         {entry(mirrorPrefix, Mirror{Kind: "x", Legacy: "l", Owner: "o"}), false},
		"mirror, no owner":             {entry(mirrorPrefix, Mirror{Kind: "d", Legacy: "l"}), false},
		"mirror, no legacy key":        {entry(mirrorPrefix, Mirror{Kind: "f", Owner: "o"}), false},
		"an entry of a later version":  {"fullsend-something:e30", true},
		"a failed key like any other ": {"issue_event-9-opened-1791028680", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			raw := signed(t, Events, document{FailedKeysFull: map[string]int{tc.key: 1}})
			s, warnings, err := seal(t, Events).Decode(raw)
			if err != nil {
				t.Fatal(err)
			}
			want := Empty(Events)
			if tc.keep {
				want.Failed[tc.key] = 1
			}
			if d := diff(want, s); d != "" {
				t.Error(d)
			}
			if len(warnings) == 0 != tc.keep || strings.Contains(strings.Join(warnings, ""), "\n") {
				t.Errorf("warnings: %q", warnings)
			}
		})
	}
}

func TestScenario9RetentionIs32MinutesToTheSecondAndAWebhookPrunesNothing(t *testing.T) {
	t.Parallel()
	edge := at().Add(-32 * time.Minute).Unix()
	s := Empty(Events)
	s.Dispatched = map[string]int64{"code:note-1": edge, "code:note-2": edge - 1}
	for _, tc := range []struct {
		name      string
		watermark time.Time
		want      []string
	}{
		{"exactly 32 minutes stay, one second more goes", at(), []string{"code:note-1"}},
		{"the fraction of a second is floored", at().Add(999 * time.Millisecond), []string{"code:note-1"}},
		{"a webhook, a held cycle and one that did not advance prune nothing", time.Time{}, []string{"code:note-1", "code:note-2"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got := Apply(s, Delta{Watermark: tc.watermark, Dispatched: map[string]int64{"code:note-1": edge - 60}})
			if d := cmp.Diff(tc.want, slices.Sorted(maps.Keys(got.Dispatched))); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestKeysOfAPendingOccurrenceAreKeptUnderAllItsNames(t *testing.T) {
	t.Parallel()
	h := aliceHandoff()
	h.SnapshotAt = h.At + 5_500
	e := h.Event()
	s := Empty(Events)
	s.Pending[pendingKey] = h
	s.Pending["unresolved-label-6-x-1"] = Handoff{IID: 6, Label: "x", At: 1, Unresolved: true}
	s.Dispatched = map[string]int64{
		"code:" + e.Key(): 1, "fix:" + e.MillisecondKey(): 1, "code:" + e.LegacyKey(): 1,
		"code:issue_label-5-ready-to-code-e1": 1, "code:" + legacySecond: 1, "x": 1,
	}
	want := []string{"code:issue_label-5-ready-to-code-1791028685", "code:issue_label-5-ready-to-code-e3", "fix:issue_label-5-ready-to-code-1791028680000"}
	got := Apply(s, Delta{Watermark: at()})
	if d := cmp.Diff(want, slices.Sorted(maps.Keys(got.Dispatched))); d != "" {
		t.Error(d)
	}
	s.Pending = map[string]Handoff{"a name of another maker's": h}
	s.Dispatched["code:a name of another maker's"] = 1
	want = append([]string{"code:a name of another maker's"}, want...)
	got = Apply(s, Delta{Watermark: at()})
	if d := cmp.Diff(want, slices.Sorted(maps.Keys(got.Dispatched))); d != "" {
		t.Error(d)
	}
	got = Apply(s, Delta{Watermark: at(), Clear: set("a name of another maker's")})
	if len(got.Dispatched) != 0 {
		t.Errorf("the handoff is cleared, and its keys stay: %v", got.Dispatched)
	}
}

func TestScenario10SecondsAndMillisecondsAreNeverComparedWithEachOther(t *testing.T) {
	t.Parallel()
	e := added(3)
	e.At = at().Add(500 * time.Millisecond)
	for _, tc := range []struct {
		name, suffix string
		want         bool
	}{
		{"the same second", "1791028680", true},
		{"a later second", "1791028681", true},
		{"an earlier second", "1791028679", false},
		{"the same millisecond", "1791028680500", true},
		{"a later millisecond", "1791028680501", true},
		{"an earlier millisecond in the same second", "1791028680499", false},
		{"the largest value in seconds", "99999999999", true},
		{"the smallest value in milliseconds, in 1973", "100000000000", false},
		{"another id", "e4", false},
		{"the own id", "e3", true},
		{"a longer label", "now-1791028681", false},
		{"no number", "", false},
		{"more than 64 bits", "99999999999999999999", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := Empty(Events)
			s.Dispatched["code:issue_label-5-ready-to-code-"+tc.suffix] = 1
			if got := s.Suppressed("code", e); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
			if s.Suppressed("fix", e) {
				t.Error("another stage is suppressed")
			}
			other := e
			other.IID = 6
			if s.Suppressed("code", other) {
				t.Error("another issue is suppressed")
			}
		})
	}
}

func TestOnlyLabelAdditionsAreSuppressedByTime(t *testing.T) {
	t.Parallel()
	s := Empty(Events)
	s.Dispatched["retro:mr_event-3-1791028690"] = 1
	e := Event{Type: MREvent, IID: 3, At: at()}
	if s.Suppressed("retro", e) {
		t.Error("a merge is suppressed by a later one")
	}
	s.Dispatched[e.DispatchKey("retro")] = 1
	if !s.Suppressed("retro", e) {
		t.Error("a merge is not suppressed by its own key")
	}
}

func TestKeysAreThoseOfTheSpecification(t *testing.T) {
	t.Parallel()
	ms := at().Add(500 * time.Millisecond)
	for _, tc := range []struct{ want, got string }{
		{"note-12", Event{Type: IssueNote, NoteID: 12, IID: 5, Action: "x", At: ms}.Key()},
		{"note-13", Event{Type: MRNote, NoteID: 13, At: ms}.Key()},
		{"issue_label-5-ready-to-code-e3", added(3).Key()},
		{"issue_label-5-ready-to-code-1791028680500", Event{Type: IssueLabel, IID: 5, Label: readyToCode, At: ms}.Key()},
		{"issue_label-5-a: b-c-e3", Event{Type: IssueLabel, IID: 5, Label: "a: b-c", LabelEventID: 3}.Key()},
		{"mr_event-3-opened-1791028680", Event{Type: MREvent, IID: 3, Action: "opened", At: ms}.Key()},
		{"mr_event-3-1791028680", Event{Type: MREvent, IID: 3, At: ms}.Key()},
		{"issue_event-9-closed-1791028680", Event{Type: IssueEvent, IID: 9, Action: "closed", At: ms}.Key()},
		{"issue_label-5-ready-to-code-1791028680", Event{Type: IssueLabel, IID: 5, Label: readyToCode, LabelEventID: 3, At: ms}.LegacyKey()},
		{"issue_label-5-ready-to-code-1791028680", Event{Type: IssueLabel, IID: 5, Label: readyToCode, At: ms.Add(time.Hour), SnapshotAt: ms}.LegacyKey()},
		{"unresolved-label-5-ready-to-code-1791028680500", Event{Type: UnresolvedLabel, IID: 5, Label: readyToCode, At: ms}.Key()},
		{"code:note-12", Event{Type: IssueNote, NoteID: 12}.DispatchKey("code")},
		{"", Event{Type: IssueNote, NoteID: 12}.LegacyKey()},
		{"", Event{Type: UnresolvedLabel, IID: 5, Label: readyToCode, At: ms}.MillisecondKey()},
	} {
		if tc.got != tc.want {
			t.Errorf("got %q, want %q", tc.got, tc.want)
		}
	}
}

func TestADispatchedKeyIsStoredWithTheLaterOfBothTimes(t *testing.T) {
	t.Parallel()
	e := added(3)
	for name, tc := range map[string]struct {
		occurred time.Time
		want     int64
	}{
		"the event's own":              {time.Time{}, 1791028680},
		"an old snapshot":              {at().Add(time.Hour), 1791032280},
		"a label from before snapshot": {at().Add(-time.Hour), 1791028680},
	} {
		e.OccurredAt = tc.occurred
		if got := e.DispatchedAt(); got != tc.want {
			t.Errorf("%s: got %d, want %d", name, got, tc.want)
		}
	}
}

func TestAHandoffIsItsEvent(t *testing.T) {
	t.Parallel()
	for _, e := range []Event{
		added(3),
		added(0),
		{Type: IssueLabel, IID: 5, Label: "x", LabelEventID: 1, At: at(), OccurredAt: at().Add(time.Second), SnapshotAt: at().Add(time.Minute)},
		{Type: UnresolvedLabel, IID: 5, Label: "x", At: at()},
	} {
		if d := cmp.Diff(e, HandoffOf(e).Event()); d != "" {
			t.Error(d)
		}
	}
}

func TestScenario11CountsOfEarlierKeysMigrateAndThereIsNoFourthAttempt(t *testing.T) {
	t.Parallel()
	e := added(3)
	for name, earlier := range map[string]string{"seconds": e.LegacyKey(), "milliseconds": e.MillisecondKey(), "its own": e.Key()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := Empty(Events)
			s.Failed[earlier] = 2
			if s.Exhausted(e) {
				t.Fatal("exhausted after two attempts")
			}
			var d Delta
			if n := d.RecordFailure(s, e); n != 3 {
				t.Errorf("counted %d attempts, want 3", n)
			}
			s = decode(t, Events, encode(t, Apply(s, d)))
			if d := cmp.Diff(map[string]int{e.Key(): 3, e.LegacyKey(): 3}, s.Failed); d != "" {
				t.Error(d)
			}
			if !s.Exhausted(e) {
				t.Error("there is a fourth attempt")
			}
			d = Delta{}
			if n := d.RecordFailure(s, e); n != 3 {
				t.Errorf("the count grew to %d", n)
			}
			d = Delta{}
			d.RecordSuccess(s, e)
			if got := Apply(s, d); len(got.Failed)+len(got.Mirrors) != 0 {
				t.Errorf("after the success there are %v and %v", got.Failed, got.Mirrors)
			}
		})
	}
}

func TestScenario20AHandoffCommittedMeanwhileSurvivesThePoll(t *testing.T) {
	t.Parallel()
	base := stateV2()
	var poll, hook Delta
	poll.RecordDispatch("code", added(3))
	poll.Retire(pendingKey)
	poll.Watermark = at()
	hook.HandOff(HandoffOf(added(7)))
	got := Apply(Apply(base, hook), poll)
	if d := cmp.Diff([]string{"issue_label-5-ready-to-code-e7"}, got.PendingKeys()); d != "" {
		t.Error(d)
	}
	if !got.Suppressed("code", added(3)) {
		t.Error("the poll's key is lost")
	}
}

func TestAHandoffAddedInTheSameCommitBeatsAClear(t *testing.T) {
	t.Parallel()
	var d Delta
	d.HandOff(aliceHandoff())
	d.Retire(pendingKey)
	if got := Apply(Empty(Events), d).PendingKeys(); len(got) != 1 {
		t.Errorf("got %q", got)
	}
}

func TestAHandoffKeepsTheActorOfItsOccurrence(t *testing.T) {
	t.Parallel()
	nobody, bob := aliceHandoff(), aliceHandoff()
	nobody.ActorID, nobody.ActorLogin = 0, ""
	bob.ActorID, bob.ActorLogin = 43, "bob"
	for name, tc := range map[string]struct {
		stored, added, want Handoff
	}{
		"a named one stays":            {aliceHandoff(), bob, aliceHandoff()},
		"a nameless one gets its name": {nobody, aliceHandoff(), aliceHandoff()},
		"a name is not lost":           {aliceHandoff(), nobody, aliceHandoff()},
		"of two nameless the first":    {nobody, HandoffOf(added(3)), nobody},
	} {
		s := Empty(Events)
		s.Pending[pendingKey] = tc.stored
		var d Delta
		d.HandOff(tc.added)
		if d := cmp.Diff(tc.want, Apply(s, d).Pending[pendingKey]); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

func TestScenario22AStaleRemovalKeepsADispatchedReAddAndHoldsForAnUndispatchedOne(t *testing.T) {
	t.Parallel()
	loaded := stateV2()
	original := Delta{
		Base: labels(readyToCode), Incoming: labels(), Watermark: at(),
		Dispatched: map[string]int64{"code:note-1": at().Unix()},
	}
	loaded.Dispatched["code:old"] = 1
	p := Presence{IID: 5, Label: readyToCode}
	if d := cmp.Diff([]Presence{p}, original.Removals(loaded)); d != "" {
		t.Fatal(d)
	}

	kept := original.Clone() // the re-add is dispatched
	kept.KeepPresence(p)
	got := Apply(loaded, kept)
	if _, old := got.Dispatched["code:old"]; !got.Recorded(p) || got.LastPollAt != "2026-10-03T11:58:00Z" || old {
		t.Errorf("a dispatched re-add: %+v", got)
	}

	held := original.Clone() // it is not; the answer of the first attempt is not reused
	held.Hold()
	replacement := HandoffOf(added(3))
	held.HandOff(replacement)
	got = Apply(loaded, held)
	if _, old := got.Dispatched["code:old"]; got.Recorded(p) || got.LastPollAt != loaded.LastPollAt || !old {
		t.Errorf("an undispatched re-add: %+v", got)
	}
	if _, added := got.Dispatched["code:note-1"]; !added {
		t.Error("the other keys of a held cycle are lost")
	}
}

func TestARemovalOfWhatIsNoLongerRecordedNeedsNoLookUp(t *testing.T) {
	t.Parallel()
	d := Delta{Base: labels(readyToCode), Incoming: labels()}
	if got := d.Removals(Empty(Events)); len(got) != 0 {
		t.Errorf("got %v", got)
	}
}

func TestScenario23ARemovalThatCannotBeLookedUpKeepsPresenceKeysAndWatermark(t *testing.T) {
	t.Parallel()
	loaded := stateV2()
	d := Delta{Base: labels(readyToCode), Incoming: labels(), Watermark: at(), Dispatched: map[string]int64{"code:note-1": 5}}
	next := d.Clone()
	p := Presence{IID: 5, Label: readyToCode}
	d.KeepPresence(p)
	d.Hold()
	got := Apply(loaded, d)
	if !got.Recorded(p) || got.LastPollAt != loaded.LastPollAt || got.Dispatched["code:note-1"] != 5 {
		t.Errorf("got %+v", got)
	}
	if got = Apply(got, next); got.Recorded(p) || len(got.Labels[5]) != 0 {
		t.Errorf("the next cycle does not remove it: %v", got.Labels)
	}
}

func TestScenario24AStaleAdditionIsNotRecordedAndGivesWayToItsReplacement(t *testing.T) {
	t.Parallel()
	p := Presence{IID: 5, Label: readyToCode}
	original := Delta{Base: map[int64][]string{}, Incoming: labels(readyToCode), Watermark: at()}
	original.RecordDispatch("code", added(1))
	if d := cmp.Diff([]Presence{p}, original.Additions(Empty(Events))); d != "" {
		t.Fatal(d)
	}

	removed := original.Clone()
	removed.DropAddition(p)
	got := Apply(Empty(Events), removed)
	if got.Recorded(p) || !got.DispatchedAnyStage(added(1).Key()) || got.LastPollAt == "" {
		t.Errorf("removed before the commit: %+v", got)
	}

	loaded := Empty(Events)
	loaded.Labels = labels(readyToCode, "x") // another writer recorded it
	if got := Apply(loaded, removed); !got.Recorded(p) {
		t.Error("the presence of another writer is touched")
	}
	replaced := removed.Clone()
	replaced.Remove = set(p)
	replaced.Hold()
	replaced.HandOff(HandoffOf(added(3)))
	got = Apply(loaded, replaced)
	if d := cmp.Diff(labels("x"), got.Labels); d != "" || got.LastPollAt != "" {
		t.Errorf("replaced by an undispatched one: %s, %q", d, got.LastPollAt)
	}
	if d := cmp.Diff([]string{pendingKey}, got.PendingKeys()); d != "" {
		t.Error(d)
	}
	if got.Suppressed("code", added(3)) {
		t.Error("the replacement is suppressed by its predecessor")
	}
}

func TestScenario25AnAdditionThatCannotBeLookedUpIsDispatchedOnceAndRecordedLater(t *testing.T) {
	t.Parallel()
	p := Presence{IID: 5, Label: readyToCode}
	original := Delta{Base: map[int64][]string{}, Incoming: labels(readyToCode), Watermark: at()}
	first := original.Clone()
	first.RecordDispatch("code", added(3))
	first.DropAddition(p)
	first.Remove = set(p)
	first.Hold()
	got := Apply(Empty(Events), first)
	if got.Recorded(p) || got.LastPollAt != "" || !got.Suppressed("code", added(3)) {
		t.Fatalf("got %+v", got)
	}
	if got = Apply(got, original); !got.Recorded(p) || got.LastPollAt == "" {
		t.Errorf("the recovery does not record it: %+v", got)
	}
}

func TestRecordedOccurrencesAreAddedWhateverTheSnapshotSays(t *testing.T) {
	t.Parallel()
	s := Empty(Events)
	s.Labels = labels("x")
	d := Delta{Record: set(Presence{5, readyToCode}, Presence{5, "x"}, Presence{9, "y"}, Presence{9, "a"}), Remove: set(Presence{7, "z"})}
	want := map[int64][]string{5: {"x", readyToCode}, 9: {"a", "y"}}
	if d := cmp.Diff(want, Apply(s, d).Labels); d != "" {
		t.Error(d)
	}
}

func TestTwoMergesOntoOneStateDoNotMeet(t *testing.T) {
	t.Parallel()
	s := Empty(Events)
	s.Labels[5] = append(make([]string, 0, 4), "x")
	one := Apply(s, Delta{Record: set(Presence{5, "one"})})
	two := Apply(s, Delta{Record: set(Presence{5, "two"})})
	if d := cmp.Diff(labels("x", "one"), one.Labels) + cmp.Diff(labels("x", "two"), two.Labels); d != "" {
		t.Error(d)
	}
}

func TestScenario30LabelsMergeThreeWay(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name                   string
		loaded, base, incoming []string
		want                   []string
	}{
		{"the other's addition and own addition", []string{"a", "other"}, []string{"a"}, []string{"a", "own"}, []string{"a", "other", "own"}},
		{"the other's removal and own addition", nil, []string{"a"}, []string{"a", "own"}, []string{"own"}},
		{"the other's addition and own removal", []string{"a", "other"}, []string{"a"}, nil, []string{"other"}},
		{"both add the same", []string{"new"}, nil, []string{"new", "new"}, []string{"new"}},
		{"both remove the same", nil, []string{"a"}, nil, nil},
		{"nothing is left", []string{"a"}, []string{"a"}, nil, nil},
		{"an unchanged snapshot", []string{"x", "x"}, []string{"a"}, []string{"a"}, []string{"x", "x"}},
		{"order stays, duplicates go", []string{"c", "a", "c", "b"}, []string{"b"}, []string{"d"}, []string{"c", "a", "d"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := Empty(Events)
			s.Labels[9] = []string{"untouched"}
			if tc.loaded != nil {
				s.Labels[5] = tc.loaded
			}
			base := map[int64][]string{5: tc.base, 9: {"untouched", "not looked at"}}
			got := Apply(s, Delta{Base: base, Incoming: map[int64][]string{5: tc.incoming}})
			want := map[int64][]string{9: {"untouched"}}
			if tc.want != nil {
				want[5] = tc.want
			}
			if d := cmp.Diff(want, got.Labels); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestWithoutABaseTheSnapshotReplaces(t *testing.T) {
	t.Parallel()
	s := Empty(Events)
	s.Labels = map[int64][]string{5: {"b", "a"}, 6: {"gone"}, 7: {"untouched"}}
	d := Delta{Incoming: map[int64][]string{5: {"a", "c"}, 6: {}}}
	if d := cmp.Diff(map[int64][]string{5: {"a", "c"}, 7: {"untouched"}}, Apply(s, d).Labels); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]Presence{{5, "b"}, {6, "gone"}}, d.Removals(s)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]Presence{{5, "c"}}, d.Additions(s)); d != "" {
		t.Error(d)
	}
}

func TestScenario31WithoutAnAdvanceKeysAndClearedHandoffsAreStillSaved(t *testing.T) {
	t.Parallel()
	s := stateV2()
	var d Delta
	d.RecordDispatch("code", added(3))
	d.RecordSuccess(s, added(3))
	d.Retire(pendingKey)
	d.RecordFailure(s, Event{Type: IssueNote, NoteID: 7})
	got := decode(t, Events, encode(t, Apply(s, d)))
	if got.LastPollAt != s.LastPollAt || len(got.Pending) != 0 || !got.Suppressed("code", added(3)) {
		t.Errorf("got %+v", got)
	}
	if d := cmp.Diff(map[string]int{"note-7": 1}, got.Failed); d != "" {
		t.Error(d)
	}
}

func TestScenario34AMirrorSuppressesItsOwnersOnlyAndAnOlderPollersKeyEverybody(t *testing.T) {
	t.Parallel()
	first, second := added(1), added(3)
	var a, b Delta
	a.RecordDispatch("code", first)
	s := decode(t, Events, encode(t, Apply(Empty(Events), a)))
	if _, mirrored := s.Dispatched["code:"+legacySecond]; !mirrored || !s.Suppressed("code", first) || s.Suppressed("code", second) {
		t.Fatalf("after the first of two additions in one second: %+v", s)
	}
	b.RecordDispatch("code", second)
	s = Apply(s, b)
	want := set(
		Mirror{DispatchMirror, "code:" + legacySecond, first.DispatchKey("code")},
		Mirror{DispatchMirror, "code:" + legacySecond, second.DispatchKey("code")},
	)
	if d := cmp.Diff(want, s.Mirrors); d != "" {
		t.Error(d)
	}

	genuine := Empty(Events)
	genuine.Dispatched["code:"+legacySecond] = at().Unix()
	if !genuine.Suppressed("code", first) || !genuine.Suppressed("code", second) {
		t.Error("an older poller's key does not suppress")
	}
	if got := Apply(genuine, a); len(got.Mirrors) != 0 || !got.Suppressed("code", second) {
		t.Errorf("an older poller's key became a mirror: %v", got.Mirrors)
	}
}

func TestAMirrorAloneIsEvidenceForItsOwnerUnderBothItsKeys(t *testing.T) {
	t.Parallel()
	for name, owner := range map[string]Event{"id": added(3), "milliseconds": added(0)} {
		var d Delta
		d.RecordDispatch("code", owner)
		s := Apply(Empty(Events), d)
		delete(s.Dispatched, owner.DispatchKey("code"))
		if !s.Suppressed("code", added(3)) {
			t.Errorf("the owner under its key by %s is not recognized", name)
		}
	}
}

func TestAMirroredCountIsItsOwnersUnderBothItsKeys(t *testing.T) {
	t.Parallel()
	for _, owner := range []Event{added(0), added(3), added(1)} {
		s := Empty(Events)
		s.Mirrors = set(Mirror{FailureMirror, legacySecond, owner.Key()}, Mirror{DispatchMirror, legacySecond, "x"})
		s.Failed[legacySecond] = 2
		want := 2
		if owner.LabelEventID == 1 {
			want = 0
		}
		if got := s.Attempts(added(3)); got != want {
			t.Errorf("owner %q: got %d attempts, want %d", owner.Key(), got, want)
		}
	}
}

func TestAnOlderPollersKeyIsFoundByTheSnapshotAndByTheTime(t *testing.T) {
	t.Parallel()
	e := added(3)
	for name, tc := range map[string]struct {
		snapshot time.Duration
		key      string
		want     bool
	}{
		"the snapshot's second, before the event":   {-time.Minute, "1791028620", true},
		"the event's second, with another snapshot": {time.Minute, legacySecond[len(legacySecond)-10:], true},
		"neither": {-time.Minute, "1791028621", false},
	} {
		e.SnapshotAt = at().Add(tc.snapshot)
		s := Empty(Events)
		s.Dispatched["code:issue_label-5-ready-to-code-"+tc.key] = 1
		if got := s.Suppressed("code", e); got != tc.want {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}

func TestASharedMirrorIsStoredWithTheLatestTime(t *testing.T) {
	t.Parallel()
	late := added(3)
	late.OccurredAt = at().Add(time.Minute)
	var d Delta
	d.RecordDispatch("code", late)
	d.RecordDispatch("code", added(1))
	if got, want := d.Dispatched["code:"+legacySecond], at().Add(time.Minute).Unix(); got != want {
		t.Errorf("got %d, want %d", got, want)
	}
}

func TestACloneIsRevalidatedWithoutTouchingTheOriginal(t *testing.T) {
	t.Parallel()
	seen := append(make([]string, 0, 4), "a", "b")
	fresh := func() Delta {
		d := Delta{
			Base: labels("a"), Incoming: labels("a", "b"), Watermark: at(),
			Record: set(Presence{5, "r"}), Remove: set(Presence{5, "x"}),
		}
		d.RecordDispatch("code", added(1))
		d.RecordFailure(Empty(Events), added(1))
		d.HandOff(aliceHandoff())
		d.Retire("other")
		return d
	}
	original := fresh()
	original.Incoming[5] = seen
	one, two := original.Clone(), original.Clone()
	one.KeepPresence(Presence{5, "one"})
	two.KeepPresence(Presence{5, "two"})
	one.DropAddition(Presence{5, "a"})
	one.DropAddition(Presence{9, "a"})
	if d := cmp.Diff(labels("b", "one"), one.Incoming); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(labels("a", "b", "two"), two.Incoming); d != "" {
		t.Error(d)
	}
	one.Hold()
	one.RecordDispatch("fix", added(3))
	one.RecordFailure(Empty(Events), added(3))
	one.HandOff(HandoffOf(added(1)))
	one.Retire("another")
	one.Base[9], one.Record[Presence{9, "r"}], one.Remove[Presence{9, "r"}] = nil, struct{}{}, struct{}{}
	if d := cmp.Diff(fresh(), original); d != "" {
		t.Error(d)
	}
}

func TestEachLookUpIsAskedForOnce(t *testing.T) {
	t.Parallel()
	d := Delta{Base: labels(), Incoming: map[int64][]string{5: {"b", "a", "b"}, 4: {"z"}}}
	if d := cmp.Diff([]Presence{{4, "z"}, {5, "a"}, {5, "b"}}, d.Additions(Empty(Events))); d != "" {
		t.Error(d)
	}
}

func TestMirroredCounts(t *testing.T) {
	t.Parallel()
	e1, e3 := added(1), added(3)
	mirror := func(e Event) Mirror { return Mirror{FailureMirror, legacySecond, e.Key()} }
	fails := func(loaded State, es ...Event) (d Delta) {
		for _, e := range es {
			d.RecordFailure(loaded, e)
		}
		return d
	}
	succeeds := func(loaded State, e Event) (d Delta) {
		d.RecordSuccess(loaded, e)
		return d
	}
	for _, tc := range []struct {
		name    string
		failed  map[string]int
		mirrors []Mirror
		delta   func(State) Delta
		want    map[string]int
		left    int
	}{
		{
			"the mirror is the largest of its owners' counts",
			map[string]int{e3.Key(): 1},
			nil,
			func(s State) Delta { return fails(s, e1, e3) },
			map[string]int{e1.Key(): 1, e3.Key(): 2, legacySecond: 2},
			2,
		},
		{
			"a shared mirror is evidence for none of its owners",
			map[string]int{e1.Key(): 2, legacySecond: 2},
			[]Mirror{mirror(e1)},
			func(s State) Delta { return fails(s, e3) },
			map[string]int{e1.Key(): 2, e3.Key(): 1, legacySecond: 2},
			2,
		},
		{
			"an older poller's advance goes to the only owner",
			map[string]int{e1.Key(): 1, legacySecond: 2},
			[]Mirror{mirror(e1)},
			func(State) Delta { return Delta{Dispatched: map[string]int64{"a:b": 1}} },
			map[string]int{e1.Key(): 2, legacySecond: 2},
			1,
		},
		{
			"an older poller's advance stays where there are several owners",
			map[string]int{e1.Key(): 1, e3.Key(): 1, legacySecond: 3},
			[]Mirror{mirror(e1), mirror(e3)},
			func(State) Delta { return Delta{} },
			map[string]int{e1.Key(): 1, e3.Key(): 1, legacySecond: 3},
			2,
		},
		{
			"a success wins over an older poller's advance",
			map[string]int{e1.Key(): 1, legacySecond: 2},
			[]Mirror{mirror(e1)},
			func(s State) Delta { return succeeds(s, e1) },
			map[string]int{},
			0,
		},
		{
			"a success of an owner whose clear does not name the mirror wins too",
			map[string]int{e1.Key(): 1, legacySecond: 2},
			[]Mirror{mirror(e1)},
			func(State) Delta { return Delta{Failed: map[string]int{e1.Key(): 0}} },
			map[string]int{},
			0,
		},
		{
			"a success leaves the other owner's advance",
			map[string]int{e1.Key(): 1, e3.Key(): 1, legacySecond: 3},
			[]Mirror{mirror(e1), mirror(e3)},
			func(s State) Delta { return succeeds(s, e1) },
			map[string]int{e3.Key(): 1, legacySecond: 3},
			2,
		},
		{
			"a success deletes the count from before the id was known",
			map[string]int{added(0).Key(): 2, "note-1": 1},
			nil,
			func(s State) Delta { return succeeds(s, e1) },
			map[string]int{"note-1": 1},
			0,
		},
		{
			"a mirror beyond the budget is no advance",
			map[string]int{e1.Key(): 1, legacySecond: 4},
			[]Mirror{mirror(e1)},
			func(State) Delta { return Delta{} },
			map[string]int{e1.Key(): 1, legacySecond: 1},
			1,
		},
		{
			"a success leaves the count of the other owner",
			map[string]int{e1.Key(): 2, e3.Key(): 1, legacySecond: 2},
			[]Mirror{mirror(e1), mirror(e3)},
			func(s State) Delta { return succeeds(s, e1) },
			map[string]int{e3.Key(): 1, legacySecond: 1},
			2,
		},
		{
			"an explicit clear of a shared mirror wins over an advance",
			map[string]int{e1.Key(): 1, e3.Key(): 1, legacySecond: 3},
			[]Mirror{mirror(e1), mirror(e3)},
			func(State) Delta { return Delta{Failed: map[string]int{legacySecond: 0}} },
			map[string]int{e1.Key(): 1, e3.Key(): 1, legacySecond: 1},
			2,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := Empty(Events)
			s.Failed, s.Mirrors = tc.failed, set(tc.mirrors...)
			got := Apply(s, tc.delta(s))
			if d := cmp.Diff(tc.want, got.Failed, cmpopts.EquateEmpty()); d != "" {
				t.Error(d)
			}
			if len(got.Mirrors) != tc.left {
				t.Errorf("the ledger has %v, want %d lines", got.Mirrors, tc.left)
			}
		})
	}
}

func TestScenario35AMarkerIsCarriedLikeAHandoffAndHasABudget(t *testing.T) {
	t.Parallel()
	marker := Event{Type: UnresolvedLabel, IID: 5, Label: readyToCode, At: at()}
	s := Empty(Events)
	for n := range MaxAttempts {
		var d Delta
		d.HandOff(HandoffOf(marker))
		if got := d.RecordFailure(s, marker); got != n+1 {
			t.Errorf("attempt %d counts %d", n+1, got)
		}
		s = decode(t, Events, throughOlder(t, Events, encode(t, Apply(s, d)), at()))
		if d := cmp.Diff(map[string]Handoff{marker.Key(): HandoffOf(marker)}, s.Pending); d != "" {
			t.Fatal(d)
		}
	}
	if !s.Exhausted(s.Pending[marker.Key()].Event()) || len(s.Mirrors) != 0 {
		t.Errorf("got %+v", s)
	}
}

func TestCountsOutsideTheBudgetGoWithTheNextMerge(t *testing.T) {
	t.Parallel()
	s := Empty(Slash)
	s.Failed = map[string]int{"note-1": 1, "note-3": 3, "note-4": 4, "note-0": 0, "note--": -2, "fullsend-new:x": 1}
	d := Delta{Failed: map[string]int{"note-1": 2, "note-3": 1, "note-9": 0}}
	if d := cmp.Diff(map[string]int{"note-1": 2, "note-3": 3, "fullsend-new:x": 1}, Apply(s, d).Failed); d != "" {
		t.Error(d)
	}
	s.Failed["note-5"] = -2
	d = Delta{}
	if n := d.RecordFailure(s, Event{Type: IssueNote, NoteID: 5}); n != 1 {
		t.Errorf("a count of -2 was raised to %d", n)
	}
}

func TestTheWatermarkNeverMovesBack(t *testing.T) {
	t.Parallel()
	s := Empty(Slash)
	s.LastPollAt = "2026-10-03T13:58:00+02:00" // 11:58:00Z
	for _, tc := range []struct {
		at   time.Time
		want string
	}{
		{at().Add(-time.Second), s.LastPollAt},
		{at(), s.LastPollAt},
		{at().Add(999 * time.Millisecond), s.LastPollAt},
		{at().Add(time.Second), "2026-10-03T11:58:01Z"},
		{at().Add(time.Second).In(time.FixedZone("", 3600)), "2026-10-03T11:58:01Z"},
	} {
		if got := Apply(s, Delta{Watermark: tc.at}).LastPollAt; got != tc.want {
			t.Errorf("%v: got %q, want %q", tc.at, got, tc.want)
		}
	}
}

func TestAnEmptyDeltaIsNothingToCommit(t *testing.T) {
	t.Parallel()
	if !(Delta{}).Empty() || !(Delta{Base: labels("x")}).Empty() {
		t.Error("nothing is something")
	}
	for i, d := range []Delta{
		{Dispatched: map[string]int64{"a": 1}},
		{Failed: map[string]int{"a": 0}},
		{Hand: map[string]Handoff{"a": {}}},
		{Clear: set("a")},
		{Mirrors: set(Mirror{})},
		{Watermark: at()},
		{Incoming: labels()},
		{Record: set(Presence{})},
		{Remove: set(Presence{})},
	} {
		if d.Empty() {
			t.Errorf("delta %d is nothing", i)
		}
	}
}

func TestWhatExceedsTheCapsIsNeitherReadNorWritten(t *testing.T) {
	t.Parallel()
	long := make([]string, MaxLabels+1)
	if _, err := parse(document{LabelState: map[int64][]string{5: long}}.bytes()); !errors.Is(err, ErrMalformed) {
		t.Errorf("reading too many labels: %v", err)
	}
	blanks := append(slices.Repeat([]byte(" "), MaxBytes-1), "{}"...)
	if _, err := parse(blanks); !errors.Is(err, ErrMalformed) {
		t.Errorf("reading too many bytes: %v", err)
	}
	many, counts, issues := make(map[string]int64, MaxKeys+1), make(map[string]int, MaxKeys+1), make(map[int64][]string, MaxKeys+1)
	for i := range int64(MaxKeys) {
		key := strconv.FormatInt(i, 10)
		many[key], counts[key], issues[i] = 1, 1, nil
	}
	full := document{LabelState: issues, DispatchedKeysFast: many, DispatchedKeysFull: many, FailedKeysFast: counts, FailedKeysFull: counts}
	if excess := full.excess(); excess != "" {
		t.Errorf("%d keys: %s", MaxKeys, excess)
	}
	many["x"], counts["x"], issues[-1] = 1, 1, nil
	for field, d := range map[string]document{
		"label_state":          {LabelState: issues},
		"dispatched_keys_fast": {DispatchedKeysFast: many},
		"dispatched_keys_full": {DispatchedKeysFull: many},
		"failed_keys_fast":     {FailedKeysFast: counts},
		"failed_keys_full":     {FailedKeysFull: counts},
	} {
		if excess := d.excess(); !strings.HasPrefix(excess, field+" has") {
			t.Errorf("too many keys of %s: %q", field, excess)
		}
	}
	s := Empty(Events)
	s.Labels[5] = long
	if raw, err := seal(t, Events).Encode(s); !errors.Is(err, ErrTooLarge) || raw != nil {
		t.Errorf("writing too many labels: %v", err)
	}
	s.Labels[5] = []string{strings.Repeat("\x01", MaxBytes/6)} // six bytes each when escaped
	if raw, err := seal(t, Events).Encode(s); !errors.Is(err, ErrTooLarge) || raw != nil {
		t.Errorf("writing too many bytes: %v", err)
	}
	s.Labels[5] = long[:MaxLabels]
	decode(t, Events, encode(t, s))
}
