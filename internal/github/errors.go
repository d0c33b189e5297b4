package github

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-github/v62/github"

	"github.com/fullsend/poll-action/internal/dispatch"
	"github.com/fullsend/poll-action/internal/httpx"
)

// Rights that a cure names.
const (
	actionsRights = "actions: write"
	readRights    = "contents: read"
)

const permissionsBlock = "give the job `permissions: {actions: write, contents: read}`; " +
	"for another repository than the workflow's own a token of an app or a person is needed"

// explain turns the error of a post that made no run into one with class and
// cure.
func (d *Dispatcher) explain(err error, t *target) error {
	if statusOf(err) != http.StatusUnprocessableEntity {
		return d.classify("dispatch of "+d.where(t.ref), err, actionsRights)
	}
	said := answer(err)
	lower := strings.ToLower(said)
	has := func(parts ...string) bool {
		for _, p := range parts {
			if !strings.Contains(lower, p) {
				return false
			}
		}
		return true
	}
	cause := fmt.Errorf("GitHub refused to dispatch %s%s", d.where(t.ref), quoted(said))
	switch {
	case has("workflow_dispatch", "does not have"):
		return fatal(cause, "add `workflow_dispatch` under `on:` in the file at that ref; a trigger added just now may take a minute to be known")
	case has("no ref found"):
		return fatal(cause, "the branch or tag is gone; set gha_dispatch.ref in config.yaml to one that exists")
	case has("disabled"):
		return fatal(cause, fmt.Sprintf("enable it again: gh workflow enable %s --repo %s", d.file, d.slug()))
	case has("unexpected inputs"):
		return fatal(cause, "the file changed since it was read; it declared: "+list(t.declared))
	case has("too large"), has("65,535"), has("65535"):
		return permanent(cause)
	case has("input"), has("not in the list"):
		return fatal(cause, "declare our inputs as `type: string` and `required: false`; the file declares: "+list(t.declared))
	}
	return &dispatch.Error{Class: dispatch.Transient, Err: cause}
}

// classify gives every error of a request its class: what concerns credentials
// and configuration stops the cycle, everything else is tried again. thing is
// what was asked for, right the permission it takes.
func (d *Dispatcher) classify(thing string, err error, right string) error {
	said := answer(err)
	if limit, ok := d.rateLimit(err, said); ok {
		return &dispatch.Error{Class: dispatch.Transient, Err: fmt.Errorf("%s: %s", thing, limit)}
	}
	var syntax *json.SyntaxError
	status := statusOf(err)
	cause := fmt.Errorf("%s: GitHub answered %d %s%s", thing, status, http.StatusText(status), quoted(said))
	switch {
	case errors.Is(err, httpx.ErrRedirect):
		return fatal(fmt.Errorf("%s: %w", thing, err),
			"the repository was renamed or moved, or the API URL is not the server's own; correct target-repo")
	case status == 0 && errors.As(err, &syntax):
		return &dispatch.Error{Class: dispatch.Transient, Err: fmt.Errorf("%s: the answer is not JSON", thing)}
	case status == 0:
		return &dispatch.Error{Class: dispatch.Transient, Err: fmt.Errorf("%s: %w", thing, err)}
	case status == http.StatusUnauthorized:
		return fatal(cause, "the GitHub token is wrong or has expired; pass a valid one as github-token")
	case status == http.StatusForbidden && strings.Contains(said, "Resource not accessible"):
		return fatal(cause, "the token lacks `"+right+"`: "+permissionsBlock)
	case status == http.StatusForbidden:
		return fatal(cause, "if it is the token: "+permissionsBlock)
	case status == http.StatusNotFound:
		return fatal(cause, fmt.Sprintf("one of: the default branch has no .github/workflows/%s (it must be there, or have run once, besides being at the ref); "+
			"there is no repository %s; the token cannot see it (%s); the workflow's name is not a plain file name",
			d.file, d.slug(), permissionsBlock))
	}
	return &dispatch.Error{Class: dispatch.Transient, Err: cause}
}

