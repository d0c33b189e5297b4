package jira

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// searchFields are the fields that a search asks for; a search gives whole issues
// otherwise, or nothing but ids.
func searchFields() []string {
	return []string{"created", "updated", "reporter", "creator", "labels", "status", "project"}
}

// searchResult is one page of a search's result. next is where the following page
// begins, empty on the last one: a token on Cloud, an offset on Data Center, which
// also tells how many issues there are in all.
type searchResult struct {
	issues []json.RawMessage
	next   string
	total  int
}

// before returns the offset that lies n rows before another.
func before(at string, n int) string {
	start, _ := strconv.Atoi(at) // made by searchByOffset
	return strconv.Itoa(max(0, start-n))
}

// search reads one page of a query's result.
func (c *Client) search(ctx context.Context, jql, at string, size int, fields, properties []string) (searchResult, error) {
	if c.dataCenter() {
		return c.searchByOffset(ctx, jql, at, size, fields, properties)
	}
	in := map[string]any{"jql": jql, "maxResults": size, "fields": fields}
	if len(properties) > 0 {
		in["properties"] = properties
	}
	if at != "" {
		in["nextPageToken"] = at
	}
	var page struct {
		Issues []json.RawMessage `json:"issues"`
		Next   *string           `json:"nextPageToken"`
		IsLast bool              `json:"isLast"`
	}
	err := c.ask(ctx, c.path("/search/jql"), in, &page)
	res := searchResult{issues: page.Issues}
	if !page.IsLast && page.Next != nil && len(page.Issues) > 0 {
		res.next = *page.Next
	}
	return res, err
}

// maxQueryURL is how long a query, written for an address, may be to be sent in
// one: servers take 8 KiB for a request's first line and all its headers.
const maxQueryURL = 4000

// searchByOffset is Data Center's search. In an address an unknown parameter is
// ignored, and it is not certain that every version knows properties; only a
// query that is too long for an address goes into a body, without them.
func (c *Client) searchByOffset(ctx context.Context, jql, at string, size int, fields, properties []string) (searchResult, error) {
	start, _ := strconv.Atoi(at) // made below
	var page struct {
		Total  int               `json:"total"`
		Issues []json.RawMessage `json:"issues"`
	}
	var err error
	query := url.Values{
		"jql": {jql}, "startAt": {strconv.Itoa(start)}, "maxResults": {strconv.Itoa(size)}, "fields": {strings.Join(fields, ",")},
	}
	if len(properties) > 0 {
		query.Set("properties", strings.Join(properties, ","))
	}
	if len(query.Encode()) <= maxQueryURL {
		err = c.get(ctx, c.path("/search"), query, &page)
	} else {
		err = c.ask(ctx, c.path("/search"), map[string]any{"jql": jql, "startAt": start, "maxResults": size, "fields": fields}, &page)
	}
	res := searchResult{issues: page.Issues, total: page.Total}
	if end := start + len(page.Issues); len(page.Issues) > 0 && end < page.Total {
		res.next = strconv.Itoa(end)
	}
	return res, err
}

// count returns how many issues a query finds, about.
func (c *Client) count(ctx context.Context, jql string) (int, error) {
	if c.dataCenter() {
		var page struct {
			Total int `json:"total"`
		}
		err := c.get(ctx, c.path("/search"), url.Values{"jql": {jql}, "maxResults": {"0"}, "fields": {"id"}}, &page)
		return page.Total, err
	}
	var answer struct {
		Count int `json:"count"`
	}
	err := c.ask(ctx, c.path("/search/approximate-count"), map[string]any{"jql": jql}, &answer)
	return answer.Count, err
}

// expandedChangelog reads an issue's whole changelog as Data Center gives it: as
// an expansion of the issue, in no dependable order.
func (c *Client) expandedChangelog(ctx context.Context, id string) ([]history, error) {
	var issue struct {
		Changelog struct {
			Total     int               `json:"total"`
			Histories []json.RawMessage `json:"histories"`
		} `json:"changelog"`
	}
	err := c.get(ctx, c.path("/issue/")+url.PathEscape(id), url.Values{"fields": {"updated"}, "expand": {"changelog"}}, &issue)
	if statusOf(err) == http.StatusNotFound {
		return nil, gone(err)
	}
	if err == nil && issue.Changelog.Total > len(issue.Changelog.Histories) {
		err = errShortChangelog
	}
	return decodeHistories(issue.Changelog.Histories), err
}
