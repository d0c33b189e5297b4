// Package httpx is the one way out: an [http.RoundTripper] that every vendor
// client of the program sends its requests through. It promises that
//
//   - a request leaves only for the one origin it was made for, with the
//     Authorization header set for that origin and no other, and that redirects
//     cannot change this;
//   - an answer is bounded in bytes and in time, body included;
//   - only requests that may be repeated are repeated, after waits that end with
//     the context;
//   - no request leaves sooner than a rate limit allows that the server told
//     any request of the same scope (see [Endpoint], [Subject]), nor are limits
//     waited for that outlast the context: those are a [LimitError];
//   - no error text contains a secret;
//   - tries are counted and the server's clock is known (see
//     [Transport.ServerNow]).
//
// Answers of any status are returned as answers; what a status means is the
// vendor's business. A Transport may be used by many goroutines.
package httpx

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Defaults of [Options].
const (
	// DefaultMaxBody bounds a response body.
	DefaultMaxBody = 10 << 20
	// DefaultTimeout bounds one try.
	DefaultTimeout = 30 * time.Second
	// DefaultRetries is the number of tries after the first.
	DefaultRetries = 3
	// DefaultMaxWait is the longest wait that is still sat out.
	DefaultMaxWait = 30 * time.Second
)

var (
	// ErrNotSent marks errors of requests that certainly never reached the
	// server, so that the caller may act as if nothing had been asked.
	ErrNotSent = errors.New("the request was not sent")
	// ErrRedirect marks a redirect that was not followed. The server answered,
	// and did nothing but redirect.
	ErrRedirect = errors.New("redirect refused")
	// ErrTooLarge marks a response body longer than [Options.MaxBody].
	ErrTooLarge = errors.New("response too large")
)

// Options configure a [Transport]. Only Origin is required.
type Options struct {
	// Base sends the requests; nil means a transport of our own that uses the
	// proxy from the environment.
	Base http.RoundTripper
	// Origin is scheme://host[:port]. Requests to any other origin are refused
	// before they are sent.
	Origin string
	// Authorize sets the Authorization header; it is called for every try.
	Authorize func(*http.Request)
	// UserAgent replaces the request's User-Agent unless empty.
	UserAgent string
	// MaxBody is the cap on a response body in bytes, after decompression; 0
	// means [DefaultMaxBody].
	MaxBody int64
	// Timeout bounds one try until its body is read; 0 means [DefaultTimeout].
	Timeout time.Duration
	// Retries is how often a request is tried again; 0 means
	// [DefaultRetries], negative means never.
	Retries int
	// MaxWait is the longest wait before a try, jitter (up to a quarter) not
	// counted. The answer of a server that asks for more is returned to the
	// caller, and what may not be sent yet is a [LimitError]; 0 means
	// [DefaultMaxWait].
	MaxWait time.Duration
	// Limiter paces tries; nil means no pacing.
	Limiter *rate.Limiter
	// Now is the local clock; required where anything asks for the server's.
	Now func() time.Time
	// Rand gives numbers in [0, 1) for jitter; nil means half the jitter.
	Rand func() float64
	// Secrets are replaced by *** in every error text, also in their
	// URL-escaped, quoted and base64 forms. For basic authentication give
	// "user:token" beside the token.
	Secrets []string
	// Inspect looks at every response before it is returned. Its error is
	// final: the response is closed and the error returned instead.
	Inspect func(*http.Response) error
	// Log gets a debug record per try and a warning per rate limit; nil means
	// none.
	Log *slog.Logger
}

// Stats are the totals of a [Transport] since it was made.
type Stats struct {
	// Requests counts tries, repeated ones and failed ones included.
	Requests int
	// RateLimitWaits counts waits for rate limits, those near one included; it
	// is the sum of Waits.
	RateLimitWaits int
	// Waited is the sum of all waits before tries, pacing excepted.
	Waited time.Duration
	// Waits are the waits for rate limits by reason; see [Stats.Reasons].
	Waits map[string]Wait
}

// Transport is the round tripper; see the package's promises.
type Transport struct {
	opts   Options
	origin string
	redact *strings.Replacer
	gate   *gate

	mu    sync.Mutex
	stats Stats
	clock clock
}

// New checks o and returns a Transport.
func New(o Options) (*Transport, error) {
	u, err := url.Parse(o.Origin)
	switch {
	case err != nil:
		// url.Error repeats the text, which may hold a password.
		return nil, errors.New("origin: not a URL")
	case u.User != nil:
		return nil, fmt.Errorf("origin %s: user and password do not belong into a URL", u.Redacted())
	case (u.Scheme != "https" && u.Scheme != "http") || u.Hostname() == "":
		return nil, fmt.Errorf("origin %q: want scheme://host[:port]", o.Origin)
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("origin %q: want scheme://host[:port] without a path", o.Origin)
	}
	if o.Base == nil {
		o.Base = newBase()
	}
	if o.MaxBody <= 0 {
		o.MaxBody = DefaultMaxBody
	}
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	if o.MaxWait <= 0 {
		o.MaxWait = DefaultMaxWait
	}
	switch {
	case o.Retries == 0:
		o.Retries = DefaultRetries
	case o.Retries < 0:
		o.Retries = 0
	}
	if o.Now == nil {
		return nil, errors.New("options: a clock is needed")
	}
	if o.Rand == nil {
		o.Rand = func() float64 { return 0.5 }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	g := &gate{now: o.Now, maxWait: o.MaxWait, scopes: make(map[string]*scope)}
	return &Transport{opts: o, origin: Origin(u), redact: redactor(o.Secrets), gate: g}, nil
}

// Origin returns u's scheme://host:port in lower case with the scheme's
// default port filled in, the form in which origins are compared.
func Origin(u *url.URL) string {
	scheme, port := strings.ToLower(u.Scheme), u.Port()
	if port == "" {
		switch scheme {
		case "https":
			port = "443"
		case "http":
			port = "80"
		}
	}
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	return scheme + "://" + net.JoinHostPort(host, port)
}

func newBase() *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            dialer.DialContext,
		TLSHandshakeTimeout:    10 * time.Second,
		ForceAttemptHTTP2:      true,
		MaxIdleConns:           32,
		MaxIdleConnsPerHost:    16,
		IdleConnTimeout:        30 * time.Second,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: 256 << 10,
	}
}

// Stats returns the totals so far.
func (t *Transport) Stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.stats
	s.Waits = maps.Clone(s.Waits)
	return s
}

// Redact replaces the secrets of [Options.Secrets] in s.
func (t *Transport) Redact(s string) string { return t.redact.Replace(s) }

// ctxKey keys the marks that callers put on a request's context.
type ctxKey struct{}

type mark int

const (
	markNone mark = iota
	markRepeatable
	markOnce
)

// Repeatable marks the requests made under ctx as safe to send more than once
// whatever their method, for example a search by POST or an idempotent PUT.
// GET and HEAD always are.
func Repeatable(ctx context.Context) context.Context {
	return context.WithValue(ctx, ctxKey{}, markRepeatable)
}

// Once marks the requests made under ctx as never to be sent a second time,
// whatever their method and whatever happened to the first try.
func Once(ctx context.Context) context.Context {
	return context.WithValue(ctx, ctxKey{}, markOnce)
}

func markOf(req *http.Request) mark {
	if m, ok := req.Context().Value(ctxKey{}).(mark); ok {
		return m
	}
	if req.Method == http.MethodGet || req.Method == http.MethodHead || req.Method == "" {
		return markRepeatable
	}
	return markNone
}
