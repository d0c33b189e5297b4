package httpx_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fullsend/poll-action/internal/httpx"
)

type answerer = func(*http.Request) (*http.Response, error)

// send makes one request and gives its status, 0 with an error.
func send(ctx context.Context, t *testing.T, tr *httpx.Transport, method, path string) (int, error) {
	t.Helper()
	resp, err := tr.RoundTrip(request(ctx, t, method, origin+path, ""))
	if err != nil {
		return 0, err
	}
	_ = resp.Body.Close()
	return resp.StatusCode, nil
}

// mustSend wants a 200 and returns how long it took.
func mustSend(ctx context.Context, t *testing.T, tr *httpx.Transport, method, path string) time.Duration {
	t.Helper()
	start := time.Now()
	if status, err := send(ctx, t, tr, method, path); status != http.StatusOK {
		t.Errorf("%s %s: status %d, %v", method, path, status, err)
	}
	return time.Since(start)
}

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

func TestLimitsAreToldApart(t *testing.T) {
	t.Parallel()
	epoch := func(in time.Duration) string { return strconv.FormatInt(time.Now().Add(in).Unix(), 10) }
	for name, c := range map[string]struct {
		status int
		header func() []string
		reason string
		wait   time.Duration
	}{
		"burst":            {429, func() []string { return []string{"RateLimit-Reason", "jira-burst-based", "Retry-After", "2"} }, httpx.ReasonBurst, seconds(2)},
		"writes":           {429, func() []string { return []string{"RateLimit-Reason", "jira-per-issue-on-write", "Retry-After", "2"} }, httpx.ReasonIssueWrites, seconds(2)},
		"global quota":     {429, func() []string { return []string{"RateLimit-Reason", "jira-quota-global-based", "Retry-After", "2"} }, httpx.ReasonQuotaGlobal, seconds(2)},
		"tenant quota":     {429, func() []string { return []string{"RateLimit-Reason", "jira-quota-tenant-based", "Retry-After", "2"} }, httpx.ReasonQuotaTenant, seconds(2)},
		"another spelling": {429, func() []string { return []string{"RateLimit-Reason", " Jira-Burst-Based ", "Retry-After", "2"} }, httpx.ReasonBurst, seconds(2)},
		"a reason of tomorrow": {
			429, func() []string { return []string{"RateLimit-Reason", "jira-moon-based", "Retry-After", "2"} },
			"jira-moon-based", seconds(2),
		},
		"a reason that is no word": {429, func() []string { return []string{"RateLimit-Reason", "::error::x", "Retry-After", "2"} }, httpx.ReasonUnknown, seconds(2)},
		"a reason without an end": {
			429, func() []string { return []string{"RateLimit-Reason", strings.Repeat("a", 9999), "Retry-After", "2"} },
			httpx.ReasonUnknown, seconds(2),
		},
		"no reason":     {429, func() []string { return []string{"Retry-After", "2"} }, httpx.ReasonUnknown, seconds(2)},
		"nothing":       {429, func() []string { return nil }, httpx.ReasonUnknown, seconds(1)},
		"503":           {503, func() []string { return []string{"Retry-After", "2"} }, httpx.ReasonUnknown, seconds(2)},
		"503 of GitHub": {503, func() []string { return []string{"Retry-After", "2", "X-GitHub-Request-Id", "1"} }, httpx.ReasonUnknown, seconds(2)},
		"403":           {403, func() []string { return []string{"Retry-After", "2"} }, httpx.ReasonUnknown, seconds(2)},
		"a bucket without tokens": {429, func() []string {
			return []string{"X-RateLimit-Limit", "50", "X-RateLimit-Remaining", "0", "X-RateLimit-Interval-Seconds", "2", "X-RateLimit-FillRate", "5", "Retry-After", "0"}
		}, httpx.ReasonTokenBucket, seconds(1)},
		"GitHub's hour": {
			403, func() []string { return []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", epoch(seconds(9))} },
			httpx.ReasonGitHubPrimary, seconds(9),
		},
		"GitHub's hour by 429": {
			429, func() []string { return []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", epoch(seconds(9))} },
			httpx.ReasonGitHubPrimary, seconds(9),
		},
		"GitHub's hour is over": {
			403, func() []string {
				return []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", epoch(-seconds(9))}
			},
			httpx.ReasonGitHubPrimary, seconds(1),
		},
		"GitHub's other limits": {403, func() []string {
			return []string{"X-GitHub-Request-Id", "1", "X-RateLimit-Remaining", "7", "X-RateLimit-Reset", epoch(time.Hour), "Retry-After", "3"}
		}, httpx.ReasonGitHubSecondary, seconds(3)},
		"an epoch elsewhere": {
			429, func() []string { return []string{"X-RateLimit-Remaining", "3", "X-RateLimit-Reset", epoch(seconds(9))} },
			httpx.ReasonUnknown, seconds(9),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &server{answers: []answerer{answer(c.status, c.header()...), answer(200)}}
				tr := newTransport(t, s, nil)
				mustSend(t.Context(), t, tr, "GET", "/rest/api/3/issue/1")
				want := httpx.Stats{Requests: 2, RateLimitWaits: 1, Waited: c.wait, Waits: map[string]httpx.Wait{c.reason: {Count: 1, Total: c.wait}}}
				if diff := cmp.Diff(want, tr.Stats()); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

func TestAGitHubLimitOfUnknownLengthLastsAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{answers: []answerer{answer(429, "X-GitHub-Request-Id", "1", "X-RateLimit-Remaining", "7", "X-RateLimit-Reset", "946684801")}}
		tr := newTransport(t, s, nil)
		if status, err := send(t.Context(), t, tr, "GET", "/x"); status != 429 || err != nil {
			t.Errorf("status %d, %v", status, err)
		}
		_, err := send(t.Context(), t, tr, "GET", "/y")
		var limit *httpx.LimitError
		if !errors.As(err, &limit) || limit.Wait != time.Minute || s.tries() != 1 {
			t.Errorf("got %v", err)
		}
	})
}

func TestRetryAfterIsAMinimumWhateverItSays(t *testing.T) {
	t.Parallel()
	// The server's clock is ahead by 40 s, which its Date says.
	const ahead = 40 * time.Second
	now := func() time.Time { return time.Now().Add(ahead).UTC() }
	page := func(a answerer) answerer {
		return func(r *http.Request) (*http.Response, error) {
			resp, err := a(r)
			resp.Header.Set("Content-Type", "text/html")
			resp.Body = io.NopCloser(strings.NewReader("<html>" + strings.Repeat("slow down", 1000)))
			return resp, err
		}
	}
	for name, c := range map[string]struct {
		header      func() []string
		least, most time.Duration
	}{
		"seconds":            {func() []string { return []string{"Retry-After", "7"} }, seconds(7), seconds(7)},
		"zero":               {func() []string { return []string{"Retry-After", "0"} }, seconds(1), seconds(1)},
		"a date":             {func() []string { return []string{"Retry-After", now().Add(seconds(9)).Format(http.TimeFormat)} }, seconds(9), seconds(10)},
		"a date in the past": {func() []string { return []string{"Retry-After", now().Add(-time.Hour).Format(http.TimeFormat)} }, seconds(1), seconds(1)},
		"missing":            {func() []string { return nil }, seconds(1), seconds(1)},
		"nonsense":           {func() []string { return []string{"Retry-After", "in a moment"} }, seconds(1), seconds(1)},
		"a reset beside it":  {func() []string { return []string{"Retry-After", "7", "X-RateLimit-Reset", now().Format(time.RFC3339)} }, seconds(7), seconds(7)},
		"a far reset beside": {func() []string {
			return []string{"Retry-After", "7", "X-RateLimit-Reset", now().Add(time.Hour).Format(time.RFC3339)}
		}, seconds(7), seconds(7)},
		"a reset alone":       {func() []string { return []string{"X-RateLimit-Reset", now().Add(seconds(9)).Format(time.RFC3339)} }, seconds(9), seconds(10)},
		"a reset in the past": {func() []string { return []string{"X-RateLimit-Reset", now().Add(-time.Hour).Format(time.RFC3339)} }, seconds(1), seconds(1)},
		"a reset and nonsense": {func() []string {
			return []string{"Retry-After", "x", "X-RateLimit-Reset", now().Add(seconds(9)).Format(time.RFC3339)}
		}, seconds(9), seconds(10)},
		"a reset of another zone": {func() []string {
			return []string{"X-RateLimit-Reset", now().Add(seconds(9)).In(time.FixedZone("", 3600)).Format("2006-01-02T15:04:05-0700")}
		}, seconds(9), seconds(10)},
		// 20 s before the end of the minute that is named.
		"a reset to the minute": {func() []string { return []string{"X-RateLimit-Reset", now().Format("2006-01-02T15:04Z")} }, seconds(20), seconds(21)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := append(c.header(), "Date", now().Format(http.TimeFormat))
				s := &server{answers: []answerer{page(answer(429, h...)), answer(200)}}
				took := mustSend(t.Context(), t, newTransport(t, s, nil), "GET", "/x")
				if took < c.least || took > c.most {
					t.Errorf("waited %v, want %v to %v", took, c.least, c.most)
				}
			})
		})
	}
}

func TestOfSeveralRetryAftersTheLongestCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{answers: []answerer{func(r *http.Request) (*http.Response, error) {
			resp, err := answer(429)(r)
			resp.Header["Retry-After"] = []string{"1", "6", "x", "2"}
			return resp, err
		}, answer(200)}}
		if took := mustSend(t.Context(), t, newTransport(t, s, nil), "GET", "/x"); took != seconds(6) {
			t.Errorf("waited %v", took)
		}
	})
}

func TestOurOwnWaitGrowsFromRequestToRequestAndStartsAnewAfterASuccess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		no, yes := answer(429, "Retry-After", "0"), answer(200)
		s := &server{answers: []answerer{no, no, no, no, no, yes, no, yes}}
		tr := newTransport(t, s, func(o *httpx.Options) { o.Retries = -1 })
		for range 8 {
			if _, err := send(t.Context(), t, tr, "GET", "/x"); err != nil {
				t.Fatal(err)
			}
		}
		var gaps []time.Duration
		for i := 1; i < len(s.asked); i++ {
			gaps = append(gaps, s.asked[i].At.Sub(s.asked[i-1].At).Truncate(time.Second))
		}
		want := []time.Duration{seconds(1), seconds(2), seconds(4), seconds(8), seconds(16), 0, seconds(1)}
		if diff := cmp.Diff(want, gaps); diff != "" {
			t.Error(diff)
		}
	})
}

