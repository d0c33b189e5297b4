package httpx_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/time/rate"

	"github.com/fullsend/poll-action/internal/httpx"
)

const origin = "https://jira.test"

// server is an in-memory base: every try is answered by the next function; the
// last one answers all that follow.
type server struct {
	mu      sync.Mutex
	answers []func(*http.Request) (*http.Response, error)
	asked   []asked
}

type asked struct {
	Method, Path, Auth, Agent, Body string
	At                              time.Time
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
		_ = r.Body.Close()
	}
	s.mu.Lock()
	s.asked = append(s.asked, asked{r.Method, r.URL.Path, r.Header.Get("Authorization"), r.Header.Get("User-Agent"), string(body), time.Now()})
	next := s.answers[0]
	if len(s.answers) > 1 {
		s.answers = s.answers[1:]
	}
	s.mu.Unlock()
	return next(r)
}

func (s *server) tries() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.asked)
}

func answer(status int, header ...string) func(*http.Request) (*http.Response, error) {
	return func(*http.Request) (*http.Response, error) {
		h := http.Header{}
		for i := 0; i+1 < len(header); i += 2 {
			h.Set(header[i], header[i+1])
		}
		return &http.Response{
			StatusCode: status, Status: fmt.Sprintf("%d %s", status, http.StatusText(status)), Header: h,
			Body: io.NopCloser(strings.NewReader("{}")),
		}, nil
	}
}

func broken(err error) func(*http.Request) (*http.Response, error) {
	return func(*http.Request) (*http.Response, error) { return nil, err }
}

func newTransport(t *testing.T, s *server, change func(*httpx.Options)) *httpx.Transport {
	t.Helper()
	o := httpx.Options{Base: s, Origin: origin, Now: time.Now, Rand: func() float64 { return 0 }}
	if change != nil {
		change(&o)
	}
	tr, err := httpx.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func request(ctx context.Context, t *testing.T, method, url, body string) *http.Request {
	t.Helper()
	var in io.Reader
	if body != "" {
		in = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(ctx, method, url, in)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestNewRefusesWhatIsNoOrigin(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		"", "jira.test", "ftp://jira.test", "https://", "https://jira.test/path", "https://jira.test?x=1",
		"https://user:hunter22@jira.test", "https://us er:hunter22@jira.test", ":",
	} {
		_, err := httpx.New(httpx.Options{Origin: bad, Now: time.Now})
		if err == nil {
			t.Errorf("%q was accepted", bad)
		} else if strings.Contains(err.Error(), "hunter22") {
			t.Errorf("the error shows the password: %v", err)
		}
	}
	if _, err := httpx.New(httpx.Options{Origin: origin}); err == nil {
		t.Error("no clock was accepted")
	}
}

func TestARequestToAnotherOriginIsNotSent(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{
		"another host":            "https://evil.test/x",
		"another scheme":          "http://jira.test/x",
		"another port":            "https://jira.test:8443/x",
		"a host that only begins": "https://jira.test.evil.test/x",
		"a user in the URL":       "https://me:pw@jira.test/x",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &server{answers: []func(*http.Request) (*http.Response, error){answer(200)}}
			tr := newTransport(t, s, nil)
			_, err := tr.RoundTrip(request(t.Context(), t, "POST", url, "secret body"))
			if !errors.Is(err, httpx.ErrNotSent) {
				t.Errorf("got %v, want ErrNotSent", err)
			}
			if s.tries() != 0 {
				t.Error("the request was sent")
			}
		})
	}
}

func TestTheSameOriginInAnotherSpellingIsAllowed(t *testing.T) {
	t.Parallel()
	s := &server{answers: []func(*http.Request) (*http.Response, error){answer(200)}}
	tr := newTransport(t, s, nil)
	for _, url := range []string{"https://jira.test/x", "https://JIRA.test/x", "https://jira.test:443/x"} {
		resp, err := tr.RoundTrip(request(t.Context(), t, "GET", url, ""))
		if err != nil {
			t.Fatalf("%s: %v", url, err)
		}
		_ = resp.Body.Close()
	}
}

