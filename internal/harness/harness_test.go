package harness

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/fullsend/poll-action/internal/event"
)

// tree is a .fullsend directory in memory.
type tree map[string]string

func (t tree) fs() fstest.MapFS {
	out := fstest.MapFS{}
	for name, content := range t {
		out[name] = &fstest.MapFile{Data: []byte(content)}
	}
	return out
}

// web is a fetch function over canned files; it counts nothing and knows no
// network.
func web(pages map[string]string) func(context.Context, string) ([]byte, error) {
	return func(_ context.Context, url string) ([]byte, error) {
		if page, ok := pages[url]; ok {
			return []byte(page), nil
		}
		return nil, errors.New("status 404")
	}
}

func sum(content string) string {
	return fmt.Sprintf("#sha256=%x", sha256.Sum256([]byte(content)))
}

// one loads a single harness file called harness/a.yaml.
func one(t *testing.T, content string) (*Set, []Problem) {
	t.Helper()
	l := Loader{FS: tree{"harness/a.yaml": content}.fs()}
	return l.Load(t.Context(), []Agent{{Name: "a", Source: "harness/a.yaml", Line: 3}})
}

func triggered(t *testing.T, expr string) (*Set, []Problem) {
	t.Helper()
	return one(t, "role: triage\ntrigger: |\n  "+strings.ReplaceAll(expr, "\n", "\n  ")+"\n")
}

func lines(problems []Problem) []string {
	out := []string{}
	for _, p := range problems {
		s := p.String()
		if p.Warning {
			s = "warning: " + s
		}
		out = append(out, s)
	}
	return out
}

// examples are the normative events of the repository.
func examples(tb testing.TB) map[string]event.NormalizedEvent {
	tb.Helper()
	v, err := event.NewValidator()
	if err != nil {
		tb.Fatal(err)
	}
	files, err := filepath.Glob("../../testdata/events/*.json")
	if err != nil || len(files) < 6 {
		tb.Fatalf("testdata/events has %d events: %v", len(files), err)
	}
	out := map[string]event.NormalizedEvent{}
	for _, name := range files {
		raw, err := os.ReadFile(name)
		if err != nil {
			tb.Fatal(err)
		}
		ev, err := v.Decode(raw)
		if err != nil {
			tb.Fatalf("%s: %v", name, err)
		}
		out[strings.TrimSuffix(filepath.Base(name), ".json")] = ev
	}
	return out
}

func TestEveryExampleEventIsValid(t *testing.T) {
	t.Parallel()
	got := map[event.TransitionKind]bool{}
	for _, ev := range examples(t) {
		got[ev.Transition.Kind] = true
	}
	for _, want := range []event.TransitionKind{event.CommentAdded, event.LabelChanged, event.Opened, event.Closed, event.ReviewSubmitted} {
		if !got[want] {
			t.Errorf("no example event is %q", want)
		}
	}
}

