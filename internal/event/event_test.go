package event_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fullsend/poll-action/internal/event"
)

func validator(tb testing.TB) *event.Validator {
	tb.Helper()
	v, err := event.NewValidator()
	if err != nil {
		tb.Fatal(err)
	}
	return v
}

// examples are the documents of testdata/events by file name.
func examples(tb testing.TB) map[string][]byte {
	tb.Helper()
	files, err := filepath.Glob("../../testdata/events/*.json")
	if err != nil || len(files) < 10 {
		tb.Fatalf("testdata/events has %d documents: %v", len(files), err)
	}
	out := map[string][]byte{}
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			tb.Fatal(err)
		}
		out[filepath.Base(f)] = raw
	}
	return out
}

func document(tb testing.TB, raw []byte) map[string]any {
	tb.Helper()
	var doc map[string]any
	if err := json.Unmarshal(raw, &doc); err != nil {
		tb.Fatal(err)
	}
	return doc
}

func text(tb testing.TB, doc any) []byte {
	tb.Helper()
	raw, err := json.Marshal(doc)
	if err != nil {
		tb.Fatal(err)
	}
	return raw
}

func TestEveryExampleIsValidAndComesBackUnchanged(t *testing.T) {
	t.Parallel()
	v := validator(t)
	for name, raw := range examples(t) {
		ev, err := v.Decode(raw)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := v.Validate(ev); err != nil {
			t.Errorf("%s as a value: %v", name, err)
		}
		want := document(t, raw)
		if c, ok := want["transition"].(map[string]any)["comment"].(map[string]any); ok && c["instruction"] == "" {
			delete(c, "instruction") // an empty instruction and none are the same
		}
		if diff := cmp.Diff(want, document(t, text(t, ev))); diff != "" {
			t.Errorf("%s changed on its way (-want +got):\n%s", name, diff)
		}
	}
}

// schemaNode walks the schema: properties, items and references.
type schemaNode struct{ root, node map[string]any }

func (s schemaNode) child(name string) schemaNode {
	props, _ := s.node["properties"].(map[string]any)
	n, _ := props[name].(map[string]any)
	return s.resolve(n)
}

func (s schemaNode) resolve(n map[string]any) schemaNode {
	if ref, ok := n["$ref"].(string); ok {
		defs, _ := s.root["$defs"].(map[string]any)
		n, _ = defs[strings.TrimPrefix(ref, "#/$defs/")].(map[string]any)
	}
	return schemaNode{s.root, n}
}

func (s schemaNode) strings(member string) []string {
	list, _ := s.node[member].([]any)
	var out []string
	for _, x := range list {
		if str, ok := x.(string); ok {
			out = append(out, str)
		}
	}
	return out
}

// mutations calls f with a name and a broken variant of the document for every
// rule of the schema that its members are under. The document is restored after
// each call.
func mutations(path string, obj map[string]any, s schemaNode, f func(what string)) {
	for _, name := range s.strings("required") {
		if old, ok := obj[name]; ok {
			delete(obj, name)
			f("without " + path + name)
			obj[name] = old
		}
	}
	obj["surprise"] = true
	f("with a foreign member " + path + "surprise")
	delete(obj, "surprise")
	for _, name := range slices.Sorted(maps.Keys(obj)) {
		old, sub := obj[name], s.child(name)
		set := func(what string, value any) {
			obj[name] = value
			f(path + name + " " + what)
			obj[name] = old
		}
		set("null", nil)
		switch value := old.(type) {
		case map[string]any:
			mutations(path+name+".", value, sub, f)
			set("a text", "x")
		case []any:
			set("with an empty text", append(slices.Clone(value), ""))
			set("with a number", append(slices.Clone(value), 1))
		case string:
			set("a number", 7)
			if len(sub.strings("enum")) > 0 {
				set("outside its list", value+"x")
			}
			if limit, ok := sub.node["maxLength"].(float64); ok {
				set("too long", strings.Repeat("a", int(limit)+1))
			}
			if _, ok := sub.node["minLength"]; ok {
				set("empty", "")
			}
		case float64:
			set("zero", 0)
			set("a fraction", 1.5)
			set("a text", "1")
		case bool:
			set("a text", "true")
		}
	}
}