func TestEveryTryIsAuthorizedAndCarriesTheWholeBody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{answers: []func(*http.Request) (*http.Response, error){answer(503), answer(200)}}
		n := 0
		tr := newTransport(t, s, func(o *httpx.Options) {
			o.UserAgent = "fullsend-poll/1"
			o.Authorize = func(r *http.Request) { n++; r.Header.Set("Authorization", fmt.Sprintf("Bearer %d", n)) }
		})
		req := request(httpx.Repeatable(t.Context()), t, "POST", origin+"/search", `{"jql":"x"}`)
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		want := []asked{
			{Method: "POST", Path: "/search", Auth: "Bearer 1", Agent: "fullsend-poll/1", Body: `{"jql":"x"}`},
			{Method: "POST", Path: "/search", Auth: "Bearer 2", Agent: "fullsend-poll/1", Body: `{"jql":"x"}`},
		}
		if diff := cmp.Diff(want, s.asked, cmp.FilterPath(func(p cmp.Path) bool { return p.String() == "At" }, cmp.Ignore())); diff != "" {
			t.Error(diff)
		}
		if req.Header.Get("Authorization") != "" {
			t.Error("the caller's request was changed")
		}
	})
}

func TestOnlyWhatMayBeRepeatedIsRepeated(t *testing.T) {
	t.Parallel()
	plain := func(ctx context.Context) context.Context { return ctx }
	reset := &net.OpError{Op: "read", Err: errors.New("connection reset by peer")}
	dial := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	for name, c := range map[string]struct {
		method string
		mark   func(context.Context) context.Context
		first  func(*http.Request) (*http.Response, error)
		tries  int
	}{
		"GET after 500":                            {"GET", plain, answer(500), 4},
		"GET after 502":                            {"GET", plain, answer(502), 4},
		"GET after 503":                            {"GET", plain, answer(503), 4},
		"GET after 504":                            {"GET", plain, answer(504), 4},
		"GET after 429":                            {"GET", plain, answer(429), 4},
		"GET after a secondary limit":              {"GET", plain, answer(403, "Retry-After", "1"), 4},
		"GET after a lost connection":              {"GET", plain, broken(reset), 4},
		"GET after 501":                            {"GET", plain, answer(501), 1},
		"GET after 404":                            {"GET", plain, answer(404), 1},
		"GET after 401":                            {"GET", plain, answer(401), 1},
		"GET after a plain 403":                    {"GET", plain, answer(403), 1},
		"GET once after 503":                       {"GET", httpx.Once, answer(503), 1},
		"HEAD after 503":                           {"HEAD", plain, answer(503), 4},
		"POST after 503":                           {"POST", plain, answer(503), 1},
		"POST after a lost connection":             {"POST", plain, broken(reset), 1},
		"POST that was never sent":                 {"POST", plain, broken(dial), 4},
		"POST after 429, which did nothing":        {"POST", plain, answer(429), 4},
		"POST marked repeatable after 503":         {"POST", httpx.Repeatable, answer(503), 4},
		"PUT after 503":                            {"PUT", plain, answer(503), 1},
		"PUT marked repeatable, lost connection":   {"PUT", httpx.Repeatable, broken(reset), 4},
		"PUT once after 429":                       {"PUT", httpx.Once, answer(429), 1},
		"POST once that was never sent":            {"POST", httpx.Once, broken(dial), 1},
		"POST marked repeatable after 400":         {"POST", httpx.Repeatable, answer(400), 1},
		"DELETE marked repeatable after 504":       {"DELETE", httpx.Repeatable, answer(504), 4},
		"GET with the last mark winning over once": {"GET", func(c context.Context) context.Context { return httpx.Repeatable(httpx.Once(c)) }, answer(503), 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &server{answers: []func(*http.Request) (*http.Response, error){c.first}}
				tr := newTransport(t, s, nil)
				resp, err := tr.RoundTrip(request(c.mark(t.Context()), t, c.method, origin+"/x", ""))
				if err == nil {
					_ = resp.Body.Close()
				}
				if got := s.tries(); got != c.tries {
					t.Errorf("%d tries, want %d", got, c.tries)
				}
				if got := tr.Stats().Requests; got != c.tries {
					t.Errorf("%d requests counted, want %d", got, c.tries)
				}
			})
		})
	}
}

func TestABodyThatCannotBeReadAgainIsSentOnce(t *testing.T) {
	t.Parallel()
	s := &server{answers: []func(*http.Request) (*http.Response, error){answer(503)}}
	tr := newTransport(t, s, nil)
	req := request(httpx.Repeatable(t.Context()), t, "POST", origin+"/x", "body")
	req.GetBody = nil
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if s.tries() != 1 {
		t.Errorf("%d tries, want 1", s.tries())
	}
}

