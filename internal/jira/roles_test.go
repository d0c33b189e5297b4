package jira

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fullsend/poll-action/internal/dispatch"
	"github.com/fullsend/poll-action/internal/event"
	"github.com/fullsend/poll-action/internal/sim"
	"github.com/fullsend/poll-action/internal/sim/simtest"
)

// roleOf is the role of the last commenter.
func (s *stage) roleOf(account string) event.Role {
	s.t.Helper()
	key := s.issue().Key
	time.Sleep(time.Minute)
	s.w.Jira.Comment(key, account, "x")
	delta := s.detect(key)
	return delta.Events[len(delta.Events)-1].Event.Actor.Role
}

func TestAnActorsRoleIsTheStrongestOneInTheIssuesProject(t *testing.T) {
	t.Parallel()
	const someone = "5f00:someone"
	for name, tt := range map[string]struct {
		groups []string
		set    func(*sim.Jira)
		want   event.Role
	}{
		"none":                           {nil, func(*sim.Jira) {}, event.RoleExternal},
		"developer by name":              {nil, func(j *sim.Jira) { j.Grant("PROJ", "Developers", someone) }, event.RoleWrite},
		"administrator by name":          {nil, func(j *sim.Jira) { j.Grant("PROJ", "Administrators", someone) }, event.RoleAdmin},
		"administrator through a group":  {[]string{"jira-admins"}, func(*sim.Jira) {}, event.RoleAdmin},
		"developer through a group":      {[]string{"x", "devs"}, func(j *sim.Jira) { j.GrantGroup("PROJ", "Developers", "devs") }, event.RoleWrite},
		"viewer":                         {nil, func(j *sim.Jira) { j.Grant("PROJ", "Viewers", someone) }, event.RoleRead},
		"viewer through a group":         {[]string{"all"}, func(j *sim.Jira) { j.GrantGroup("PROJ", "Viewers", "all") }, event.RoleRead},
		"a group that has none":          {[]string{"other"}, func(*sim.Jira) {}, event.RoleExternal},
		"administrator elsewhere":        {nil, func(j *sim.Jira) { j.AddProject("OTHER"); j.Grant("OTHER", "Administrators", someone) }, event.RoleExternal},
		"by name low, by group high":     {[]string{"jira-admins"}, func(j *sim.Jira) { j.Grant("PROJ", "Developers", someone); j.Grant("PROJ", "Viewers", someone) }, event.RoleAdmin},
		"by name high, by group low":     {[]string{"all"}, func(j *sim.Jira) { j.GrantGroup("PROJ", "Viewers", "all"); j.Grant("PROJ", "Developers", someone) }, event.RoleWrite},
		"viewer by name, writer by name": {nil, func(j *sim.Jira) { j.Grant("PROJ", "Viewers", someone); j.Grant("PROJ", "Developers", someone) }, event.RoleWrite},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachFlavour(t, func(s *stage) {
				s.w.Jira.AddUser(sim.User{AccountID: someone, DisplayName: "Someone", Groups: tt.groups})
				tt.set(s.w.Jira)
				s.equal(tt.want, s.roleOf(someone), "role")
			})
		})
	}
}

func TestRoleNamesAreComparedWithoutCaseAndGroupsAlsoByName(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		answers := map[string]string{
			"/project/PROJ/role":   `{"ADMINISTRATORS":"https://acme.atlassian.net/rest/api/3/project/1/role/1?x=y","developers":"https://acme.atlassian.net/rest/api/3/project/1/role/2"}`,
			"/project/PROJ/role/1": `{"actors":[null,{},{"actorUser":null,"actorGroup":null},{"actorGroup":{"name":""}},{"actorUser":{"accountId":""}}]}`,
			"/project/PROJ/role/2": `{"actors":[{"actorGroup":{"name":"devs"}}]}`,
			"/user/groups":         `[{"name":"devs"},{}]`,
		}
		if s.dc() { // groups also without their case
			answers["/project/PROJ/role/1"] = `{"actors":[null,{},{"name":""},{"name":"mallory"},{"name":"mallory","type":"unknown"},{"name":"","type":"atlassian-user-role-actor"},{"name":"mallory","type":"atlassian-group-role-actor"}]}`
			answers["/project/PROJ/role/2"] = `{"actors":[{"name":"Devs","type":"atlassian-group-role-actor"}]}`
			answers["/user"] = `{"name":"mallory","groups":{"size":1,"items":[{"name":"devS"},{}]}}`
		}
		s.answer = func(req *http.Request, _ []byte) *http.Response {
			if a, ok := answers[strings.TrimPrefix(req.URL.Path, s.path(""))]; ok {
				return reply(req, 200, a)
			}
			return nil
		}
		s.equal(event.RoleWrite, s.roleOf(simtest.Mallory), "role")
	})
}

func TestRolesAreAskedForOnlyWhenThereIsAnEvent(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		key := s.issue().Key
		s.settle(key)
		time.Sleep(time.Hour)
		s.w.Jira.Touch(key)
		s.equal(0, len(s.detect(key).Events), "events")
		s.equal(0, s.count("/role")+s.count("/groups"), "role requests")
	})
}