func TestManyRefusalsAtOnceAreOneReasonToWaitLonger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		no := func(r *http.Request) (*http.Response, error) {
			time.Sleep(time.Millisecond)
			return answer(429, "Retry-After", "0")(r)
		}
		s := &server{answers: []answerer{no, no, no, no, no, answer(200)}}
		tr := newTransport(t, s, nil)
		start := time.Now()
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() { mustSend(t.Context(), t, tr, "GET", "/x") })
		}
		wg.Wait()
		if took := time.Since(start); took < time.Second || took > 2*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// TestAPauseHoldsForItsScope sends one request that is refused for 5 s and
// then a second, other one.
func TestAPauseHoldsForItsScope(t *testing.T) {
	t.Parallel()
	plain := func(ctx context.Context) context.Context { return ctx }
	type call struct {
		mark         func(context.Context) context.Context
		method, path string
	}
	named := func(name string) func(context.Context) context.Context {
		return func(ctx context.Context) context.Context { return httpx.Endpoint(ctx, name) }
	}
	about := func(id string) func(context.Context) context.Context {
		return func(ctx context.Context) context.Context { return httpx.Subject(ctx, id) }
	}
	for name, c := range map[string]struct {
		reason        string
		first, second call
		held          bool
	}{
		"burst: the same endpoint of another issue": {
			httpx.ReasonBurst,
			call{plain, "GET", "/jira/rest/api/3/issue/10001/comment"},
			call{plain, "GET", "/jira/rest/api/3/issue/ABC-7/comment"},
			true,
		},
		"burst: the same endpoint of another project": {
			httpx.ReasonBurst,
			call{plain, "GET", "/rest/api/3/project/ABC/role/1"},
			call{plain, "GET", "/rest/api/3/project/X_2/role/99"},
			true,
		},
		"burst: another property": {
			httpx.ReasonBurst,
			call{plain, "GET", "/rest/api/3/issue/1/properties/a.lock"},
			call{plain, "GET", "/rest/api/3/issue/2/properties/b.seen"},
			true,
		},
		"burst: another endpoint": {
			httpx.ReasonBurst,
			call{plain, "GET", "/rest/api/3/issue/1/comment"},
			call{plain, "GET", "/rest/api/3/issue/1/changelog"},
			false,
		},
		"burst: another method": {
			httpx.ReasonBurst,
			call{plain, "GET", "/rest/api/3/issue/1/properties/a"},
			call{plain, "PUT", "/rest/api/3/issue/1/properties/a"},
			false,
		},
		"burst: one name for two paths": {
			httpx.ReasonBurst,
			call{named("GET issue comments"), "GET", "/a"},
			call{named("issue comments"), "GET", "/b"},
			true,
		},
		"burst: two names for one path": {
			httpx.ReasonBurst, call{named("page"), "GET", "/a"}, call{named("pages"), "GET", "/a"}, false,
		},
		"writes: to the same issue": {
			httpx.ReasonIssueWrites, call{about("1"), "PUT", "/a"}, call{about("1"), "DELETE", "/b"}, true,
		},
		"writes: to another issue": {
			httpx.ReasonIssueWrites, call{about("1"), "PUT", "/a"}, call{about("2"), "PUT", "/a"}, false,
		},
		"writes: a read of the same issue": {
			httpx.ReasonIssueWrites, call{about("1"), "PUT", "/a"}, call{about("1"), "GET", "/a"}, false,
		},
		"writes: a search about the same issue": {
			httpx.ReasonIssueWrites,
			call{about("1"), "PUT", "/a"},
			call{func(ctx context.Context) context.Context { return httpx.Repeatable(httpx.Subject(ctx, "1")) }, "POST", "/search"},
			false,
		},
		"writes: an issue that only the path names": {
			httpx.ReasonIssueWrites,
			call{plain, "PUT", "/rest/api/3/issue/abc-1/properties/a"},
			call{plain, "POST", "/rest/api/3/issue/ABC-1/comment"},
			true,
		},
		"writes: of no issue, so of the endpoint": {
			httpx.ReasonIssueWrites,
			call{plain, "POST", "/rest/api/3/issue/bulk"},
			call{plain, "POST", "/rest/api/3/issue/bulk"},
			true,
		},
		"quota: everything": {httpx.ReasonQuotaTenant, call{plain, "GET", "/a"}, call{plain, "PUT", "/b"}, true},
		"pool: everything":  {httpx.ReasonQuotaGlobal, call{plain, "GET", "/a"}, call{plain, "PUT", "/b"}, true},
		"unknown: everything": {
			"", call{plain, "GET", "/a"}, call{plain, "PUT", "/b"}, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &server{answers: []answerer{answer(429, "RateLimit-Reason", c.reason, "Retry-After", "5"), answer(200)}}
				tr := newTransport(t, s, nil)
				if status, err := send(httpx.Once(c.first.mark(t.Context())), t, tr, c.first.method, c.first.path); status != 429 {
					t.Fatalf("status %d, %v", status, err)
				}
				var want time.Duration
				if c.held {
					want = seconds(5)
				}
				if took := mustSend(c.second.mark(t.Context()), t, tr, c.second.method, c.second.path); took != want {
					t.Errorf("the second request was held for %v, want %v", took, want)
				}
				if took := mustSend(c.second.mark(t.Context()), t, tr, c.second.method, c.second.path); took > 100*time.Millisecond {
					t.Errorf("the third request was held for %v", took)
				}
			})
		})
	}
}