func TestMatch(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, expr string
		want       []string // matching examples
	}{
		{
			"a label that was added", `event.transition.label.name == "ready-to-code" && event.transition.label.action == "added"`,
			[]string{"jira-label-added"},
		},
		{
			"a command behind has", `has(event.transition.comment.command) && event.transition.comment.command == "/fs-review"`,
			[]string{"github-comment"},
		},
		{"a label in the state", `"needs-info" in event.state.labels`, []string{"jira-comment", "jira-comment-plain"}},
		{
			"a role in a list", `event.actor.role in ["admin", "maintain"]`,
			[]string{"github-comment", "jira-label-added"},
		},
		{
			"a change proposal that is no fork", `event.state.change_proposal != null && !event.state.change_proposal.is_fork`,
			[]string{"github-comment", "github-pr-label", "github-review", "gitlab-mr"},
		},
		{"a change proposal that is null", `event.state.change_proposal == null`, []string{"jira-closed", "jira-comment", "jira-comment-plain", "jira-label-added", "jira-opened"}},
		{"null on the left", `null == event.state.change_proposal && event.transition.kind == "closed"`, []string{"jira-closed"}},
		{"no change proposal by has", `!has(event.state.change_proposal) && event.transition.kind == "closed"`, []string{"jira-closed"}},
		{
			"a Jira command without has", `event.source.system == "jira" && event.transition.kind == "comment_added" && event.transition.comment.command == "/fs-triage"`,
			[]string{"jira-comment"},
		},
		{
			"a comment without a command", `event.transition.kind == "comment_added" && !has(event.transition.comment.command)`,
			[]string{"jira-comment-plain"},
		},
		{"has of a member of an absent object is no way to say no comment", `!has(event.transition.comment.command)`, []string{"jira-comment-plain"}},
		{"an error beside a true side of or", `event.transition.comment.command == "/fs-x" || event.transition.kind == "closed"`, []string{"jira-closed"}},
		{"a macro over labels", `event.state.labels.exists(l, l.startsWith("ready-for"))`, []string{"github-comment", "github-pr-label"}},
		{"names of a member by in", `"comment" in event.transition && "id" in event.transition.comment`, []string{"github-comment", "jira-comment", "jira-comment-plain"}},
		{"a member by index", `event["entity"]["key"] == "PROJ-125"`, []string{"jira-closed", "jira-opened"}},
		{"a macro over names", `event.transition.exists(k, k == "review")`, []string{"github-review"}},
		{"an id is a whole number", `event.entity.id + 1 == 13`, []string{"gitlab-mr"}},
		{"a boolean member alone", `event.state.change_proposal.is_fork`, []string{"github-pr-opened"}},
		{"size of an object", `event.transition.size() == 1`, []string{"github-pr-opened", "gitlab-mr", "jira-closed", "jira-opened"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			set, problems := triggered(t, tc.expr)
			if len(problems) > 0 {
				t.Fatal(lines(problems))
			}
			got := []string{}
			for name, ev := range examples(t) {
				d := set.Match(t.Context(), ev)[0]
				if d.Matched {
					got = append(got, name)
				}
				if d.Reason == "" || strings.Contains(d.Reason, "\n") {
					t.Errorf("%s: reason %q is not one line", name, d.Reason)
				}
			}
			slices.Sort(got)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("matching events (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReasons(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, expr, event, want string
	}{
		{"true", `true`, "jira-opened", "the trigger is true"},
		{"false as a whole", `event.transition.kind == "closed"`, "jira-opened", "the trigger is false"},
		{
			"the part that was false", `event.entity.kind == "work_item" && event.transition.kind == "closed"`, "jira-opened",
			`false: event.transition.kind == "closed"`,
		},
		{
			"the missing key", `event.transition.comment.command == "/fs-x"`, "jira-comment-plain",
			"false: event.transition.comment.command is not in this event",
		},
		{
			"the missing key and who asked", `event.source.system == "jira" && event.transition.comment.command == "/fs-x"`, "jira-comment-plain",
			`false: event.transition.comment.command is not in this event, asked for by event.transition.comment.command == "/fs-x"`,
		},
		{"the missing object", `event.transition.label.name == "x"`, "jira-opened", "false: event.transition.label is not in this event"},
		{"the wrong type", `event.entity.kind ? event.actor.id : event.entity.id`, "jira-opened", "false: the evaluation failed: no such overload"},
		{"a result that is not boolean", `[event.entity.id][0]`, "jira-opened", "false: the result is of type int, not true or false"},
		{"a key that is not a name", `event.entity[event.entity.id] == "x"`, "jira-opened", "false: the evaluation failed"},
		{"a pattern of the event", `"x".matches(event.actor.id + "(")`, "jira-opened", "false: the evaluation failed: error parsing regexp"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			set, problems := triggered(t, tc.expr)
			if len(problems) > 0 {
				t.Fatal(lines(problems))
			}
			if got := set.Match(t.Context(), examples(t)[tc.event])[0].Reason; got != tc.want {
				t.Errorf("reason\n got %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestATriggerThatCostsTooMuchIsFalse(t *testing.T) {
	t.Parallel()
	set, problems := triggered(t, `event.state.labels.all(a, event.state.labels.all(b, event.state.labels.all(c, a != b || b != c || a == c)))`)
	if len(problems) > 0 {
		t.Fatal(lines(problems))
	}
	ev := examples(t)["jira-opened"]
	for i := range 400 {
		ev.State.Labels = append(ev.State.Labels, fmt.Sprintf("label-%d", i))
	}
	got := set.Match(t.Context(), ev)[0]
	want := Decision{Agent: "a", Role: "triage", Reason: "false: the trigger is too expensive to evaluate on this event"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestAnEndedContextIsNoDecision(t *testing.T) {
	t.Parallel()
	set, _ := triggered(t, `event.state.labels.all(a, event.state.labels.all(b, a != ""))`)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	got := set.Match(ctx, examples(t)["jira-comment"])[0]
	if !got.Interrupted || got.Matched {
		t.Errorf("decision %+v, want an interrupted one", got)
	}
}

func TestDecisionsComeInTheOrderOfRegistration(t *testing.T) {
	t.Parallel()
	files := tree{}
	var agents []Agent
	want := []string{"z", "m", "a", "k"}
	for _, name := range want {
		files[name+".yaml"] = "role: coder\ntrigger: event.transition.kind == 'opened'\n"
		agents = append(agents, Agent{Name: name, Source: name + ".yaml"})
	}
	l := Loader{FS: files.fs()}
	set, problems := l.Load(t.Context(), agents)
	if len(problems) > 0 {
		t.Fatal(lines(problems))
	}
	if diff := cmp.Diff(want, set.Names()); diff != "" {
		t.Error(diff)
	}
	var got []string
	for _, d := range set.Match(t.Context(), examples(t)["jira-opened"]) {
		got = append(got, d.Agent)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestAHarnessWithoutTriggerIsNeverDispatched(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{
		"no key": "role: triage\n", "null": "role: triage\ntrigger:\n", "blank": "role: triage\ntrigger: ' '\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set, problems := one(t, content)
			if len(problems) > 0 {
				t.Fatal(lines(problems))
			}
			for event, ev := range examples(t) {
				want := Decision{Agent: "a", Role: "triage", Reason: "the harness has no trigger, so no event starts it"}
				if diff := cmp.Diff([]Decision{want}, set.Match(t.Context(), ev)); diff != "" {
					t.Errorf("%s: %s", event, diff)
				}
			}
		})
	}
}

func TestTriggersThatAreRefused(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, content string
		want          []string // parts of the problems, in order
	}{
		{"syntax, with the line of a literal block", "role: r\ntrigger: |\n  event.entity.kind == \"x\"\n\n  && event.actor.id ==\n", []string{"harness/a.yaml:5: the trigger does not compile: Syntax error"}},
		{"an unknown name, with the line of a folded block", "role: r\n\ntrigger: >\n  event.entity.kind == \"x\"\n  && event.actor.id == \"y\"\n  && runtime.forge == \"jira\"\nafter: 1\n", []string{"harness/a.yaml:6: the trigger does not compile: undeclared reference to 'runtime'"}},
		{"an unknown name in a plain scalar over lines", "role: r\ntrigger: event.entity.kind == 'x' &&\n  event.actor.id == 'y' &&\n  config.x\n", []string{"harness/a.yaml:4: the trigger does not compile: undeclared reference to 'config'"}},
		{"an unknown name in a quoted scalar", "role: r\ntrigger: \"event.entity.kind == 'x' &&\n  config.x\"\n", []string{"harness/a.yaml:3: the trigger does not compile: undeclared reference to 'config'"}},
		{"text", "role: r\ntrigger: event.entity.kind\n", []string{"harness/a.yaml:2: the trigger is not true or false, but of type string"}},
		{"a list", "role: r\ntrigger: event.state.labels\n", []string{"of type array"}},
		{"a number", "role: r\ntrigger: 1 + 1\n", []string{"of type int"}},
		{"a YAML boolean", "role: r\ntrigger: true\n", []string{"harness/a.yaml:2: trigger must be text; put it in quotes"}},
		{"a list of triggers", "role: r\ntrigger: [a, b]\n", []string{"trigger must be text"}},
		{"a pattern that is none", "role: r\ntrigger: event.actor.id.matches('(')\n", []string{"the trigger does not compile"}},
		{"loops inside loops", "role: r\ntrigger: '[1].all(a, [1].all(b, [1].all(c, [1].all(d, true))))'\n", []string{"the trigger does not compile"}},
		{"16 KiB", "role: r\ntrigger: '\"" + strings.Repeat("x", 16<<10) + "\" == event.actor.id'\n", []string{"the trigger is longer than 16 KiB"}},
		{"brackets without end", "role: r\ntrigger: '" + strings.Repeat("(", 4000) + "'\n", []string{"the trigger does not compile"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			set, problems := one(t, tc.content)
			if set != nil {
				t.Error("there is a set in spite of an error")
			}
			expectParts(t, tc.want, problems)
		})
	}
}

func expectParts(t *testing.T, want []string, problems []Problem) {
	t.Helper()
	got := lines(problems)
	if len(got) < len(want) || len(want) == 0 && len(got) > 0 {
		t.Fatalf("problems %q, want %q", got, want)
	}
	for i, part := range want {
		if !strings.Contains(got[i], part) {
			t.Errorf("problem %d is %q, want it to say %q", i, got[i], part)
		}
	}
}

func TestUnknownPathsAreWarnedOf(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		expr string
		want []string
	}{
		{`event.type == "x"`, []string{"warning: harness/a.yaml:3: the trigger reads event.type, which no event has; did you mean event.source.raw_type?"}},
		{`"a" in event.entity.labels`, []string{"warning: harness/a.yaml:3: the trigger reads event.entity.labels, which no event has; did you mean event.state.labels?"}},
		{"true &&\nhas(event.transition.coment.command)", []string{"warning: harness/a.yaml:4: the trigger reads event.transition.coment.command, which no event has; did you mean event.transition.comment.command?"}},
		{`event["actor"].rol == "x" && event.actor.rol == "y"`, []string{"warning: harness/a.yaml:3: the trigger reads event.actor.rol, which no event has; did you mean event.actor.role?"}},
		{`["x"].exists(event, event.startsWith("x"))`, nil},
		{`event.repo.name == "x"`, []string{"did you mean event.transition.label.name?"}},
		{`event.state.labels[0] == "x" || event.state.labels.exists(l, l == event.actor.id)`, nil},
	} {
		t.Run(tc.expr, func(t *testing.T) {
			t.Parallel()
			set, problems := triggered(t, tc.expr)
			if set == nil {
				t.Fatal("a warning stopped the program:", lines(problems))
			}
			expectParts(t, tc.want, problems)
			for name, ev := range examples(t) {
				set.Match(t.Context(), ev)
				_ = name
			}
		})
	}
}
