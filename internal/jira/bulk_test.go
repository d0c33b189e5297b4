package jira

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fullsend/poll-action/internal/dispatch"
	"github.com/fullsend/poll-action/internal/lease"
	"github.com/fullsend/poll-action/internal/lease/leasetest"
	"github.com/fullsend/poll-action/internal/sim"
	"github.com/fullsend/poll-action/internal/sim/simtest"
)

// bounded fails the test when a bulk operation named no issue.
func bounded(t *testing.T, w *simtest.World) {
	t.Helper()
	t.Cleanup(func() {
		if keys := w.Jira.UnboundedBulk(); len(keys) > 0 {
			t.Errorf("bulk operations on every issue of the site: %v", keys)
		}
	})
}

func TestConditionalWritesOfCloudKeepTheRegistersPromises(t *testing.T) {
	t.Parallel()
	for name, delay := range map[string]func(int) time.Duration{
		"usual tasks":   nil,
		"tasks at once": func(int) time.Duration { return 0 },
		"tasks that overtake each other": func(n int) time.Duration {
			return time.Duration(7*n%5) * 400 * time.Millisecond
		},
	} {
		for by, item := range map[string]func(sim.Issue) string{
			"by id":  func(i sim.Issue) string { return i.ID },
			"by key": func(i sim.Issue) string { return i.Key },
		} {
			t.Run(name+" "+by, func(t *testing.T) {
				t.Parallel()
				leasetest.RunConditional(t, func(t *testing.T) leasetest.Subject {
					t.Helper()
					s := newStage(t)
					bounded(t, s.w)
					s.w.Net.Latency = func(*http.Request) time.Duration { return 80 * time.Millisecond }
					s.w.Jira.Set(func(sw *sim.JiraSwitches) { sw.BulkDelay = delay })
					_, state := s.process()
					issue, other := s.issue(), s.issue()
					t.Cleanup(func() {
						for _, p := range slices.Concat(s.w.Jira.Properties(issue.Key), s.w.Jira.Properties(other.Key)) {
							if p != s.props().Lock {
								t.Errorf("%s was left", p)
							}
						}
					})
					for _, i := range []string{item(issue), item(other)} { // a lock is never written unread
						if _, err := state.Get(t.Context(), i); !errors.Is(err, lease.ErrAbsent) {
							t.Fatal(err)
						}
					}
					return leasetest.Subject{Register: state, Item: item(issue), Other: item(other)}
				})
			})
		}
	}
}

// lockValue is a lock as it is stored.
func lockValue(t *testing.T, id string, at time.Time) []byte {
	t.Helper()
	raw, err := lease.Lock{ID: id, TS: at, Phase: lease.Pending}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestASwapOfSignedStateComparesWithWhatIsStored(t *testing.T) {
	t.Parallel()
	for name, stored := range map[string]string{
		"nothing":            "",
		"an unsigned lock":   `{"id":"other","ts":"2026-09-01T00:00:00Z","phase":"pending"}`,
		"a forged lock":      `{"id":"other","ts":"2026-09-01T00:00:00Z","phase":"pending","sig":"00"}`,
		"what looks like us": rejected,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(s *stage) {
				bounded(s.t, s.w)
				key := s.issue()
				if stored != "" {
					s.w.Jira.SetProperty(key.Key, s.props().Lock, []byte(stored))
				}
				_, state := s.process()
				state.Signed(Signing{Key: []byte("a key"), Repo: simtest.Repo})
				ctx := s.t.Context()
				old, err := state.Get(ctx, key.ID)
				if stored == "" && !errors.Is(err, lease.ErrAbsent) || stored != "" && string(old) != rejected {
					s.t.Fatalf("%q %v", old, err)
				}
				if err := state.Swap(ctx, key.ID, old, lockValue(s.t, "mine", time.Now())); err != nil {
					s.t.Fatal(err)
				}
				mine, err := state.Get(ctx, key.ID)
				if held, bad := lease.Decode(mine); err != nil || bad != nil || held.ID != "mine" || !strings.Contains(string(mine), `"sig"`) {
					s.t.Fatalf("%q %v", mine, err)
				}
				if err := state.Swap(ctx, key.ID, mine, lockValue(s.t, "next", time.Now())); err != nil {
					s.t.Fatal(err)
				}
				if err := state.DeleteIf(ctx, key.ID, mine); err != nil {
					s.t.Fatal(err)
				}
				next, err := state.Get(ctx, key.ID)
				if held, bad := lease.Decode(next); err != nil || bad != nil || held.ID != "next" {
					s.t.Fatalf("%q %v", next, err)
				}
				if err := state.DeleteIf(ctx, key.ID, next); err != nil {
					s.t.Fatal(err)
				}
				if _, err := state.Get(ctx, key.ID); !errors.Is(err, lease.ErrAbsent) {
					s.t.Errorf("after the deletion: %v", err)
				}
			})
		})
	}
}

