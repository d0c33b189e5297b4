package jira

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fullsend/poll-action/internal/dispatch"
	"github.com/fullsend/poll-action/internal/event"
	"github.com/fullsend/poll-action/internal/httpx"
	"github.com/fullsend/poll-action/internal/sim"
	"github.com/fullsend/poll-action/internal/sim/simtest"
)

// bound is guard plus jitter_min of the configuration's defaults.
const bound = 1500 * time.Millisecond

// probed runs the doctor's look at the site and returns its checks by name.
func (s *stage) probed() map[string]dispatch.Check {
	s.t.Helper()
	s.o.LockBound = bound
	in, _ := s.process()
	return byName(s.t, in.Probe(s.t.Context()))
}

func byName(tb testing.TB, checks []dispatch.Check) map[string]dispatch.Check {
	tb.Helper()
	got := map[string]dispatch.Check{}
	for _, c := range checks {
		name := strings.TrimPrefix(c.Name, "jira: ")
		if _, twice := got[name]; twice {
			tb.Errorf("two checks are named %q", name)
		}
		if c.Health == dispatch.Bad && c.Detail == "" || strings.ContainsAny(c.Detail+c.Cure, "\r\n") {
			tb.Errorf("%q says %q, cure %q", c.Name, c.Detail, c.Cure)
		}
		got[name] = c
	}
	return got
}

// healthOf is what the checks come to, by name.
func healthOf(checks map[string]dispatch.Check) map[string]dispatch.Health {
	got := map[string]dispatch.Health{}
	for name, c := range checks {
		got[name] = c.Health
	}
	return got
}

// doctorProp is the property that the doctor tries.
const doctorProp = "fullsend.poll.acme.platform.doctor"

func TestAHealthySiteGetsOneGoodLineForEachCheck(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]simtest.Option{"cloud": nil, "data center": {simtest.DataCenter()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(s *stage) {
				t := s.t
				key := s.issue().Key
				s.o.LockBound = bound
				email, token := s.w.JiraCredentials()
				c, err := NewClient(ClientOptions{
					BaseURL: s.w.JiraURL(), Email: email, Token: token,
					HTTP: httpx.Options{Base: s, Now: time.Now, Retries: -1},
				})
				if err != nil {
					t.Fatal(err)
				}
				in := NewInput(c, NewState(c, s.props()), s.o)
				checks := byName(t, in.Probe(t.Context()))
				for name, c := range checks {
					if c.Health != dispatch.Good || c.Detail == "" || c.Cure != "" {
						t.Errorf("%s: %+v", name, c)
					}
				}
				for _, name := range []string{"credentials", "flavour", "clock", "query 1", "permissions in PROJ", "authorization in PROJ", "properties of " + key} {
					if _, ok := checks[name]; !ok {
						t.Errorf("there is no check %q", name)
					}
				}
				s.equal(2, s.w.Jira.PropertyWrites(), "writes: one and its undoing")
				s.equal(0, len(s.w.Jira.Properties(key)), "properties afterwards")
				mentions(t, checks["query 1"].Detail, `"project = PROJ"`, "about 1 issues")
				mentions(t, checks["properties of "+key].Detail, "of the 1.5s")
			}, opts...)
		})
	}
}

func TestTheDoctorsPropertyIsPutBackAsItWas(t *testing.T) {
	t.Parallel()
	for _, before := range []string{"", `{"ts":"yesterday","b":[1,2.50,"\u00e9"]}`, `"text"`, `false`, `[[]]`, `""`} {
		t.Run("before: "+before, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(s *stage) {
				t := s.t
				key := s.issue().Key
				if before != "" {
					s.w.Jira.SetProperty(key, doctorProp, []byte(before))
				}
				checks := s.probed()
				s.equal(dispatch.Good, checks["properties of "+key].Health, "health")
				after, ok := s.w.Jira.Property(key, doctorProp)
				if ok != (before != "") || string(after) != before {
					t.Errorf("there is %q (%t), want %q", after, ok, before)
				}
			})
		})
	}
}

