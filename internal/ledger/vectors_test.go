package ledger

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const (
	testSecret  = "test-secret"
	testProject = "group/project"
)

// The vectors of the specification, appendix A.
const (
	v1 = `{"last_poll_at_fast":"2026-10-03T11:50:00Z","dispatched_keys_fast":{"triage:note-12":1790000000},"failed_keys_fast":{"fullsend-replay-key:eyJrIjoidHJpYWdlOm5vdGUtMTIiLCJ0IjoxNzkwMDAwMDAwfQ":1}}`
	v2 = `{"last_poll_at_full":"2026-10-03T11:50:00Z","label_state":{"10":["ready-to-code"],"5":["ready-to-code"],"9":["ready-for-review"]},"dispatched_keys_full":{"code:issue_label-5-ready-to-code-e1":1791028680},"failed_keys_full":{"fullsend-pending-label:eyJrIjoiaXNzdWVfbGFiZWwtNS1yZWFkeS10by1jb2RlLWUzIiwicCI6eyJpaWQiOjUsImxhYmVsIjoicmVhZHktdG8tY29kZSIsImV2ZW50X2lkIjozLCJhdCI6MTc5MTAyODY4MDAwMCwibGFiZWxzIjpbInJlYWR5LXRvLWNvZGUiXSwiYWN0b3JfaWQiOjQyLCJhY3Rvcl9sb2dpbiI6ImFsaWNlIn19":1,"fullsend-replay-key:eyJrIjoiY29kZTppc3N1ZV9sYWJlbC01LXJlYWR5LXRvLWNvZGUtZTEiLCJ0IjoxNzkxMDI4NjgwfQ":1,"issue_label-5-ready-to-code-e3":1}}`
	v3 = `{"last_poll_at_full":"2026-10-03T11:50:00Z","label_state":{"5":["ready-to-code"]},"dispatched_keys_full":{"code:issue_label-5-ready-to-code-1791028680":1791028680,"code:issue_label-5-ready-to-code-e1":1791028680},"failed_keys_full":{"fullsend-legacy-mirror:eyJtIjoiZCIsImwiOiJjb2RlOmlzc3VlX2xhYmVsLTUtcmVhZHktdG8tY29kZS0xNzkxMDI4NjgwIiwibyI6ImNvZGU6aXNzdWVfbGFiZWwtNS1yZWFkeS10by1jb2RlLWUxIn0":1,"fullsend-replay-key:eyJrIjoiY29kZTppc3N1ZV9sYWJlbC01LXJlYWR5LXRvLWNvZGUtMTc5MTAyODY4MCIsInQiOjE3OTEwMjg2ODB9":1,"fullsend-replay-key:eyJrIjoiY29kZTppc3N1ZV9sYWJlbC01LXJlYWR5LXRvLWNvZGUtZTEiLCJ0IjoxNzkxMDI4NjgwfQ":1}}`

	hmacV1 = "c9a79a2b731d758f31c8a3a0ff6b5a5b1067a1fb2874ffffaae84a8f36988567"
	hmacV2 = "54230391598d674b22129193782aa1f46c9a3ce94acd2b2623cb738ad75b9182"
	hmacV3 = "1bd10ae5995809f9100f3be1b78ad85a1cc2c10ff83a26fb09653cc05b32ba61"

	pendingText  = `fullsend-pending-label:eyJrIjoiaXNzdWVfbGFiZWwtNS1yZWFkeS10by1jb2RlLWUzIiwicCI6eyJpaWQiOjUsImxhYmVsIjoicmVhZHktdG8tY29kZSIsImV2ZW50X2lkIjozLCJhdCI6MTc5MTAyODY4MDAwMCwibGFiZWxzIjpbInJlYWR5LXRvLWNvZGUiXSwiYWN0b3JfaWQiOjQyLCJhY3Rvcl9sb2dpbiI6ImFsaWNlIn19`
	markerText   = `fullsend-pending-label:eyJrIjoidW5yZXNvbHZlZC1sYWJlbC01LXJlYWR5LXRvLWNvZGUtMTc5MTAyODY4MDEyMyIsInAiOnsiaWlkIjo1LCJsYWJlbCI6InJlYWR5LXRvLWNvZGUiLCJhdCI6MTc5MTAyODY4MDEyMywidW5yZXNvbHZlZCI6dHJ1ZX19`
	mirrorText   = `fullsend-legacy-mirror:eyJtIjoiZCIsImwiOiJjb2RlOmlzc3VlX2xhYmVsLTUtcmVhZHktdG8tY29kZS0xNzkxMDI4NjgwIiwibyI6ImNvZGU6aXNzdWVfbGFiZWwtNS1yZWFkeS10by1jb2RlLWUxIn0`
	pendingKey   = "issue_label-5-ready-to-code-e3"
	readyToCode  = "ready-to-code"
	legacySecond = "issue_label-5-ready-to-code-1791028680"
)

