package jira

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/fullsend/poll-action/internal/httpx"
	"github.com/fullsend/poll-action/internal/lease"
)

// bulkIDs are the issues of a bulk property operation: exactly one. Without one
// the operation would be meant for every issue that the account may edit, so the
// type has no room for that.
type bulkIDs [1]int64

// bulkSet is the body of PUT /issue/properties/{key}.
type bulkSet struct {
	Value  json.RawMessage `json:"value"`
	Filter struct {
		IDs     bulkIDs         `json:"entityIds"`
		Current json.RawMessage `json:"currentValue,omitempty"`
		Has     *bool           `json:"hasProperty,omitempty"`
	} `json:"filter"`
}

// bulkDelete is the body of DELETE /issue/properties/{key}.
type bulkDelete struct {
	IDs     bulkIDs         `json:"entityIds"`
	Current json.RawMessage `json:"currentValue"`
}

// swapProperty stores value where the property has the value old, or does not
// exist when old is nil, and waits for the end of the operation. Whether it
// changed anything is for the caller to read.
func (c *Client) swapProperty(ctx context.Context, issueID, name string, old, value []byte) error {
	id, err := bulkID(issueID)
	if err != nil {
		return err
	}
	if err := fits(name, value); err != nil {
		return err
	}
	body := bulkSet{Value: value}
	body.Filter.IDs, body.Filter.Current = bulkIDs{id}, old
	if old == nil {
		absent := false
		body.Filter.Has = &absent
	}
	return c.bulk(httpx.Once(ctx), http.MethodPut, issueID, name, old, body)
}

// deletePropertyIf deletes the property where it has the value old, likewise.
func (c *Client) deletePropertyIf(ctx context.Context, issueID, name string, old []byte) error {
	id, err := bulkID(issueID)
	if err != nil {
		return err
	}
	if old == nil {
		return errors.New("a conditional deletion needs the value that is to be deleted")
	}
	return c.bulk(httpx.Repeatable(ctx), http.MethodDelete, issueID, name, old, bulkDelete{IDs: bulkIDs{id}, Current: old})
}

// bulkID is the id of the one issue that a bulk operation is meant for.
func bulkID(issueID string) (int64, error) {
	id, err := strconv.ParseInt(issueID, 10, 64)
	if err != nil || id <= 0 {
		return 0, fmt.Errorf("%s is no issue id, and without one a conditional write would be meant for every issue", quoted(issueID))
	}
	return id, nil
}

// bulk sends a bulk property operation and waits until its task is complete.
func (c *Client) bulk(ctx context.Context, method, issueID, name string, old []byte, body any) error {
	if c.dataCenter() {
		return fmt.Errorf("jira Data Center has no conditional writes of properties: %w", errors.ErrUnsupported)
	}
	if old != nil && !present(old) { // Jira may take null for "no condition"
		return fmt.Errorf("the property %s of issue %s holds null, which no conditional write can replace; delete the property", name, issueID)
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode the conditional write of %s: %w", name, err)
	}
	task, err := c.task(httpx.Subject(ctx, issueID), method, c.path("/issue/properties/")+url.PathEscape(name), raw)
	if err != nil {
		return err
	}
	return c.await(ctx, task)
}

// taskID is what the id of a task may look like.
var taskID = regexp.MustCompile(`^[A-Za-z0-9-]{1,64}$`)

