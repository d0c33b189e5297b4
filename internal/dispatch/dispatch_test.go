package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fullsend/poll-action/internal/dispatch"
	"github.com/fullsend/poll-action/internal/event"
	"github.com/fullsend/poll-action/internal/harness"
)

func validator(tb testing.TB) *event.Validator {
	tb.Helper()
	v, err := event.NewValidator()
	if err != nil {
		tb.Fatal(err)
	}
	return v
}

// example is one of the normative events.
func example(tb testing.TB, name string) event.NormalizedEvent {
	tb.Helper()
	raw, err := os.ReadFile("../../testdata/events/" + name + ".json")
	if err != nil {
		tb.Fatal(err)
	}
	ev, err := validator(tb).Decode(raw)
	if err != nil {
		tb.Fatal(err)
	}
	return ev
}

func TestTheGate(t *testing.T) {
	t.Parallel()
	roles := []event.Role{
		event.RoleAdmin, event.RoleMaintain, event.RoleWrite, event.RoleTriage, event.RoleRead, event.RoleNone, event.RoleExternal, "", "owner", "ADMIN",
	}
	systems := []event.System{event.GitHub, event.GitLab, event.Jira, event.Manual, event.Schedule}
	transitions := map[string]event.Transition{
		"opened":            {Kind: event.Opened},
		"closed":            {Kind: event.Closed},
		"synchronized":      {Kind: event.Synchronized},
		"label added":       {Kind: event.LabelChanged, Label: &event.Label{Name: "x", Action: event.LabelAdded}},
		"label removed":     {Kind: event.LabelChanged, Label: &event.Label{Name: "x", Action: event.LabelRemoved}},
		"comment":           {Kind: event.CommentAdded, Comment: &event.Comment{Body: "hello"}},
		"slash command":     {Kind: event.CommentAdded, Comment: &event.Comment{Body: "/fs-x", Command: "/fs-x"}},
		"approved":          {Kind: event.ReviewSubmitted, Review: &event.Review{State: event.Approved, ReviewerID: "r"}},
		"changes requested": {Kind: event.ReviewSubmitted, Review: &event.Review{State: event.ChangesRequested, ReviewerID: "r"}},
	}
	// the exceptions, written out; everything else goes by the role alone
	forAnyRole := map[string]bool{
		"github/human/label added":     true,
		"github/bot/label added":       true,
		"github/bot/approved":          true,
		"github/bot/changes requested": true,
	}
	allowed := 0
	for _, system := range systems {
		for _, kind := range []event.ActorKind{event.Human, event.Bot} {
			for name, transition := range transitions {
				for _, role := range roles {
					want := slices.Contains([]event.Role{event.RoleAdmin, event.RoleMaintain, event.RoleWrite}, role)
					if forAnyRole[fmt.Sprintf("%s/%s/%s", system, kind, name)] {
						want = true
					}
					if kind == event.Bot && name == "slash command" {
						want = false
					}
					if want {
						allowed++
					}
					ev := event.NormalizedEvent{
						Transition: transition, Source: event.Source{System: system},
						Actor: event.Actor{ID: "x", Kind: kind, Role: role, IsEntityAuthor: true},
					}
					got, reason := dispatch.Authorize(ev)
					if got != want || reason == "" {
						t.Errorf("%s: a %s with role %q on %s: got %t (%q), want %t", name, kind, role, system, got, reason, want)
					}
				}
			}
		}
	}
	if allowed < 200 {
		t.Errorf("only %d of the cases are allowed ones", allowed)
	}
}

// match is a matcher of canned decisions that remembers what it was asked.
type match struct {
	decisions []harness.Decision
	asked     []event.NormalizedEvent
}

func (m *match) Match(_ context.Context, ev event.NormalizedEvent) []harness.Decision {
	m.asked = append(m.asked, ev)
	return m.decisions
}

