package github

import (
	"cmp"
	"context"
	"net/http"
	"net/url"

	"github.com/fullsend/poll-action/internal/event"
)

// Role returns a person's role on the target repository: admin, maintain, write,
// triage and read as GitHub names them, anything else none; somebody whom GitHub
// does not know as a collaborator is external.
func (d *Dispatcher) Role(ctx context.Context, login string) (event.Role, error) {
	var level struct { // go-github's type has no role_name
		Permission string `json:"permission"`
		RoleName   string `json:"role_name"`
	}
	req, err := d.client.NewRequest(http.MethodGet, "repos/"+url.PathEscape(d.owner)+"/"+url.PathEscape(d.repo)+"/collaborators/"+url.PathEscape(login)+"/permission", nil)
	if err != nil {
		return "", err
	}
	_, err = d.client.Do(ctx, req, &level)
	if statusOf(err) == http.StatusNotFound {
		return event.RoleExternal, nil
	}
	if err != nil {
		return "", d.classify("the permission of a collaborator", err, "metadata: read")
	}
	switch r := event.Role(cmp.Or(level.RoleName, level.Permission)); r {
	case event.RoleAdmin, event.RoleMaintain, event.RoleWrite, event.RoleTriage, event.RoleRead:
		return r, nil
	case event.RoleNone, event.RoleExternal:
	}
	return event.RoleNone, nil
}
