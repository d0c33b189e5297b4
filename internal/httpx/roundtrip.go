package httpx

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/sethvargo/go-retry"
)

// maxDrain is how much of a discarded body is read so that its connection can
// be used again; a longer one is cheaper to close.
const maxDrain = 64 << 10

// errAgain tells go-retry to go on; it never leaves the package.
var errAgain = errors.New("again")

// RoundTrip implements [http.RoundTripper].
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if got := Origin(req.URL); got != t.origin || req.URL.User != nil {
		closeBody(req)
		return nil, t.scrub(fmt.Errorf("%w: %s is not the configured server %s", ErrNotSent, got, t.origin))
	}
	ex := &exchange{t: t, req: req, mark: markOf(req), backoff: retry.NewExponential(baseBackoff)}
	ex.scopes = scopesOf(req, ex.mark)
	ctx := req.Context()
	err := retry.Do(ctx, retry.BackoffFunc(func() (time.Duration, bool) { return ex.wait, false }), ex.step)
	if ex.tries == 0 {
		closeBody(req)
	}
	var limit *LimitError
	switch {
	case err != nil && ex.reached && errors.As(err, &limit):
		return nil, t.scrub(fmt.Errorf("after %s: %w", ex.last, limit))
	case err != nil && !ex.reached && !errors.Is(err, ErrNotSent):
		return nil, t.scrub(fmt.Errorf("%w: %w", ErrNotSent, err))
	case err != nil && ex.reached && ctx.Err() != nil && errors.Is(err, ErrNotSent):
		return nil, t.scrub(fmt.Errorf("after %s: %w", ex.last, context.Cause(ctx)))
	case err != nil && ex.reached && errors.Is(err, ErrNotSent):
		// Only the last try was not sent; the error must not claim more.
		return nil, t.scrub(fmt.Errorf("after %s: %s", ex.last, err.Error()))
	case err != nil && ctx.Err() != nil && ex.last != "":
		return nil, t.scrub(fmt.Errorf("after %s: %w", ex.last, err))
	case err != nil:
		return nil, t.scrub(err)
	}
	if t.opts.Inspect != nil {
		if err := t.opts.Inspect(ex.resp); err != nil {
			discard(ex.resp)
			return nil, t.scrub(err)
		}
	}
	return ex.resp, nil
}

// exchange is the state of one request over its tries.
type exchange struct {
	t       *Transport
	req     *http.Request
	mark    mark
	scopes  scopes
	backoff retry.Backoff

	tries   int
	reached bool // a try may have reached the server
	away    bool // the last try was turned away for a while
	resp    *http.Response
	last    string        // what the last try that reached the server met
	wait    time.Duration // before the next try
}

// step is one try and the decision what follows it.
func (e *exchange) step(ctx context.Context) error {
	resp, err := e.try(ctx)
	if !errors.Is(err, ErrNotSent) {
		e.reached = true
	}
	if err != nil && ctx.Err() != nil {
		return err
	}
	if !e.again(resp, err) || !e.plan(ctx, resp) {
		e.resp = resp
		return err
	}
	switch {
	case resp != nil:
		e.last = fmt.Sprintf("status %d", resp.StatusCode)
		discard(resp)
	case !errors.Is(err, ErrNotSent) || !e.reached:
		e.last = err.Error()
	}
	return retry.RetryableError(errAgain)
}

// again says whether this outcome may be followed by another try at all.
func (e *exchange) again(resp *http.Response, err error) bool {
	if e.mark == markOnce || e.tries > e.t.opts.Retries {
		return false
	}
	if e.req.Body != nil && e.req.Body != http.NoBody && e.req.GetBody == nil {
		return false
	}
	var limit *LimitError
	switch {
	case errors.As(err, &limit):
		return false
	case err != nil:
		return e.mark == markRepeatable || errors.Is(err, ErrNotSent)
	case limited(resp):
		return true // the server refused to look at it
	}
	return unavailable(resp.StatusCode) && e.mark == markRepeatable
}

// plan sets the wait before the next try; false means that it is too long. A
// try that was turned away for a while is followed by one that waits at the
// gate with all others of its scope.
func (e *exchange) plan(ctx context.Context, resp *http.Response) bool {
	t := e.t
	e.wait = 0
	if resp != nil && e.away {
		return t.gate.check(ctx, e.scopes.keys()) == nil
	}
	base, _ := e.backoff.Next()
	base = min(base, t.opts.MaxWait)
	e.wait = base + t.jitter(base)
	t.count(func(s *Stats) { s.Waited += e.wait })
	return true
}

