package sim

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func site() *Jira {
	j := NewJira(JiraConfig{
		BaseURL: "https://acme.atlassian.net", Self: User{AccountID: "bot"},
		Now: func() time.Time { return time.Date(2026, 9, 1, 12, 0, 30, 0, time.UTC) },
	})
	j.CreateIssue(IssueSpec{Project: "PROJ", Summary: "one", Reporter: "alice", Labels: []string{"ready"}})
	return j
}

func TestAndBindsTighterThanOr(t *testing.T) {
	t.Parallel()
	q, err := parseJQL(`a = 1 OR b = 2 AND NOT c = "3 4" ORDER BY d DESC, e`)
	if err != nil {
		t.Fatal(err)
	}
	want := query{
		where: jqlOr{
			clause{"a", "=", []operand{{"1", false}}},
			jqlAnd{clause{"b", "=", []operand{{"2", false}}}, jqlNot{clause{"c", "=", []operand{{"3 4", true}}}}},
		},
		order: []orderBy{{"d", true}, {"e", false}},
	}
	if diff := cmp.Diff(want, q, cmp.AllowUnexported(query{}, clause{}, operand{}, jqlNot{}, orderBy{})); diff != "" {
		t.Errorf("query (-want +got):\n%s", diff)
	}
}

func TestPeriodsCountMinutesByDefault(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"-5m": -5 * time.Minute, "-90": -90 * time.Minute, "2h": 2 * time.Hour, "-1w 2d": -9 * 24 * time.Hour,
	} {
		if got, err := jqlPeriod(text); err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "-", "d", "5s", "1e9d", "99999999w"} {
		if got, err := jqlPeriod(text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

// FuzzJQL holds that no query crashes the site, and that a query selects an
// issue or its negation does, or neither when a field is empty, never both.
func FuzzJQL(f *testing.F) {
	for _, seed := range []string{
		"project = PROJ", `(project in ("PROJ")) AND (updated >= 1787222400000) ORDER BY updated ASC, key ASC`,
		`labels != "x y" and not (status = Done or statusCategory is not empty)`, "updated >= -1d", `created < "2026-09-01 12:00"`,
		"((((", `"`, "a = 'b\\", "key in (1,2", "! labels = ready", "project = DO", "ORDER BY", "x is", "not in", "assignee is EMPTY",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		q, err := parseJQL(text)
		if err != nil {
			return
		}
		j := site()
		j.mu.Lock()
		defer j.mu.Unlock()
		if j.checkJQL(q) != nil {
			return
		}
		is := j.byKey["PROJ-1"]
		if j.matches(q.where, false, is, is.cur) && j.matches(q.where, true, is, is.cur) {
			t.Errorf("%q holds, and so does its negation", text)
		}
		if a := sortKeys(q.order, is, is.cur); compareKeys(q.order, a, a) != 0 {
			t.Errorf("%q: a row differs from itself", text)
		}
	})
}