func TestWaitsHonourRetryAfter(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status int
		after  string
		want   time.Duration
		limits int
	}{
		"seconds":                       {429, "7", 7 * time.Second, 1},
		"seconds of a 503":              {503, "7", 7 * time.Second, 1},
		"a date":                        {429, "DATE+9s", 9 * time.Second, 1},
		"a date that has passed":        {429, "DATE-9s", time.Second, 1},
		"zero means at least a second":  {429, "0", time.Second, 1},
		"missing: at least a second":    {429, "", time.Second, 1},
		"negative":                      {429, "-5", time.Second, 1},
		"nonsense":                      {429, "soon", time.Second, 1},
		"a 503 that names nothing":      {503, "", 500 * time.Millisecond, 0},
		"a number of more than 64 bits": {429, "99999999999999999999", time.Second, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				after := c.after
				if d, ok := strings.CutPrefix(after, "DATE"); ok {
					by, _ := time.ParseDuration(d)
					after = time.Now().Add(by).UTC().Format(http.TimeFormat)
				}
				s := &server{answers: []func(*http.Request) (*http.Response, error){answer(c.status, "Retry-After", after), answer(200)}}
				tr := newTransport(t, s, nil)
				start := time.Now()
				resp, err := tr.RoundTrip(request(t.Context(), t, "GET", origin+"/x", ""))
				if err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close()
				if got := time.Since(start); got != c.want {
					t.Errorf("waited %v, want %v", got, c.want)
				}
				want := httpx.Stats{Requests: 2, RateLimitWaits: c.limits, Waited: c.want}
				if c.limits > 0 {
					want.Waits = map[string]httpx.Wait{"unknown": {Count: 1, Total: c.want}}
				}
				if diff := cmp.Diff(want, tr.Stats()); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

func TestJitterOnlyEverLengthensAWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{answers: []func(*http.Request) (*http.Response, error){answer(429, "Retry-After", "8"), answer(200)}}
		tr := newTransport(t, s, func(o *httpx.Options) { o.Rand = func() float64 { return 0.5 } })
		start := time.Now()
		resp, err := tr.RoundTrip(request(t.Context(), t, "GET", origin+"/x", ""))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if got := time.Since(start); got != 9*time.Second {
			t.Errorf("waited %v, want 9s", got)
		}
	})
}

func TestALongRetryAfterIsTheCallersToSee(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{answers: []func(*http.Request) (*http.Response, error){answer(429, "Retry-After", "3600")}}
		tr := newTransport(t, s, nil)
		start := time.Now()
		resp, err := tr.RoundTrip(request(t.Context(), t, "GET", origin+"/x", ""))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || string(body) != "{}" {
			t.Errorf("body %q, %v: the answer must be whole", body, err)
		}
		if resp.StatusCode != http.StatusTooManyRequests || s.tries() != 1 || time.Since(start) != 0 {
			t.Errorf("status %d after %d tries and %v", resp.StatusCode, s.tries(), time.Since(start))
		}
		if got := tr.Stats().RateLimitWaits; got != 0 {
			t.Errorf("%d waits counted, none happened", got)
		}
	})
}

func TestTheLastAnswerIsReturnedWhenTriesAreUsedUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{answers: []func(*http.Request) (*http.Response, error){answer(500), answer(502), answer(503), answer(504)}}
		resp, err := newTransport(t, s, nil).RoundTrip(request(t.Context(), t, "GET", origin+"/x", ""))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusGatewayTimeout {
			t.Errorf("status %d, want 504", resp.StatusCode)
		}
		var gaps []time.Duration
		for i := 1; i < len(s.asked); i++ {
			gaps = append(gaps, s.asked[i].At.Sub(s.asked[i-1].At))
		}
		if diff := cmp.Diff([]time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second}, gaps); diff != "" {
			t.Error(diff)
		}
	})
}