func TestEveryRuleOfTheSchemaIsEnforcedOnEveryExample(t *testing.T) {
	t.Parallel()
	v := validator(t)
	root := document(t, event.SchemaJSON())
	broken := 0
	for name, raw := range examples(t) {
		doc := document(t, raw)
		mutations("", doc, schemaNode{root, root}, func(what string) {
			broken++
			if _, err := v.Decode(text(t, doc)); !errors.Is(err, event.ErrInvalid) {
				t.Errorf("%s %s: got %v, want ErrInvalid", name, what, err)
			}
		})
		if diff := cmp.Diff(document(t, raw), doc); diff != "" {
			t.Fatalf("the test did not restore %s:\n%s", name, diff)
		}
	}
	if broken < 500 {
		t.Errorf("only %d broken documents were tried", broken)
	}
}

func TestConditionalRulesBetweenMembers(t *testing.T) {
	t.Parallel()
	v := validator(t)
	all := examples(t)
	for _, tc := range []struct {
		name, file string
		change     func(ev *event.NormalizedEvent)
		valid      bool
	}{
		{"a Jira event needs a key", "jira-opened.json", func(ev *event.NormalizedEvent) { ev.Entity.Key = "" }, false},
		{"a key that is no issue key is refused", "jira-opened.json", func(ev *event.NormalizedEvent) { ev.Entity.Key = "PROJ 1" }, false},
		{"a GitHub work item needs no key", "github-comment.json", func(ev *event.NormalizedEvent) { ev.Entity.Key = "" }, true},
		{"a work item with a change proposal needs the link", "github-comment.json", func(ev *event.NormalizedEvent) { ev.Entity.LinkedChangeProposal = nil }, false},
		{"a change proposal has no link", "github-pr-opened.json", func(ev *event.NormalizedEvent) {
			ev.Entity.LinkedChangeProposal = &event.LinkedChangeProposal{ID: 1, URL: "https://github.com/a/b/pull/1"}
		}, false},
		{"a label event needs its label", "jira-label-added.json", func(ev *event.NormalizedEvent) { ev.Transition.Label = nil }, false},
		{"a label belongs to a label event only", "jira-opened.json", func(ev *event.NormalizedEvent) {
			ev.Transition.Label = &event.Label{Name: "x", Action: event.LabelAdded}
		}, false},
		{"a comment event needs its comment", "jira-comment.json", func(ev *event.NormalizedEvent) { ev.Transition.Comment = nil }, false},
		{"a comment belongs to a comment event only", "jira-closed.json", func(ev *event.NormalizedEvent) { ev.Transition.Comment = &event.Comment{Body: "x"} }, false},
		{"an empty comment is a comment", "jira-comment.json", func(ev *event.NormalizedEvent) { ev.Transition.Comment = &event.Comment{} }, true},
		{"a review event needs its review", "github-review.json", func(ev *event.NormalizedEvent) { ev.Transition.Review = nil }, false},
		{"a review belongs to a review event only", "github-pr-opened.json", func(ev *event.NormalizedEvent) {
			ev.Transition.Review = &event.Review{State: event.Approved, ReviewerID: "x"}
		}, false},
		{"a conversation needs its state", "jira-opened.json", func(ev *event.NormalizedEvent) { ev.Entity.Kind = event.ConversationKind }, false},
		{"a conversation with its state is valid", "jira-opened.json", func(ev *event.NormalizedEvent) {
			ev.Entity.Kind = event.ConversationKind
			ev.State.Conversation = &event.Conversation{Category: event.Category{Name: "Ideas"}}
		}, true},
		{"a work item has no conversation", "jira-opened.json", func(ev *event.NormalizedEvent) {
			ev.State.Conversation = &event.Conversation{Category: event.Category{Name: "Ideas"}}
		}, false},
		{"labels that are nil are refused", "jira-opened.json", func(ev *event.NormalizedEvent) { ev.State.Labels = nil }, false},
		{"a url that is none is refused", "jira-opened.json", func(ev *event.NormalizedEvent) { ev.Entity.URL = "not a url" }, false},
		{"a commit id of another length is refused", "github-pr-opened.json", func(ev *event.NormalizedEvent) { ev.State.ChangeProposal.HeadSHA = "abc" }, false},
		{"a repo without owner is refused", "jira-opened.json", func(ev *event.NormalizedEvent) { ev.Repo = "shop" }, false},
		{"a repo in nested groups is valid", "jira-opened.json", func(ev *event.NormalizedEvent) { ev.Repo = "a/b/c" }, true},
		{"a repo with a segment of two dots is refused", "jira-opened.json", func(ev *event.NormalizedEvent) { ev.Repo = "acme/.." }, false},
		{"a repo with a leading segment of two dots is refused", "jira-opened.json", func(ev *event.NormalizedEvent) { ev.Repo = "../shop" }, false},
		{"a repo with a segment of one dot is refused", "jira-opened.json", func(ev *event.NormalizedEvent) { ev.Repo = "acme/./shop" }, false},
		{"a repo with two dots inside a name is valid", "jira-opened.json", func(ev *event.NormalizedEvent) { ev.Repo = "acme/a..b" }, true},
		{"a body of 4096 code points is valid", "jira-comment.json", func(ev *event.NormalizedEvent) { ev.Transition.Comment.Body = strings.Repeat("é", 4096) }, true},
		{"a body of 4097 code points is refused", "jira-comment.json", func(ev *event.NormalizedEvent) { ev.Transition.Comment.Body = strings.Repeat("é", 4097) }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			ev, err := v.Decode(all[tc.file])
			if err != nil {
				t.Fatal(err)
			}
			tc.change(&ev)
			err = v.Validate(ev)
			if (err == nil) != tc.valid || err != nil && !errors.Is(err, event.ErrInvalid) {
				t.Errorf("got %v, want valid: %t", err, tc.valid)
			}
			if _, derr := v.Decode(text(t, ev)); (derr == nil) != tc.valid {
				t.Errorf("Decode says %v, want valid: %t", derr, tc.valid)
			}
		})
	}
}