func TestAServiceThatIsAwayPausesItsEndpointOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{answers: []answerer{answer(503, "Retry-After", "5"), answer(200)}}
		tr := newTransport(t, s, nil)
		if status, err := send(t.Context(), t, tr, "POST", "/a"); status != 503 {
			t.Fatalf("a POST was repeated: status %d, %v", status, err)
		}
		if took := mustSend(t.Context(), t, tr, "POST", "/b"); took != 0 {
			t.Errorf("another endpoint was held for %v", took)
		}
		if took := mustSend(t.Context(), t, tr, "POST", "/a"); took != seconds(5) {
			t.Errorf("the endpoint was held for %v", took)
		}
	})
}

func TestAPauseThatOutlastsTheCallerIsNotBegun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		deadline, maxWait time.Duration // 0: none, the default
		after             string
		waits             bool
	}{
		"the deadline is sooner":      {seconds(5), 0, "6", false},
		"the deadline is the end":     {seconds(5), 0, "5", false},
		"the deadline is later":       {seconds(6), 0, "5", true},
		"the longest wait is shorter": {0, seconds(4), "5", false},
		"the longest wait":            {0, seconds(5), "5", true},
		"the default wait is shorter": {0, 0, "31", false},
		"for ever":                    {0, 0, "999999999999", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &server{answers: []answerer{answer(429, "RateLimit-Reason", "jira-quota-tenant-based", "Retry-After", c.after), answer(200)}}
				tr := newTransport(t, s, func(o *httpx.Options) { o.MaxWait = c.maxWait })
				ctx := t.Context()
				if c.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.deadline)
					defer cancel()
				}
				start := time.Now()
				status, err := send(ctx, t, tr, "GET", "/x")
				if c.waits {
					if status != 200 || time.Since(start) != seconds(5) {
						t.Errorf("status %d, %v after %v", status, err, time.Since(start))
					}
					return
				}
				if status != 429 || err != nil || time.Since(start) != 0 {
					t.Errorf("first: status %d, %v after %v; want the 429 at once", status, err, time.Since(start))
				}
				_, err = send(httpx.Once(ctx), t, tr, "POST", "/y")
				var limit *httpx.LimitError
				if !errors.As(err, &limit) || !errors.Is(err, httpx.ErrNotSent) || time.Since(start) != 0 || s.tries() != 1 {
					t.Fatalf("second: %v after %v; want an unsent limit at once", err, time.Since(start))
				}
				if limit.Reason != httpx.ReasonQuotaTenant || !limit.Until.Equal(start.Add(limit.Wait)) || limit.Wait < seconds(5) {
					t.Errorf("got %+v", limit)
				}
				for _, part := range []string{limit.Reason, limit.Wait.String(), limit.Until.UTC().Format(time.RFC3339)} {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("%q does not say %q", err, part)
					}
				}
				if got := tr.Stats(); got.RateLimitWaits != 0 || len(got.Waits) != 0 {
					t.Errorf("waits were counted that never were: %+v", got)
				}
			})
		})
	}
}

