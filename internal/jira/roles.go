package jira

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"

	"github.com/fullsend/poll-action/internal/dispatch"
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
	projects memo[map[string]string] // project -> role name -> role id
	members  memo[roleMembers]       // project/role id
	groups   memo[map[string]bool]   // account -> group ids
}

type roleMembers struct{ users, groups map[string]bool }

// ranks are the project roles that mean something to the gate, strongest first
// (specs of the Fullsend project, "Jira adapter"). Any other role is read.
func ranks() []struct {
	name string
	role event.Role
} {
	return []struct {
		name string
		role event.Role
	}{{"Administrators", event.RoleAdmin}, {"Developers", event.RoleWrite}}
}

// resolve returns the strongest role that the account has in the project,
// directly or through a group. An error means that it is not known; nothing may
// be decided then.
func (r *roles) resolve(ctx context.Context, project, account string) (event.Role, error) {
	role, err := r.lookUp(ctx, project, account)
	if err != nil {
		return "", r.explain(ctx, project, err)
	}
	return role, nil
}

func (r *roles) lookUp(ctx context.Context, project, account string) (event.Role, error) {
	byName, err := r.projects.get(ctx, project, func() (map[string]string, error) { return r.client.projectRoles(ctx, project) })
	if err != nil {
		return "", err
	}
	rest := map[string]string{}
	for name, id := range byName {
		rest[strings.ToLower(name)] = id
	}
	for _, rank := range ranks() {
		id, ok := rest[strings.ToLower(rank.name)]
		if !ok {
			continue
		}
		delete(rest, strings.ToLower(rank.name))
		has, err := r.has(ctx, project, id, account)
		if err != nil {
			return "", err
		}
		if has {
			return rank.role, nil
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
	if err != nil || m.users[account] {
		return m.users[account], err
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

// explain turns a failed look-up into a sentence with a cure. Jira Cloud answers
// 401 to a good token that lacks the project right, so /myself decides which of
// the two it is.
func (r *roles) explain(ctx context.Context, project string, err error) error {
	status := statusOf(err)
	var fatal *dispatch.Error
	if status == http.StatusUnauthorized {
		var status401 *StatusError
		errors.As(err, &status401)
		var me struct {
			AccountID string `json:"accountId"`
		}
		if merr := r.client.get(ctx, "/rest/api/3/myself", nil, &me); merr != nil {
			return err // the credentials themselves; err says so
		}
		return &dispatch.Error{
			Err:  fmt.Errorf("roles in project %s cannot be read: %w (the credentials are good: /myself works)", project, status401),
			Cure: "give the Jira account the permission Administer Projects in project " + project,
		}
	}
	if status == http.StatusForbidden || status == http.StatusNotFound {
		return &dispatch.Error{
			Err:  fmt.Errorf("roles in project %s cannot be read: %w", project, err),
			Cure: "the Jira account needs Administer Projects in project " + project + " and the global permission Browse users and groups",
		}
	}
	if errors.As(err, &fatal) {
		return err
	}
	return fmt.Errorf("roles in project %s cannot be read: %w", project, err)
}

// projectRoles returns the project's role ids by name.
func (c *Client) projectRoles(ctx context.Context, project string) (map[string]string, error) {
	var byName map[string]string
	if err := c.get(ctx, "/rest/api/3/project/"+url.PathEscape(project)+"/role", nil, &byName); err != nil {
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
			User *struct {
				AccountID string `json:"accountId"`
			} `json:"actorUser"`
			Group *struct {
				GroupID string `json:"groupId"`
				Name    string `json:"name"`
			} `json:"actorGroup"`
		} `json:"actors"`
	}
	m := roleMembers{users: map[string]bool{}, groups: map[string]bool{}}
	err := c.get(ctx, "/rest/api/3/project/"+url.PathEscape(project)+"/role/"+url.PathEscape(roleID), nil, &role)
	for _, a := range role.Actors {
		if a.User != nil && a.User.AccountID != "" {
			m.users[a.User.AccountID] = true
		}
		if a.Group != nil {
			if id := a.Group.GroupID; id != "" {
				m.groups["id:"+id] = true
			} else if a.Group.Name != "" {
				m.groups["name:"+a.Group.Name] = true
			}
		}
	}
	return m, err
}

// userGroups returns the groups of an account, each by id and by name.
func (c *Client) userGroups(ctx context.Context, account string) (map[string]bool, error) {
	var list []struct {
		GroupID string `json:"groupId"`
		Name    string `json:"name"`
	}
	err := c.get(ctx, "/rest/api/3/user/groups", url.Values{"accountId": {account}}, &list)
	if statusOf(err) == http.StatusNotFound {
		return map[string]bool{}, nil // a deleted account; a missing right would be a 403
	}
	groups := make(map[string]bool, 2*len(list))
	for _, g := range list {
		if g.GroupID != "" {
			groups["id:"+g.GroupID] = true
		}
		if g.Name != "" {
			groups["name:"+g.Name] = true
		}
	}
	return groups, err
}