func TestAWaitEndsWithTheContext(t *testing.T) {
	t.Parallel()
	for name, mark := range map[string]error{"of a read": context.Canceled, "with a cause": errors.New("signal")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &server{answers: []func(*http.Request) (*http.Response, error){answer(429, "Retry-After", "20")}}
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(3*time.Second, func() { cancel(mark) })
				start := time.Now()
				_, err := newTransport(t, s, nil).RoundTrip(request(ctx, t, "GET", origin+"/x", ""))
				if !errors.Is(err, mark) || !strings.Contains(err.Error(), "429") {
					t.Errorf("got %v, want the end and what was waited for", err)
				}
				if errors.Is(err, httpx.ErrNotSent) {
					t.Error("the request had been sent")
				}
				if time.Since(start) != 3*time.Second {
					t.Errorf("took %v", time.Since(start))
				}
			})
		})
	}
}

func TestNotSentIsOnlyClaimedWhenNoTryReachedTheServer(t *testing.T) {
	t.Parallel()
	dial := broken(&net.OpError{Op: "dial", Err: errors.New("connection refused")})
	reset := broken(&net.OpError{Op: "read", Err: errors.New("connection reset")})
	for name, c := range map[string]struct {
		answers []func(*http.Request) (*http.Response, error)
		want    bool
	}{
		"every dial failed":                       {[]func(*http.Request) (*http.Response, error){dial}, true},
		"a host without an address":               {[]func(*http.Request) (*http.Response, error){broken(&net.DNSError{Name: "jira.test", Err: "no such host"})}, true},
		"a lost connection":                       {[]func(*http.Request) (*http.Response, error){reset}, false},
		"a lost connection, then failing dials":   {[]func(*http.Request) (*http.Response, error){reset, dial}, false},
		"an answer of 503, then failing dials":    {[]func(*http.Request) (*http.Response, error){answer(503), dial}, false},
		"failing dials, then a lost connection":   {[]func(*http.Request) (*http.Response, error){dial, dial, reset}, false},
		"a time-out from inside the base":         {[]func(*http.Request) (*http.Response, error){broken(context.DeadlineExceeded)}, false},
		"a certificate that nobody has signed":    {[]func(*http.Request) (*http.Response, error){broken(fmt.Errorf("tls: %w", &net.OpError{Op: "dial"}))}, true},
		"a proxy that refuses the connection":     {[]func(*http.Request) (*http.Response, error){broken(&net.OpError{Op: "proxyconnect", Err: errors.New("refused")})}, true},
		"a write that failed halfway on a socket": {[]func(*http.Request) (*http.Response, error){broken(&net.OpError{Op: "write", Err: errors.New("broken pipe")})}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				tr := newTransport(t, &server{answers: c.answers}, nil)
				_, err := tr.RoundTrip(request(t.Context(), t, "GET", origin+"/x", ""))
				if err == nil {
					t.Fatal("no error")
				}
				if got := errors.Is(err, httpx.ErrNotSent); got != c.want {
					t.Errorf("ErrNotSent is %v, want %v: %v", got, c.want, err)
				}
				if strings.Count(err.Error(), httpx.ErrNotSent.Error()) > 1 {
					t.Errorf("said twice: %v", err)
				}
			})
		})
	}
}

func TestAContextThatEndedBeforeSendsNothing(t *testing.T) {
	t.Parallel()
	s := &server{answers: []func(*http.Request) (*http.Response, error){answer(200)}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := newTransport(t, s, nil).RoundTrip(request(ctx, t, "POST", origin+"/x", "b"))
	if !errors.Is(err, httpx.ErrNotSent) || !errors.Is(err, context.Canceled) || s.tries() != 0 {
		t.Errorf("got %v after %d tries", err, s.tries())
	}
}

func TestPacingSpacesTriesAndIsNotSentWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{answers: []func(*http.Request) (*http.Response, error){answer(200)}}
		tr := newTransport(t, s, func(o *httpx.Options) { o.Limiter = rate.NewLimiter(rate.Every(time.Second), 1) })
		start := time.Now()
		for range 3 {
			resp, err := tr.RoundTrip(request(t.Context(), t, "GET", origin+"/x", ""))
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
		}
		if got := time.Since(start); got != 2*time.Second {
			t.Errorf("three requests took %v, want 2s", got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := tr.RoundTrip(request(ctx, t, "POST", origin+"/x", "b"))
		if !errors.Is(err, httpx.ErrNotSent) || s.tries() != 3 {
			t.Errorf("got %v after %d tries", err, s.tries())
		}
	})
}

