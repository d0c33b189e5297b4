package harness

import (
	"bufio"
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fullsend/poll-action/internal/event"
)

const material = "../../../shared/realdata/fullsend"

func realFiles(tb testing.TB, pattern string) []string {
	tb.Helper()
	files, err := filepath.Glob(filepath.Join(material, pattern))
	if err != nil {
		tb.Fatal(err)
	}
	if len(files) == 0 {
		tb.Skip("the shared real data is not here")
	}
	return files
}

// realTriggers returns the trigger expressions of public repositories; guards
// of overlays (marked "when") are for another reader.
func realTriggers(tb testing.TB) []string {
	tb.Helper()
	realFiles(tb, "triggers.txt")
	f, err := os.Open(filepath.Join(material, "triggers.txt"))
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	var out []string
	trigger := false
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, "#") {
			trigger = strings.HasPrefix(line, "# [trigger]")
		} else if trigger && line != "" {
			out = append(out, line)
		}
	}
	if len(out) < 30 {
		tb.Fatalf("only %d triggers were read", len(out))
	}
	return out
}

func TestEveryRealTriggerIsEvaluatedOnEveryExample(t *testing.T) {
	t.Parallel()
	// The one that upstream's tests use as an example of a broken expression.
	refused := map[string]bool{`event.entity.kind ==`: true}
	matched := 0
	for _, expr := range realTriggers(t) {
		set, problems := triggered(t, expr)
		if refused[expr] != (set == nil) {
			t.Errorf("%s: set %v, problems %q", expr, set != nil, lines(problems))
		}
		if set == nil {
			continue
		}
		for _, p := range problems {
			if !strings.Contains(expr, "event.entity.labels") {
				t.Errorf("%s: %s", expr, p)
			}
		}
		for name, ev := range examples(t) {
			d := set.Match(t.Context(), ev)[0]
			if d.Reason == "" || strings.Contains(d.Reason, "the evaluation failed") {
				t.Errorf("%s on %s: reason %q explains nothing", expr, name, d.Reason)
			}
			if d.Matched {
				matched++
			}
		}
	}
	if matched < 10 {
		t.Errorf("real triggers matched example events %d times only", matched)
	}
}

func TestEveryRealHarnessIsRead(t *testing.T) {
	t.Parallel()
	integrity := regexp.MustCompile(`(?m)^base: .*$`)
	// What the contract says is an error.
	expected := map[string]string{
		"feature-remote-child.yaml": "the harness has no role", // its base is written in by the feature's own steps
	}
	for _, name := range realFiles(t, "harness/*.yaml") {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		base := filepath.Base(name)
		t.Run(base, func(t *testing.T) {
			t.Parallel()
			// As it is: a remote base that nobody serves is the only problem.
			l := Loader{
				FS:    tree{"harness/a.yaml": string(raw)}.fs(),
				Fetch: func(context.Context, string) ([]byte, error) { return nil, errors.New("no network") },
			}
			_, problems := l.Load(t.Context(), []Agent{{Name: "a", Source: "harness/a.yaml"}})
			for _, p := range problems {
				remote := strings.Contains(p.What, "no network") || strings.Contains(p.What, "is under no prefix")
				if !p.Warning && !remote && (expected[base] == "" || !strings.Contains(p.What, expected[base])) {
					t.Error(p)
				}
			}
			// With a base that is there.
			local := integrity.ReplaceAllString(string(raw), "base: base.yaml")
			l.FS = tree{"harness/a.yaml": local, "harness/base.yaml": roleOf}.fs()
			set, problems := l.Load(t.Context(), []Agent{{Name: "a", Source: "harness/a.yaml"}})
			if (set == nil) != (expected[base] != "") {
				t.Fatalf("set %v, problems %q", set != nil, lines(problems))
			}
			if set == nil {
				return
			}
			for ev, e := range examples(t) {
				if d := set.Match(t.Context(), e)[0]; d.Role == "" || d.Reason == "" {
					t.Errorf("%s: decision %+v", ev, d)
				}
			}
		})
	}
}

func TestEveryRealEventIsMatched(t *testing.T) {
	t.Parallel()
	v, err := event.NewValidator()
	if err != nil {
		t.Fatal(err)
	}
	set, _ := triggered(t, `event.transition.kind == "comment_added" && has(event.transition.comment.command)`)
	got := map[string]bool{}
	for _, name := range realFiles(t, "event/*.json") {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		ev, err := v.Decode(raw)
		if strings.HasPrefix(filepath.Base(name), "invalid-") != (err != nil) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil && set.Match(t.Context(), ev)[0].Matched {
			got[strings.TrimSuffix(filepath.Base(name), ".json")] = true
		}
	}
	want := map[string]bool{"fs-fix-comment": true, "jira-fs-triage-comment": true, "discussion-fs-vouch-comment": true}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