func TestJitterCountsAgainstTheDeadlineOnly(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		deadline time.Duration
		want     int
	}{"with a deadline in the jitter": {seconds(11), 429}, "with a deadline behind it": {seconds(13), 200}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &server{answers: []answerer{answer(429, "Retry-After", "10"), answer(200)}}
				tr := newTransport(t, s, func(o *httpx.Options) {
					o.MaxWait, o.Rand = seconds(10), func() float64 { return 0.999 }
				})
				ctx, cancel := context.WithTimeout(t.Context(), c.deadline)
				defer cancel()
				if status, err := send(ctx, t, tr, "GET", "/x"); status != c.want {
					t.Errorf("status %d, %v", status, err)
				}
			})
		})
	}
}

func TestAPauseThatIsProlongedTurnsThoseAwayWhoCannotWaitSoLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// /slow is on its way when the pause begins, and prolongs it at 3 s.
		quota := []string{"RateLimit-Reason", "jira-quota-tenant-based", "Retry-After"}
		s := &server{answers: []answerer{
			func(r *http.Request) (*http.Response, error) {
				time.Sleep(seconds(3))
				return answer(429, append(quota, "20")...)(r)
			},
			answer(429, append(quota, "5")...),
			answer(200),
		}}
		tr := newTransport(t, s, nil)
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = send(httpx.Once(t.Context()), t, tr, "GET", "/slow") })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), seconds(15))
		defer cancel()
		start := time.Now()
		wg.Go(func() {
			_, err := send(httpx.Once(ctx), t, tr, "POST", "/unsent")
			var limit *httpx.LimitError
			if errors.As(err, &limit) {
				t.Errorf("the first is sent before anything is known: %v", err)
			}
			_, err = send(httpx.Once(ctx), t, tr, "POST", "/unsent")
			if !errors.As(err, &limit) || !errors.Is(err, httpx.ErrNotSent) || time.Since(start) != seconds(3) {
				t.Errorf("unsent: %v after %v", err, time.Since(start))
			}
		})
		synctest.Wait()
		wg.Wait()
		if s.tries() != 2 {
			t.Errorf("%d tries", s.tries())
		}
		want := map[string]httpx.Wait{httpx.ReasonQuotaTenant: {Count: 1, Total: seconds(3)}}
		if diff := cmp.Diff(want, tr.Stats().Waits); diff != "" {
			t.Error(diff)
		}
	})
}

func TestALimitErrorAfterATryDoesNotClaimThatNothingWasSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		quota := []string{"RateLimit-Reason", "jira-quota-tenant-based", "Retry-After"}
		s := &server{answers: []answerer{
			func(r *http.Request) (*http.Response, error) {
				time.Sleep(seconds(3))
				return answer(429, append(quota, "100")...)(r)
			},
			answer(429, append(quota, "5")...),
			answer(200),
		}}
		tr := newTransport(t, s, nil)
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = send(t.Context(), t, tr, "GET", "/slow") })
		synctest.Wait()
		start := time.Now()
		_, err := send(t.Context(), t, tr, "GET", "/x")
		var limit *httpx.LimitError
		if !errors.As(err, &limit) || errors.Is(err, httpx.ErrNotSent) || time.Since(start) != seconds(3) || !strings.Contains(err.Error(), "after status 429") {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
		wg.Wait()
	})
}

func TestAOnceRequestWaitsBeforeItIsSentAndIsSentOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{answers: []answerer{answer(429, "Retry-After", "5"), answer(429, "Retry-After", "5"), answer(200)}}
		tr := newTransport(t, s, nil)
		for i, want := range []time.Duration{0, seconds(5)} {
			start := time.Now()
			status, err := send(httpx.Once(t.Context()), t, tr, "POST", "/x")
			if status != 429 || time.Since(start) != want || s.tries() != i+1 {
				t.Errorf("%d: status %d, %v after %v and %d tries", i, status, err, time.Since(start), s.tries())
			}
		}
	})
}

