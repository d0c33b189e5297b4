package jira

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/fullsend/poll-action/internal/dispatch"
	"github.com/fullsend/poll-action/internal/event"
)

// Mode says how an actor's role is found.
type Mode string

// The modes of authorization.
const (
	// ByProjectRoles matches the names of the project's roles (the Jira adapter's
	// mapping); it needs Administer Projects.
	ByProjectRoles Mode = "project-roles"
	// ByPermission asks whether the actor may edit issues of the project; it needs
	// Administer Projects too, but no role has to have a certain name.
	ByPermission Mode = "permission"
	// ByAllowList knows only the accounts of Allow; it needs no right at all.
	ByAllowList Mode = "allow"
)

// Authorization configures how actors' roles are found.
type Authorization struct {
	Mode Mode
	// RoleNames are the names of the project roles that mean admin and write; an
	// entry replaces the adapter's own name.
	RoleNames map[event.Role][]string
	// Allow are accounts that have the role write, whatever Jira says.
	Allow []string
	// GitHubUsers maps accounts to GitHub logins, whose permission on the target
	// repository then counts. GitHubRole asks for it.
	GitHubUsers map[string]string
	GitHubRole  func(ctx context.Context, login string) (event.Role, error)
}

// ranks are the project roles that mean something to the gate, strongest first.
// Any other role is read (specs of the Fullsend project, "Jira adapter").
func (a Authorization) ranks() []rank {
	names := func(role event.Role, own string) []string {
		if given := a.RoleNames[role]; len(given) > 0 {
			return given
		}
		return []string{own}
	}
	return []rank{
		{event.RoleAdmin, names(event.RoleAdmin, "Administrators")},
		{event.RoleWrite, names(event.RoleWrite, "Developers")},
	}
}

type rank struct {
	role  event.Role
	names []string
}

// has reports whether name is one of the rank's, ignoring case.
func (r rank) has(name string) bool {
	for _, n := range r.names {
		if strings.EqualFold(n, name) {
			return true
		}
	}
	return false
}

// mayEdit reports whether the account may edit issues of the project.
func (c *Client) mayEdit(ctx context.Context, project, account string) (bool, error) {
	query := url.Values{c.accountParam(): {account}, "permissions": {"EDIT_ISSUES"}, "projectKey": {project}}
	for start, pages := 0, 0; pages < maxPages; pages++ {
		var list []user
		if err := c.get(ctx, c.path("/user/permission/search"), query, &list); err != nil {
			return false, err
		}
		for _, u := range list {
			if c.same(u.AccountID, account) {
				return true, nil
			}
		}
		if len(list) == 0 || !c.dataCenter() {
			return false, nil
		}
		// Data Center finds everybody whose name begins like this one.
		start += len(list)
		query.Set("startAt", strconv.Itoa(start))
	}
	return false, errPages
}

// needsLess says, for a missing right, which mode of authorization needs less.
const needsLess = "; or use an authorization that needs less: `authorization: allow` with `allow: [account ids]` needs no right in Jira, and `github-users` asks GitHub instead"

// denied turns a failed look-up into a sentence with a cure. Jira Cloud answers
// 401 to a good token that lacks the project right, so /myself decides which of
// the two it is.
func (c *Client) denied(ctx context.Context, project string, err error) error {
	switch statusOf(err) {
	case http.StatusUnauthorized:
		if _, merr := c.myself(ctx); merr != nil {
			return err // the credentials themselves; err says so
		}
		return &dispatch.Error{
			Err:  fmt.Errorf("roles in project %s cannot be read: %w (the credentials are good: /myself works)", project, inner(err)),
			Cure: "give the Jira account the permission Administer Projects in project " + project + needsLess,
		}
	case http.StatusForbidden, http.StatusNotFound:
		return &dispatch.Error{
			Err:  fmt.Errorf("roles in project %s cannot be read: %w", project, err),
			Cure: "the Jira account needs Administer Projects in project " + project + " and the global permission Browse users and groups" + needsLess,
		}
	}
	if dispatch.ClassOf(err) != dispatch.Transient {
		return err
	}
	return fmt.Errorf("roles in project %s cannot be read: %w", project, err)
}

// inner returns Jira's own answer out of an error that adds a cure to it.
func inner(err error) error {
	var e *StatusError
	if errors.As(err, &e) {
		return e
	}
	return err
}
