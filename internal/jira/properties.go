package jira

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/fullsend/poll-action/internal/dispatch"
	"github.com/fullsend/poll-action/internal/httpx"
)

// Properties are the names of the three entity properties that one target
// repository keeps on an issue (contract, section 4).
type Properties struct{ Lock, LastCheck, Seen string }

// PropertiesFor returns the names for a repository "owner/repo". Dots are
// written %2E, so that "a.b/c" and "a/b.c" cannot share a property.
func PropertiesFor(repo string) (Properties, error) {
	owner, name, ok := strings.Cut(repo, "/")
	if !ok || owner == "" || name == "" || strings.Contains(name, "/") {
		return Properties{}, fmt.Errorf("the target repository %q is not of the form owner/repo", repo)
	}
	esc := func(s string) string { return strings.ReplaceAll(s, ".", "%2E") }
	prefix := "fullsend.poll." + esc(owner) + "." + esc(name) + "."
	return Properties{Lock: prefix + "lock", LastCheck: prefix + "lastCheck", Seen: prefix + "seen"}, nil
}

// list returns the names that are known; a run knows its lock's alone.
func (p Properties) list() []string {
	return slices.DeleteFunc([]string{p.Lock, p.LastCheck, p.Seen}, func(name string) bool { return name == "" })
}

// maxProperty is Jira's cap on a property's value; the documentation says
// characters in one place and bytes in another, so bytes it is.
const maxProperty = 32768

// errGone says that an issue does not exist (any more) or cannot be seen.
var errGone = errors.New("the issue is gone or not visible")

// properties reads all of names on one issue directly, in one request: the issue
// itself is asked for, so that an issue that is gone is told apart from a
// property that is not there (a property's own 404 means either).
func (c *Client) properties(ctx context.Context, issueID string, names ...string) (propertied, error) {
	var issue propertied
	err := c.get(ctx, c.path("/issue/")+url.PathEscape(issueID), url.Values{
		"fields":     {"updated"},
		"properties": {strings.Join(names, ",")},
	}, &issue)
	if statusOf(err) == http.StatusNotFound {
		return propertied{}, gone(err)
	}
	if err == nil && issue.Properties == nil {
		issue.Properties = map[string]json.RawMessage{}
	}
	return issue, err
}

// propertied is an issue with the properties that were asked for.
type propertied struct {
	ID         string                     `json:"id"`
	Properties map[string]json.RawMessage `json:"properties"`
}

func (c *Client) propertyPath(issueID, name string) string {
	return c.path("/issue/") + url.PathEscape(issueID) + "/properties/" + url.PathEscape(name)
}

// bulkFetch is how many issues Jira gives in one bulk request.
const bulkFetch = 100

// bulkProperties reads properties of many issues in one request. Issues that are
// gone or not visible are not in the answer.
func (c *Client) bulkProperties(ctx context.Context, ids []string, names ...string) ([]propertied, error) {
	var answer struct {
		Issues []propertied `json:"issues"`
	}
	err := c.ask(ctx, c.path("/issue/bulkfetch"), map[string]any{"issueIdsOrKeys": ids, "fields": []string{"updated"}, "properties": names}, &answer)
	return answer.Issues, err
}

// fits returns an error for a value that is too large.
func fits(name string, value []byte) error {
	if len(value) <= maxProperty {
		return nil
	}
	return &dispatch.Error{
		Class: dispatch.Permanent,
		Err:   fmt.Errorf("the value for property %s has %d bytes, Jira takes at most %d", name, len(value), maxProperty),
	}
}

// putProperty stores value; created says that there was none before. The request
// is repeated on failures only when ctx allows it (see httpx.Repeatable).
func (c *Client) putProperty(ctx context.Context, issueID, name string, value []byte) (created bool, err error) {
	if err := fits(name, value); err != nil {
		return false, err
	}
	status, err := c.call(httpx.Subject(ctx, issueID), http.MethodPut, c.propertyPath(issueID, name), nil, value, nil)
	switch status {
	case http.StatusForbidden:
		return false, &dispatch.Error{Err: err, Cure: "the Jira account needs Browse Projects and Edit Issues on this issue"}
	case http.StatusNotFound:
		return false, fmt.Errorf("%w: %w", errGone, err)
	}
	return status == http.StatusCreated, err
}

// deleteProperty removes a property; one that is already gone is no error.
func (c *Client) deleteProperty(ctx context.Context, issueID, name string) error {
	status, err := c.call(httpx.Subject(httpx.Repeatable(ctx), issueID), http.MethodDelete, c.propertyPath(issueID, name), nil, nil, nil)
	if status == http.StatusNotFound {
		return nil
	}
	return err
}
