package httpx_test

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/fullsend/poll-action/internal/httpx"
)

// The tests here use the transport that production uses, on loopback.

func onLoopback(t *testing.T, origin string, change func(*httpx.Options)) *httpx.Transport {
	t.Helper()
	o := httpx.Options{Origin: origin, Now: time.Now, Retries: -1}
	if change != nil {
		change(&o)
	}
	tr, err := httpx.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func TestARefusedConnectionIsNotSent(t *testing.T) {
	t.Parallel()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	origin := "http://" + l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = onLoopback(t, origin, nil).RoundTrip(request(t.Context(), t, "POST", origin+"/x", "b"))
	if !errors.Is(err, httpx.ErrNotSent) {
		t.Errorf("got %v", err)
	}
}

func TestACertificateOfNobodyIsNotSent(t *testing.T) {
	t.Parallel()
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = nil
	s.StartTLS()
	defer s.Close()
	_, err := onLoopback(t, s.URL, nil).RoundTrip(request(t.Context(), t, "POST", s.URL+"/x", "b"))
	if !errors.Is(err, httpx.ErrNotSent) {
		t.Errorf("got %v", err)
	}
}

func TestAConnectionThatDiesAfterTheRequestIsNotCalledUnsent(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer s.Close()
	_, err := onLoopback(t, s.URL, nil).RoundTrip(request(t.Context(), t, "POST", s.URL+"/x", "b"))
	if err == nil || errors.Is(err, httpx.ErrNotSent) {
		t.Errorf("got %v", err)
	}
}

func TestACallerWhoLeavesWhileTheServerWorksIsNotToldUnsent(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		// Only a server that has read the whole body sees its client leave.
		_, _ = io.Copy(io.Discard, r.Body)
		cancel()
		<-r.Context().Done()
	}))
	defer s.Close()
	_, err := onLoopback(t, s.URL, nil).RoundTrip(request(ctx, t, "POST", s.URL+"/x", "b"))
	if !errors.Is(err, context.Canceled) || errors.Is(err, httpx.ErrNotSent) {
		t.Errorf("got %v", err)
	}
}

func TestTheCapCountsWhatComesOutOfCompression(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = z.Write(make([]byte, 4<<20))
		_ = z.Close()
	}))
	defer s.Close()
	tr := onLoopback(t, s.URL, func(o *httpx.Options) { o.MaxBody = 1 << 20 })
	resp, err := tr.RoundTrip(request(t.Context(), t, "GET", s.URL+"/x", ""))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if n, err := io.Copy(io.Discard, resp.Body); !errors.Is(err, httpx.ErrTooLarge) || n != 1<<20 {
		t.Errorf("read %d bytes, %v", n, err)
	}
}
