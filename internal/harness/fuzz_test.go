package harness

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func FuzzHarness(f *testing.F) {
	for _, seed := range []string{
		"role: triage\ntrigger: |\n  event.entity.kind == \"work_item\"\n",
		"---\nbase: ../x.yaml\n", "base: &a [*a]\n<<: *a\n", "role: a\nrole: b\n", "a: &x {role: r}\n<<: [*x, *x]\n",
		"trigger: >\n  a\n\n   b\n  c\nrole: \"\\u0000\"\n", "? [1]\n: 2\n", "---\n---\n", "base: https://x/%2e%252e#sha256=00\n", "\xff\xfe",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		l := Loader{
			FS:    tree{"harness/a.yaml": string(raw)}.fs(),
			Fetch: func(context.Context, string) ([]byte, error) { return nil, errors.New("no network") },
		}
		set, problems := l.Load(t.Context(), []Agent{{Name: "a", Source: "harness/a.yaml"}})
		failed := false
		last := strings.Count(string(raw), "\n") + strings.Count(string(raw), "\r") + strings.Count(string(raw), "\u0085") + strings.Count(string(raw), "\u2028") + strings.Count(string(raw), "\u2029") + 1
		for _, p := range problems {
			failed = failed || !p.Warning
			if p.Line < 0 || p.Line > last+1 {
				t.Errorf("line %d of %d: %s", p.Line, last, p)
			}
			if strings.ContainsAny(p.String(), "\r\n") {
				t.Errorf("a problem of more than one line: %q", p.String())
			}
		}
		if failed == (set != nil) {
			t.Errorf("set %v with problems %q", set, lines(problems))
		}
	})
}

func FuzzTrigger(f *testing.F) {
	for _, seed := range []string{
		`event.transition.comment.command == "/fs-triage"`, `has(event.state.change_proposal) && !event.state.change_proposal.is_fork`,
		`event.state.labels.filter(l, l.startsWith("repo:")).size() == 1`, `event["a"]["b"] == null`, `event == event && event != {}`,
		`type(event) == map`, `string(event.entity.id) == "1" ? true : dyn(1)`, `event.map(k, event[k]).exists(v, v == null)`,
		`"x".matches(event.actor.id)`, `[event.state] == [event.state]`, `event in [event]`, `{"a": event}["a"] == event`, `event.repo.split`,
		`((((((((`, `"` + strings.Repeat("a", 100), `event.state.labels[99999999999]`, `1 / (event.entity.id - event.entity.id) == 1`,
	} {
		f.Add(seed)
	}
	events := examples(f)
	f.Fuzz(func(t *testing.T, expr string) {
		set, problems := triggered(t, expr)
		if set == nil {
			if len(problems) == 0 {
				t.Error("refused without a problem")
			}
			return
		}
		for name, ev := range events {
			first, second := set.Match(t.Context(), ev), set.Match(t.Context(), ev)
			if fmt.Sprint(first) != fmt.Sprint(second) {
				t.Errorf("%s: %v, then %v", name, first, second)
			}
			if strings.ContainsAny(first[0].Reason, "\r\n") || first[0].Reason == "" {
				t.Errorf("%s: reason %q", name, first[0].Reason)
			}
		}
	})
}

// BenchmarkMatch is 20 harnesses like real ones on one event.
func BenchmarkMatch(b *testing.B) {
	files := tree{}
	var agents []Agent
	for i := range 20 {
		name := fmt.Sprintf("h%d", i)
		files[name+".yaml"] = fmt.Sprintf("role: coder\ntrigger: |\n  event.source.system == \"jira\" && event.entity.kind == \"work_item\" && ((event.transition.kind == \"comment_added\" && has(event.transition.comment.command) && event.transition.comment.command == \"/fs-%d\") || (event.transition.kind == \"label_changed\" && event.transition.label.name == \"l%d\"))\n", i, i)
		agents = append(agents, Agent{Name: name, Source: name + ".yaml"})
	}
	l := Loader{FS: files.fs()}
	set, problems := l.Load(b.Context(), agents)
	if len(problems) > 0 {
		b.Fatal(lines(problems))
	}
	ev := examples(b)["jira-comment"]
	set.Match(b.Context(), ev) // compiles what reasons need
	b.ReportAllocs()
	for b.Loop() {
		set.Match(b.Context(), ev)
	}
}

// BenchmarkLoad is what 20 harnesses cost at start.
func BenchmarkLoad(b *testing.B) {
	files := tree{}
	var agents []Agent
	for i := range 20 {
		name := fmt.Sprintf("h%d", i)
		files[name+".yaml"] = "role: coder\ntrigger: event.entity.kind == 'work_item' && event.transition.kind == 'opened'\n"
		agents = append(agents, Agent{Name: name, Source: name + ".yaml"})
	}
	l := Loader{FS: files.fs()}
	for b.Loop() {
		if _, problems := l.Load(b.Context(), agents); len(problems) > 0 {
			b.Fatal(lines(problems))
		}
	}
}