// try sends the request once. The body it returns ends the try's time limit.
func (e *exchange) try(ctx context.Context) (*http.Response, error) {
	t := e.t
	if t.opts.Limiter != nil {
		if err := t.opts.Limiter.Wait(ctx); err != nil {
			return nil, fmt.Errorf("%w: pacing: %w", ErrNotSent, err)
		}
	}
	// The gate is the last: nothing that takes time may come between it and
	// the sending.
	h, err := t.gate.pass(ctx, e.scopes.keys())
	t.count(func(s *Stats) { s.waited(h) })
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	tryCtx, cancel := context.WithTimeout(ctx, t.opts.Timeout)
	var wantConn, gotConn atomic.Bool
	out := e.req.Clone(httptrace.WithClientTrace(tryCtx, &httptrace.ClientTrace{
		GetConn: func(string) { wantConn.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { gotConn.Store(true) },
	}))
	if e.tries > 0 && e.req.GetBody != nil {
		body, err := e.req.GetBody()
		if err != nil {
			cancel()
			return nil, fmt.Errorf("request body: %w", err)
		}
		out.Body = body
	}
	if t.opts.UserAgent != "" {
		out.Header.Set("User-Agent", t.opts.UserAgent)
	}
	if t.opts.Authorize != nil {
		t.opts.Authorize(out)
	}
	e.tries++
	t.count(func(s *Stats) { s.Requests++ })
	sent := t.opts.Now()
	resp, err := t.opts.Base.RoundTrip(out)
	received := t.opts.Now()
	if err != nil {
		err = t.tryError(ctx, tryCtx, err)
		cancel()
		if neverSent(err) || (wantConn.Load() && !gotConn.Load()) {
			err = fmt.Errorf("%w: %w", ErrNotSent, err)
		}
		t.opts.Log.DebugContext(ctx, "request", slog.String("method", e.req.Method), slog.String("path", e.req.URL.Path),
			slog.Int("try", e.tries), slog.String("err", t.Redact(err.Error())))
		return nil, err
	}
	t.observe(resp, sent, received)
	e.away = t.learn(ctx, e.scopes, resp, sent, received)
	t.opts.Log.DebugContext(ctx, "request", slog.String("method", e.req.Method), slog.String("path", e.req.URL.Path),
		slog.Int("try", e.tries), slog.Int("status", resp.StatusCode), slog.Duration("took", received.Sub(sent)))
	if resp.Body == nil {
		resp.Body = http.NoBody
	}
	resp.Body = &body{t: t, in: resp.Body, parent: ctx, ctx: tryCtx, cancel: cancel, left: t.opts.MaxBody}
	resp.Request = e.req
	return resp, nil
}

// tryError says in place of a bare "deadline exceeded" whose deadline it was.
func (t *Transport) tryError(parent, try context.Context, err error) error {
	if parent.Err() == nil && errors.Is(try.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("no complete answer within %v: %w", t.opts.Timeout, context.DeadlineExceeded)
	}
	return err
}

// neverSent knows the errors that a connection meets before it carries data.
func neverSent(err error) bool {
	var op *net.OpError
	if errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect") {
		return true
	}
	var dns *net.DNSError
	var cert *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	return errors.As(err, &dns) || errors.As(err, &cert) || errors.As(err, &record)
}

func (t *Transport) count(f func(*Stats)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f(&t.stats)
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}

// discard ends a response whose content is of no interest.
func discard(resp *http.Response) {
	_, _ = io.CopyN(io.Discard, resp.Body, maxDrain)
	_ = resp.Body.Close()
}

// body is a response body under the try's time limit and the cap.
type body struct {
	t           *Transport
	in          io.ReadCloser
	parent, ctx context.Context // a body is the rest of one call
	cancel      context.CancelFunc
	left        int64
}

// Read implements [io.Reader].
func (b *body) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); errors.Is(err, context.DeadlineExceeded) {
		return 0, b.t.tryError(b.parent, b.ctx, err)
	}
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.in.Read(p)
	if int64(n) > b.left {
		n, b.left = int(b.left), 0
		return n, fmt.Errorf("%w: more than the cap of %d bytes", ErrTooLarge, b.t.opts.MaxBody)
	}
	b.left -= int64(n)
	if err != nil {
		if !errors.Is(err, io.EOF) {
			err = b.t.scrub(b.t.tryError(b.parent, b.ctx, err))
		}
		// go-github reads error answers to the end but does not close them.
		b.cancel()
	}
	return n, err
}

// Close implements [io.Closer] and ends the try.
func (b *body) Close() error {
	defer b.cancel()
	return b.in.Close()
}
