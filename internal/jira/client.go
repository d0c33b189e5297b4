// Package jira is everything that knows Jira: a REST client on go-jira's raw
// requests, the Atlassian Document Format, the jira-poll input driver, and lock,
// checkpoint and journal kept in issue entity properties. It promises to read
// whatever Jira (or anybody who may edit an issue) has stored without failing
// the cycle, and to ask no host but the configured one.
package jira

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	gojira "github.com/andygrunwald/go-jira"

	"github.com/fullsend/poll-action/internal/dispatch"
	"github.com/fullsend/poll-action/internal/httpx"
)

// ClientOptions make a [Client].
type ClientOptions struct {
	// BaseURL is the site's address, with a context path if it has one.
	BaseURL string
	// Flavour is the site's kind; empty means [Auto].
	Flavour Flavour
	// Email and Token are an API token's owner and the token (Basic), on Data
	// Center also a user's name and password. Without an email the token is sent
	// as a Bearer token: a personal access token of Data Center.
	Email, Token string
	// HTTP is the transport's configuration; origin, authorization, secrets and
	// response inspection are set here.
	HTTP httpx.Options
}

// Client speaks to one Jira site as one account.
type Client struct {
	base    string
	api     *gojira.Client
	http    *httpx.Transport
	now     func() time.Time
	account atomic.Pointer[string]
	// known says that dc is what the site is.
	known, dc atomic.Bool
}

// NewClient makes a client; it sends nothing.
func NewClient(o ClientOptions) (*Client, error) {
	base, err := url.Parse(strings.TrimRight(o.BaseURL, "/"))
	if err != nil {
		return nil, fmt.Errorf("the Jira base URL cannot be parsed: %w", err)
	}
	c := &Client{base: base.String(), now: o.HTTP.Now}
	c.dc.Store(o.Flavour == DataCenter)
	c.known.Store(o.Flavour == Cloud || o.Flavour == DataCenter || CloudAddress(c.base))
	h := o.HTTP
	h.Origin = httpx.Origin(base)
	h.Secrets = append(h.Secrets, o.Token, o.Email+":"+o.Token)
	h.Authorize = func(r *http.Request) {
		if o.Email == "" {
			r.Header.Set("Authorization", "Bearer "+o.Token)
			return
		}
		r.SetBasicAuth(o.Email, o.Token)
	}
	h.Inspect = c.inspect
	if c.http, err = httpx.New(h); err != nil {
		return nil, err
	}
	if c.api, err = gojira.NewClient(c.http.Client(), c.base+"/"); err != nil {
		return nil, fmt.Errorf("make the Jira client: %w", err)
	}
	return c, nil
}

// Base returns the site's address without a trailing slash.
func (c *Client) Base() string { return c.base }

// ServerNow is Jira's clock, taken from its Date headers.
func (c *Client) ServerNow() time.Time { return c.http.ServerNow() }

// serverTime converts a time of the local clock to Jira's, as far as that is
// known by now.
func (c *Client) serverTime(local time.Time) time.Time {
	skew, _ := c.http.Skew()
	return local.Add(skew)
}

// Stats counts the requests of this client.
func (c *Client) Stats() httpx.Stats { return c.http.Stats() }

// errDenied says that Jira answered as if to an anonymous caller.
var errDenied = errors.New("Jira does not accept the credentials (it answers as to an anonymous caller)") //nolint:staticcheck // begins with a name

const credentialsCure = "check JIRA_USER_EMAIL and JIRA_TOKEN: the token may be expired, revoked or belong to another account" //nolint:gosec // names, no secret

// inspect looks at every response before anybody else does. With a wrong or
// expired token most reads are answered 200 and empty; the header gives it away
// (specs: "What changes the design", 1).
func (c *Client) inspect(resp *http.Response) error {
	if reason := resp.Header.Get("X-Seraph-Loginreason"); reason == "AUTHENTICATED_FAILED" || reason == "AUTHENTICATION_DENIED" {
		return &dispatch.Error{Class: dispatch.Fatal, Err: fmt.Errorf("%w: login reason %q", errDenied, reason), Cure: credentialsCure}
	}
	id := resp.Header.Get("X-Aaccountid")
	if c.dataCenter() {
		id = userName(resp.Header.Get("X-Ausername"))
	}
	if id != "" && id != "anonymous" {
		c.account.Store(&id)
	}
	return nil
}

// userName reads a user name out of a header, empty where it is not certain: a
// plus may stand for itself or for a blank.
func userName(header string) string {
	name, err := url.PathUnescape(header)
	if err != nil || strings.Contains(header, "+") {
		return ""
	}
	return name
}

// fold makes identities and names of groups comparable: Data Center does not tell
// them by their case.
func (c *Client) fold(name string) string {
	if c.dataCenter() {
		return strings.ToLower(name)
	}
	return name
}

// same reports whether two identities are the same account.
func (c *Client) same(a, b string) bool { return a == b || c.fold(a) == c.fold(b) }