// task sends a request that is answered with 303 and returns the id of the task
// that the answer leads to. Nothing is sent there: of the address only the id
// is used, and only where the rest is that of a task on this site.
func (c *Client) task(ctx context.Context, method, path string, body []byte) (string, error) {
	req, err := c.api.NewRawRequestWithContext(ctx, method, strings.TrimPrefix(path, "/"), bytes.NewReader(body))
	if err != nil {
		return "", fmt.Errorf("make the request %s %s: %w", method, path, err)
	}
	req.Header.Set("Accept", "application/json")
	client := c.http.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := client.Do(req)
	if err != nil {
		return "", unwrapURL(err, method, path)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusSeeOther {
		return "", statusError(resp, method, path)
	}
	base, err := url.Parse(c.base)
	if err != nil {
		return "", fmt.Errorf("parse the base URL: %w", err)
	}
	to, err := resp.Location()
	if err != nil || httpx.Origin(to) != httpx.Origin(base) || to.User != nil {
		return "", fmt.Errorf("jira's answer to %s %s leads away from the site", method, path)
	}
	id, ok := strings.CutPrefix(to.Path, strings.TrimRight(base.Path, "/")+c.path("/task/"))
	if !ok || !taskID.MatchString(id) {
		return "", fmt.Errorf("jira's answer to %s %s leads to no task", method, path)
	}
	return id, nil
}

// The times of waiting for a task: the first pause, the longest, and all of them.
const (
	taskPause    = 250 * time.Millisecond
	taskMaxPause = time.Second
	taskPatience = 20 * time.Second
)

// await waits until a task is complete. One that did not end in time gives the
// turn up (see [lease.ErrSlow]); it may still have its effect later.
func (c *Client) await(ctx context.Context, id string) error {
	path := c.path("/task/") + url.PathEscape(id)
	deadline := c.now().Add(taskPatience)
	for pause := taskPause; ; pause = min(2*pause, taskMaxPause) {
		if err := sleep(ctx, pause); err != nil {
			return err
		}
		var task struct {
			Status  string `json:"status"`
			Message string `json:"message"`
		}
		if err := c.get(ctx, path, nil, &task); err != nil {
			return fmt.Errorf("ask for the task of a conditional write: %w", err)
		}
		switch task.Status {
		case "COMPLETE":
			return nil
		case "FAILED", "CANCELLED", "DEAD":
			return fmt.Errorf("jira's task %s of a conditional write ended as %s: %s", id, task.Status, quoted(task.Message))
		}
		if !c.now().Before(deadline) {
			return fmt.Errorf("%w: jira's task %s is %s after %s", lease.ErrSlow, id, quoted(task.Status), taskPatience)
		}
	}
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Swap implements [lease.Swapper]. Old is as [State.Get] returned it.
func (s *State) Swap(ctx context.Context, item string, old, value []byte) error {
	value, err := s.seal(item, s.props.Lock, value)
	if err != nil {
		return err
	}
	id, old := s.expected(item, old)
	return lostTurn(s.client.swapProperty(ctx, id, s.props.Lock, old, value))
}

// DeleteIf implements [lease.Swapper]; old likewise.
func (s *State) DeleteIf(ctx context.Context, item string, old []byte) error {
	id, old := s.expected(item, old)
	return s.client.deletePropertyIf(ctx, id, s.props.Lock, old)
}

// expected returns the issue's own id, and what stands for the value that was
// read: itself, unless it does not count, or counts as absent.
func (s *State) expected(item string, old []byte) (id string, stored []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.record(item)
	r.fresh = nil
	if r.hidden != nil && (old == nil || bytes.Equal(old, []byte(rejected))) {
		return r.id, r.hidden
	}
	return r.id, old
}

// lostTurn makes a refusal for a rate limit a turn that is given up: that is no
// failure.
func lostTurn(err error) error {
	var limit *httpx.LimitError
	if errors.As(err, &limit) || statusOf(err) == http.StatusTooManyRequests {
		return fmt.Errorf("%w: %w", lease.ErrSlow, err)
	}
	return err
}

// SelfTest implements [lease.ConditionalRegister] on a property of its own.
func (s *State) SelfTest(ctx context.Context, item string, fresh func() lease.Lock) error {
	name := strings.TrimSuffix(s.props.Lock, "lock") + "selftest"
	return lease.Race(ctx, NewState(s.client, Properties{Lock: name}), item, fresh)
}