// at is the second of the specification's examples.
func at() time.Time { return time.Unix(1791028680, 0).UTC() }

func aliceHandoff() Handoff {
	return Handoff{IID: 5, Label: readyToCode, EventID: 3, At: 1791028680000, Labels: []string{readyToCode}, ActorID: 42, ActorLogin: "alice"}
}

// added is the addition of ready-to-code to issue 5 under a label event id.
func added(id int64) Event {
	return Event{Type: IssueLabel, IID: 5, Label: readyToCode, LabelEventID: id, At: at()}
}

func seal(tb testing.TB, mode Mode) Seal {
	tb.Helper()
	s, err := NewSeal(mode, testProject, testSecret)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func encode(tb testing.TB, s State) []byte {
	tb.Helper()
	raw, err := seal(tb, s.Mode).Encode(s)
	if err != nil {
		tb.Fatal(err)
	}
	return raw
}

func decode(tb testing.TB, mode Mode, raw []byte) State {
	tb.Helper()
	s, warnings, err := seal(tb, mode).Decode(raw)
	if err != nil || len(warnings) > 0 {
		tb.Fatalf("decode: %v, warnings %q", err, warnings)
	}
	return s
}

// stored is a canonical document with its signature in place.
func stored(canonical, hmac string) string {
	if canonical == "{}" {
		return `{"hmac":"` + hmac + `"}`
	}
	return strings.TrimSuffix(canonical, "}") + `,"hmac":"` + hmac + `"}`
}

// signed signs a document as another holder of the secret would.
func signed(tb testing.TB, mode Mode, d document) []byte {
	tb.Helper()
	n, err := d.normal()
	if err != nil {
		tb.Fatal(err)
	}
	n.HMAC = seal(tb, mode).sign(n)
	return n.bytes()
}

func diff(want, got State) string { return cmp.Diff(want, got, cmpopts.EquateEmpty()) }

func stateV1() State {
	s := Empty(Slash)
	s.LastPollAt = "2026-10-03T11:50:00Z"
	s.Dispatched["triage:note-12"] = 1790000000
	return s
}

func stateV2() State {
	s := Empty(Events)
	s.LastPollAt = "2026-10-03T11:50:00Z"
	s.Labels = map[int64][]string{5: {readyToCode}, 9: {"ready-for-review"}, 10: {readyToCode}}
	s.Dispatched["code:issue_label-5-ready-to-code-e1"] = 1791028680
	s.Failed[pendingKey] = 1
	s.Pending[pendingKey] = aliceHandoff()
	return s
}

func stateV3() State {
	s := Empty(Events)
	s.LastPollAt = "2026-10-03T11:50:00Z"
	s.Labels = map[int64][]string{5: {readyToCode}}
	s.Dispatched["code:issue_label-5-ready-to-code-e1"] = 1791028680
	s.Dispatched["code:"+legacySecond] = 1791028680
	s.Mirrors[Mirror{Kind: DispatchMirror, Legacy: "code:" + legacySecond, Owner: "code:issue_label-5-ready-to-code-e1"}] = struct{}{}
	return s
}

func TestScenario5TheVectorsAreReadAndWrittenByteForByte(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name            string
		canonical, hmac string
		state           State
	}{
		{"an empty slash document", "{}", "5eaaa238d04bdeb837eec88cd294a59c30420230b2a005cf2b9fa887ef4364af", Empty(Slash)},
		{"an empty events document", "{}", "79dd3a84f3da69a4831631ada2f71730cb39e1b5a97fd3f52f7acbb7446add6b", Empty(Events)},
		{"V1", v1, hmacV1, stateV1()},
		{"V2, where 10 sorts before 5 before 9", v2, hmacV2, stateV2()},
		{"V3", v3, hmacV3, stateV3()},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			want := stored(tc.canonical, tc.hmac)
			if d := cmp.Diff(want, string(encode(t, tc.state))); d != "" {
				t.Errorf("the written document differs (-want +got):\n%s", d)
			}
			if d := diff(tc.state, decode(t, tc.state.Mode, []byte(want))); d != "" {
				t.Errorf("the read state differs (-want +got):\n%s", d)
			}
		})
	}
}

