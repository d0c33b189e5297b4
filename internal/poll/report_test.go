package poll

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestTheRecordHasTheContractsCountersAndNoTextFromOutside(t *testing.T) {
	t.Parallel()
	rep := &Report{
		Driver: "jira-poll", CycleID: "c", Mode: "poll", Candidates: 1, Pending: 2, Held: 3, Locked: 4, Contended: 5, Released: 6, Events: 7,
		Dispatched: 8, Failed: 9, Duplicates: 10, Refused: 11, Requests: 12, RateLimitWaits: 13, DurationMS: 14,
		Items: []Row{{Key: "evil"}}, Errors: []string{"evil"}, Notes: []string{"evil"},
	}
	var buf bytes.Buffer
	slog.New(slog.NewJSONHandler(&buf, nil)).Info("cycle", "report", rep)
	if strings.Contains(buf.String(), "evil") {
		t.Error(buf.String())
	}
	var record struct {
		Report map[string]any `json:"report"`
	}
	if err := json.Unmarshal(buf.Bytes(), &record); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"driver": "jira-poll", "cycle_id": "c", "mode": "poll", "candidates_scanned": 1.0, "candidates_pending": 2.0, "candidates_held": 3.0,
		"locks_acquired": 4.0, "locks_contended": 5.0, "locks_released": 6.0, "events_emitted": 7.0, "dispatches_scheduled": 8.0, "dispatches_failed": 9.0,
		"dispatches_duplicate": 10.0, "dispatches_refused": 11.0, "requests": 12.0, "rate_limit_waits": 13.0, "duration_ms": 14.0,
	}
	for name, value := range want {
		if record.Report[name] != value {
			t.Errorf("%s is %v, want %v", name, record.Report[name], value)
		}
	}
}

func TestOK(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		rep  Report
		want bool
	}{
		{"nothing to do", Report{}, true},
		{"contention and notes are no failure", Report{Contended: 3, Notes: []string{"x"}, Items: []Row{{Status: ItemContended}, {Status: ItemWaiting}}}, true},
		{"an interruption is no failure", Report{Interrupted: true}, true},
		{"an error", Report{Errors: []string{"x"}}, false},
		{"a failed dispatch", Report{Failed: 1}, false},
		{"a failed item", Report{Items: []Row{{Status: ItemNothing}, {Status: ItemFailed}}}, false},
	} {
		if got := tc.rep.OK(); got != tc.want {
			t.Errorf("%s: got %t", tc.name, got)
		}
	}
}

func TestAReportIsInAStableOrder(t *testing.T) {
	t.Parallel()
	rep := &Report{Items: []Row{{Key: "PROJ-10"}, {Key: "PROJ-9", URL: "b"}, {Key: "PROJ-9", URL: "a"}}, Notes: []string{"b", "a"}, Errors: []string{"d", "c"}}
	start := time.Unix(1, 0)
	rep.finish(start, start.Add(1500*time.Millisecond))
	want := &Report{Items: []Row{{Key: "PROJ-9", URL: "a"}, {Key: "PROJ-9", URL: "b"}, {Key: "PROJ-10"}}, Notes: []string{"a", "b"}, Errors: []string{"c", "d"}, DurationMS: 1500}
	if diff := cmp.Diff(want, rep); diff != "" {
		t.Error(diff)
	}
}

func TestAReasonIsOneBoundedLineOfText(t *testing.T) {
	t.Parallel()
	if got := oneLine(errors.New("a\n::error::b\r\n\tc")); got != "a ::error::b c" {
		t.Errorf("got %q", got)
	}
	for n := maxReason - 3; n < maxReason+3; n++ {
		got := oneLine(errors.New(strings.Repeat("x", n) + strings.Repeat("é", 100)))
		if !utf8.ValidString(got) || len(got) > maxReason+len("…") || !strings.HasSuffix(got, "…") {
			t.Errorf("%d: %d bytes, valid %t", n, len(got), utf8.ValidString(got))
		}
	}
}

func TestStateKnowsWhatIsStillToDo(t *testing.T) {
	t.Parallel()
	at := time.Unix(100, 0)
	s := State{Checkpoint: Checkpoint{At: at}, Keys: map[string]bool{"done": true, "again": true}, Retry: map[string]time.Time{"again": at.Add(-time.Hour)}}
	for _, tc := range []struct {
		key  string
		at   time.Time
		want bool
	}{
		{"new", at.Add(1), true},
		{"new", at, false},
		{"done", at.Add(1), false},
		{"again", at.Add(-time.Hour), true},
	} {
		if got := s.Todo(tc.key, tc.at); got != tc.want {
			t.Errorf("%s at %v: got %t", tc.key, tc.at, got)
		}
	}
	if got := s.since(); !got.At.Equal(at.Add(-time.Hour - 1)) {
		t.Errorf("detection starts at %v", got.At)
	}
	if got := (State{Retry: s.Retry}).since(); !got.IsZero() {
		t.Errorf("without a checkpoint detection starts at %v", got.At)
	}
	if got := (State{Checkpoint: Checkpoint{At: at}, Retry: map[string]time.Time{"x": at.Add(time.Hour)}}).since(); !got.At.Equal(at) {
		t.Errorf("a retry after the checkpoint moves the start to %v", got.At)
	}
}