func TestABodyLongerThanTheCapIsAnErrorThatNamesIt(t *testing.T) {
	t.Parallel()
	long := func(n int) func(*http.Request) (*http.Response, error) {
		return func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(make([]byte, n)))}, nil
		}
	}
	for size, fits := range map[int]bool{0: true, 99: true, 100: true, 101: false, 100_000: false} {
		s := &server{answers: []func(*http.Request) (*http.Response, error){long(size)}}
		tr := newTransport(t, s, func(o *httpx.Options) { o.MaxBody = 100 })
		resp, err := tr.RoundTrip(request(t.Context(), t, "GET", origin+"/x", ""))
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		switch {
		case fits && (err != nil || len(data) != size):
			t.Errorf("%d bytes: read %d, %v", size, len(data), err)
		case !fits && (!errors.Is(err, httpx.ErrTooLarge) || !strings.Contains(err.Error(), "100") || len(data) > 100):
			t.Errorf("%d bytes: read %d, %v", size, len(data), err)
		}
	}
}

// slowBody gives one byte per second until its context ends.
type slowBody struct{ ctx context.Context }

func (b slowBody) Read(p []byte) (int, error) {
	select {
	case <-b.ctx.Done():
		return 0, b.ctx.Err()
	case <-time.After(time.Second):
		p[0] = ' '
		return 1, nil
	}
}

func (slowBody) Close() error { return nil }

func TestTheTimeoutCoversTheBody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{answers: []func(*http.Request) (*http.Response, error){func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: slowBody{r.Context()}}, nil
		}}}
		tr := newTransport(t, s, func(o *httpx.Options) { o.Timeout = 5*time.Second + 1 })
		start := time.Now()
		resp, err := tr.RoundTrip(request(t.Context(), t, "GET", origin+"/x", ""))
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "5.000000001s") || len(data) != 5 {
			t.Errorf("read %d bytes, %v", len(data), err)
		}
		if got := time.Since(start); got > 6*time.Second {
			t.Errorf("took %v", got)
		}
	})
}

func TestATryThatHangsIsGivenUpAndRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hang := func(r *http.Request) (*http.Response, error) { <-r.Context().Done(); return nil, r.Context().Err() }
		s := &server{answers: []func(*http.Request) (*http.Response, error){hang, answer(200)}}
		tr := newTransport(t, s, func(o *httpx.Options) { o.Timeout = 10 * time.Second })
		resp, err := tr.RoundTrip(request(t.Context(), t, "GET", origin+"/x", ""))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()

		s.answers = []func(*http.Request) (*http.Response, error){hang}
		_, err = tr.RoundTrip(request(httpx.Once(t.Context()), t, "POST", origin+"/x", "b"))
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "within 10s") || errors.Is(err, httpx.ErrNotSent) {
			t.Errorf("got %v", err)
		}
	})
}

func TestNoErrorShowsASecretInAnyOfItsForms(t *testing.T) {
	t.Parallel()
	const token, pair = `s3cret/+"tok en`, `me@x.test:s3cret/+"tok en`
	shown := []string{
		token, "s3cret%2F%2B%22tok+en", "s3cret%2F+%22tok%20en", `s3cret/+\"tok en`,
		base64.StdEncoding.EncodeToString([]byte(pair)), base64.RawURLEncoding.EncodeToString([]byte(pair)),
	}
	text := "leak: " + strings.Join(shown, " | ")
	check := func(t *testing.T, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "leak: ***") {
			t.Fatalf("got %v", err)
		}
		for _, s := range shown {
			if strings.Contains(err.Error(), s) {
				t.Errorf("%q is in %q", s, err)
			}
		}
	}
	cause := errors.New(text)
	with := func(o *httpx.Options) { o.Secrets, o.Retries = []string{token, pair, ""}, -1 }

	tr := newTransport(t, &server{answers: []func(*http.Request) (*http.Response, error){broken(cause)}}, with)
	_, err := tr.RoundTrip(request(t.Context(), t, "GET", origin+"/x", ""))
	check(t, err)
	if !errors.Is(err, cause) {
		t.Error("the cause is lost")
	}

	tr = newTransport(t, &server{answers: []func(*http.Request) (*http.Response, error){answer(200)}}, func(o *httpx.Options) {
		with(o)
		o.Inspect = func(*http.Response) error { return cause }
	})
	_, err = tr.RoundTrip(request(t.Context(), t, "GET", origin+"/x", ""))
	check(t, err)
}

