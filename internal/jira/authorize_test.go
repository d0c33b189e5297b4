package jira

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fullsend/poll-action/internal/dispatch"
	"github.com/fullsend/poll-action/internal/event"
	"github.com/fullsend/poll-action/internal/sim"
	"github.com/fullsend/poll-action/internal/sim/simtest"
)

// asker is a GitHub that knows some logins and counts what it is asked.
type asker struct {
	mu    sync.Mutex
	roles map[string]event.Role
	asked map[string]int
	err   error
}

func (a *asker) role(_ context.Context, login string) (event.Role, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.asked == nil {
		a.asked = map[string]int{}
	}
	a.asked[login]++
	if a.err != nil {
		return "", a.err
	}
	if r, ok := a.roles[login]; ok {
		return r, nil
	}
	return event.RoleExternal, nil
}

// commentersRoles lets everybody comment once on an issue of their own and
// returns the roles that one cycle gives them.
func (s *stage) commentersRoles(people ...string) map[string]event.Role {
	s.t.Helper()
	for _, p := range people {
		is := s.w.Jira.CreateIssue(sim.IssueSpec{Project: simtest.Project, Summary: "s", Reporter: p})
		s.w.Jira.Comment(is.Key, p, "x")
	}
	time.Sleep(time.Minute)
	s.reset()
	d, state := s.discover()
	got := map[string]event.Role{}
	for _, it := range d.Items {
		for _, o := range s.detectItem(it, state.Peek(it.Ref()).Checkpoint).Events {
			if o.Event.Transition.Kind == event.CommentAdded {
				got[o.Event.Actor.ID] = o.Event.Actor.Role
			}
		}
	}
	return got
}

// roleRequests counts the requests that ask Jira who somebody is.
func (s *stage) roleRequests() int {
	return s.count("/role") + s.count("/user/groups") + s.count("/user/permission") + s.count("/user?")
}

func TestProjectRolesMayHaveOtherNames(t *testing.T) {
	t.Parallel()
	const schmidt, admin = "5f00:schmidt", "5f00:admin"
	for name, tt := range map[string]struct {
		names map[event.Role][]string
		want  event.Role
	}{
		"the adapter's own":      {nil, event.RoleRead},
		"one of two":             {map[event.Role][]string{event.RoleWrite: {"Developers", "entwickler"}}, event.RoleWrite},
		"the stronger one wins":  {map[event.Role][]string{event.RoleWrite: {"Entwickler"}, event.RoleAdmin: {"ENTWICKLER"}}, event.RoleAdmin},
		"replaced by another":    {map[event.Role][]string{event.RoleWrite: {"Viewers"}}, event.RoleRead},
		"an empty list is none":  {map[event.Role][]string{event.RoleWrite: nil}, event.RoleRead},
		"no part of a name does": {map[event.Role][]string{event.RoleWrite: {"Entwick"}}, event.RoleRead},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(s *stage) {
				s.w.Jira.AddUser(sim.User{AccountID: schmidt, DisplayName: "Schmidt"})
				s.answer = rolesNamed(s, "Developers", "Entwickler")
				s.w.Jira.Grant("PROJ", "Developers", schmidt)
				s.o.Authorization = Authorization{Mode: ByProjectRoles, RoleNames: tt.names}
				s.equal(tt.want, s.commentersRoles(schmidt)[schmidt], "role")
			})
		})
	}
}

// rolesNamed makes the project's list of roles show one of them under another
// name.
func rolesNamed(s *stage, from, to string) func(*http.Request, []byte) *http.Response {
	return func(req *http.Request, _ []byte) *http.Response {
		if req.URL.Path != "/rest/api/3/project/PROJ/role" {
			return nil
		}
		resp := s.pass(req)
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			s.t.Error(err)
		}
		return reply(req, resp.StatusCode, strings.ReplaceAll(string(body), `"`+from+`"`, `"`+to+`"`))
	}
}

func TestARoleThatWasRenamedInTheConfigurationNoLongerCountsByItsOldName(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		s.o.Authorization = Authorization{Mode: ByProjectRoles, RoleNames: map[event.Role][]string{event.RoleWrite: {"Entwickler"}}}
		s.equal(map[string]event.Role{simtest.Alice: event.RoleRead, simtest.Bob: event.RoleAdmin}, s.commentersRoles(simtest.Alice, simtest.Bob), "roles")
	})
}

