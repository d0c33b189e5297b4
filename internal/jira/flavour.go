package jira

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/fullsend/poll-action/internal/dispatch"
)

// Flavour is the kind of a Jira site.
type Flavour string

// The flavours.
const (
	// Auto asks the site once, unless its address says what it is.
	Auto Flavour = "auto"
	// Cloud speaks REST v3: accounts by accountId, bodies as documents.
	Cloud Flavour = "cloud"
	// DataCenter speaks REST v2: users by name, bodies as wiki markup, searches by
	// offset, changelogs by expansion, and property values that are objects. It
	// has no bulk reads: what Cloud gives at once is read issue by issue.
	DataCenter Flavour = "datacenter"
)

// CloudAddress reports whether a base URL can only be Jira Cloud's.
func CloudAddress(base string) bool {
	u, err := url.Parse(base)
	if err != nil {
		return false
	}
	host := strings.ToLower(u.Hostname())
	return strings.HasSuffix(host, ".atlassian.net") || strings.HasSuffix(host, ".jira.com") || host == "api.atlassian.com"
}

// Resolve finds out the site's flavour where it is not known; call it before
// anything else. It costs one request, and only for an address that could be
// either.
func (c *Client) Resolve(ctx context.Context) error {
	if c.known.Load() {
		return nil
	}
	info, err := c.serverInfo(ctx)
	if err != nil {
		status := statusOf(err)
		refused := status >= http.StatusBadRequest && status < http.StatusInternalServerError && status != http.StatusTooManyRequests
		if !refused || dispatch.ClassOf(err) != dispatch.Transient {
			return fmt.Errorf("find out whether %s is Jira Cloud or Data Center: %w", c.base, err)
		}
		return &dispatch.Error{
			Class: dispatch.Fatal, Err: fmt.Errorf("%s does not say whether it is Jira Cloud or Data Center: %w", c.base, err),
			Cure: "check base_url (with its context path), or set flavour: cloud or flavour: datacenter",
		}
	}
	c.dc.Store(!strings.EqualFold(info.Deployment, "Cloud"))
	c.known.Store(true)
	return nil
}

type serverInfo struct {
	Deployment string `json:"deploymentType"`
	Version    string `json:"version"`
	Title      string `json:"serverTitle"`
}

// serverInfo asks with version 2 of the API, which both flavours have. Cloud always
// names its deployment type; what has a version and names none is an old server.
func (c *Client) serverInfo(ctx context.Context) (serverInfo, error) {
	var info serverInfo
	if err := c.get(ctx, "/rest/api/2/serverInfo", nil, &info); err != nil {
		return info, err
	}
	if info.Deployment == "" && info.Version == "" {
		return info, errors.New("/serverInfo names no deployment type")
	}
	return info, nil
}

// dataCenter reports whether the site is one of Data Center.
func (c *Client) dataCenter() bool { return c.dc.Load() }

// path completes the path of a resource with the flavour's version of the API.
func (c *Client) path(resource string) string {
	if c.dataCenter() {
		return "/rest/api/2" + resource
	}
	return "/rest/api/3" + resource
}

// accountParam is the query parameter that names a user.
func (c *Client) accountParam() string {
	if c.dataCenter() {
		return "username"
	}
	return "accountId"
}