func TestAnErrorNamesTheMemberOnOneBoundedLine(t *testing.T) {
	t.Parallel()
	ev, err := validator(t).Decode(examples(t)["jira-opened.json"])
	if err != nil {
		t.Fatal(err)
	}
	ev.Actor.Role = "king"
	if err = validator(t).Validate(ev); err == nil || !strings.Contains(err.Error(), "/actor/role") {
		t.Errorf("the member is not named: %v", err)
	}
	for range 200 {
		ev.State.Labels = append(ev.State.Labels, "")
	}
	if err = validator(t).Validate(ev); err == nil || strings.ContainsAny(err.Error(), "\r\n") || len(err.Error()) > 700 {
		t.Errorf("not one bounded line: %v", err)
	}
}

func TestDecodeRefusesWhatIsNotOneDocument(t *testing.T) {
	t.Parallel()
	v := validator(t)
	good := string(examples(t)["jira-comment.json"])
	for name, raw := range map[string]string{
		"nothing":            "",
		"null":               "null",
		"an array":           "[" + good + "]",
		"two documents":      good + good,
		"half a document":    good[:len(good)/2],
		"more than 1 MiB":    good + strings.Repeat(" ", 1<<20),
		"a huge id":          strings.Replace(good, "10123,", "99999999999999999999,", 1),
		"a capital":          strings.Replace(good, `"repo"`, `"Repo"`, 1),
		"deep nesting":       strings.Repeat(`{"entity":`, 20000) + "1" + strings.Repeat("}", 20000),
		"an object twice":    strings.Replace(good, `"transition"`, `"transition":{"kind":"opened","label":{"name":"x","action":"added"}},"transition"`, 1),
		"another text twice": strings.Replace(good, `"actor"`, `"state":{"labels":[],"conversation":{"category":{"name":"x"}}},"actor"`, 1),
	} {
		if ev, err := v.Decode([]byte(raw)); !errors.Is(err, event.ErrInvalid) {
			t.Errorf("%s: got %+v and %v, want ErrInvalid", name, ev, err)
		}
	}
}

