package cli

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fullsend/poll-action/internal/sim"
	"github.com/fullsend/poll-action/internal/sim/simtest"
)

// patience is the network as one process sees it. It notes every request that
// the process sends sooner than a 429 that it has received allows.
type patience struct {
	net http.RoundTripper

	mu       sync.Mutex
	told     map[string]pauseOf // by scope
	broken   []string
	refused  map[string]int // by what Retry-After was
	requests int
}

var numbers = regexp.MustCompile(`/(issue|role|project)/[^/]+`)

// pauseOf is what a 429 has told: until when to wait, and when it arrived.
type pauseOf struct{ until, received time.Time }

// scopesFor are the endpoint and, for a write, the issue of a request.
func scopesFor(r *http.Request) (endpoint, issue string) {
	path := numbers.ReplaceAllString(r.URL.Path, "/$1/{}")
	if i := strings.Index(path, "/properties/"); i >= 0 {
		path = path[:i]
	}
	_, rest, found := strings.Cut(r.URL.Path, "/issue/")
	if id, _, _ := strings.Cut(rest, "/"); found && (r.Method == http.MethodPut || r.Method == http.MethodDelete) {
		issue = "issue " + id
	}
	return r.Method + " " + path, issue
}

// RoundTrip implements [http.RoundTripper].
func (p *patience) RoundTrip(r *http.Request) (*http.Response, error) {
	endpoint, issue := scopesFor(r)
	sent := time.Now()
	p.mu.Lock()
	p.requests++
	for _, scope := range []string{"all " + r.URL.Host, endpoint, issue} {
		if told := p.told[scope]; sent.After(told.received) && sent.Before(told.until) {
			p.broken = append(p.broken, fmt.Sprintf("%s %s %s before %s ended", sent.Format(time.TimeOnly), r.Method, r.URL.Path, scope))
		}
	}
	p.mu.Unlock()
	resp, err := p.net.RoundTrip(r)
	if err != nil || resp.StatusCode != http.StatusTooManyRequests {
		return resp, err
	}
	now := time.Now()
	until, kind := now.Add(time.Second), "none"
	value := resp.Header.Get("Retry-After")
	if n, err := strconv.Atoi(value); err == nil {
		kind = "zero"
		if n > 0 {
			kind, until = "seconds", now.Add(time.Duration(n)*time.Second)
		}
	} else if at, err := http.ParseTime(value); err == nil {
		kind = "date"
		if at.After(until) {
			until = at
		}
	}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") {
		kind += ", html"
	}
	scope := "all " + r.URL.Host
	switch resp.Header.Get("RateLimit-Reason") {
	case sim.ReasonBurst:
		scope = endpoint
	case sim.ReasonIssueWrites:
		scope = issue
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refused[kind]++
	if until.After(p.told[scope].until) {
		p.told[scope] = pauseOf{until: until, received: now}
	}
	return resp, nil
}

func newPatience(net http.RoundTripper) *patience {
	return &patience{net: net, told: map[string]pauseOf{}, refused: map[string]int{}}
}

// turns writes Retry-After in another way each time: seconds, zero, nothing, a
// date.
func turns(now func() time.Time) func(string, time.Duration) string {
	var n atomic.Int64
	date := sim.RetryAfterDate(now)
	return func(reason string, wait time.Duration) string {
		switch n.Add(1) % 4 {
		case 0:
			return strconv.Itoa(int(wait / time.Second))
		case 1:
			return "0"
		case 2:
			return ""
		}
		return date(reason, wait)
	}
}