// rateLimit recognizes primary and secondary limits, also those that the
// library does not (a 429), and says when they end.
func (d *Dispatcher) rateLimit(err error, said string) (string, bool) {
	var rate *github.RateLimitError
	var abuse *github.AbuseRateLimitError
	status, header, _ := reply(err)
	if status != http.StatusForbidden && status != http.StatusTooManyRequests {
		return "", false
	}
	secondary := errors.As(err, &abuse) || strings.Contains(strings.ToLower(said), "secondary rate limit")
	exhausted := header.Get("X-RateLimit-Remaining") == "0"
	after := header.Get("Retry-After")
	primary := errors.As(err, &rate) || exhausted || strings.Contains(strings.ToLower(said), "rate limit exceeded")
	if status == http.StatusForbidden && !secondary && !primary && after == "" {
		return "", false
	}
	name := "primary rate limit"
	if secondary || !primary {
		name = "secondary rate limit"
	}
	text := fmt.Sprintf("GitHub's %s is reached", name)
	if n, err := strconv.Atoi(header.Get("X-RateLimit-Limit")); err == nil {
		text += fmt.Sprintf(" (%d requests an hour)", n)
	}
	switch {
	case abuse != nil && abuse.RetryAfter != nil:
		text += fmt.Sprintf(", it ends in %v", abuse.RetryAfter.Round(time.Second))
	case seconds(after) > 0:
		text += fmt.Sprintf(", it ends in %v", seconds(after))
	case rate != nil && !rate.Rate.Reset.IsZero():
		text += ", it ends at " + rate.Rate.Reset.UTC().Format(time.RFC3339)
	default:
		if n, err := strconv.ParseInt(header.Get("X-RateLimit-Reset"), 10, 64); err == nil && n > 0 && n < 1<<40 {
			text += ", it ends at " + time.Unix(n, 0).UTC().Format(time.RFC3339)
		}
	}
	return text, true
}

// seconds reads a Retry-After in seconds, GitHub's form of it; 0 for others.
func seconds(header string) time.Duration {
	n, err := strconv.ParseInt(header, 10, 32)
	if err != nil {
		return 0
	}
	return time.Duration(n) * time.Second
}

// statusOf returns the status of the answer that err stands for; 0 where there
// was none.
func statusOf(err error) int {
	status, _, _ := reply(err)
	return status
}

// reply takes the answer out of the library's errors. The library leaves an
// error's body behind as bytes in memory; they stay there for the next reader.
func reply(err error) (status int, header http.Header, body []byte) {
	var (
		plain *github.ErrorResponse
		rate  *github.RateLimitError
		abuse *github.AbuseRateLimitError
		otp   *github.TwoFactorAuthError
		resp  *http.Response
	)
	switch {
	case errors.As(err, &plain):
		resp = plain.Response
	case errors.As(err, &rate):
		resp = rate.Response
	case errors.As(err, &abuse):
		resp = abuse.Response
	case errors.As(err, &otp):
		resp = otp.Response
	}
	if resp == nil {
		return 0, nil, nil
	}
	if resp.Body != nil {
		if body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer)); err != nil {
			body = nil
		}
		resp.Body = io.NopCloser(bytes.NewReader(body))
	}
	return resp.StatusCode, resp.Header, body
}

// answer returns what an error answer says: message and errors of GitHub's
// JSON, or the beginning of whatever else came.
func answer(err error) string {
	var rate *github.RateLimitError
	var abuse *github.AbuseRateLimitError
	switch {
	case errors.As(err, &rate):
		return rate.Message // made by the library where it asked nobody
	case errors.As(err, &abuse):
		return abuse.Message
	}
	_, _, data := reply(err)
	var body struct {
		Message string          `json:"message"`
		Errors  json.RawMessage `json:"errors"`
	}
	if json.Unmarshal(data, &body) != nil {
		return strings.TrimSpace(string(data))
	}
	text := body.Message
	if len(body.Errors) > 0 && string(body.Errors) != "null" {
		text += " " + string(body.Errors)
	}
	return text
}

// maxAnswer bounds how much of an error answer is looked at.
const maxAnswer = 64 << 10

// quoted returns text from a server for a message: quoted and cut; nothing for
// nothing. A page of HTML says no more than its status.
func quoted(s string) string {
	s = strings.TrimSpace(s)
	if s == "" {
		return ""
	}
	if strings.HasPrefix(s, "<") {
		return " (a page of HTML)"
	}
	return fmt.Sprintf(": %q", clip(s, 300))
}

func clip(s string, n int) string {
	runes := []rune(s)
	if len(runes) <= n {
		return s
	}
	return string(runes[:n]) + "…"
}