func TestTheSchemaCannotBeChangedByItsReader(t *testing.T) {
	t.Parallel()
	clear(event.SchemaJSON())
	if _, err := validator(t).Decode(examples(t)["jira-opened.json"]); err != nil {
		t.Error(err)
	}
}

func TestKeysAreTheContractsByteForByte(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 5, 4, 10, 0, 0, 123456789, time.FixedZone("", 7200))
	got := []string{
		event.JiraOpenedKey("10123"),
		event.JiraCommentKey("20001"),
		event.JiraCommentEditKey("20001", at),
		event.JiraLabelKey("30001", "ready-to-code", event.LabelAdded),
		event.JiraLabelKey("30001", "ready-to-code", event.LabelRemoved),
		event.JiraStatusKey("30002"),
		event.JiraEditedKey("30003"),
		event.DispatchKey("triage", event.JiraCommentKey("20001")),
	}
	want := []string{
		"opened-10123", "comment-20001", "comment-20001-1777881600123", "label-30001-ready-to-code-added",
		"label-30001-ready-to-code-removed", "status-30002", "edited-30003", "triage:comment-20001",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func occurrences() *rapid.Generator[event.Occurrence] {
	return rapid.Custom(func(t *rapid.T) event.Occurrence {
		zone := time.FixedZone("", 3600*rapid.IntRange(-2, 2).Draw(t, "zone"))
		return event.Occurrence{
			At:  time.Unix(0, rapid.Int64Range(0, 3).Draw(t, "at")).In(zone),
			Seq: rapid.Int64Range(-1, 2).Draw(t, "seq"),
			Key: rapid.SampledFrom([]string{"", "a", "b", "é"}).Draw(t, "key"),
		}
	})
}

func TestCompareIsATotalOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := occurrences().Draw(t, "a"), occurrences().Draw(t, "b"), occurrences().Draw(t, "c")
		ab, ba := event.Compare(a, b), event.Compare(b, a)
		if ab != -ba {
			t.Fatalf("not antisymmetric: %d and %d", ab, ba)
		}
		same := a.At.Equal(b.At) && a.Seq == b.Seq && a.Key == b.Key
		if same != (ab == 0) {
			t.Fatalf("equal is %t, Compare says %d", same, ab)
		}
		if ab <= 0 && event.Compare(b, c) <= 0 && event.Compare(a, c) > 0 {
			t.Fatal("not transitive")
		}
		if a.At.Before(b.At) && ab != -1 {
			t.Fatalf("the earlier one does not come first: %d", ab)
		}
	})
}

func TestEverySortOfTheSameOccurrencesIsTheSame(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(occurrences(), 0, 12).Draw(t, "list")
		mixed := rapid.Permutation(list).Draw(t, "mixed")
		slices.SortFunc(list, event.Compare)
		slices.SortFunc(mixed, event.Compare)
		show := func(l []event.Occurrence) string {
			var b strings.Builder
			for _, o := range l {
				fmt.Fprintln(&b, o.At.UnixNano(), o.Seq, o.Key)
			}
			return b.String()
		}
		if diff := cmp.Diff(show(list), show(mixed)); diff != "" {
			t.Fatal(diff)
		}
	})
}

func FuzzDecode(f *testing.F) {
	for _, raw := range examples(f) {
		f.Add(raw)
	}
	f.Add([]byte(`{"repo":"a/b","repo":"a/.."}`))
	f.Add([]byte(`{"entity":{"kind":"work_item"},"entity":null}`))
	f.Add([]byte(`[[[[`))
	v := validator(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		ev, err := v.Decode(raw)
		if err != nil {
			if !errors.Is(err, event.ErrInvalid) {
				t.Fatalf("not ErrInvalid: %v", err)
			}
			return
		}
		if err := v.Validate(ev); err != nil {
			t.Fatalf("decoded, but not valid: %v", err)
		}
		again, err := v.Decode(text(t, ev))
		if err != nil {
			t.Fatalf("cannot be read back: %v", err)
		}
		if diff := cmp.Diff(ev, again); diff != "" {
			t.Fatal(diff)
		}
	})
}