func TestWaitersLeaveInTheOrderInWhichTheyCameAndNotAllAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{answers: []answerer{answer(429, "RateLimit-Reason", "jira-burst-based", "Retry-After", "5"), answer(200)}}
		tr := newTransport(t, s, nil)
		ctx := func() context.Context { return httpx.Endpoint(t.Context(), "x") }
		_, _ = send(httpx.Once(ctx()), t, tr, "GET", "/first")
		var wg sync.WaitGroup
		var want []string
		for i := range 9 {
			path := fmt.Sprintf("/w/%d", i)
			want = append(want, path)
			wg.Go(func() { mustSend(ctx(), t, tr, "GET", path) })
			time.Sleep(time.Duration(i+1) * 100 * time.Millisecond)
		}
		mustSend(t.Context(), t, tr, "GET", "/other") // not in the scope
		wg.Wait()
		var got []string
		for i, a := range s.asked[2:] {
			got = append(got, a.Path)
			if i > 0 && a.At.Sub(s.asked[i+1].At) <= 0 {
				t.Errorf("%s left together with the one before", a.Path)
			}
		}
		if s.asked[1].Path != "/other" {
			t.Errorf("%s was held up by a scope that it is not in", s.asked[1].Path)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

func TestNearALimitRequestsAreSpacedUntilTheHeadersRecover(t *testing.T) {
	t.Parallel()
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	bucket := func(remaining string) []string {
		return []string{"X-RateLimit-Limit", "100", "X-RateLimit-Remaining", remaining, "X-RateLimit-Interval-Seconds", "60", "X-RateLimit-FillRate", "20", "Retry-After", "0"}
	}
	for name, c := range map[string]struct {
		near, far []string
		whole     bool
		want      []time.Duration // before each of seven requests
	}{
		"the flag": {
			[]string{"X-RateLimit-NearLimit", "true"},
			nil, false,
			[]time.Duration{0, ms(100), ms(200), ms(400), ms(800), ms(1600), ms(2000)},
		},
		"less than a fifth": {
			[]string{"X-RateLimit-Limit", "350", "X-RateLimit-Remaining", "69"},
			[]string{"X-RateLimit-Limit", "350", "X-RateLimit-Remaining", "70", "X-RateLimit-NearLimit", "false"},
			false,
			[]time.Duration{0, ms(100), ms(200), ms(400), ms(800), ms(1600), ms(2000)},
		},
		"a quota that names itself": {
			[]string{"X-RateLimit-NearLimit", "true", "RateLimit-Reason", "jira-quota-tenant-based"},
			nil, true,
			[]time.Duration{0, ms(100), ms(200), ms(400), ms(800), ms(1600), ms(2000)},
		},
		"a bucket at the pace of its tokens": {
			bucket("19"), bucket("20"), true,
			[]time.Duration{0, seconds(3), seconds(6), seconds(6), seconds(6), seconds(6), seconds(6)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &server{answers: []answerer{answer(200, c.near...)}}
				tr := newTransport(t, s, nil)
				var got []time.Duration
				for range c.want {
					got = append(got, mustSend(t.Context(), t, tr, "GET", "/x"))
				}
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Error(diff)
				}
				waits := tr.Stats()
				if got := waits.Waits[httpx.ReasonNearLimit]; got.Count != len(c.want)-1 || got.Total != waits.Waited || waits.RateLimitWaits != got.Count {
					t.Errorf("counted %+v", waits)
				}

				s.answers = []answerer{answer(200, c.far...)}
				if took := mustSend(t.Context(), t, tr, "GET", "/other"); (took > 0) != c.whole {
					t.Errorf("another endpoint was held for %v", took)
				}
				if took := mustSend(t.Context(), t, tr, "GET", "/x"); (took == 0) != c.whole {
					t.Errorf("held for %v", took)
				}
				if took := mustSend(t.Context(), t, tr, "GET", "/x"); took != 0 {
					t.Errorf("still held for %v", took)
				}
			})
		})
	}
}

func TestSpacingHoldsBetweenConcurrentRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{answers: []answerer{answer(200, "X-RateLimit-NearLimit", "true"), answer(500)}}
		tr := newTransport(t, s, func(o *httpx.Options) { o.Retries = -1 })
		mustSend(t.Context(), t, tr, "GET", "/x")
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() { _, _ = send(t.Context(), t, tr, "GET", "/x") })
		}
		wg.Wait()
		for i := 1; i < len(s.asked); i++ {
			if gap := s.asked[i].At.Sub(s.asked[i-1].At); gap != 100*time.Millisecond {
				t.Errorf("request %d left after %v", i, gap)
			}
		}
	})
}