func TestAssess(t *testing.T) {
	t.Parallel()
	decisions := []harness.Decision{{Agent: "triage", Role: "triager", Matched: true, Reason: "because"}, {Agent: "code", Reason: "because not"}}
	for _, tc := range []struct {
		name   string
		kill   bool
		change func(ev *event.NormalizedEvent)
		want   dispatch.Verdict
		reason string
	}{
		{"an event of a developer is accepted", false, func(*event.NormalizedEvent) {}, dispatch.Accepted, "role write"},
		{"an event of a reader is not", false, func(ev *event.NormalizedEvent) { ev.Actor.Role = event.RoleRead }, dispatch.Unauthorized, `role "read"`},
		{"an event that does not fit the schema is invalid", false, func(ev *event.NormalizedEvent) { ev.Entity.Key = "" }, dispatch.Invalid, "key"},
		{"an invalid event is invalid before anything else", true, func(ev *event.NormalizedEvent) { ev.Repo = "a/.." }, dispatch.Invalid, ".."},
		{"the kill switch stops what is allowed", true, func(*event.NormalizedEvent) {}, dispatch.Stopped, "kill switch"},
		{"the kill switch stops what is not allowed", true, func(ev *event.NormalizedEvent) { ev.Actor.Role = event.RoleNone }, dispatch.Stopped, "kill switch"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m := &match{decisions: decisions}
			core := dispatch.New(dispatch.Options{Validator: validator(t), Matcher: m, KillSwitch: tc.kill})
			ev := example(t, "jira-comment")
			tc.change(&ev)
			occ := event.Occurrence{Key: "comment-20001", At: time.Unix(1, 0), Event: ev}
			a := core.Assess(t.Context(), occ)
			if a.Verdict != tc.want || !strings.Contains(a.Reason, tc.reason) {
				t.Errorf("got %s (%q), want %s (%q)", a.Verdict, a.Reason, tc.want, tc.reason)
			}
			if diff := cmp.Diff(occ, a.Occurrence); diff != "" {
				t.Error(diff)
			}
			if accepted := tc.want == dispatch.Accepted; accepted != (len(m.asked) == 1) || accepted != (len(a.Decisions) == 2) {
				t.Errorf("the triggers were asked %d times and gave %d decisions", len(m.asked), len(a.Decisions))
			}
			if orders := a.Orders(); (len(orders) == 1) != (tc.want == dispatch.Accepted) {
				t.Errorf("%d orders", len(orders))
			}
		})
	}
}

