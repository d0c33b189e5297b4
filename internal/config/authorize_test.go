package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// driverWith parses a jira-poll driver with more members.
func driverWith(members ...string) (InputDriver, Problems) {
	var raw strings.Builder
	raw.WriteString("poll:\n  input_drivers:\n    - type: jira-poll\n" +
		"      connection: {base_url: \"https://acme.atlassian.net\", email: \"${JIRA_USER_EMAIL}\", token: \"${JIRA_TOKEN}\"}\n" +
		"      queries: [project = PROJ]\n")
	for _, m := range members {
		raw.WriteString("      " + m + "\n")
	}
	cfg, problems := Parse([]byte(raw.String()), usual(), Options{})
	if cfg == nil || len(cfg.Poll.InputDrivers) == 0 {
		return InputDriver{}, problems
	}
	return cfg.Poll.InputDrivers[0], problems
}

func TestWhoMayStartAgents(t *testing.T) {
	t.Parallel()
	for members, want := range map[string]Authorization{
		"":                                                  {Mode: AuthorizeByProjectRoles},
		"authorization: project-roles":                      {Mode: AuthorizeByProjectRoles},
		"authorization: permission":                         {Mode: AuthorizeByPermission},
		"allow: [a, b, a]":                                  {Mode: AuthorizeByAllowList, Allow: []string{"a", "b"}},
		"authorization: allow|allow: [a]":                   {Mode: AuthorizeByAllowList, Allow: []string{"a"}},
		"authorization: permission|allow: [a]":              {Mode: AuthorizeByPermission, Allow: []string{"a"}},
		"roles: {write: [Developers, Entwickler]}":          {Mode: AuthorizeByProjectRoles, WriteRoles: []string{"Developers", "Entwickler"}},
		"roles: {admin: [Chefs], write: [Entwickler]}":      {Mode: AuthorizeByProjectRoles, AdminRoles: []string{"Chefs"}, WriteRoles: []string{"Entwickler"}},
		"github-users: {5f00:a: octo-cat}":                  {Mode: AuthorizeByProjectRoles, GitHubUsers: map[string]string{"5f00:a": "octo-cat"}},
		"authorization: allow|github-users: {\"5f:a\": oc}": {Mode: AuthorizeByAllowList, GitHubUsers: map[string]string{"5f:a": "oc"}},
	} {
		d, problems := driverWith(strings.Split(members, "|")...)
		if err := problems.Err(); err != nil {
			t.Errorf("%s: %v", members, err)
			continue
		}
		if diff := cmp.Diff(want, d.Authorization); diff != "" {
			t.Errorf("%s (-want +got):\n%s", members, diff)
		}
	}
}

func TestAuthorizationThatMakesNoSenseIsAProblemWithItsLineAndCure(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a, ", maxAccounts+1)
	users := make([]string, maxAccounts+1)
	for n := range users {
		users[n] = fmt.Sprintf("u%d: x", n)
	}
	for members, parts := range map[string][]string{
		"authorization: everybody":                           {"line 6", "everybody", "project-roles", "permission", "allow"},
		"authorization: allow":                               {"the allow-list is empty", "allow: with account ids"},
		"authorization: allow|allow: []":                     {"the allow-list is empty"},
		"authorization: permission|roles: {write: [D]}":      {"role names mean nothing with authorization: permission", "leave roles out"},
		"allow: [a]|roles: {admin: [D]}":                     {"role names mean nothing with authorization: allow"},
		"roles: {read: [Viewers]}":                           {`unknown key "read"`, "admin, write"},
		"roles: [Developers]":                                {"line 6", "roles"},
		"roles: {write: [{a: b}]}":                           {"roles.write[0]"},
		"allow: [\"\"]":                                      {"allow[0]"},
		"allow: [" + long + "a]":                             {"more than 500 entries"},
		"github-users: {a: \"-octo\"}":                       {"is no GitHub login"},
		"github-users: {a: \"o_c\"}":                         {"is no GitHub login"},
		"github-users: {a: " + strings.Repeat("x", 40) + "}": {"is no GitHub login"},
		"github-users: [a]":                                  {"line 6", "github-users"},
		"github-users: {" + strings.Join(users, ", ") + "}":  {"more than 1000 accounts"},
		"bots: {a: b}":                                       {"line 6", "bots"},
		"state: {accept_unsigned: perhaps}":                  {"line 6", "accept_unsigned"},
		"state: {accept: true}":                              {`unknown key "accept"`, "accept_unsigned"},
		"allow: a":                                           {"line 6", "this must be a list"},
		"state: true":                                        {"line 6", "state"},
	} {
		_, problems := driverWith(strings.Split(members, "|")...)
		if len(problems) == 0 {
			t.Errorf("%.80s is taken", members)
			continue
		}
		for _, part := range parts {
			if !strings.Contains(problems.Error(), part) {
				t.Errorf("%.80s: %q is not said: %.300s", members, part, problems.Error())
			}
		}
	}
}

func TestUnsignedStateIsAcceptedUnlessTheFileSaysNo(t *testing.T) {
	t.Parallel()
	for members, refused := range map[string]bool{"": false, "state: {}": false, "state: {accept_unsigned: true}": false, "state: {accept_unsigned: false}": true} {
		d, problems := driverWith(members)
		if err := problems.Err(); err != nil || d.RefuseUnsigned != refused {
			t.Errorf("%q: refused %t, %v", members, d.RefuseUnsigned, err)
		}
	}
}

func TestBotsAreAListOfAccounts(t *testing.T) {
	t.Parallel()
	d, problems := driverWith("bots: [5f00:robot, 5f00:other]")
	if diff := cmp.Diff([]string{"5f00:robot", "5f00:other"}, d.Bots); diff != "" || len(problems) > 0 {
		t.Errorf("%v\n%s", problems, diff)
	}
}

func TestTheFlavourMayStandInTheConnection(t *testing.T) {
	t.Parallel()
	const raw = `poll:
  input_drivers:
    - type: jira-poll
      connection: {base_url: "https://jira.acme.example/jira", token: "${JIRA_TOKEN}", flavour: %s}
      queries: [project = PROJ]
`
	cfg, problems := Parse(fmt.Appendf(nil, raw, "datacenter"), usual(), Options{})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	if d := cfg.Poll.InputDrivers[0]; d.Flavour != FlavourDataCenter || d.Connection.BaseURL != "https://jira.acme.example/jira" {
		t.Errorf("%q at %s", d.Flavour, d.Connection)
	}
	if _, problems = Parse(fmt.Appendf(nil, raw, "server"), usual(), Options{}); !strings.Contains(problems.Error(), "datacenter") {
		t.Errorf("another word: %v", problems)
	}
}

func TestTheGitLabDriversKnowNothingOfThis(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"authorization: allow", "roles: {}", "allow: [a]", "github-users: {}", "bots: []", "state: {}"} {
		_, problems := Parse([]byte("poll:\n  input_drivers:\n    - type: gitlab-poll\n      project: a/b\n      "+key+"\n"), usual(), Options{})
		if name, _, _ := strings.Cut(key, ":"); !strings.Contains(problems.Error(), name) {
			t.Errorf("%s is taken: %v", key, problems)
		}
	}
}