// TestAnHourOf200ProjectsUnderRateLimits: two processes watch 200 projects with
// an issue each. In one hour of virtual time every project gets two comments,
// spread over the hour; for every second one, one of them is a command. Every request takes 60 ms; the site
// takes 20 reads, 15 searches and bulk reads, 6 writes and 6 deletions of each
// endpoint a second, and 2 writes to an issue in 2 seconds: a fifth of Jira's own
// limits and less. What one process is told the other cannot know, so patience
// is judged for each process by itself.
func TestAnHourOf200ProjectsUnderRateLimits(t *testing.T) {
	t.Parallel()
	if underRace {
		t.Skip("half a minute under the race detector; CI runs it without")
	}
	synctest.Test(t, func(t *testing.T) {
		const projects = 200
		w := simtest.New(t)
		var issues []sim.Issue
		for n := range projects {
			key := fmt.Sprintf("P%03d", n)
			w.Jira.AddProject(key)
			w.Jira.Grant(key, "Developers", simtest.Alice)
			issues = append(issues, w.Jira.CreateIssue(sim.IssueSpec{Project: key, Summary: "s", Reporter: simtest.Alice}))
		}
		time.Sleep(time.Minute)
		config := strings.Replace(testConfig("m: 100, n: 10"), "[project = PROJ]", "[created >= -30d]", 1)
		limits := func(html bool) {
			w.Jira.Set(func(j *sim.JiraSwitches) {
				j.RateLimits = sim.RateLimits{
					Burst:      map[string]int{http.MethodGet: 20, http.MethodPost: 15, http.MethodPut: 6, http.MethodDelete: 6},
					PerIssue2s: 2, PerIssue30s: 100, NearLimit: html, RetryAfter: turns(w.Now), HTMLBody: html,
				}
			})
		}
		first := newPoller(t, w, config, 1)
		if o := first.run(t.Context(), "poll", "--baseline"); o.code != ExitOK {
			t.Fatalf("exit code %d\n%s", o.code, o.stderr)
		}
		time.Sleep(time.Minute)
		w.Net.Check = nil // the same exchanges over and over; the exchanges of single cycles are checked elsewhere
		w.Net.Latency = constant(60 * time.Millisecond)
		limits(false)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var done sync.WaitGroup
		watchers := make([]*patience, 2)
		outs := make([]outcome, len(watchers))
		for n := range watchers {
			watchers[n] = newPatience(w.Net)
			p := newPoller(t, w, config, uint64(n)+1)
			p.transport = watchers[n]
			done.Go(func() { outs[n] = p.run(ctx, "poll", "--watch", "--interval", "60s") })
			time.Sleep(time.Second)
		}
		const pause = time.Hour / (projects * 2)
		for n := range projects * 2 {
			project := (n * 7) % projects
			issue := issues[project]
			text := "looks good to me"
			if project%4 == 2*(n/projects) {
				text = "/fs-triage go"
			}
			w.Jira.Comment(issue.Key, simtest.Alice, text)
			time.Sleep(pause)
			if n == projects {
				limits(true)
			}
			if n%20 == 0 {
				endRuns(w, issues)
			}
		}
		for range 10 { // what the limits have put off
			endRuns(w, issues)
			time.Sleep(time.Minute)
		}
		stop()
		done.Wait()
		counts := runsPerKey(w)
		for key, n := range counts {
			if n != 1 {
				t.Errorf("%s was dispatched %d times", key, n)
			}
		}
		if len(counts) != projects/2 {
			t.Errorf("%d commands were dispatched, want %d", len(counts), projects/2)
		}
		refused, requests := map[string]int{}, 0
		for _, p := range watchers {
			requests += p.requests
			for kind, n := range p.refused {
				refused[kind] += n
			}
			if len(p.broken) > 0 {
				t.Errorf("%d requests came sooner than allowed, for example %s", len(p.broken), p.broken[0])
			}
		}
		reasons := map[string]int{}
		for _, r := range w.Jira.Refusals() {
			reasons[r.Reason]++
		}
		t.Logf("%d requests, %d cycles, refused %v by %v", requests, strings.Count(outs[0].stderr+outs[1].stderr, "msg=cycle "), refused, reasons)
		for _, kind := range []string{"seconds", "zero", "none", "date", "seconds, html", "zero, html", "none, html", "date, html"} {
			if refused[kind] == 0 {
				t.Errorf("no 429 with Retry-After %s was met; the test proves little", kind)
			}
		}
		for _, reason := range []string{sim.ReasonBurst, sim.ReasonIssueWrites} {
			if reasons[reason] == 0 {
				t.Errorf("the limit %s was never reached; the test proves little", reason)
			}
		}
	})
}