func TestNoConditionalWriteIsSentThatCouldMeanMoreThanOneValueOfOneIssue(t *testing.T) {
	t.Parallel()
	value := []byte(`{"id":"x"}`)
	for name, tc := range map[string]struct {
		do   func(ctx context.Context, s *stage, state *State, i sim.Issue) error
		want string
	}{
		"an issue whose id is not known": {func(ctx context.Context, _ *stage, st *State, i sim.Issue) error {
			return st.Swap(ctx, i.Key, nil, value)
		}, "is no issue id"},
		"no issue":   {func(ctx context.Context, _ *stage, st *State, _ sim.Issue) error { return st.Swap(ctx, "", nil, value) }, "is no issue id"},
		"issue zero": {func(ctx context.Context, _ *stage, st *State, _ sim.Issue) error { return st.DeleteIf(ctx, "0", value) }, "is no issue id"},
		"a negative issue": {func(ctx context.Context, _ *stage, st *State, _ sim.Issue) error {
			return st.DeleteIf(ctx, "-5", value)
		}, "is no issue id"},
		"a deletion of nothing": {func(ctx context.Context, _ *stage, st *State, i sim.Issue) error { return st.DeleteIf(ctx, i.ID, nil) }, "needs the value"},
		"null": {func(ctx context.Context, s *stage, st *State, i sim.Issue) error {
			s.w.Jira.SetProperty(i.Key, s.props().Lock, []byte("null"))
			if _, err := st.Get(ctx, i.ID); !errors.Is(err, lease.ErrAbsent) {
				s.t.Errorf("null reads as %v", err)
			}
			return st.Swap(ctx, i.ID, nil, value)
		}, "holds null"},
		"a value that is too large": {func(ctx context.Context, _ *stage, st *State, i sim.Issue) error {
			return st.Swap(ctx, i.ID, nil, []byte(`"`+strings.Repeat("x", maxProperty)+`"`))
		}, "at most 32768"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(s *stage) {
				_, state := s.process()
				err := tc.do(s.t.Context(), s, state, s.issue())
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					s.t.Errorf("got %v, want something on %q", err, tc.want)
				}
				if n := s.count("/issue/properties/"); n != 0 {
					s.t.Errorf("%d bulk requests", n)
				}
			})
		})
	}
}

func TestDataCenterHasNoConditionalWrites(t *testing.T) {
	t.Parallel()
	onDataCenter(t, func(s *stage) {
		_, state := s.process()
		i := s.issue()
		ctx := s.t.Context()
		for _, err := range []error{
			state.Swap(ctx, i.ID, nil, []byte(`{}`)), state.DeleteIf(ctx, i.ID, []byte(`{}`)),
			state.SelfTest(ctx, i.ID, func() lease.Lock { return lease.Lock{ID: "x", TS: time.Now()} }),
		} {
			if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "Data Center") {
				s.t.Errorf("got %v", err)
			}
		}
	})
}

func TestAConditionalWriteFollowsItsAnswerOnlyToATaskOfTheSite(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ location, want string }{
		"another host":            {"https://evil.example/rest/api/3/task/1", "away from the site"},
		"another port":            {simtest.JiraURL + ":8443/rest/api/3/task/1", "away from the site"},
		"another scheme":          {"http://" + simtest.JiraHost + "/rest/api/3/task/1", "away from the site"},
		"credentials":             {"https://a:b@" + simtest.JiraHost + "/rest/api/3/task/1", "away from the site"},
		"no address":              {"", "away from the site"},
		"something else":          {simtest.JiraURL + "/rest/api/3/issue/10001", "to no task"},
		"a task of no name":       {simtest.JiraURL + "/rest/api/3/task/", "to no task"},
		"something below a task":  {simtest.JiraURL + "/rest/api/3/task/1/cancel", "to no task"},
		"something above a task":  {simtest.JiraURL + "/rest/api/3/task/../myself", "to no task"},
		"an escaped way up":       {simtest.JiraURL + "/rest/api/3/task/..%2Fmyself", "to no task"},
		"a task of the old API":   {simtest.JiraURL + "/rest/api/2/task/1", "to no task"},
		"a relative task is fine": {"/rest/api/3/task/1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(s *stage) {
				s.answer = func(req *http.Request, _ []byte) *http.Response {
					if req.Method == http.MethodGet {
						return reply(req, http.StatusOK, `{"status":"COMPLETE"}`)
					}
					resp := reply(req, http.StatusSeeOther, "")
					if tc.location != "" {
						resp.Header.Set("Location", tc.location)
					}
					return resp
				}
				_, state := s.process()
				i := s.issue()
				err := state.Swap(s.t.Context(), i.ID, nil, []byte(`{}`))
				if tc.want == "" {
					if err != nil || len(s.asked) != 2 || s.asked[1].path != "/rest/api/3/task/1" {
						s.t.Errorf("%v after %v", err, s.asked)
					}
					return
				}
				if err == nil || !strings.Contains(err.Error(), tc.want) || len(s.asked) != 1 {
					s.t.Errorf("%v after %d requests, want something on %q", err, len(s.asked), tc.want)
				}
			})
		})
	}
}