func TestWhoMayEditIssuesMayWriteInTheModePermission(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		s.o.Authorization = Authorization{Mode: ByPermission}
		got := s.commentersRoles(simtest.Alice, simtest.Bob, simtest.Mallory, simtest.Alice)
		s.equal(map[string]event.Role{simtest.Alice: event.RoleWrite, simtest.Bob: event.RoleWrite, simtest.Mallory: event.RoleExternal}, got, "roles")
		s.equal(3, s.roleRequests(), "requests, one for each account")
		s.equal(0, s.count("/role"), "requests for names of roles")
	})
}

// The search is one for people: it also gives those whose name or id only begins
// like the one that is meant.
func TestAPermissionSearchThatFindsSomebodyElseSaysNothing(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]event.Role{
		`[]`: event.RoleExternal, `[{"accountId":"5f00:mallory2"}]`: event.RoleExternal, `[null,{},{"accountId":""}]`: event.RoleExternal,
		`[{"accountId":"x"},{"accountId":"5f00:mallory"}]`: event.RoleWrite,
	} {
		bubble(t, func(s *stage) {
			s.o.Authorization = Authorization{Mode: ByPermission}
			s.answer = func(req *http.Request, _ []byte) *http.Response {
				if req.URL.Path == "/rest/api/3/user/permission/search" {
					return reply(req, http.StatusOK, body)
				}
				return nil
			}
			s.equal(want, s.commentersRoles(simtest.Mallory)[simtest.Mallory], "role by "+body)
		})
	}
}

func TestTheAllowListAsksJiraForNoRole(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		s.w.Jira.Set(func(j *sim.JiraSwitches) { j.RolesForbidden, j.GroupsForbidden = true, true })
		s.o.Authorization = Authorization{Mode: ByAllowList, Allow: []string{simtest.Mallory}}
		got := s.commentersRoles(simtest.Alice, simtest.Bob, simtest.Mallory)
		s.equal(map[string]event.Role{simtest.Mallory: event.RoleWrite, simtest.Alice: event.RoleExternal, simtest.Bob: event.RoleExternal}, got, "roles")
		s.equal(0, s.roleRequests(), "requests")
	})
}

func TestAllowedAccountsNeedNoRoleInTheOtherModes(t *testing.T) {
	t.Parallel()
	for _, mode := range []Mode{ByProjectRoles, ByPermission} {
		bubble(t, func(s *stage) {
			s.w.Jira.Set(func(j *sim.JiraSwitches) { j.RolesForbidden = true })
			s.o.Authorization = Authorization{Mode: mode, Allow: []string{simtest.Mallory}}
			s.equal(map[string]event.Role{simtest.Mallory: event.RoleWrite}, s.commentersRoles(simtest.Mallory), "roles")
			s.equal(0, s.roleRequests(), "requests")
		})
	}
}

func TestGitHubIsAskedOncePerLoginAndCycleAndItsAnswerCounts(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		t := s.t
		gh := &asker{roles: map[string]event.Role{"mallory-m": event.RoleMaintain, "alice-a": event.RoleTriage}}
		s.o.Authorization = Authorization{
			Mode: ByProjectRoles, Allow: []string{simtest.Alice},
			GitHubUsers: map[string]string{simtest.Mallory: "mallory-m", simtest.Alice: "alice-a", "5f00:gone": "no-such-login"},
			GitHubRole:  gh.role,
		}
		s.w.Jira.AddUser(sim.User{AccountID: "5f00:gone", DisplayName: "Gone"})
		got := s.commentersRoles(simtest.Mallory, simtest.Mallory, simtest.Mallory, simtest.Alice, "5f00:gone")
		s.equal(map[string]event.Role{simtest.Mallory: event.RoleMaintain, simtest.Alice: event.RoleTriage, "5f00:gone": event.RoleExternal}, got, "GitHub's word counts, also against the allow-list")
		s.equal(map[string]int{"mallory-m": 1, "alice-a": 1, "no-such-login": 1}, gh.asked, "what GitHub was asked")
		s.equal(0, s.roleRequests(), "requests for roles in Jira")
		s.detectAll(t)
		s.equal(2, gh.asked["mallory-m"], "the next cycle asks again")
	})
}