func TestOrdersAreTheMatchingHarnessesInTheirOrder(t *testing.T) {
	t.Parallel()
	m := &match{decisions: []harness.Decision{
		{Agent: "zeta", Role: "z", Matched: true}, {Agent: "beta", Role: "b"}, {Agent: "alpha", Role: "a", Matched: true},
	}}
	ev := example(t, "jira-comment")
	core := dispatch.New(dispatch.Options{Validator: validator(t), Matcher: m})
	got := core.Assess(t.Context(), event.Occurrence{Key: "comment-20001", Event: ev}).Orders()
	want := []dispatch.Order{
		{Key: "zeta:comment-20001", Agent: "zeta", Role: "z", Event: ev, Ref: dispatch.Project("zeta", ev)},
		{Key: "alpha:comment-20001", Agent: "alpha", Role: "a", Event: ev, Ref: dispatch.Project("alpha", ev)},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestProject(t *testing.T) {
	t.Parallel()
	sha := "0123456789abcdef0123456789abcdef01234567"
	jira := dispatch.ExecutionRef{
		SourceRepo: "acme/shop", EventType: "comment", EventAction: "created", StatusRepo: "acme/shop", StatusNumber: 10123,
		EventPayload: dispatch.EventPayload{
			Issue:   &dispatch.PayloadIssue{Number: 10123, HTMLURL: "https://acme.atlassian.net/browse/PROJ-123", Key: "PROJ-123"},
			Comment: &dispatch.PayloadComment{Body: "/fs-triage check acceptance criteria\nThey changed last week."},
		},
	}
	for _, tc := range []struct {
		name, agent, file string
		change            func(ev *event.NormalizedEvent)
		want              dispatch.ExecutionRef
	}{
		{"a Jira work item is an issue with the entity's id and key", "triage", "jira-comment", nil, jira},
		{"an issue on GitHub has no key", "triage", "github-comment", func(ev *event.NormalizedEvent) {
			ev.Entity.Key, ev.Entity.LinkedChangeProposal, ev.State.ChangeProposal = "ABC-1", nil, nil
		}, dispatch.ExecutionRef{
			SourceRepo: "acme/shop", EventType: "issue_comment", EventAction: "created", StatusRepo: "acme/shop", StatusNumber: 78,
			EventPayload: dispatch.EventPayload{
				Issue:   &dispatch.PayloadIssue{Number: 78, HTMLURL: "https://github.com/acme/shop/issues/78"},
				Comment: &dispatch.PayloadComment{Body: "/fs-review"},
			},
		}},
		{"a linked change proposal stands beside its issue", "review", "github-comment", nil, dispatch.ExecutionRef{
			SourceRepo: "acme/shop", EventType: "issue_comment", EventAction: "created", StatusRepo: "acme/shop", StatusNumber: 78,
			EventPayload: dispatch.EventPayload{
				Issue: &dispatch.PayloadIssue{Number: 78, HTMLURL: "https://github.com/acme/shop/issues/78"},
				PullRequest: &dispatch.PayloadPullRequest{
					Number: 78, HTMLURL: "https://github.com/acme/shop/pull/78",
					Head: &dispatch.PayloadRef{Ref: "cart", Repo: dispatch.PayloadRepo{FullName: "acme/shop"}},
					Base: &dispatch.PayloadRef{Ref: "main", Repo: dispatch.PayloadRepo{FullName: "acme/shop"}},
				},
				Comment: &dispatch.PayloadComment{Body: "/fs-review"},
			},
		}},
		{"a change proposal has head and base", "review", "github-pr-opened", nil, dispatch.ExecutionRef{
			SourceRepo: "acme/shop", EventType: "pull_request_target", EventAction: "opened", StatusRepo: "acme/shop", StatusNumber: 77,
			EventPayload: dispatch.EventPayload{PullRequest: &dispatch.PayloadPullRequest{
				Number: 77, HTMLURL: "https://github.com/acme/shop/pull/77",
				Head: &dispatch.PayloadRef{Ref: "fix-total", SHA: sha, Repo: dispatch.PayloadRepo{FullName: "ben/shop"}},
				Base: &dispatch.PayloadRef{Ref: "main", Repo: dispatch.PayloadRepo{FullName: "acme/shop"}},
			}},
		}},
		{"a change proposal without details has number and url", "review", "github-pr-opened", func(ev *event.NormalizedEvent) { ev.State.ChangeProposal = nil }, dispatch.ExecutionRef{
			SourceRepo: "acme/shop", EventType: "pull_request_target", EventAction: "opened", StatusRepo: "acme/shop", StatusNumber: 77,
			EventPayload: dispatch.EventPayload{PullRequest: &dispatch.PayloadPullRequest{Number: 77, HTMLURL: "https://github.com/acme/shop/pull/77"}},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			ev := example(t, tc.file)
			if tc.change != nil {
				tc.change(&ev)
			}
			if diff := cmp.Diff(tc.want, dispatch.Project(tc.agent, ev)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestOnlyTheFixAgentIsToldWhoAsked(t *testing.T) {
	t.Parallel()
	fix := example(t, "github-comment")
	fix.Transition.Comment.Command = "/fs-fix"
	for _, tc := range []struct {
		name, agent string
		ev          event.NormalizedEvent
		want        string
	}{
		{"the reviewer of a review", "fix", example(t, "github-review"), "acme-review[bot]"},
		{"the actor of a fix command", "fix", fix, "cleo"},
		{"nobody for another command", "fix", example(t, "github-comment"), ""},
		{"nobody for another event", "fix", example(t, "github-pr-label"), ""},
		{"nobody for another agent's review", "review", example(t, "github-review"), ""},
		{"nobody for another agent's fix command", "code", fix, ""},
	} {
		if got := dispatch.Project(tc.agent, tc.ev).TriggerSource; got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}

// trace is journal, guard and output in one; it remembers the calls in order.
type trace struct {
	calls  []string
	fresh  bool
	errs   map[string]error // by call
	cause  error            // what Abort was told
	at     time.Time
	commit dispatch.Receipt
}

func (r *trace) call(name string) error {
	r.calls = append(r.calls, name)
	return r.errs[name]
}

func (r *trace) Name() string { return "trace" }

func (r *trace) Dispatch(context.Context, dispatch.Order) (dispatch.Receipt, error) {
	if err := r.call("dispatch"); err != nil {
		return dispatch.Receipt{}, err
	}
	return dispatch.Receipt{RunID: 7, RunURL: "u"}, nil
}

func (r *trace) guard(context.Context) error { return r.call("guard") }

func (r *trace) Begin(context.Context, string) (bool, error) { return r.fresh, r.call("begin") }

func (r *trace) Commit(_ context.Context, _ string, at time.Time, rc dispatch.Receipt) error {
	r.at, r.commit = at, rc
	return r.call("commit")
}

func (r *trace) Abort(_ context.Context, _ string, at time.Time, cause error) error {
	r.at, r.cause = at, cause
	return r.call("abort")
}

func classed(c dispatch.Class) error {
	return fmt.Errorf("wrapped: %w", &dispatch.Error{Class: c, Err: errors.New("boom")})
}

func TestPlace(t *testing.T) {
	t.Parallel()
	plain := errors.New("boom")
	for _, tc := range []struct {
		name   string
		stale  bool // the journal has the key
		errs   map[string]error
		status dispatch.Status
		final  bool
		calls  string
		err    bool
	}{
		{"a fresh order is begun, guarded, dispatched and committed", false, nil, dispatch.Dispatched, true, "begin guard dispatch commit", false},
		{"a key that the journal has is a duplicate", true, nil, dispatch.Duplicate, true, "begin", false},
		{"a journal that cannot be asked is tried again", false, map[string]error{"begin": plain}, dispatch.Failed, false, "begin", true},
		{"a journal that cannot be asked is not believed", true, map[string]error{"begin": plain}, dispatch.Failed, false, "begin", true},
		{"a lost lock dispatches nothing", false, map[string]error{"guard": plain}, dispatch.Lost, false, "begin guard abort", true},
		{"a transient failure is tried again", false, map[string]error{"dispatch": plain}, dispatch.Failed, false, "begin guard dispatch abort", true},
		{"a fatal failure is tried again", false, map[string]error{"dispatch": classed(dispatch.Fatal)}, dispatch.Failed, false, "begin guard dispatch abort", true},
		{"a permanent failure is refused for good", false, map[string]error{"dispatch": classed(dispatch.Permanent)}, dispatch.Refused, true, "begin guard dispatch abort", true},
		{"an unknown end is uncertain", false, map[string]error{"dispatch": classed(dispatch.Unknown)}, dispatch.Uncertain, false, "begin guard dispatch abort", true},
		{"a refusal that could not be recorded is not final", false, map[string]error{"dispatch": classed(dispatch.Permanent), "abort": plain}, dispatch.Failed, false, "begin guard dispatch abort", true},
		{"an uncertain end stays uncertain when the journal fails", false, map[string]error{"dispatch": classed(dispatch.Unknown), "abort": plain}, dispatch.Uncertain, false, "begin guard dispatch abort", true},
		{"a run that could not be committed is a run", false, map[string]error{"commit": plain}, dispatch.Dispatched, true, "begin guard dispatch commit", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := &trace{fresh: !tc.stale, errs: tc.errs}
			at := time.Unix(5, 0)
			o := dispatch.Order{Key: "a:b", Agent: "a"}
			oc := dispatch.Place(t.Context(), r, r, r.guard, o, at)
			if oc.Status != tc.status || oc.Status.Final() != tc.final || (oc.Err != nil) != tc.err || oc.Order.Key != "a:b" {
				t.Errorf("got %s, final %t, %v for %q", oc.Status, oc.Status.Final(), oc.Err, oc.Order.Key)
			}
			if got := strings.Join(r.calls, " "); got != tc.calls {
				t.Errorf("calls: got %q, want %q", got, tc.calls)
			}
			if (oc.Status == dispatch.Dispatched) != (oc.Receipt.RunID == 7) || oc.Receipt != r.commit {
				t.Errorf("receipt %+v, committed %+v", oc.Receipt, r.commit)
			}
			if len(r.calls) > 2 && !r.at.Equal(at) {
				t.Errorf("the journal was told %v", r.at)
			}
		})
	}
}

func TestOnlyAPermanentRefusalOfTheOutputIsRecordedByAbort(t *testing.T) {
	t.Parallel()
	for _, class := range []dispatch.Class{dispatch.Transient, dispatch.Permanent, dispatch.Fatal, dispatch.Unknown} {
		for _, at := range []string{"guard", "dispatch"} {
			r := &trace{fresh: true, errs: map[string]error{at: classed(class)}}
			oc := dispatch.Place(t.Context(), r, r, r.guard, dispatch.Order{Key: "a:b"}, time.Unix(5, 0))
			recorded := dispatch.ClassOf(r.cause) == dispatch.Permanent
			if want := at == "dispatch" && class == dispatch.Permanent; recorded != want {
				t.Errorf("a %s error of the %s: the journal would record it: %t, want %t", class, at, recorded, want)
			}
			if !errors.Is(oc.Err, r.errs[at]) {
				t.Errorf("the cause is lost: %v", oc.Err)
			}
		}
	}
}

func TestNoGuardHoldsAlways(t *testing.T) {
	t.Parallel()
	r := &trace{fresh: true}
	if oc := dispatch.Place(t.Context(), r, r, nil, dispatch.Order{Key: "a:b"}, time.Time{}); oc.Status != dispatch.Dispatched {
		t.Errorf("got %s", oc.Status)
	}
}

func TestClassOf(t *testing.T) {
	t.Parallel()
	permanent := &dispatch.Error{Class: dispatch.Permanent, Err: errors.New("no")}
	fatal := &dispatch.Error{Class: dispatch.Fatal, Err: errors.New("never"), Cure: "give up"}
	for _, tc := range []struct {
		name string
		err  error
		want dispatch.Class
	}{
		{"no error", nil, dispatch.Transient},
		{"an error without a class", errors.New("x"), dispatch.Transient},
		{"an ended context", context.Canceled, dispatch.Transient},
		{"an error with a class", fatal, dispatch.Fatal},
		{"wrapped", fmt.Errorf("a: %w", fmt.Errorf("b: %w", permanent)), dispatch.Permanent},
		{"joined with one that has none", errors.Join(errors.New("x"), permanent), dispatch.Permanent},
		{"the first of two joined ones", errors.Join(fatal, permanent), dispatch.Fatal},
		{"the outermost of a chain", &dispatch.Error{Class: dispatch.Unknown, Err: fmt.Errorf("x: %w", permanent)}, dispatch.Unknown},
		{"the zero class covers what is inside", &dispatch.Error{Err: permanent}, dispatch.Transient},
	} {
		if got := dispatch.ClassOf(tc.err); got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.name, got, tc.want)
		}
	}
	if got := fatal.Error(); got != "never; give up" {
		t.Errorf("got %q", got)
	}
	if got := permanent.Error(); got != "no" {
		t.Errorf("got %q", got)
	}
	if got := fmt.Sprint(dispatch.Transient, dispatch.Permanent, dispatch.Fatal, dispatch.Unknown, dispatch.Class(9)); got != "transient permanent fatal unknown class(9)" {
		t.Errorf("got %q", got)
	}
}