func TestWhatBecomesOfAConditionalWritesTaskIsTold(t *testing.T) {
	t.Parallel()
	const put, task = http.MethodPut, "/task/"
	for name, tc := range map[string]struct {
		// status is what the n-th look at the task says.
		status func(n int) (int, string)
		want   string
		slow   bool
		looks  int
		took   time.Duration
	}{
		"complete at once": {func(int) (int, string) { return 200, `{"status":"COMPLETE"}` }, "", false, 1, 250 * time.Millisecond},
		"complete later": {func(n int) (int, string) {
			return 200, fmt.Sprintf(`{"status":%q}`, []string{"ENQUEUED", "RUNNING", "SOMETHING_NEW", "COMPLETE"}[n-1])
		}, "", false, 4, 2750 * time.Millisecond},
		"failed":        {func(int) (int, string) { return 200, `{"status":"FAILED","message":"no\nluck"}` }, `FAILED: "no\nluck"`, false, 1, 250 * time.Millisecond},
		"cancelled":     {func(int) (int, string) { return 200, `{"status":"CANCELLED"}` }, "CANCELLED", false, 1, 250 * time.Millisecond},
		"dead":          {func(int) (int, string) { return 200, `{"status":"DEAD"}` }, "DEAD", false, 1, 250 * time.Millisecond},
		"gone":          {func(int) (int, string) { return 404, `{}` }, "404", false, 1, 250 * time.Millisecond},
		"no permission": {func(int) (int, string) { return 403, `{}` }, "403", false, 1, 250 * time.Millisecond},
		"never ends":    {func(int) (int, string) { return 200, `{"status":"CANCEL_REQUESTED"}` }, `"CANCEL_REQUESTED" after 20s`, true, 22, 20750 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(s *stage) {
				looks := 0
				s.answer = func(req *http.Request, _ []byte) *http.Response {
					if req.Method == put {
						resp := reply(req, http.StatusSeeOther, "")
						resp.Header.Set("Location", simtest.JiraURL+"/rest/api/3/task/77")
						return resp
					}
					if !strings.HasSuffix(req.URL.Path, task+"77") {
						s.t.Errorf("%s", req.URL.Path)
					}
					looks++
					status, body := tc.status(looks)
					return reply(req, status, body)
				}
				_, state := s.process()
				start := time.Now()
				err := state.Swap(s.t.Context(), s.issue().ID, nil, []byte(`{}`))
				if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) || errors.Is(err, lease.ErrSlow) != tc.slow {
					s.t.Errorf("got %v, want something on %q", err, tc.want)
				}
				if took := time.Since(start); looks != tc.looks || took != tc.took {
					s.t.Errorf("%d looks in %s, want %d in %s", looks, took, tc.looks, tc.took)
				}
			})
		})
	}
}

func TestASwapThatIsRefusedIsToldByItsReason(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]error{http.StatusTooManyRequests: lease.ErrSlow, http.StatusBadRequest: nil, http.StatusUnauthorized: nil, http.StatusOK: nil} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			t.Parallel()
			bubble(t, func(s *stage) {
				s.answer = func(req *http.Request, _ []byte) *http.Response {
					return reply(req, status, `{"errorMessages":["no"]}`)
				}
				_, state := s.process()
				err := state.Swap(s.t.Context(), s.issue().ID, nil, []byte(`{}`))
				if err == nil || want != nil && !errors.Is(err, want) || want == nil && statusOf(err) != status || len(s.asked) != 1 {
					s.t.Errorf("got %v after %d requests", err, len(s.asked))
				}
			})
		})
	}
}

