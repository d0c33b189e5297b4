package github_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fullsend/poll-action/internal/dispatch"
	"github.com/fullsend/poll-action/internal/event"
	"github.com/fullsend/poll-action/internal/github"
)

func TestInputsAreThoseOfTheContract(t *testing.T) {
	t.Parallel()
	got, err := github.Inputs(order("triage"), append(github.InputNames(), "debug"))
	if err != nil {
		t.Fatal(err)
	}
	document := got["normalized_event"]
	delete(got, "normalized_event")
	want := map[string]string{
		"agent": "triage", "role": "triage",
		"source_repo": "acme/app", "event_type": "comment", "event_action": "created", "trigger_source": "",
		"status_repo": "acme/app", "status_number": "10001",
		"event_payload": `{"issue":{"number":10001,"html_url":"https://acme.test/browse/PROJ-123","key":"PROJ-123"},` +
			`"comment":{"body":"/fs-triage check \u003cacceptance\u003e criteria"}}`,
		"work_item_url": "https://acme.test/browse/PROJ-123", "work_item_source": "jira", "work_item_key": "PROJ-123",
		"poll_lock_id": lockID, "poll_lock_driver": "jira-poll", "poll_lock_property": "fullsend.poll.acme.app.lock",
		"dispatch_key": "triage:comment-501",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	var ev event.NormalizedEvent
	if err := json.Unmarshal([]byte(document), &ev); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(order("triage").Event, ev); diff != "" {
		t.Error(diff)
	}
}

func TestOnlyDeclaredInputsAreSent(t *testing.T) {
	t.Parallel()
	got, err := github.Inputs(order("triage"), []string{"role", "debug", "fullsend", "poll_lock_id"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"role": "triage", "poll_lock_id": lockID}, got); diff != "" {
		t.Error(diff)
	}
}

func TestTheSingleInputFullsendHasEverythingAsJSON(t *testing.T) {
	t.Parallel()
	flat, err := github.Inputs(order("triage"), github.InputNames())
	if err != nil {
		t.Fatal(err)
	}
	for _, declared := range [][]string{{"fullsend"}, {"debug", "fullsend"}} {
		got, err := github.Inputs(order("triage"), declared)
		if err != nil {
			t.Fatal(err)
		}
		var all map[string]string
		if err := json.Unmarshal([]byte(got["fullsend"]), &all); err != nil || len(got) != 1 {
			t.Fatalf("%v: %v", err, got)
		}
		if diff := cmp.Diff(flat, all); diff != "" {
			t.Error(diff)
		}
	}
}

func TestAnItemWithoutAKeyGoesByItsID(t *testing.T) {
	t.Parallel()
	o := order("triage")
	o.Event.Entity.Key = ""
	got, err := github.Inputs(o, []string{"work_item_key"})
	if err != nil || got["work_item_key"] != "10001" {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestTextThatFitsIsNotCut(t *testing.T) {
	t.Parallel()
	o := order("triage")
	body := "/fs-triage " + strings.Repeat("ä", event.MaxBody)
	o.Event.Transition.Comment = event.NewComment("1", body)
	o.Ref = dispatch.Project("triage", o.Event)
	got, err := github.Inputs(o, github.InputNames())
	if err != nil {
		t.Fatal(err)
	}
	var payload dispatch.EventPayload
	if err := json.Unmarshal([]byte(got["event_payload"]), &payload); err != nil {
		t.Fatal(err)
	}
	if payload.Comment.Body != o.Ref.EventPayload.Comment.Body {
		t.Error("the comment was cut")
	}
}

func TestWhatCannotFitIsRefusedForGood(t *testing.T) {
	t.Parallel()
	o := order("triage")
	o.Event.Entity.URL = "https://acme.test/" + strings.Repeat("x", 70_000)
	if _, err := github.Inputs(o, github.InputNames()); dispatch.ClassOf(err) != dispatch.Permanent {
		t.Errorf("got %v", err)
	}
}

func TestInputsAlwaysFitAndStayWhole(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		piece := rapid.SampledFrom([]string{"a", "\\", "\"", "<", "\n", "\x01", "日", "😀", "\xff", "\u2028", "&"})
		text := func(name string, n int) string {
			return strings.Repeat(strings.Join(rapid.SliceOfN(piece, 1, 4).Draw(rt, name), ""), rapid.SampledFrom([]int{0, 1, n / 3, n}).Draw(rt, name+" times"))
		}
		o := order("triage")
		o.Event.Transition.Comment = &event.Comment{
			ID: "1", Command: "/fs-x", Body: text("body", 6000), Instruction: text("instruction", 6000),
		}
		o.Ref = dispatch.Project("triage", o.Event)
		o.Event.State.Labels = rapid.SliceOfN(rapid.Just(text("label", 60)), 0, 400).Draw(rt, "labels")
		before := len(o.Event.State.Labels)
		declared := rapid.SampledFrom([][]string{github.InputNames(), {"fullsend"}, {"normalized_event", "event_payload", "agent"}}).Draw(rt, "declared")

		got, err := github.Inputs(o, declared)
		if err != nil {
			rt.Fatal(err)
		}
		if len(got) > 25 {
			rt.Fatalf("%d inputs", len(got))
		}
		sent, _ := json.Marshal(got)
		if n := utf8.RuneCount(sent); n > 65535 {
			rt.Fatalf("%d characters", n)
		}
		if all, ok := got["fullsend"]; ok {
			got = nil
			if err := json.Unmarshal([]byte(all), &got); err != nil {
				rt.Fatal(err)
			}
		}
		var ev event.NormalizedEvent
		var payload dispatch.EventPayload
		if err := json.Unmarshal([]byte(got["normalized_event"]), &ev); err != nil {
			rt.Fatal(err)
		}
		if err := json.Unmarshal([]byte(got["event_payload"]), &payload); err != nil {
			rt.Fatal(err)
		}
		if ev.Transition.Comment == nil || ev.Transition.Comment.Command != "/fs-x" || ev.Entity != o.Event.Entity || ev.State.Labels == nil ||
			payload.Issue == nil || payload.Comment == nil {
			rt.Fatalf("the structure was cut: %s %s", got["normalized_event"], got["event_payload"])
		}
		clean := strings.ToValidUTF8(o.Event.Transition.Comment.Body, "\uFFFD")
		if !strings.HasPrefix(clean, ev.Transition.Comment.Body) || !strings.HasPrefix(clean, payload.Comment.Body) {
			rt.Fatal("the text is not the beginning of what it was")
		}
		if len(ev.State.Labels) < before && ev.Transition.Comment.Body != "" {
			rt.Fatal("labels were cut before the comment was")
		}
		if len(o.Event.State.Labels) != before {
			rt.Fatal("the order was changed")
		}
	})
}