func TestEveryRoleLookUpIsMadeOnceInACycle(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		t := s.t
		keys := s.issues(6)
		for range 3 {
			for _, k := range keys {
				for _, a := range []string{simtest.Alice, simtest.Bob, simtest.Mallory} {
					s.w.Jira.Comment(k, a, "x")
				}
			}
		}
		time.Sleep(time.Minute)
		s.w.Net.Latency = func(*http.Request) time.Duration { return 100 * time.Millisecond }
		d, state := s.discover()
		s.reset()
		var g sync.WaitGroup
		for _, it := range d.Items { // side by side, as the cycle does
			g.Go(func() {
				if _, err := it.Detect(t.Context(), state.Peek(it.Ref()).Checkpoint); err != nil {
					t.Error(err)
				}
			})
		}
		g.Wait()
		seen := map[string]int{}
		for _, e := range s.w.Net.Log() {
			if strings.Contains(e.Path, "/role") || strings.Contains(e.Path, s.path("/user")) {
				seen[e.Path+"?"+e.RawQuery]++
			}
		}
		for r, n := range seen {
			if n != 1 {
				t.Errorf("%d requests %s", n, r)
			}
		}
		// the list, its four roles, and the groups of three accounts
		s.equal(8, len(seen), "distinct look-ups")
	})
}

func TestARoleThatCannotBeReadMakesDetectionFailAndSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		set   func(*stage)
		want  []string
		class dispatch.Class
	}{
		"401 with a good token": {
			func(s *stage) { s.w.Jira.Set(func(sw *sim.JiraSwitches) { sw.RolesForbidden = true }) },
			[]string{"roles in project PROJ", "401", "/myself works", "permission Administer Projects in project PROJ"},
			dispatch.Transient,
		},
		"403 on groups": {
			func(s *stage) { s.w.Jira.Set(func(sw *sim.JiraSwitches) { sw.GroupsForbidden = true }) },
			[]string{"403", "Browse users and groups", "project PROJ"},
			dispatch.Transient,
		},
		"404 on the project": {func(s *stage) { answerStatus(s, "/project/PROJ/role", 404) }, []string{"404", "Administer Projects"}, dispatch.Transient},
		"500":                {func(s *stage) { answerStatus(s, "/project/PROJ/role", 500) }, []string{"roles in project PROJ cannot be read", "500"}, dispatch.Transient},
		"a role that is no document": {func(s *stage) {
			s.answer = func(req *http.Request, _ []byte) *http.Response {
				if strings.HasSuffix(req.URL.Path, "/project/PROJ/role") {
					return reply(req, 200, `["Administrators"]`)
				}
				return nil
			}
		}, []string{"roles in project PROJ cannot be read"}, dispatch.Transient},
		"an address that is none": {func(s *stage) {
			s.answer = func(req *http.Request, _ []byte) *http.Response {
				if strings.HasSuffix(req.URL.Path, "/project/PROJ/role") {
					return reply(req, 200, `{"Developers":":://"}`)
				}
				return nil
			}
		}, []string{`role "Developers" of project PROJ has no usable address`}, dispatch.Transient},
		"401 because the token has ended": {func(s *stage) {
			s.answer = func(req *http.Request, _ []byte) *http.Response {
				if strings.Contains(req.URL.Path, "/role") || strings.HasSuffix(req.URL.Path, "/myself") {
					return reply(req, 401, `{"errorMessages":["no"]}`)
				}
				return nil
			}
		}, []string{"401", "JIRA_TOKEN"}, dispatch.Fatal},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachFlavour(t, func(s *stage) {
				t := s.t
				key := s.issue().Key
				s.w.Jira.Comment(key, simtest.Mallory, "/fs-code")
				tt.set(s)
				err := s.detectError(key)
				mentions(t, err.Error(), tt.want...)
				s.equal(tt.class, dispatch.ClassOf(err), "class")
			})
		})
	}
}

func TestAnAccountThatDoesNotExistAnyMoreIsExternal(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		s.equal(event.RoleExternal, s.roleOf("5f00:deleted"), "role")
		s.equal(2, s.count(flavoured(s, "GET /user/groups", "GET /user")), "reads of groups, the reporter's among them")
	})
}

func TestAWaitForAnothersLookUpEndsWithTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var m memo[int]
		release := make(chan struct{})
		first := make(chan int)
		go func() {
			v, _ := m.get(t.Context(), "a", func() (int, error) { <-release; return 7, nil })
			first <- v
		}()
		synctest.Wait()
		if _, err := m.get(cancelled(t), "a", func() (int, error) { t.Error("computed twice"); return 0, nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("err %v", err)
		}
		if v, err := m.get(t.Context(), "b", func() (int, error) { return 8, nil }); v != 8 || err != nil {
			t.Errorf("another key: %v, %v", v, err)
		}
		close(release)
		if v := <-first; v != 7 {
			t.Errorf("value %d", v)
		}
		if v, err := m.get(t.Context(), "a", func() (int, error) { t.Error("computed twice"); return 0, nil }); v != 7 || err != nil {
			t.Errorf("%v, %v", v, err)
		}
	})
}
