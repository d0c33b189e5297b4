package httpx_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/fullsend/poll-action/internal/httpx"
)

// strict is a server that refuses when its script says so, each time for a
// scope and in one of the spellings that servers have, and that notes every
// request which leaves for a closed scope after its closing was known.
type strict struct {
	skew, up, down time.Duration

	mu     sync.Mutex
	script []refusal
	closed map[string][]closing
	sent   map[string]int
	faults []string
}

type refusal struct {
	refuse bool
	reason string
	form   int
	after  time.Duration // whole seconds
}

// closing is known to the client from, and lasts until. Whatever leaves at the
// very moment at which it becomes known may not know of it, except the one
// whose answer it came with.
type closing struct {
	from, until time.Time
	id          string
}

const forms = 8

func (s *strict) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
	_, issue, _ := strings.Cut(r.URL.Path, "/issue/")
	issue, endpoint, _ := strings.Cut(issue, "/")
	endpoint = r.Method + " " + endpoint
	mine := map[string]string{httpx.ReasonBurst: endpoint, httpx.ReasonQuotaTenant: "all", "": "all"}
	scopes := []string{"all", endpoint}
	if r.Method == http.MethodPut {
		mine[httpx.ReasonIssueWrites] = "issue " + issue
		scopes = append(scopes, "issue "+issue)
	}

	s.mu.Lock()
	now := time.Now()
	id := r.Header.Get("X-Id")
	s.sent[id]++
	for _, scope := range scopes {
		for _, c := range s.closed[scope] {
			if (c.from.Before(now) || c.from.Equal(now) && c.id == id) && now.Before(c.until) {
				s.faults = append(s.faults, fmt.Sprintf("%s %s left %v too soon for %q", r.Method, r.URL.Path, c.until.Sub(now), scope))
			}
		}
	}
	next := refusal{}
	if len(s.script) > 0 {
		next, s.script = s.script[0], s.script[1:]
	}
	s.mu.Unlock()

	time.Sleep(s.up)
	at := time.Now()
	server := at.Add(s.skew).UTC()
	h := http.Header{"Date": {server.Format(http.TimeFormat)}}
	status := http.StatusOK
	scope, ok := mine[next.reason]
	if next.refuse && ok {
		status = http.StatusTooManyRequests
		if next.reason != "" {
			h.Set("RateLimit-Reason", next.reason)
		}
		until := at.Add(max(next.after, time.Second))
		ends := server.Add(next.after + time.Second).Truncate(time.Second) // by the server's clock
		switch next.form {
		case 0, 1, 2:
			h.Set("Retry-After", strconv.Itoa(int(next.after.Seconds())))
		case 3:
			h.Set("Retry-After", ends.Format(http.TimeFormat))
			until = ends.Add(-s.skew)
		case 4:
			h.Set("X-RateLimit-Reset", ends.Format(time.RFC3339))
			until = ends.Add(-s.skew)
		case 5:
			h.Set("X-RateLimit-Reset", ends.Format("2006-01-02T15:04Z"))
			until = ends.Add(-s.skew)
		case 6:
			h.Set("Retry-After", "later")
			until = at.Add(time.Second)
		case 7:
			until = at.Add(time.Second)
		}
		s.mu.Lock()
		s.closed[scope] = append(s.closed[scope], closing{at.Add(s.down), until, id})
		s.mu.Unlock()
	} else if next.form == 0 {
		h.Set("X-RateLimit-NearLimit", "true")
	}
	time.Sleep(s.down)
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader("<html>"))}, nil
}

type errand struct {
	delay, deadline time.Duration // no deadline: 0
	method, path    string
	once            bool
}

