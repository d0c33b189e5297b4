package jira

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

const (
	// maxPages bounds every walk over pages: no walk asks for ever.
	maxPages = 100
	// pageSize is what Jira Cloud gives at most for comments and changelogs.
	pageSize = 100
	// bulkIssues and bulkEntries bound one bulk changelog request.
	bulkIssues  = 200
	bulkEntries = 1000
)

var (
	errPages          = errors.New("jira gives page after page without an end")
	errShortChangelog = errors.New("jira gives only a part of the issue's changelog")
)

// gone marks an answer that says that an issue is not there.
func gone(err error) error { return fmt.Errorf("%w: %w", errGone, err) }

// tokens notices a server that gives the same page token twice, or more than max
// pages.
type tokens struct {
	seen map[string]bool
	max  int
}

func newTokens(pages int) tokens { return tokens{seen: map[string]bool{}, max: pages} }

func (t tokens) next(token string) error {
	if t.seen[token] || len(t.seen) >= t.max {
		return errPages
	}
	t.seen[token] = true
	return nil
}

// changelogs reads the changelogs of many issues with few requests. The result
// has an entry for every issue that the answer spoke of; an issue that was left
// out, or whose entries could not all be read, has none and must be read by
// itself ([Client.changelog]).
func (c *Client) changelogs(ctx context.Context, ids []string) (map[string][]history, error) {
	all := map[string][]history{}
	for batch := range slices.Chunk(ids, bulkIssues) {
		got, err := c.changelogBatch(ctx, batch)
		if err != nil {
			return all, err
		}
		for id, entries := range got {
			all[id] = entries
		}
	}
	return all, nil
}

func (c *Client) changelogBatch(ctx context.Context, ids []string) (map[string][]history, error) {
	got := map[string][]history{}
	seen := newTokens(maxPages)
	for token := ""; ; {
		in := map[string]any{"issueIdsOrKeys": ids, "maxResults": bulkEntries}
		if token != "" {
			in["nextPageToken"] = token
		}
		var page struct {
			Logs []struct {
				IssueID   string            `json:"issueId"`
				Histories []json.RawMessage `json:"changeHistories"`
			} `json:"issueChangeLogs"`
			Next string `json:"nextPageToken"`
		}
		if err := c.ask(ctx, c.path("/changelog/bulkfetch"), in, &page); err != nil {
			return nil, err
		}
		for _, log := range page.Logs {
			entries := got[log.IssueID]
			if entries == nil {
				entries = []history{}
			}
			got[log.IssueID] = append(entries, decodeHistories(log.Histories)...)
		}
		if page.Next == "" {
			return got, nil
		}
		if err := seen.next(page.Next); err != nil {
			return nil, fmt.Errorf("changelogs: %w", err)
		}
		token = page.Next
	}
}

func decodeHistories(raw []json.RawMessage) []history {
	entries := make([]history, 0, len(raw))
	for _, r := range raw {
		if h, ok := decodeHistory(r); ok {
			entries = append(entries, h)
		}
	}
	return entries
}

// changelog reads one issue's changelog back to since at least. Jira lists it
// oldest first, so a long one is read from its end.
func (c *Client) changelog(ctx context.Context, id string, since time.Time) ([]history, error) {
	if c.dataCenter() {
		return c.expandedChangelog(ctx, id)
	}
	first, total, err := c.changelogPage(ctx, id, 0)
	if err != nil || total <= len(first) {
		return decodeHistories(first), err
	}
	byID := map[string]history{}
	add := func(raw []json.RawMessage) (oldest time.Time) {
		for _, h := range decodeHistories(raw) {
			byID[h.ID] = h
			if oldest.IsZero() || h.Created.Before(oldest) {
				oldest = h.Created
			}
		}
		return oldest
	}
	add(first)
	read, stride := 0, max(1, len(first)) // a page may be shorter than asked
	for start := total - stride; ; start -= stride {
		if read++; read > maxPages {
			return nil, fmt.Errorf("changelog of issue %s: %w", id, errPages)
		}
		page, now, err := c.changelogPage(ctx, id, max(start, len(first)))
		if err != nil {
			return nil, err
		}
		oldest := add(page)
		if now > total { // it grew while we read: the end again
			start, total = now, now
			continue
		}
		if start <= len(first) || (!oldest.IsZero() && !oldest.After(since)) {
			break
		}
	}
	entries := make([]history, 0, len(byID))
	for _, id := range sortedKeys(byID) {
		entries = append(entries, byID[id])
	}
	return entries, nil
}

func (c *Client) changelogPage(ctx context.Context, id string, start int) (values []json.RawMessage, total int, err error) {
	var page struct {
		Total  int               `json:"total"`
		Values []json.RawMessage `json:"values"`
	}
	err = c.get(ctx, c.path("/issue/")+url.PathEscape(id)+"/changelog", url.Values{
		"startAt": {strconv.Itoa(start)}, "maxResults": {strconv.Itoa(pageSize)},
	}, &page)
	if statusOf(err) == http.StatusNotFound {
		err = gone(err)
	}
	return page.Values, page.Total, err
}

// comments reads all comments of an issue that the account may see, newest
// first. An edit does not move a comment in that order, so all pages are read;
// truncated says that the oldest were left out at the cap.
func (c *Client) comments(ctx context.Context, id string) (all []comment, truncated bool, err error) {
	for range 3 {
		var shifted bool
		if all, truncated, shifted, err = c.commentPages(ctx, id); err != nil || !shifted {
			return all, truncated, err
		}
	}
	return nil, false, fmt.Errorf("the comments of issue %s change while they are read", id)
}

// commentPages walks the pages once; shifted says that comments were deleted
// meanwhile, so that one may have slipped between two pages.
func (c *Client) commentPages(ctx context.Context, id string) (all []comment, truncated, shifted bool, err error) {
	known := map[string]bool{}
	total := -1
	for start, pages := 0, 0; ; pages++ {
		var page struct {
			Total    int               `json:"total"`
			Comments []json.RawMessage `json:"comments"`
		}
		query := url.Values{"startAt": {strconv.Itoa(start)}, "maxResults": {strconv.Itoa(pageSize)}, "orderBy": {"-created"}}
		if c.dataCenter() {
			query.Set("expand", "properties") // which tell internal comments; Cloud has jsdPublic
		}
		err := c.get(ctx, c.path("/issue/")+url.PathEscape(id)+"/comment", query, &page)
		if statusOf(err) == http.StatusNotFound {
			return nil, false, false, gone(err)
		}
		if err != nil {
			return nil, false, false, err
		}
		if total >= 0 && page.Total < total {
			return nil, false, true, nil
		}
		total = page.Total
		for _, raw := range page.Comments {
			if cm, ok := decodeComment(raw); ok && !known[cm.ID] {
				known[cm.ID] = true
				all = append(all, cm)
			}
		}
		start += len(page.Comments)
		if len(page.Comments) == 0 || start >= page.Total {
			return all, false, false, nil
		}
		if pages+1 >= maxPages {
			return all, true, false, nil
		}
	}
}

// statuses returns the category of every status by id.
func (c *Client) statuses(ctx context.Context) (map[string]string, error) {
	var list []status
	if err := c.get(ctx, c.path("/status"), nil, &list); err != nil {
		return nil, err
	}
	byID := make(map[string]string, len(list))
	for _, s := range list {
		byID[s.ID] = s.Category.Key
	}
	return byID, nil
}
