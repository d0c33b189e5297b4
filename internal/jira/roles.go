package jira

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"sync"

	"github.com/fullsend/poll-action/internal/event"
)

// memo computes a value once per key, also under concurrent callers; one that
// waits for another's computation stops waiting when its own context ends.
type memo[V any] struct {
	mu sync.Mutex
	m  map[string]*memoized[V]
}

type memoized[V any] struct {
	done chan struct{}
	v    V
	err  error
}

func (m *memo[V]) get(ctx context.Context, key string, f func() (V, error)) (V, error) {
	m.mu.Lock()
	e := m.m[key]
	if e != nil {
		m.mu.Unlock()
		select {
		case <-e.done:
			return e.v, e.err
		case <-ctx.Done():
			var none V
			return none, ctx.Err()
		}
	}
	e = &memoized[V]{done: make(chan struct{})}
	if m.m == nil {
		m.m = map[string]*memoized[V]{}
	}
	m.m[key] = e
	m.mu.Unlock()
	defer close(e.done)
	e.v, e.err = f()
	return e.v, e.err
}

// roles resolves actors' roles in projects, for one cycle: every look-up is made
// at most once, and only when an event asks for it.
type roles struct {
	client   *Client
	auth     Authorization
	projects memo[map[string]string] // project -> role name -> role id
	members  memo[roleMembers]       // project/role id
	groups   memo[map[string]bool]   // account -> group ids
	edits    memo[bool]              // project/account
	github   memo[event.Role]        // GitHub login
}

type roleMembers struct{ users, groups map[string]bool }

// resolve returns the strongest role that the account has in the project. An
// error means that it is not known; nothing may be decided then.
func (r *roles) resolve(ctx context.Context, project, account string) (event.Role, error) {
	if login, ok := r.login(account); ok && r.auth.GitHubRole != nil {
		role, err := r.github.get(ctx, login, func() (event.Role, error) { return r.auth.GitHubRole(ctx, login) })
		if err != nil {
			return "", fmt.Errorf("the permission of GitHub user %s cannot be read: %w", quoted(login), err)
		}
		return role, nil
	}
	if slices.ContainsFunc(r.auth.Allow, func(a string) bool { return r.client.same(a, account) }) {
		return event.RoleWrite, nil
	}
	var role event.Role
	var err error
	switch r.auth.Mode {
	case ByAllowList:
		return event.RoleExternal, nil
	case ByPermission:
		role, err = r.byPermission(ctx, project, account)
	case ByProjectRoles, "":
		role, err = r.lookUp(ctx, project, account)
	default:
		return "", fmt.Errorf("the authorization %q is unknown", r.auth.Mode)
	}
	if err != nil {
		return "", r.client.denied(ctx, project, err)
	}
	return role, nil
}

// login returns the GitHub login of an account.
func (r *roles) login(account string) (login string, ok bool) {
	for a, login := range r.auth.GitHubUsers {
		if r.client.same(a, account) {
			return login, true
		}
	}
	return "", false
}

func (r *roles) byPermission(ctx context.Context, project, account string) (event.Role, error) {
	may, err := r.edits.get(ctx, project+"/"+account, func() (bool, error) { return r.client.mayEdit(ctx, project, account) })
	if err != nil || !may {
		return event.RoleExternal, err
	}
	return event.RoleWrite, nil
}

func (r *roles) lookUp(ctx context.Context, project, account string) (event.Role, error) {
	byName, err := r.projects.get(ctx, project, func() (map[string]string, error) { return r.client.projectRoles(ctx, project) })
	if err != nil {
		return "", err
	}
	rest := maps.Clone(byName)
	for _, rank := range r.auth.ranks() {
		for _, name := range sortedKeys(byName) {
			if !rank.has(name) {
				continue
			}
			delete(rest, name)
			has, err := r.has(ctx, project, byName[name], account)
			if err != nil {
				return "", err
			}
			if has {
				return rank.role, nil
			}
		}
	}
	for _, name := range sortedKeys(rest) {
		has, err := r.has(ctx, project, rest[name], account)
		if err != nil {
			return "", err
		}
		if has {
			return event.RoleRead, nil
		}
	}
	return event.RoleExternal, nil
}

