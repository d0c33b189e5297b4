package config

import (
	"fmt"
	"regexp"
	"slices"
)

// Authorization says how the role of somebody in Jira is found.
type Authorization struct {
	// Mode is "project-roles", "permission" or "allow".
	Mode string
	// AdminRoles and WriteRoles are names of project roles; nil means the
	// adapter's own.
	AdminRoles, WriteRoles []string
	// Allow are accounts that may start agents whatever Jira says.
	Allow []string
	// GitHubUsers maps accounts to GitHub logins, whose permission counts.
	GitHubUsers map[string]string
}

// The modes of authorization.
const (
	AuthorizeByProjectRoles = "project-roles"
	AuthorizeByPermission   = "permission"
	AuthorizeByAllowList    = "allow"
)

// maxAccounts bounds the lists of accounts and roles.
const maxAccounts = 1000

// authorizing reads one of the members that say who may start agents; ok is
// false for a member that is none of them.
func (r *reader) authorizing(f field, d *InputDriver) bool {
	switch f.key {
	case "authorization":
		r.choice(f, &d.Authorization.Mode, AuthorizeByProjectRoles, AuthorizeByPermission, AuthorizeByAllowList)
	case "roles":
		for _, role := range r.strict(f.value, f.path, nil, "admin", "write") {
			if names := r.texts(role); role.key == "admin" {
				d.Authorization.AdminRoles = names
			} else {
				d.Authorization.WriteRoles = names
			}
		}
	case "allow":
		d.Authorization.Allow = r.texts(f)
	case "github-users":
		d.Authorization.GitHubUsers = map[string]string{}
		for _, u := range r.open(f.value, f.path) {
			login, ok := r.text(u.value, u.path)
			switch {
			case !ok:
			case !regexp.MustCompile(`^[A-Za-z0-9](?:[A-Za-z0-9-]{0,38})$`).MatchString(login):
				r.add(u.value.Line, u.path, shown(login)+" is no GitHub login", "")
			case len(d.Authorization.GitHubUsers) >= maxAccounts:
				r.add(u.line, f.path, fmt.Sprintf("there are more than %d accounts", maxAccounts), "")
				return true
			default:
				d.Authorization.GitHubUsers[u.key] = login
			}
		}
	case "bots":
		d.Bots = r.texts(f)
	default:
		return false
	}
	return true
}

// texts reads a list of texts without empty ones.
func (r *reader) texts(f field) []string {
	entries := r.list(f.value, f.path)
	if len(entries) > maxAccounts {
		r.add(f.line, f.path, fmt.Sprintf("there are more than %d entries", maxAccounts), "")
		return nil
	}
	out := make([]string, 0, len(entries))
	for i, e := range entries {
		v, ok := r.text(e, fmt.Sprintf("%s[%d]", f.path, i))
		if ok && !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

// authorize judges the members together and decides the mode that is meant where
// none is named: an allow-list alone asks nobody else.
func (r *reader) authorize(at string, d *InputDriver, given bool) {
	a := &d.Authorization
	switch {
	case !given && len(a.Allow) > 0:
		a.Mode = AuthorizeByAllowList
	case a.Mode == AuthorizeByAllowList && len(a.Allow) == 0 && len(a.GitHubUsers) == 0:
		r.add(d.Line, at+".authorization", "the allow-list is empty: nobody could start anything", "write allow: with account ids, or choose project-roles or permission")
	}
	if a.Mode != AuthorizeByProjectRoles && (a.AdminRoles != nil || a.WriteRoles != nil) {
		r.add(d.Line, at+".roles", "role names mean nothing with authorization: "+a.Mode, "leave roles out, or write authorization: project-roles")
	}
}