// limitsOf sums up what the cycles' reports say of waits.
func limitsOf(o outcome, into map[string]int64) {
	for _, d := range o.result.Drivers {
		total := int64(0)
		for reason, n := range d.RateLimits {
			into[reason] += n
			total += n
		}
		into["total"] += d.RateLimitWaits
		into["sum"] += total
	}
}

func TestOnePollerNeverComesSoonerThanA429Allows(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		retry func(now func() time.Time) func(string, time.Duration) string
		html  bool
	}{
		"seconds": {func(func() time.Time) func(string, time.Duration) string { return nil }, false},
		"longer": {func(func() time.Time) func(string, time.Duration) string {
			return func(string, time.Duration) string { return "7" }
		}, false},
		"zero": {func(func() time.Time) func(string, time.Duration) string {
			return func(string, time.Duration) string { return "0" }
		}, false},
		"missing": {func(func() time.Time) func(string, time.Duration) string {
			return func(string, time.Duration) string { return "" }
		}, false},
		"rubbish": {func(func() time.Time) func(string, time.Duration) string {
			return func(string, time.Duration) string { return "soon" }
		}, true},
		"a date":    {sim.RetryAfterDate, false},
		"each once": {turns, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const latency = 60 * time.Millisecond
				w := simtest.New(t)
				issues := createIssues(w, sized(30, 10))
				p := newPoller(t, w, testConfig("m: 50, n: 5"), 3)
				settle(t, p)
				for n, i := range issues {
					text := "hello"
					if n < 8 {
						text = "/fs-triage go"
					}
					w.Jira.Comment(i.Key, simtest.Alice, text)
				}
				w.Net.Latency = constant(latency)
				w.Jira.Set(func(j *sim.JiraSwitches) {
					j.RateLimits = sim.RateLimits{
						Burst:      map[string]int{http.MethodGet: 5, http.MethodPost: 2, http.MethodPut: 5, http.MethodDelete: 5},
						PerIssue2s: 2, PerIssue30s: 50, NearLimit: true, RetryAfter: c.retry(w.Now), HTMLBody: c.html, InFlight: latency,
					}
				})
				waits := map[string]int64{}
				for range 15 {
					limitsOf(p.cycle(), waits)
					endRuns(w, issues)
					time.Sleep(time.Minute)
				}
				if hasty := w.Jira.Impatient(); len(hasty) > 0 {
					t.Errorf("%d requests came sooner than allowed, for example %+v", len(hasty), hasty[0])
				}
				if len(w.Jira.Refusals()) == 0 {
					t.Error("nothing was refused; the test proves nothing")
				}
				if counts := runsPerKey(w); len(counts) != 8 || len(w.GitHub.Runs()) != 8 {
					t.Errorf("runs per command %v, want eight, each once", counts)
				}
				if waits[sim.ReasonBurst] == 0 || waits["total"] != waits["sum"] {
					t.Errorf("the reports count %v", waits)
				}
			})
		})
	}
}

func TestAQuotaThatOutlastsTheCycleIsLeftToALaterOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, issues, p := scene(t)
		w.Jira.Set(func(j *sim.JiraSwitches) { j.RateLimits = sim.RateLimits{QuotaPerHour: 12} })
		start := time.Now()
		o := p.cycle()
		if took := time.Since(start); o.code != ExitFailed || took > 5*time.Minute {
			t.Errorf("exit code %d after %s", o.code, took)
		}
		o.mentions(t, sim.ReasonQuota)
		time.Sleep(time.Hour)
		w.Jira.Set(func(j *sim.JiraSwitches) { j.RateLimits = sim.RateLimits{} })
		untilQuiet(t, w, issues, p)
		if counts := runsPerKey(w); len(counts) != 2 || len(w.GitHub.Runs()) != 2 {
			t.Errorf("runs per command %v, want two, each once", counts)
		}
	})
}