func TestManyAnswersNearALimitAtOnceAreOneReasonToGoSlower(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{answers: []answerer{func(r *http.Request) (*http.Response, error) {
			s := time.Duration(len(r.URL.Path)) * time.Millisecond
			time.Sleep(s)
			return answer(200, "X-RateLimit-NearLimit", "true")(r)
		}}}
		tr := newTransport(t, s, nil)
		ctx := httpx.Endpoint(t.Context(), "x")
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() { mustSend(ctx, t, tr, "GET", "/"+strings.Repeat("x", i)) })
		}
		wg.Wait()
		if took := mustSend(ctx, t, tr, "GET", "/x"); took > 110*time.Millisecond {
			t.Errorf("the next request was held for %v", took)
		}
	})
}

// late answers after a while.
func late(d time.Duration, a answerer) answerer {
	return func(r *http.Request) (*http.Response, error) {
		time.Sleep(d)
		return a(r)
	}
}

func TestThoseWhoWaitForTheSpacingLeaveAsSoonAsTheHeadersRecover(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		near := answer(200, "X-RateLimit-NearLimit", "true")
		s := &server{answers: []answerer{near, near, near, near, late(seconds(1)/2, answer(200)), answer(200)}}
		tr := newTransport(t, s, nil)
		for range 4 {
			mustSend(t.Context(), t, tr, "GET", "/x")
		}
		time.Sleep(seconds(10))
		var wg sync.WaitGroup
		wg.Go(func() { mustSend(t.Context(), t, tr, "GET", "/x") })
		synctest.Wait()
		// Without the recovery it would be 800 ms.
		if took := mustSend(t.Context(), t, tr, "GET", "/x"); took != seconds(1)/2 {
			t.Errorf("held for %v", took)
		}
		wg.Wait()
	})
}

func TestASuccessFromBeforeTheLimitProvesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		no := answer(429, "RateLimit-Reason", "jira-burst-based", "X-RateLimit-NearLimit", "true")
		s := &server{answers: []answerer{late(seconds(3)/2, answer(200)), no, late(seconds(1), no), answer(200)}}
		tr := newTransport(t, s, func(o *httpx.Options) { o.Retries = -1 })
		ctx := httpx.Endpoint(t.Context(), "x")
		var wg sync.WaitGroup
		wg.Go(func() { mustSend(ctx, t, tr, "GET", "/slow") })
		synctest.Wait()
		_, _ = send(ctx, t, tr, "GET", "/x") // paused until 1 s
		_, _ = send(ctx, t, tr, "GET", "/x") // meets the second limit at 2 s, after the success of 1.5 s
		wg.Wait()
		if took := mustSend(ctx, t, tr, "GET", "/x"); took != seconds(2) {
			t.Errorf("held for %v: the success has undone the limit", took)
		}
	})
}

func TestSpacingGivesWayToADeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{answers: []answerer{answer(200, "X-RateLimit-NearLimit", "true")}}
		tr := newTransport(t, s, nil)
		for range 6 {
			mustSend(t.Context(), t, tr, "GET", "/x")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if took := mustSend(ctx, t, tr, "GET", "/x"); took != 0 {
			t.Errorf("a request in a hurry was held for %v", took)
		}
	})
}

func TestAnEmptyBucketIsHeededBeforeTheFirst429(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		empty := answer(200, "X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "0", "X-RateLimit-Interval-Seconds", "8", "X-RateLimit-FillRate", "8", "Retry-After", "8")
		s := &server{answers: []answerer{empty, empty, empty, answer(200)}}
		tr := newTransport(t, s, nil)
		var got []time.Duration
		for range 4 {
			got = append(got, mustSend(t.Context(), t, tr, "GET", "/x"))
		}
		if diff := cmp.Diff([]time.Duration{0, seconds(8), seconds(8), seconds(8)}, got); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(map[string]httpx.Wait{httpx.ReasonTokenBucket: {Count: 3, Total: seconds(24)}}, tr.Stats().Waits); diff != "" {
			t.Error(diff)
		}
	})
}