func TestTheSelfTestRefusesASiteWhoseConditionalWritesAreNone(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		site  func(*sim.JiraSwitches)
		setup func(s *stage, i sim.Issue)
		unfit bool
		want  string
	}{
		"both racing tasks take effect": {site: func(sw *sim.JiraSwitches) {
			sw.BulkNotAtomic = true
			sw.BulkDelay = func(n int) time.Duration { return time.Duration(n%2+1) * 400 * time.Millisecond }
		}, unfit: true, want: "both of two racing writes"},
		"the conditions are ignored": {site: func(sw *sim.JiraSwitches) { sw.BulkIgnoresCriteria = true }, unfit: true, want: "cannot be relied on"},
		"the tasks fail":             {site: func(sw *sim.JiraSwitches) { sw.BulkFails = true }, want: "FAILED"},
		"the tasks do not end":       {site: func(sw *sim.JiraSwitches) { sw.BulkDelay = func(int) time.Duration { return time.Hour } }, want: "after 20s"},
		"the issue cannot be edited": {setup: func(s *stage, i sim.Issue) { s.w.Jira.SetReadOnly(i.Key, true) }, want: "Edit Issues"},
		"what a dead test has left": {setup: func(s *stage, i sim.Issue) {
			s.w.Jira.SetProperty(i.Key, s.props().Lock[:len(s.props().Lock)-4]+"selftest", lockValue(s.t, "old", time.Now().Add(-time.Hour)))
		}},
		"rubbish in its place": {setup: func(s *stage, i sim.Issue) {
			s.w.Jira.SetProperty(i.Key, s.props().Lock[:len(s.props().Lock)-4]+"selftest", []byte(`7`))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(s *stage) {
				bounded(s.t, s.w)
				if tc.site != nil {
					s.w.Jira.Set(tc.site)
				}
				i, other := s.issue(), s.issue()
				if tc.setup != nil {
					tc.setup(s, i)
				}
				_, state := s.process()
				n := 0
				err := state.SelfTest(s.t.Context(), i.ID, func() lease.Lock {
					n++
					return lease.Lock{ID: fmt.Sprint("t", n), TS: time.Now(), Phase: lease.Pending}
				})
				if errors.Is(err, lease.ErrUnfit) != tc.unfit || (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
					s.t.Errorf("got %v", err)
				}
				for _, key := range []string{i.Key, other.Key} {
					if left := s.w.Jira.Properties(key); len(left) > 0 {
						s.t.Errorf("%s has %v", key, left)
					}
				}
			})
		})
	}
}

func TestTheDoctorTriesConditionalWritesWhereTheyAreUsed(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		on     bool
		site   func(*sim.JiraSwitches)
		health dispatch.Health
		want   string
	}{
		"not used":    {},
		"good":        {on: true, health: dispatch.Good, want: "exactly one won"},
		"not atomic":  {on: true, site: func(sw *sim.JiraSwitches) { sw.BulkIgnoresCriteria = true }, health: dispatch.Bad, want: "no lock is taken"},
		"tasks fail":  {on: true, site: func(sw *sim.JiraSwitches) { sw.BulkFails = true }, health: dispatch.Bad, want: "FAILED"},
		"no end seen": {on: true, site: func(sw *sim.JiraSwitches) { sw.BulkDelay = func(int) time.Duration { return time.Hour } }, health: dispatch.Doubtful, want: "could not be tried"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(s *stage) {
				bounded(s.t, s.w)
				if tc.site != nil {
					s.w.Jira.Set(tc.site)
				}
				s.o.Conditional = tc.on
				s.o.LockBound = time.Minute
				key := s.issue().Key
				in, _ := s.process()
				checks := in.Probe(s.t.Context())
				at := slices.IndexFunc(checks, func(c dispatch.Check) bool { return c.Name == "jira: lock.mode conditional" })
				switch {
				case !tc.on:
					if at >= 0 || s.count("/issue/properties/") > 0 {
						s.t.Errorf("it is tried: %v", checks)
					}
				case at < 0:
					s.t.Errorf("it is not tried: %v", checks)
				case checks[at].Health != tc.health || !strings.Contains(checks[at].Detail, tc.want) || tc.health == dispatch.Bad && !strings.Contains(checks[at].Cure, "lock.mode: verify"):
					s.t.Errorf("%+v", checks[at])
				}
				if left := s.w.Jira.Properties(key); len(left) > 0 {
					s.t.Errorf("left: %v", left)
				}
			})
		})
	}
}