func TestTheDoctorsPropertyIsPutBackWhateverHappensToARequest(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]sim.Fault{
		"lost before": {DropBefore: true}, "lost after": {DropAfter: true}, "a server error": {Status: http.StatusInternalServerError},
	} {
		for _, before := range []string{"", `{"a":1}`} {
			for nth := 1; nth <= 4; nth++ {
				bubble(t, func(s *stage) {
					t := s.t
					key := s.issue().Key
					if before != "" {
						s.w.Jira.SetProperty(key, doctorProp, []byte(before))
					}
					n := 0
					s.w.Net.Fault = func(r *http.Request) sim.Fault {
						if !strings.Contains(r.URL.String(), doctorProp) {
							return sim.Fault{}
						}
						if n++; n == nth {
							return fault
						}
						return sim.Fault{}
					}
					s.retries = 2
					checks := s.probed()
					after, ok := s.w.Jira.Property(key, doctorProp)
					if ok != (before != "") || string(after) != before {
						t.Errorf("%s at request %d: there is %q, want %q; %+v", name, nth, after, before, checks["properties of "+key])
					}
				})
			}
		}
	}
}

func TestAnInterruptedDoctorPutsThePropertyBack(t *testing.T) {
	t.Parallel()
	for _, method := range []string{http.MethodPut, http.MethodGet} {
		bubble(t, func(s *stage) {
			t := s.t
			key := s.issue().Key
			s.w.Jira.SetProperty(key, doctorProp, []byte(`{"theirs":true}`))
			s.o.LockBound = bound
			in, _ := s.process()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			written := false
			s.answer = func(req *http.Request, _ []byte) *http.Response {
				if !strings.Contains(req.URL.String(), doctorProp) {
					return nil
				}
				if req.Method == http.MethodPut && !written {
					written = true
					resp := s.pass(req)
					if method == http.MethodPut {
						cancel()
					}
					return resp
				}
				if written && req.Method == method {
					cancel()
				}
				return nil
			}
			checks := byName(t, in.Probe(ctx))
			if !written {
				t.Fatalf("nothing was written: %+v", checks)
			}
			after, _ := s.w.Jira.Property(key, doctorProp)
			s.equal(`{"theirs":true}`, string(after), "put back")
		})
	}
}

func TestAReadOnlyCandidateIsSaidAndNothingIsPutBack(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		t := s.t
		key := s.issue().Key
		s.w.Jira.SetReadOnly(key, true)
		c := s.probed()["properties of "+key]
		s.equal(dispatch.Bad, c.Health, "health")
		mentions(t, c.Detail+c.Cure, "403", "Edit Issues")
		s.equal(0, s.w.Jira.PropertyWrites(), "writes")
	})
}

func TestThe200ThatMeansDeniedEndsTheLookAtTheSite(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]func(s *stage){
		"401": func(s *stage) { s.token = "wrong" },
		"200, empty": func(s *stage) {
			s.w.Jira.Set(func(j *sim.JiraSwitches) { j.AuthMode = sim.AuthAnonymous200 })
			s.token = "expired"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(s *stage) {
				t := s.t
				s.issue()
				refuse(s)
				checks := s.probed()
				s.equal(map[string]dispatch.Health{"credentials": dispatch.Bad}, healthOf(checks), "checks")
				mentions(t, checks["credentials"].Cure, "JIRA_TOKEN")
				s.equal(0, s.w.Jira.PropertyWrites(), "writes")
			})
		})
	}
}

func TestMissingPermissionsAreNamedByMode(t *testing.T) {
	t.Parallel()
	for mode, want := range map[Mode]dispatch.Health{ByProjectRoles: dispatch.Bad, ByPermission: dispatch.Bad, ByAllowList: dispatch.Good} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			bubble(t, func(s *stage) {
				t := s.t
				s.issue()
				s.w.Jira.Set(func(j *sim.JiraSwitches) { j.RolesForbidden = true })
				s.o.Authorization = Authorization{Mode: mode, Allow: []string{simtest.Alice}}
				checks := s.probed()
				s.equal(want, checks["permissions in PROJ"].Health, "permissions")
				s.equal(want, checks["authorization in PROJ"].Health, "authorization")
				if want == dispatch.Bad {
					mentions(t, checks["permissions in PROJ"].Detail, "ADMINISTER_PROJECTS")
					mentions(t, checks["permissions in PROJ"].Cure, "authorization: allow")
					mentions(t, checks["authorization in PROJ"].Cure, "Administer Projects", "authorization: allow")
				}
			})
		})
	}
}

func TestEveryRefusedQueryIsALineOfItsOwn(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		t := s.t
		key := s.issue().Key
		s.o.Queries = []string{"project = NOSUCH", "project = PROJ", "nosuchfield = 1"}
		checks := s.probed()
		s.equal([]dispatch.Health{dispatch.Bad, dispatch.Good, dispatch.Bad},
			[]dispatch.Health{checks["query 1"].Health, checks["query 2"].Health, checks["query 3"].Health}, "queries")
		mentions(t, checks["query 1"].Detail+checks["query 1"].Cure, "400", "NOSUCH", "issue search")
		s.equal(dispatch.Good, checks["properties of "+key].Health, "the candidate comes from the query that works")
	})
}