func TestScenario5AnotherProjectHasAnotherSignature(t *testing.T) {
	t.Parallel()
	s, err := NewSeal(Events, "group/other", testSecret)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := s.Encode(Empty(Events))
	if want := stored("{}", "5292dcceb9a5779c41ffb13129ebb58bacc59dde45bd49e1d087c09165b050a6"); err != nil || string(raw) != want {
		t.Errorf("got %s, %v; want %s", raw, err, want)
	}
}

func TestInBandEntriesAreEncodedByteForByte(t *testing.T) {
	t.Parallel()
	marker := Event{Type: UnresolvedLabel, IID: 5, Label: readyToCode, At: time.UnixMilli(1791028680123)}
	for _, tc := range []struct{ name, want, got string }{
		{"pending", pendingText, entry(pendingPrefix, pendingEntry{Key: aliceHandoff().Event().Key(), Handoff: aliceHandoff()})},
		{"marker", markerText, entry(pendingPrefix, pendingEntry{Key: marker.Key(), Handoff: HandoffOf(marker)})},
		{"ledger", mirrorText, entry(mirrorPrefix, Mirror{Kind: DispatchMirror, Legacy: "code:" + legacySecond, Owner: added(1).DispatchKey("code")})},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.name, tc.got, tc.want)
		}
	}
}

func TestHandoffsKeepAllTheirMembersInOrder(t *testing.T) {
	t.Parallel()
	h := Handoff{IID: 1, Label: "l", EventID: 2, At: 3, Labels: []string{"a", "b"}, ActorID: 4, ActorLogin: "u", ActorBot: true, OccurredAt: 5, SnapshotAt: 6, Unresolved: true}
	raw, err := json.Marshal(h)
	want := `{"iid":1,"label":"l","event_id":2,"at":3,"labels":["a","b"],"actor_id":4,"actor_login":"u","actor_bot":true,"occurred_at":5,"snapshot_at":6,"unresolved":true}`
	if err != nil || string(raw) != want {
		t.Errorf("got %s, %v; want %s", raw, err, want)
	}
	s := Empty(Events)
	s.Pending["k"] = h
	if d := diff(s, decode(t, Events, encode(t, s))); d != "" {
		t.Error(d)
	}
}

func TestMarkupInKeysIsEscapedInTheSignedBytes(t *testing.T) {
	t.Parallel()
	s := Empty(Events)
	s.Failed["issue_label-5-a<b>&c-e1"] = 1
	s.Failed["issue_label-5-ä\u2028-e1"] = 2
	raw := string(encode(t, s))
	for _, want := range []string{`"issue_label-5-a\u003cb\u003e\u0026c-e1":1`, `"issue_label-5-ä\u2028-e1":2`} {
		if !strings.Contains(raw, want) {
			t.Errorf("%s is not in %s", want, raw)
		}
	}
}

// A reader signs what it has decoded, so a writer must sign what will be decoded.
func TestTextThatIsNotUTF8IsSignedAsItWillBeRead(t *testing.T) {
	t.Parallel()
	s := Empty(Events)
	s.Labels[5] = []string{"a\xffb"}
	s.Dispatched["code:issue_label-5-a\xffb-e1"] = 7
	got := decode(t, Events, encode(t, s))
	if _, found := got.Dispatched["code:issue_label-5-a\ufffdb-e1"]; !found || len(got.Dispatched) != 1 || got.Labels[5][0] != "a\ufffdb" {
		t.Errorf("got %+v", got)
	}
}