// detectAll runs another cycle's detection.
func (s *stage) detectAll(tb testing.TB) {
	tb.Helper()
	d, state := s.discover()
	for _, it := range d.Items {
		s.detectItem(it, state.Peek(it.Ref()).Checkpoint)
	}
}

func TestWhereGitHubDoesNotAnswerNothingIsDecided(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		t := s.t
		gh := &asker{err: &dispatch.Error{Class: dispatch.Transient, Err: errors.New("github is down")}}
		s.o.Authorization = Authorization{GitHubUsers: map[string]string{simtest.Mallory: "mallory-m"}, GitHubRole: gh.role}
		key := s.issue().Key
		s.w.Jira.Comment(key, simtest.Mallory, "x")
		time.Sleep(time.Minute)
		mentions(t, s.detectError(key).Error(), "mallory-m", "github is down")
	})
}

func TestAMissingRightIsNamedWithTheModeThatNeedsLess(t *testing.T) {
	t.Parallel()
	for _, mode := range []Mode{ByProjectRoles, ByPermission} {
		for _, status := range []int{0, http.StatusForbidden} {
			t.Run(fmt.Sprintf("%s %d", mode, status), func(t *testing.T) {
				t.Parallel()
				bubble(t, func(s *stage) {
					t := s.t
					s.w.Jira.Set(func(j *sim.JiraSwitches) { j.RolesForbidden, j.PermissionSearchStatus = true, status })
					if status != 0 {
						s.answer = func(req *http.Request, _ []byte) *http.Response {
							if req.URL.Path == "/rest/api/3/project/PROJ/role" {
								return reply(req, status, `{"errorMessages":["no"]}`)
							}
							return nil
						}
					}
					s.o.Authorization = Authorization{Mode: mode}
					key := s.issue().Key
					s.w.Jira.Comment(key, simtest.Mallory, "x")
					time.Sleep(time.Minute)
					err := s.detectError(key)
					mentions(t, err.Error(), "roles in project PROJ cannot be read", "Administer Projects", "authorization: allow", "github-users")
					if status == 0 {
						mentions(t, err.Error(), "401", "the credentials are good")
					}
					s.equal(dispatch.Transient, dispatch.ClassOf(err), "class: other projects may be readable")
				})
			})
		}
	}
}

func TestA401ForBadCredentialsIsNotTakenForAMissingRight(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		t := s.t
		s.o.Authorization = Authorization{Mode: ByPermission}
		key := s.issue().Key
		s.w.Jira.Comment(key, simtest.Mallory, "x")
		time.Sleep(time.Minute)
		s.answer = func(req *http.Request, _ []byte) *http.Response {
			switch req.URL.Path {
			case "/rest/api/3/user/permission/search", "/rest/api/3/myself":
				return reply(req, http.StatusUnauthorized, `{}`)
			}
			return nil
		}
		err := s.detectError(key)
		s.equal(dispatch.Fatal, dispatch.ClassOf(err), "class")
		mentions(t, err.Error(), "JIRA_TOKEN")
	})
}

func TestAnUnknownModeDecidesNothing(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		t := s.t
		s.o.Authorization = Authorization{Mode: "everybody"}
		key := s.issue().Key
		mentions(t, s.detectError(key).Error(), `the authorization "everybody" is unknown`)
	})
}

func TestAConfiguredBotIsOne(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		s.o.Bots = []string{simtest.Bob}
		s.o.Authorization = Authorization{Mode: ByAllowList, Allow: []string{simtest.Bob}}
		key := s.issue().Key
		s.w.Jira.Comment(key, simtest.Bob, "x")
		s.w.Jira.Comment(key, simtest.Alice, "x")
		time.Sleep(time.Minute)
		kinds := map[string]event.ActorKind{}
		for _, o := range s.detect(key).Events {
			kinds[o.Event.Actor.ID] = o.Event.Actor.Kind
		}
		s.equal(map[string]event.ActorKind{simtest.Bob: event.Bot, simtest.Alice: event.Human}, kinds, "kinds")
	})
}