// Self returns the caller's account id (Data Center: user name): from the header
// that every answer of Jira carries, else from /myself, which fails where the credentials
// do.
func (c *Client) Self(ctx context.Context) (string, error) {
	if id := c.account.Load(); id != nil {
		return *id, nil
	}
	me, err := c.myself(ctx)
	if err != nil {
		var status *StatusError
		if errors.As(err, &status) && (status.Status == http.StatusUnauthorized || status.Status == http.StatusForbidden) {
			return "", &dispatch.Error{Class: dispatch.Fatal, Err: fmt.Errorf("%w: %w", errDenied, err), Cure: credentialsCure}
		}
		return "", err
	}
	if me.AccountID == "" {
		return "", &dispatch.Error{Class: dispatch.Fatal, Err: errors.New("/myself names no account"), Cure: "check that the base URL is a Jira site"}
	}
	c.account.Store(&me.AccountID)
	return me.AccountID, nil
}

// myself asks who the caller is. Only Data Center knows users by name.
func (c *Client) myself(ctx context.Context) (user, error) {
	var me struct {
		AccountID   string `json:"accountId"`
		Name        string `json:"name"`
		DisplayName string `json:"displayName"`
	}
	err := c.get(ctx, c.path("/myself"), nil, &me)
	if c.dataCenter() {
		me.AccountID = me.Name
	}
	return user{AccountID: me.AccountID, DisplayName: me.DisplayName}, err
}

// StatusError is an answer of Jira that is not a success.
type StatusError struct {
	Method, Path string
	Status       int
	// Messages are Jira's own words, quoted and cut.
	Messages []string
}

// Error names request, status and what Jira said.
func (e *StatusError) Error() string {
	s := fmt.Sprintf("jira answered %d to %s %s", e.Status, e.Method, e.Path)
	if len(e.Messages) > 0 {
		s += ": " + strings.Join(e.Messages, ", ")
	}
	return s
}

// statusOf returns the status of a [*StatusError] in err's chain, else 0.
func statusOf(err error) int {
	var e *StatusError
	if errors.As(err, &e) {
		return e.Status
	}
	return 0
}

func (c *Client) get(ctx context.Context, path string, query url.Values, out any) error {
	_, err := c.call(ctx, http.MethodGet, path, query, nil, out)
	return err
}

// ask sends a POST that only reads, so it may be repeated.
func (c *Client) ask(ctx context.Context, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode the request to %s: %w", path, err)
	}
	_, err = c.call(httpx.Repeatable(ctx), http.MethodPost, path, nil, body, out)
	return err
}

// call sends one request through go-jira and decodes a successful answer into
// out (nil: the body is not looked at). The status is returned also with an
// error, 0 when there was no answer.
func (c *Client) call(ctx context.Context, method, path string, query url.Values, body []byte, out any) (int, error) {
	target := strings.TrimPrefix(path, "/")
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	var reader *bytes.Reader
	req, err := func() (*http.Request, error) {
		if body == nil {
			return c.api.NewRawRequestWithContext(ctx, method, target, nil)
		}
		reader = bytes.NewReader(body)
		return c.api.NewRawRequestWithContext(ctx, method, target, reader)
	}()
	if err != nil {
		return 0, fmt.Errorf("make the request %s %s: %w", method, path, err)
	}
	req.Header.Set("Accept", "application/json")
	resp, err := c.api.Do(req, nil)
	if resp == nil || resp.Response == nil {
		return 0, unwrapURL(err, method, path)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return resp.StatusCode, statusError(resp.Response, method, path)
	}
	if out == nil {
		return resp.StatusCode, nil
	}
	if err := decodeBody(resp.Body, out); err != nil {
		return resp.StatusCode, fmt.Errorf("jira's answer to %s %s cannot be read as JSON (is the base URL a Jira site?): %w", method, path, err)
	}
	return resp.StatusCode, nil
}

// unwrapURL drops the query from a transport error: it may be long and is of no
// use to a reader.
func unwrapURL(err error, method, path string) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return fmt.Errorf("%s %s: %w", method, path, err)
}

const (
	maxErrorBody = 64 << 10
	maxMessage   = 300
)

func statusError(resp *http.Response, method, path string) error {
	e := &StatusError{Method: method, Path: path, Status: resp.StatusCode}
	var buf bytes.Buffer
	_, _ = buf.ReadFrom(http.MaxBytesReader(nil, resp.Body, maxErrorBody)) // what came is enough for a message
	var wire struct {
		ErrorMessages json.RawMessage `json:"errorMessages"`
		Errors        json.RawMessage `json:"errors"`
		Message       string          `json:"message"`
	}
	if json.Unmarshal(buf.Bytes(), &wire) == nil {
		var messages []string
		_ = json.Unmarshal(wire.ErrorMessages, &messages) // another shape is no message
		var fields map[string]string
		_ = json.Unmarshal(wire.Errors, &fields) // likewise; some answers have [] here
		for _, name := range sortedKeys(fields) {
			messages = append(messages, name+": "+fields[name])
		}
		if wire.Message != "" {
			messages = append(messages, wire.Message)
		}
		for _, m := range messages[:min(len(messages), 5)] {
			e.Messages = append(e.Messages, quoted(m))
		}
	}
	if resp.StatusCode == http.StatusUnauthorized {
		return &dispatch.Error{Class: dispatch.Fatal, Err: e, Cure: credentialsCure}
	}
	return e
}