func TestEmptyAndAbsentLabelListsStayWhatTheyAre(t *testing.T) {
	t.Parallel()
	s := Empty(Events)
	s.Labels = map[int64][]string{1: {}, 2: nil}
	if raw := string(encode(t, decode(t, Events, encode(t, s)))); !strings.HasPrefix(raw, `{"label_state":{"1":[],"2":null},`) {
		t.Error(raw)
	}
}

func vectorV4() Dispatch {
	return Dispatch{
		ActorID:         "42",
		EventPayloadB64: "eyJpaWQiOjUsImxhYmVscyI6WyJyZWFkeS10by1jb2RlIl0sIm5vdGVfYXV0aG9yX2lkIjo0MiwidHlwZSI6Imlzc3VlX2xhYmVsIiwidXBkYXRlZF9hdCI6IjIwMjYtMTAtMDNUMTE6NTg6MDBaIn0=",
		EventType:       "issue_label",
		IsFork:          "false",
		OriginatingURL:  "https://gitlab.example.com/group/project/-/issues/5",
		RepoFullName:    testProject,
		ResourceKey:     "issue-5",
		Stage:           "code",
		StatusIID:       "5",
	}
}

func TestScenario5VectorV4IsSignedAndVerified(t *testing.T) {
	t.Parallel()
	const want = "5de563d0d177c89d4075c64519b8e2b8963a711fb1af2968fbc6b96fd2d2786c"
	got, err := vectorV4().Sign(testSecret)
	if err != nil || got != want {
		t.Errorf("got %s, %v; want %s", got, err, want)
	}
	if err := vectorV4().Verify(testSecret, want); err != nil {
		t.Error(err)
	}
}

func TestFailure12TheSignatureCoversEveryFieldOfADispatch(t *testing.T) {
	t.Parallel()
	signature, err := vectorV4().Sign(testSecret)
	if err != nil {
		t.Fatal(err)
	}
	for name, forge := range map[string]func(*Dispatch){
		"ACTOR_ID":              func(d *Dispatch) { d.ActorID = "43" },
		"EVENT_PAYLOAD_B64":     func(d *Dispatch) { d.EventPayloadB64 = "e30=" },
		"EVENT_TYPE":            func(d *Dispatch) { d.EventType = "issue_note" },
		"FULLSEND_POLL_JOB_URL": func(d *Dispatch) { d.PollJobURL = "https://gitlab.example.com/1" },
		"IS_FORK":               func(d *Dispatch) { d.IsFork = "" },
		"MR_AUTHOR_ID":          func(d *Dispatch) { d.MRAuthorID = "1" },
		"ORIGINATING_URL":       func(d *Dispatch) { d.OriginatingURL += "0" },
		"REPO_FULL_NAME":        func(d *Dispatch) { d.RepoFullName = "group/other" },
		"RESOURCE_KEY":          func(d *Dispatch) { d.ResourceKey = "issue-6" },
		"STAGE":                 func(d *Dispatch) { d.Stage = "fix" },
		"STATUS_IID":            func(d *Dispatch) { d.StatusIID = "6" },
	} {
		d := vectorV4()
		forge(&d)
		if err := d.Verify(testSecret, signature); !errors.Is(err, ErrSignature) {
			t.Errorf("another %s: got %v, want %v", name, err, ErrSignature)
		}
	}
	if err := vectorV4().Verify(testSecret, ""); !errors.Is(err, ErrSignature) {
		t.Errorf("no signature: %v", err)
	}
	if err := vectorV4().Verify("", signature); !errors.Is(err, ErrNoSecret) {
		t.Errorf("no secret: %v", err)
	}
}

func TestALineBreakInAFieldIsNotSigned(t *testing.T) {
	t.Parallel()
	d := vectorV4()
	d.ActorID = "42\nEVENT_PAYLOAD_B64=e30="
	if sig, err := d.Sign(testSecret); err == nil || sig != "" || !strings.Contains(err.Error(), "ACTOR_ID") {
		t.Errorf("got %q, %v", sig, err)
	}
}
