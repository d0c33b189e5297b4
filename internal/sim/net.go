package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"syscall"
	"time"
)

// ErrDropped is what a client of [Net.RoundTrip] sees when a [Fault] cuts the
// connection. It wraps ECONNRESET, as a real transport's error would.
var ErrDropped = fmt.Errorf("sim: connection dropped: %w", syscall.ECONNRESET)

// maxBody bounds one request body, in bytes.
const maxBody = 16 << 20

// Fault says how one exchange goes wrong. The zero value means that it does not.
type Fault struct {
	// DropBefore cuts the connection before the server has seen the request,
	// DropAfter when the server has applied it and before the answer arrives.
	DropBefore, DropAfter bool
	// HangBefore and HangAfter do the same by silence: until the request's
	// context is done.
	HangBefore, HangAfter bool
	// Status, if not 0, is answered instead of the server, with Header and Body.
	Status int
	Header http.Header
	Body   string
	// Delay is slept before the server sees the request.
	Delay time.Duration
}

// Entry is one exchange as the network saw it.
type Entry struct {
	Host, Method, Path, RawQuery string
	// Status is 0 when no answer arrived.
	Status int
	// At is when the request arrived, by [Net.Now]; zero without a clock.
	At time.Time
}

// Net is the simulated network: it carries requests to handlers by host name.
// The fields are read by every exchange and written by none: set them while no
// request is under way. Everything else is safe for concurrent use.
type Net struct {
	// Now is the clock of the log. Nil leaves [Entry.At] zero.
	Now func() time.Time
	// Latency is the time an exchange takes; one half passes before the
	// server sees the request, the other before the answer arrives.
	Latency func(*http.Request) time.Duration
	// Fault is asked once for every exchange, on arrival. It may read the
	// request's body, and change the servers' state in passing.
	Fault func(*http.Request) Fault
	// Check is told every exchange that reached a handler.
	Check func(req *http.Request, reqBody []byte, status int, header http.Header, respBody []byte)

	mu    sync.Mutex
	hosts map[string]http.Handler
	log   []*Entry
}

// NewNet returns a network without hosts.
func NewNet() *Net { return &Net{hosts: map[string]http.Handler{}} }

// Handle makes h the server behind host, which is written as in a URL: with
// the port if the URL has one.
func (n *Net) Handle(host string, h http.Handler) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts[host] = h
}

// RoundTrip carries one request in memory. It fails for an unknown host, when
// the request's context ends, and as a [Fault] says.
func (n *Net) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := readBody(req)
	if err != nil {
		return nil, err
	}
	rec, err := n.exchange(req.URL.Host, req, body)
	if err != nil {
		return nil, err
	}
	content := rec.body.Bytes()
	if req.Method == http.MethodHead {
		content = nil
	}
	return &http.Response{
		Status:        fmt.Sprintf("%d %s", rec.status, http.StatusText(rec.status)),
		StatusCode:    rec.status,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        rec.header,
		Body:          io.NopCloser(bytes.NewReader(content)),
		ContentLength: int64(len(content)),
		Request:       req,
	}, nil
}

// Handler serves host's handler behind a real listener, with the same
// latencies and faults: a drop closes the connection without an answer.
func (n *Net) Handler(host string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := readBody(req)
		if err != nil {
			http.Error(w, "body too large", http.StatusRequestEntityTooLarge)
			return
		}
		rec, err := n.exchange(host, req, body)
		if err != nil {
			cut(w)
			return
		}
		for k, vs := range rec.header {
			w.Header()[k] = vs
		}
		w.WriteHeader(rec.status)
		_, _ = w.Write(rec.body.Bytes())
	})
}

// Log returns every exchange so far, in the order of arrival of the requests.
func (n *Net) Log() []Entry {
	n.mu.Lock()
	defer n.mu.Unlock()
	entries := make([]Entry, len(n.log))
	for i, e := range n.log {
		entries[i] = *e
	}
	return entries
}

// ResetLog forgets the exchanges so far. Those under way are not logged again.
func (n *Net) ResetLog() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.log = nil
}