// TestALockThatWouldGoStaleIsReleasedAndTheIssueServedLater: a 429 that asks for
// more time than the lock has meets each request after the lock was written.
func TestALockThatWouldGoStaleWhileWaitingIsReleasedAndTheIssueServedLater(t *testing.T) {
	t.Parallel()
	released := atomic.Int32{}
	t.Cleanup(func() {
		if released.Load() == 0 {
			t.Error("no lock was given back for a wait; the test proves nothing")
		}
	})
	for nth := 1; nth <= 6; nth++ {
		t.Run(fmt.Sprintf("request %d", nth), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := simtest.New(t)
				issue := createIssues(w, 1)[0]
				time.Sleep(time.Minute)
				w.Jira.Comment(issue.Key, simtest.Alice, "/fs-triage go")
				time.Sleep(time.Minute)
				p := newPoller(t, w, testConfig("m: 50, n: 5, stale_threshold: 20s, refresh_interval: 5s"), 1)
				n, locked := 0, time.Time{}
				w.Net.Fault = func(r *http.Request) sim.Fault {
					if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, ".lock") && locked.IsZero() {
						locked = time.Now()
						return sim.Fault{}
					}
					if locked.IsZero() || r.URL.Host != simtest.JiraHost {
						return sim.Fault{}
					}
					if n++; n != nth {
						return sim.Fault{}
					}
					return sim.Fault{Status: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"18"}, "Ratelimit-Reason": {sim.ReasonQuota}, "Content-Type": {"application/json"}}, Body: "{}"}
				}
				o := p.cycle()
				if runs := len(w.GitHub.Runs()); runs == 0 {
					if id := lockID(w, issue.Key); id != "" {
						t.Errorf("the issue is still locked by %s\n%s", id, o.stderr)
					}
					if o.result.Drivers[0].Released+o.result.Contended > 0 {
						released.Add(1)
					}
				}
				w.Net.Fault = nil
				for range 3 {
					time.Sleep(2 * time.Minute)
					endRuns(w, []sim.Issue{issue})
					p.cycle()
				}
				if runs := len(w.GitHub.Runs()); runs != 1 {
					t.Errorf("%d runs, want 1", runs)
				}
			})
		})
	}
}

func TestTheLogRecordSaysWhichLimitWasWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, _, p := scene(t)
		w.Jira.Set(func(j *sim.JiraSwitches) {
			j.RateLimits = sim.RateLimits{Burst: map[string]int{http.MethodGet: 1}}
		})
		p.cycle().mentions(t, "cycle.rate_limits."+sim.ReasonBurst+"=")
		w.Jira.Set(func(j *sim.JiraSwitches) { j.RateLimits = sim.RateLimits{} })
		time.Sleep(time.Hour)
		o := p.mustCycle()
		if strings.Contains(o.stderr, "rate_limits.") || len(o.result.Drivers[0].RateLimits) != 0 {
			t.Errorf("a cycle without waits names limits\n%s", o.stderr)
		}
	})
}

// A page of the search has a hundred issues, and anybody who may edit them can
// fill three properties of each up to Jira's cap.
func TestAPageOfFilledPropertiesIsReadAndOneBeyondTheCapIsNot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		issues := createIssues(w, sized(100, 20))
		filler := []byte(`{"v":1,"keys":{},"x":"` + strings.Repeat("x", 32_000) + `"}`)
		for _, i := range issues {
			for _, name := range []string{"lock", "lastCheck", "seen"} {
				w.Jira.SetProperty(i.Key, propertyName(name), filler)
			}
		}
		time.Sleep(time.Minute)
		w.Jira.Comment(issues[len(issues)/2].Key, simtest.Alice, "/fs-triage go")
		time.Sleep(time.Minute)
		p := newPoller(t, w, testConfig("m: 100, n: 5"), 1)
		p.mustCycle()
		if n := len(w.GitHub.Runs()); n != 1 {
			t.Errorf("%d runs, want 1", n)
		}
		w.Net.Check = nil
		w.Net.Fault = func(r *http.Request) sim.Fault {
			if !strings.HasSuffix(r.URL.Path, "/search/jql") {
				return sim.Fault{}
			}
			return sim.Fault{Status: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: `{"issues":["` + strings.Repeat("x", 11<<20) + `"]}`}
		}
		o := p.cycle()
		if o.code != ExitFailed {
			t.Errorf("exit code %d, want %d", o.code, ExitFailed)
		}
		o.mentions(t, "response too large")
	})
}