func TestWithoutACandidateTheRestIsDoubtful(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		checks := s.probed()
		s.equal(dispatch.Doubtful, checks["candidates"].Health, "health")
		s.equal(0, s.w.Jira.PropertyWrites(), "writes")
	})
}

func TestASlowSiteIsMeasuredAgainstTheGuard(t *testing.T) {
	t.Parallel()
	for latency, want := range map[time.Duration]dispatch.Health{
		50 * time.Millisecond: dispatch.Good, 500 * time.Millisecond: dispatch.Doubtful, time.Second: dispatch.Bad,
	} {
		t.Run(latency.String(), func(t *testing.T) {
			t.Parallel()
			bubble(t, func(s *stage) {
				t := s.t
				key := s.issue().Key
				s.w.Net.Latency = func(*http.Request) time.Duration { return latency }
				c := s.probed()["properties of "+key]
				s.equal(want, c.Health, "health")
				mentions(t, c.Detail, (2 * latency).String(), "1.5s")
				if want != dispatch.Good {
					mentions(t, c.Cure, "lock.guard")
				}
				s.equal(0, len(s.w.Jira.Properties(key)), "properties afterwards")
			})
		})
	}
}

func TestAClockThatDiffersIsDoubtful(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		t := s.t
		s.issue()
		s.w.Advance(10 * time.Minute)
		c := s.probed()["clock"]
		s.equal(dispatch.Doubtful, c.Health, "health")
		mentions(t, c.Detail, "by 10m")
	})
}

func TestAWrongFlavourIsSaid(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		t := s.t
		s.issue()
		s.w.Jira.Set(func(j *sim.JiraSwitches) { j.DeploymentType = "Server" })
		c := s.probed()["flavour"]
		s.equal(dispatch.Bad, c.Health, "health")
		mentions(t, c.Detail, "Jira Cloud", `"Server"`)
	})
}

func TestAValueThatIsNotReadBackMeansThatNoLockCanWork(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		t := s.t
		is := s.issue()
		s.answer = func(req *http.Request, _ []byte) *http.Response {
			if req.Method == http.MethodGet && strings.Contains(req.URL.RawQuery, doctorProp) {
				return reply(req, http.StatusOK, `{"id":"`+is.ID+`","key":"`+is.Key+`","fields":{},"properties":{}}`)
			}
			return nil
		}
		c := s.probed()["properties of "+is.Key]
		s.equal(dispatch.Bad, c.Health, "health")
		mentions(t, c.Detail, "locks cannot work on this site")
		s.equal(0, len(s.w.Jira.Properties(is.Key)), "properties afterwards")
	})
}

func TestWhatCannotBePutBackIsSaid(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		t := s.t
		key := s.issue().Key
		s.answer = func(req *http.Request, _ []byte) *http.Response {
			if req.Method == http.MethodDelete {
				return reply(req, http.StatusForbidden, `{}`)
			}
			return nil
		}
		c := s.probed()["properties of "+key]
		s.equal(dispatch.Bad, c.Health, "health")
		mentions(t, c.Detail, doctorProp, "could not be put back", "403")
	})
}

func TestGitHubUsersAndListsAreNoReasonToAskJiraLess(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		s.issue()
		s.o.Authorization = Authorization{
			Mode: ByProjectRoles, Allow: []string{simtest.Bot}, GitHubUsers: map[string]string{simtest.Bot: "bot"},
			GitHubRole: func(context.Context, string) (event.Role, error) { return "", errors.New("asked in vain") },
		}
		s.w.Jira.Set(func(j *sim.JiraSwitches) { j.RolesForbidden = true })
		s.equal(dispatch.Bad, s.probed()["authorization in PROJ"].Health, "the others' roles cannot be read")
	})
}

func TestTheRightsAreAskedForInEveryProjectThatTheQueriesFind(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		s.issue()
		s.w.Jira.AddProject("OTHER")
		s.w.Jira.CreateIssue(sim.IssueSpec{Project: "OTHER", Summary: "s", Reporter: simtest.Alice})
		s.o.Queries = []string{"project = PROJ", "project = OTHER"}
		checks := s.probed()
		for _, name := range []string{"permissions in PROJ", "permissions in OTHER", "authorization in PROJ", "authorization in OTHER"} {
			s.equal(dispatch.Good, checks[name].Health, name)
		}
	})
}