func (r *roles) has(ctx context.Context, project, roleID, account string) (bool, error) {
	m, err := r.members.get(ctx, project+"/"+roleID, func() (roleMembers, error) { return r.client.roleMembers(ctx, project, roleID) })
	if user := r.client.fold(account); err != nil || m.users[user] {
		return m.users[user], err
	}
	if len(m.groups) == 0 {
		return false, nil
	}
	groups, err := r.groups.get(ctx, account, func() (map[string]bool, error) { return r.client.userGroups(ctx, account) })
	if err != nil {
		return false, err
	}
	for g := range groups {
		if m.groups[g] {
			return true, nil
		}
	}
	return false, nil
}

// projectRoles returns the project's role ids by name.
func (c *Client) projectRoles(ctx context.Context, project string) (map[string]string, error) {
	var byName map[string]string
	if err := c.get(ctx, c.path("/project/")+url.PathEscape(project)+"/role", nil, &byName); err != nil {
		return nil, err
	}
	ids := make(map[string]string, len(byName))
	for name, link := range byName {
		u, err := url.Parse(link)
		if err != nil {
			return nil, fmt.Errorf("role %s of project %s has no usable address", quoted(name), project)
		}
		ids[name] = path.Base(u.Path)
	}
	return ids, nil
}

// roleMembers returns the accounts and groups that have a role in a project.
func (c *Client) roleMembers(ctx context.Context, project, roleID string) (roleMembers, error) {
	var role struct {
		Actors []struct {
			Type  string `json:"type"`
			Name  string `json:"name"` // Data Center: of the user or the group
			User  *user  `json:"actorUser"`
			Group *struct {
				GroupID string `json:"groupId"`
				Name    string `json:"name"`
			} `json:"actorGroup"`
		} `json:"actors"`
	}
	m := roleMembers{users: map[string]bool{}, groups: map[string]bool{}}
	err := c.get(ctx, c.path("/project/")+url.PathEscape(project)+"/role/"+url.PathEscape(roleID), nil, &role)
	for _, a := range role.Actors {
		switch {
		case a.User != nil && a.User.AccountID != "":
			m.users[c.fold(a.User.AccountID)] = true
		case a.Group != nil && a.Group.GroupID != "":
			m.groups["id:"+a.Group.GroupID] = true
		case a.Group != nil && a.Group.Name != "":
			m.groups["name:"+c.fold(a.Group.Name)] = true
		case a.Name != "" && a.Type == "atlassian-user-role-actor":
			m.users[c.fold(a.Name)] = true
		case a.Name != "" && a.Type == "atlassian-group-role-actor":
			m.groups["name:"+c.fold(a.Name)] = true
		}
	}
	return m, err
}

// userGroups returns the groups of an account, each by id and by name.
func (c *Client) userGroups(ctx context.Context, account string) (map[string]bool, error) {
	type group struct {
		GroupID string `json:"groupId"`
		Name    string `json:"name"`
	}
	var list []group
	var err error
	if c.dataCenter() {
		var u struct {
			Groups struct {
				Size  int     `json:"size"`
				Items []group `json:"items"`
			} `json:"groups"`
		}
		err = c.get(ctx, c.path("/user"), url.Values{"username": {account}, "expand": {"groups"}}, &u)
		if list = u.Groups.Items; err == nil && len(list) < u.Groups.Size {
			err = fmt.Errorf("jira names %d of the %d groups of %s only", len(list), u.Groups.Size, quoted(account))
		}
	} else {
		err = c.get(ctx, c.path("/user/groups"), url.Values{"accountId": {account}}, &list)
	}
	if statusOf(err) == http.StatusNotFound {
		return map[string]bool{}, nil // a deleted account; a missing right would be a 403
	}
	groups := make(map[string]bool, 2*len(list))
	for _, g := range list {
		if g.GroupID != "" {
			groups["id:"+g.GroupID] = true
		}
		if g.Name != "" {
			groups["name:"+c.fold(g.Name)] = true
		}
	}
	return groups, err
}