func TestAnswersThatAreNoLimitHoldNothingBack(t *testing.T) {
	t.Parallel()
	for name, h := range map[string][]string{
		"a 200 with a Retry-After":       {"Retry-After", "60"},
		"GitHub near the hour's end":     {"X-RateLimit-Limit", "1000", "X-RateLimit-Remaining", "3", "X-RateLimit-Reset", "4102444800"},
		"GitHub with its own headers":    {"X-RateLimit-Limit", "1000", "X-RateLimit-Remaining", "3", "X-RateLimit-Resource", "core"},
		"a limit without a remainder":    {"X-RateLimit-Limit", "1000"},
		"a limit of nothing":             {"X-RateLimit-Limit", "0", "X-RateLimit-Remaining", "0"},
		"a negative remainder":           {"X-RateLimit-Limit", "1000", "X-RateLimit-Remaining", "-1"},
		"numbers that are none":          {"X-RateLimit-Limit", "many", "X-RateLimit-Remaining", "few"},
		"a flag that is neither":         {"X-RateLimit-NearLimit", "yes"},
		"a bucket that is full":          {"X-RateLimit-Limit", "9", "X-RateLimit-Remaining", "9", "X-RateLimit-Interval-Seconds", "1", "X-RateLimit-FillRate", "1", "Retry-After", "0"},
		"a bucket that is never filled":  {"X-RateLimit-Limit", "9", "X-RateLimit-Remaining", "9", "X-RateLimit-Interval-Seconds", "0", "X-RateLimit-FillRate", "0", "Retry-After", "9"},
		"a reason without a limit to it": {"RateLimit-Reason", "jira-burst-based"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				tr := newTransport(t, &server{answers: []answerer{answer(200, h...)}}, nil)
				for range 3 {
					if took := mustSend(t.Context(), t, tr, "GET", "/x"); took != 0 {
						t.Errorf("held for %v", took)
					}
				}
			})
		})
	}
}

func TestABucketThatIsSaidToFillNeverDelaysByTheLongestWaitOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{answers: []answerer{answer(200, "X-RateLimit-Limit", "100", "X-RateLimit-Remaining", "1", "X-RateLimit-Interval-Seconds", "2147483647", "X-RateLimit-FillRate", "1")}}
		tr := newTransport(t, s, nil)
		for range 4 {
			if took := mustSend(t.Context(), t, tr, "GET", "/x"); took > httpx.DefaultMaxWait {
				t.Errorf("held for %v", took)
			}
		}
	})
}

func TestStatsAreACopyWithReasonsInOrderAndBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := 0
		s := &server{answers: []answerer{func(r *http.Request) (*http.Response, error) {
			if n++; n%2 == 0 {
				return answer(200)(r)
			}
			return answer(429, "RateLimit-Reason", fmt.Sprintf("reason-%d", n))(r)
		}}}
		tr := newTransport(t, s, nil)
		for range 100 {
			mustSend(t.Context(), t, tr, "GET", "/x")
		}
		got := tr.Stats()
		if len(got.Waits) > 40 || !slices.IsSorted(got.Reasons()) || len(got.Reasons()) != len(got.Waits) {
			t.Errorf("reasons %q", got.Reasons())
		}
		sum := httpx.Wait{}
		for _, w := range got.Waits {
			sum.Count, sum.Total = sum.Count+w.Count, sum.Total+w.Total
		}
		if sum.Count != 100 || sum.Count != got.RateLimitWaits || sum.Total != got.Waited {
			t.Errorf("the reasons' sum is %+v, the totals %d and %v", sum, got.RateLimitWaits, got.Waited)
		}
		clear(got.Waits)
		if len(tr.Stats().Waits) == 0 {
			t.Error("the caller's map is the transport's")
		}
	})
}

func TestAClockThatStandsStillStopsNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stopped := time.Now()
		s := &server{answers: []answerer{answer(429, "Retry-After", "2"), answer(200)}}
		tr := newTransport(t, s, func(o *httpx.Options) { o.Now = func() time.Time { return stopped } })
		if took := mustSend(t.Context(), t, tr, "GET", "/x"); took != seconds(2) {
			t.Errorf("took %v", took)
		}
	})
}

func TestADeadlineIsNotMeasuredByALocalClockThatIsWrong(t *testing.T) {
	t.Parallel()
	for _, off := range []time.Duration{-time.Hour, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			s := &server{answers: []answerer{answer(429, "Retry-After", "5"), answer(200)}}
			tr := newTransport(t, s, func(o *httpx.Options) { o.Now = func() time.Time { return time.Now().Add(off) } })
			ctx, cancel := context.WithTimeout(t.Context(), seconds(4))
			defer cancel()
			if status, err := send(ctx, t, tr, "GET", "/x"); status != 429 {
				t.Errorf("status %d, %v", status, err)
			}
			ctx, cancel = context.WithTimeout(t.Context(), seconds(6))
			defer cancel()
			if took := mustSend(ctx, t, tr, "GET", "/x"); took != seconds(5) {
				t.Errorf("took %v", took)
			}
		})
	}
}