func TestNoRequestOfAScopeLeavesBeforeTheServerAllowsIt(t *testing.T) {
	t.Parallel()
	span := func(rt *rapid.T, most time.Duration, name string) time.Duration {
		return time.Duration(rapid.Int64Range(0, int64(most/time.Millisecond)).Draw(rt, name)) * time.Millisecond
	}
	rapid.Check(t, func(rt *rapid.T) {
		s := &strict{closed: map[string][]closing{}, sent: map[string]int{}}
		s.skew = span(rt, 2*time.Hour, "skew") - time.Hour
		s.up, s.down = span(rt, 2*time.Second, "up"), span(rt, 2*time.Second, "down")
		s.script = rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) refusal {
			return refusal{
				rapid.Bool().Draw(rt, "refuse"),
				rapid.SampledFrom([]string{httpx.ReasonBurst, httpx.ReasonBurst, httpx.ReasonIssueWrites, httpx.ReasonQuotaTenant, ""}).Draw(rt, "reason"),
				rapid.IntRange(0, forms-1).Draw(rt, "form"),
				time.Duration(rapid.IntRange(0, 40).Draw(rt, "after")) * time.Second,
			}
		}), 0, 30).Draw(rt, "script")
		workers := rapid.SliceOfN(rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) errand {
			return errand{
				span(rt, 10*time.Second, "delay"), span(rt, 20*time.Second, "deadline"),
				rapid.SampledFrom([]string{"GET", "PUT"}).Draw(rt, "method"),
				fmt.Sprintf("/issue/%d/%s", rapid.IntRange(1, 2).Draw(rt, "issue"), rapid.SampledFrom([]string{"comment", "changelog"}).Draw(rt, "endpoint")),
				rapid.Bool().Draw(rt, "once"),
			}
		}), 1, 6), 1, 4).Draw(rt, "workers")
		jitter := rapid.Float64Range(0, 0.999).Draw(rt, "jitter")

		synctest.Test(t, func(t *testing.T) {
			tr := newTransport(t, &server{}, func(o *httpx.Options) {
				o.Base, o.Rand = s, func() float64 { return jitter }
			})
			var wg sync.WaitGroup
			for w, errands := range workers {
				wg.Go(func() {
					for i, e := range errands {
						time.Sleep(e.delay)
						run(t, tr, s, e, fmt.Sprintf("%d/%d", w, i))
					}
				})
			}
			wg.Wait()
			total := httpx.Wait{}
			stats := tr.Stats()
			for _, w := range stats.Waits {
				total.Count, total.Total = total.Count+w.Count, total.Total+w.Total
			}
			if total.Count != stats.RateLimitWaits || total.Total > stats.Waited {
				t.Errorf("totals do not match: %+v", stats)
			}
		})
		if len(s.faults) > 0 {
			rt.Error(strings.Join(s.faults, "\n"))
		}
	})
}

// run does an errand and looks at how it ended.
func run(t *testing.T, tr *httpx.Transport, s *strict, e errand, id string) {
	t.Helper()
	ctx := t.Context()
	if e.deadline > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, e.deadline)
		defer cancel()
	}
	ctx = httpx.Repeatable(ctx)
	if e.once {
		ctx = httpx.Once(ctx)
	}
	req := request(ctx, t, e.method, origin+e.path, "")
	req.Header.Set("X-Id", id)
	start := time.Now()
	resp, err := tr.RoundTrip(req)
	if err == nil {
		_ = resp.Body.Close()
	}
	took := time.Since(start)
	s.mu.Lock()
	sent := s.sent[id]
	s.mu.Unlock()

	var limit *httpx.LimitError
	switch {
	case e.once && sent > 1:
		t.Errorf("%s was sent %d times", id, sent)
	case errors.As(err, &limit) && (limit.Wait <= 0 || limit.Reason == "" || errors.Is(err, httpx.ErrNotSent) != (sent == 0)):
		t.Errorf("%s, sent %d times: %v", id, sent, err)
	case err == nil && sent == 0:
		t.Errorf("%s has an answer to nothing", id)
	case err != nil && limit == nil && !errors.Is(err, context.DeadlineExceeded):
		t.Errorf("%s: %v", id, err)
	// A deadline that passes while the server is slow is seen by it late.
	case e.deadline > 0 && took > e.deadline+s.up+s.down:
		t.Errorf("%s took %v of %v", id, took, e.deadline)
	}
}