func TestTheLogShowsNoSecretOfAnError(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	s := &server{answers: []func(*http.Request) (*http.Response, error){broken(errors.New("token hunter22 refused"))}}
	tr := newTransport(t, s, func(o *httpx.Options) {
		o.Secrets, o.Retries = []string{"hunter22"}, -1
		o.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	if _, err := tr.RoundTrip(request(t.Context(), t, "GET", origin+"/x", "")); err == nil {
		t.Fatal("no error")
	}
	if got := log.String(); strings.Contains(got, "hunter22") || !strings.Contains(got, "***") {
		t.Errorf("log: %s", got)
	}
}

func TestInspectSeesTheFinalAnswerAndItsErrorIsFinal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{answers: []func(*http.Request) (*http.Response, error){answer(503), answer(200, "X-Login", "denied")}}
		denied := errors.New("captcha")
		var seen []int
		tr := newTransport(t, s, func(o *httpx.Options) {
			o.Inspect = func(r *http.Response) error {
				seen = append(seen, r.StatusCode)
				if r.Header.Get("X-Login") != "" {
					return denied
				}
				return nil
			}
		})
		_, err := tr.RoundTrip(request(t.Context(), t, "GET", origin+"/x", ""))
		if !errors.Is(err, denied) || s.tries() != 2 {
			t.Errorf("got %v after %d tries", err, s.tries())
		}
		if diff := cmp.Diff([]int{200}, seen); diff != "" {
			t.Error(diff)
		}
	})
}

func TestRedirects(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		method   string
		status   int
		location string
		follow   bool
	}{
		"GET to the same origin":                  {"GET", 301, "/y", true},
		"GET to another host":                     {"GET", 302, "https://evil.test/y", false},
		"GET to another port":                     {"GET", 302, "https://jira.test:444/y", false},
		"GET down to http":                        {"GET", 302, "http://jira.test/y", false},
		"GET to a URL with a user":                {"GET", 302, "https://a:b@jira.test/y", false},
		"POST that shows where its result is":     {"POST", 303, "/y", true},
		"POST that would silently become a GET":   {"POST", 302, "/y", false},
		"POST that would be sent a second time":   {"POST", 307, "/y", false},
		"POST moved for good":                     {"POST", 308, "/y", false},
		"POST whose result is on another machine": {"POST", 303, "https://evil.test/y", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &server{answers: []func(*http.Request) (*http.Response, error){answer(c.status, "Location", c.location), answer(200)}}
			tr := newTransport(t, s, func(o *httpx.Options) {
				o.Authorize = func(r *http.Request) { r.Header.Set("Authorization", "Bearer x") }
			})
			resp, err := tr.Client().Do(request(t.Context(), t, c.method, origin+"/x", "b"))
			if err == nil {
				_ = resp.Body.Close()
			}
			switch {
			case c.follow && (err != nil || s.tries() != 2 || s.asked[1].Method != http.MethodGet || s.asked[1].Auth == ""):
				t.Errorf("not followed: %v, %+v", err, s.asked)
			case !c.follow && (!errors.Is(err, httpx.ErrRedirect) || s.tries() != 1):
				t.Errorf("got %v after %d tries", err, s.tries())
			}
		})
	}
}

func TestARedirectInACircleEnds(t *testing.T) {
	t.Parallel()
	s := &server{answers: []func(*http.Request) (*http.Response, error){answer(302, "Location", "/x")}}
	resp, err := newTransport(t, s, nil).Client().Do(request(t.Context(), t, "GET", origin+"/x", ""))
	if err == nil {
		_ = resp.Body.Close()
	}
	if !errors.Is(err, httpx.ErrRedirect) || s.tries() > 10 {
		t.Errorf("got %v after %d tries", err, s.tries())
	}
}

func TestManyGoroutinesShareATransport(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{answers: []func(*http.Request) (*http.Response, error){answer(429), answer(503), answer(200, "Date", time.Now().UTC().Format(http.TimeFormat))}}
		tr := newTransport(t, s, nil)
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				resp, err := tr.RoundTrip(request(t.Context(), t, "GET", origin+"/x", ""))
				if err != nil {
					t.Error(err)
					return
				}
				_ = resp.Body.Close()
				tr.ServerNow()
				tr.Stats()
			})
		}
		wg.Wait()
		if got := tr.Stats().Requests; got != 22 || got != s.tries() {
			t.Errorf("%d requests counted, %d made", got, s.tries())
		}
	})
}