// Count returns the number of logged requests to host.
func (n *Net) Count(host string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	count := 0
	for _, e := range n.log {
		if e.Host == host {
			count++
		}
	}
	return count
}

// exchange is one request's whole way, there and back.
func (n *Net) exchange(host string, req *http.Request, body []byte) (*recorder, error) {
	ctx := req.Context()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	h, done, err := n.arrive(host, req)
	if err != nil {
		return nil, err
	}
	rec := &recorder{header: http.Header{}, status: http.StatusOK}
	status := 0
	defer func() { done(status) }()

	var fault Fault
	if n.Fault != nil {
		fault = n.Fault(incoming(req, host, body))
	}
	var half time.Duration
	if n.Latency != nil {
		half = n.Latency(incoming(req, host, body)) / 2
	}
	if err := sleep(ctx, half+fault.Delay); err != nil {
		return nil, err
	}
	if err := interrupt(ctx, fault.HangBefore, fault.DropBefore); err != nil {
		return nil, err
	}
	if fault.Status != 0 {
		rec.status = fault.Status
		for k, vs := range fault.Header {
			rec.header[http.CanonicalHeaderKey(k)] = append([]string(nil), vs...)
		}
		rec.body.WriteString(fault.Body)
	} else {
		h.ServeHTTP(rec, incoming(req, host, body))
		if n.Check != nil {
			n.Check(incoming(req, host, body), body, rec.status, rec.header.Clone(), rec.body.Bytes())
		}
	}
	if err := interrupt(ctx, fault.HangAfter, fault.DropAfter); err != nil {
		return nil, err
	}
	if err := sleep(ctx, half); err != nil {
		return nil, err
	}
	status = rec.status
	return rec, nil
}

// arrive looks the host up and opens the log entry, which done completes.
func (n *Net) arrive(host string, req *http.Request) (h http.Handler, done func(status int), err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	h, ok := n.hosts[host]
	if !ok {
		return nil, nil, fmt.Errorf("sim: no host %q in this network", host)
	}
	e := &Entry{Host: host, Method: req.Method, Path: req.URL.EscapedPath(), RawQuery: req.URL.RawQuery}
	if n.Now != nil {
		e.At = n.Now()
	}
	n.log = append(n.log, e)
	return h, func(status int) {
		n.mu.Lock()
		defer n.mu.Unlock()
		e.Status = status
	}, nil
}

// incoming is the request as a server gets it, with a body of its own.
func incoming(req *http.Request, host string, body []byte) *http.Request {
	in := req.Clone(req.Context())
	in.Body = io.NopCloser(bytes.NewReader(body))
	in.ContentLength = int64(len(body))
	in.URL.Host = host
	in.RequestURI = in.URL.RequestURI()
	if in.Host == "" {
		in.Host = host
	}
	return in
}

func readBody(req *http.Request) ([]byte, error) {
	if req.Body == nil {
		return nil, nil
	}
	body, err := io.ReadAll(io.LimitReader(req.Body, maxBody+1))
	if cerr := req.Body.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return nil, fmt.Errorf("sim: read request body: %w", err)
	}
	if len(body) > maxBody {
		return nil, errors.New("sim: request body too large")
	}
	return body, nil
}

func interrupt(ctx context.Context, hang, drop bool) error {
	if hang {
		<-ctx.Done()
		return ctx.Err()
	}
	if drop {
		return ErrDropped
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-ctx.Done():
		case <-t.C:
		}
	}
	return ctx.Err()
}

// cut closes the connection under a response that was not begun.
func cut(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, "connection cannot be dropped", http.StatusInternalServerError)
		return
	}
	_ = conn.Close()
}

// recorder is a response in memory.
type recorder struct {
	header http.Header
	status int
	wrote  bool
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header { return r.header }

func (r *recorder) WriteHeader(status int) {
	if !r.wrote {
		r.wrote, r.status = true, status
	}
}

func (r *recorder) Write(p []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	return r.body.Write(p)
}
