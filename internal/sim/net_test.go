package sim_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fullsend/poll-action/internal/sim"
	"github.com/fullsend/poll-action/internal/sim/simtest"
)

// counter answers every request with its body and counts them.
type counter struct {
	mu sync.Mutex
	n  int
}

func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	c.n++
	c.mu.Unlock()
	w.Header().Set("X-Host", r.Host)
	w.WriteHeader(http.StatusTeapot)
	_, _ = io.Copy(w, r.Body)
}

func (c *counter) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

func oneHost() (*sim.Net, *counter) {
	n, c := sim.NewNet(), &counter{}
	n.Handle("a.example", c)
	return n, c
}

func post(ctx context.Context, t *testing.T, n http.RoundTripper, target string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	return n.RoundTrip(req)
}

func TestRequestsReachTheHandlerOfTheirHost(t *testing.T) {
	t.Parallel()
	n, _ := oneHost()
	res, err := post(t.Context(), t, n, "https://a.example/x?y=1")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || string(body) != "hello" || res.StatusCode != http.StatusTeapot || res.Header.Get("X-Host") != "a.example" || res.Request == nil {
		t.Errorf("%v %q %v", res, body, err)
	}
	want := []sim.Entry{{Host: "a.example", Method: http.MethodPost, Path: "/x", RawQuery: "y=1", Status: http.StatusTeapot}}
	if diff := cmp.Diff(want, n.Log()); diff != "" || n.Count("a.example") != 1 {
		t.Errorf("log (-want +got):\n%s", diff)
	}
	n.ResetLog()
	if n.Count("a.example") != 0 {
		t.Error("the log was not reset")
	}
	if res, err := post(t.Context(), t, n, "https://b.example/"); err == nil {
		_ = res.Body.Close()
		t.Error("an unknown host answered")
	}
}

func TestFaultsStrikeBeforeOrAfterTheServer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault   sim.Fault
		applied int
		err     error
		status  int
		took    time.Duration
	}{
		"none":        {status: http.StatusTeapot, applied: 1},
		"drop before": {fault: sim.Fault{DropBefore: true}, err: sim.ErrDropped},
		"drop after":  {fault: sim.Fault{DropAfter: true}, err: sim.ErrDropped, applied: 1},
		"hang before": {fault: sim.Fault{HangBefore: true}, err: context.DeadlineExceeded, took: time.Minute},
		"hang after":  {fault: sim.Fault{HangAfter: true}, err: context.DeadlineExceeded, applied: 1, took: time.Minute},
		"delay":       {fault: sim.Fault{Delay: 10 * time.Second}, status: http.StatusTeapot, applied: 1, took: 10 * time.Second},
		"long delay":  {fault: sim.Fault{Delay: time.Hour}, err: context.DeadlineExceeded, took: time.Minute},
		"status":      {fault: sim.Fault{Status: 429, Header: http.Header{"retry-after": {"0"}}}, status: 429},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n, server := oneHost()
				n.Fault = func(*http.Request) sim.Fault { return c.fault }
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				begin := time.Now()
				res, err := post(ctx, t, n, "https://a.example/")
				if res != nil {
					_ = res.Body.Close()
					if res.StatusCode != c.status {
						t.Errorf("status %d", res.StatusCode)
					}
				}
				if !errors.Is(err, c.err) || server.count() != c.applied || time.Since(begin) != c.took {
					t.Errorf("error %v, applied %d, took %v", err, server.count(), time.Since(begin))
				}
				if got := n.Log()[0].Status; got != c.status {
					t.Errorf("logged status %d, want %d", got, c.status)
				}
			})
		})
	}
}

func TestLatencyPassesOnBothWays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := sim.NewNet()
		begin := time.Now()
		var arrived time.Duration
		n.Handle("a.example", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { arrived = time.Since(begin) }))
		n.Latency = func(*http.Request) time.Duration { return 4 * time.Second }
		res, err := post(t.Context(), t, n, "https://a.example/")
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if arrived != 2*time.Second || time.Since(begin) != 4*time.Second {
			t.Errorf("arrived after %v, answered after %v", arrived, time.Since(begin))
		}
	})
}

func TestFaultsAndChecksSeeHostAndBody(t *testing.T) {
	t.Parallel()
	n, _ := oneHost()
	var faulted, checked string
	n.Fault = func(r *http.Request) sim.Fault {
		body, _ := io.ReadAll(r.Body)
		faulted = r.URL.Host + " " + string(body)
		return sim.Fault{}
	}
	n.Check = func(r *http.Request, body []byte, status int, _ http.Header, answer []byte) {
		checked = r.URL.Host + " " + string(body) + " " + http.StatusText(status) + " " + string(answer)
	}
	res, err := post(t.Context(), t, n, "https://a.example/")
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if faulted != "a.example hello" || checked != "a.example hello I'm a teapot hello" {
		t.Errorf("fault saw %q, check saw %q", faulted, checked)
	}
}

func TestAListeningWorldDropsConnectionsToo(t *testing.T) {
	t.Parallel()
	w := still(t)
	issues(w, 1)
	var mu sync.Mutex
	fault := sim.Fault{}
	w.Net.Fault = func(*http.Request) sim.Fault {
		mu.Lock()
		defer mu.Unlock()
		return fault
	}
	jira, github := w.Listen(t)
	get := func() (*http.Response, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, jira+"/rest/api/3/issue/PROJ-1/properties/p", strings.NewReader("1"))
		if err != nil {
			t.Fatal(err)
		}
		req.SetBasicAuth(simtest.JiraEmail, simtest.JiraToken)
		req.Header.Set("Content-Type", "application/json")
		return http.DefaultTransport.RoundTrip(req)
	}
	res, err := get()
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusCreated || !strings.HasPrefix(github, "http://127.0.0.1:") {
		t.Errorf("status %d, GitHub at %s", res.StatusCode, github)
	}
	mu.Lock()
	fault.DropAfter = true
	mu.Unlock()
	if res, err := get(); err == nil {
		_ = res.Body.Close()
		t.Error("the connection was not dropped")
	}
	if w.Jira.PropertyWrites() != 2 {
		t.Errorf("%d writes", w.Jira.PropertyWrites())
	}
}
