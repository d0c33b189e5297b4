package sim_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fullsend/poll-action/internal/sim"
	"github.com/fullsend/poll-action/internal/sim/simtest"
)

func limit(w *simtest.World, l sim.RateLimits) {
	w.Jira.Set(func(s *sim.JiraSwitches) { s.RateLimits = l })
}

// codes sends a request n times and returns the statuses.
func codes(t *testing.T, w *simtest.World, n int, method, target, body string) []int {
	t.Helper()
	var got []int
	for range n {
		res, _ := w.Do(t, method, target, body)
		got = append(got, res.StatusCode)
	}
	return got
}

func TestLimitsAreOffByDefault(t *testing.T) {
	t.Parallel()
	for _, opts := range [][]simtest.Option{nil, {simtest.DataCenter()}} {
		w := still(t, opts...)
		for range 400 {
			res, _ := w.Do(t, http.MethodGet, w.JiraAPI()+"/myself", "")
			if res.StatusCode != http.StatusOK || res.Header.Get("X-Ratelimit-Limit") != "" {
				t.Fatalf("%d %v", res.StatusCode, res.Header)
			}
		}
		if len(w.Jira.Refusals()) != 0 {
			t.Error("refusals without limits")
		}
	}
}

func TestABurstIsCountedForEachEndpointAndMethodWithinASecond(t *testing.T) {
	t.Parallel()
	w := still(t)
	key := issues(w, 1)[0]
	limit(w, sim.RateLimits{Burst: map[string]int{http.MethodGet: 2, "GET /myself": 3, "GET /status": 0}})
	if diff := cmp.Diff([]int{200, 200, 200, 429}, codes(t, w, 4, http.MethodGet, api+"/myself", "")); diff != "" {
		t.Errorf("myself (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int{200, 200, 429}, codes(t, w, 3, http.MethodGet, api+"/issue/"+key+"/comment", "")); diff != "" {
		t.Errorf("comments (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int{200, 200, 200}, codes(t, w, 3, http.MethodGet, api+"/status", "")); diff != "" {
		t.Errorf("an endpoint without limit (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int{201, 200, 200}, codes(t, w, 3, http.MethodPut, api+"/issue/"+key+"/properties/p", `1`)); diff != "" {
		t.Errorf("a method without limit (-want +got):\n%s", diff)
	}
	w.Advance(time.Second)
	if diff := cmp.Diff([]int{200}, codes(t, w, 1, http.MethodGet, api+"/myself", "")); diff != "" {
		t.Errorf("a second later (-want +got):\n%s", diff)
	}
	if got := w.Jira.Impatient(); len(got) != 0 {
		t.Errorf("impatient %v", got)
	}
	got := w.Jira.Refusals()
	want := sim.Refusal{
		Reason: sim.ReasonBurst, Scope: "GET /myself", Method: http.MethodGet, Path: "/rest/api/3/myself",
		At: w.Now().Add(-time.Second), Until: w.Now(),
	}
	if len(got) != 2 || cmp.Diff(want, got[0]) != "" {
		t.Errorf("refusals %+v", got)
	}
}

func TestWritesToOneIssueAreCountedInTwoWindows(t *testing.T) {
	t.Parallel()
	w := still(t)
	keys := issues(w, 2)
	limit(w, sim.RateLimits{PerIssue2s: 3, PerIssue30s: 5})
	one, other := api+"/issue/"+keys[0]+"/properties/p", api+"/issue/"+keys[1]+"/properties/p"
	codes(t, w, 2, http.MethodPut, one, `1`)
	codes(t, w, 1, http.MethodPost, api+"/issue/"+keys[0]+"/comment", `{"body":{"type":"doc","version":1,"content":[]}}`)
	res, _ := w.Do(t, http.MethodDelete, one, "")
	if res.StatusCode != http.StatusTooManyRequests || res.Header.Get("Ratelimit-Reason") != "jira-per-issue-on-write" || res.Header.Get("Retry-After") != "2" {
		t.Errorf("the fourth write: %d %v", res.StatusCode, res.Header)
	}
	codes(t, w, 1, http.MethodPut, other, `1`)
	status(t, w, http.MethodGet, one, "", http.StatusOK)
	w.Advance(2 * time.Second)
	if diff := cmp.Diff([]int{200, 200, 429}, codes(t, w, 3, http.MethodPut, one, `1`)); diff != "" {
		t.Errorf("two seconds later (-want +got):\n%s", diff)
	}
	w.Advance(28*time.Second - 1)
	res, _ = w.Do(t, http.MethodPut, one, `1`)
	if res.StatusCode != http.StatusTooManyRequests || res.Header.Get("Retry-After") != "1" || res.Header.Get("X-Ratelimit-Limit") != "5" {
		t.Errorf("within 30 seconds: %d %v", res.StatusCode, res.Header)
	}
	w.Advance(1)
	if diff := cmp.Diff([]int{200, 200, 200, 429}, codes(t, w, 4, http.MethodPut, one, `1`)); diff != "" {
		t.Errorf("after 30 seconds (-want +got):\n%s", diff)
	}
	id := idOf(t, w, keys[0])
	got := w.Jira.Refusals()
	if len(got) != 4 || got[0].Scope != "issue "+id {
		t.Errorf("refusals %+v", got)
	}
	// The refusal of 1 ns before the window's end asked for a whole second.
	if n := len(w.Jira.Impatient()); n != 5 {
		t.Errorf("%d impatient requests", n)
	}
}

func TestAQuotaIsTheTenantsAndEndsWithTheHour(t *testing.T) {
	t.Parallel()
	w := still(t)
	limit(w, sim.RateLimits{QuotaPerHour: 10, NearLimit: true, Burst: map[string]int{http.MethodGet: 100}})
	near := 0
	for i := range 10 {
		res, _ := w.Do(t, http.MethodGet, api+"/myself", "")
		if res.Header.Get("X-Ratelimit-Nearlimit") == "true" {
			near++
		}
		if got := res.Header.Get("X-Ratelimit-Remaining"); i > 0 && got != strconv.Itoa(9-i) {
			t.Errorf("remaining %s after %d", got, i+1)
		}
	}
	if near != 2 {
		t.Errorf("%d warnings", near)
	}
	w.Advance(time.Minute)
	res, text := w.Do(t, http.MethodGet, api+"/status", "")
	for name, want := range map[string]string{
		"Ratelimit-Reason": "jira-quota-tenant-based", "Retry-After": "3540", "X-Ratelimit-Limit": "10",
		"X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "2026-09-01T17:12:45Z", "X-Ratelimit-Nearlimit": "true",
		"Beta-Ratelimit-Policy": `"tenant";q=10;w=3600`, "Beta-Ratelimit": `"tenant";r=0;t=3540`,
	} {
		if got := res.Header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if res.StatusCode != http.StatusTooManyRequests || !strings.Contains(text, "errorMessages") {
		t.Errorf("%d %s", res.StatusCode, text)
	}
	w.Advance(59 * time.Minute)
	status(t, w, http.MethodGet, api+"/status", "", http.StatusOK)
}

func TestRetryAfterIsWrittenInManyWays(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		write func(w *simtest.World) func(string, time.Duration) string
		want  string
		until time.Duration
	}{
		"seconds": {func(*simtest.World) func(string, time.Duration) string { return nil }, "2", 2 * time.Second},
		"zero":    {fixed("0"), "0", time.Second},
		"missing": {fixed(""), "", time.Second},
		"more":    {fixed("60"), "60", time.Minute},
		"rubbish": {fixed("soon"), "soon", time.Second},
		"an old date": {
			fixed("Tue, 01 Sep 2026 16:12:44 GMT"), "Tue, 01 Sep 2026 16:12:44 GMT", time.Second,
		},
		"a date": {
			func(w *simtest.World) func(string, time.Duration) string { return sim.RetryAfterDate(w.Now) },
			"Tue, 01 Sep 2026 16:12:48 GMT", 2487 * time.Millisecond,
		},
	} {
		w := still(t)
		key := issues(w, 1)[0]
		limit(w, sim.RateLimits{PerIssue2s: 1, RetryAfter: c.write(w)})
		codes(t, w, 1, http.MethodPut, api+"/issue/"+key+"/properties/p", `1`)
		res, _ := w.Do(t, http.MethodPut, api+"/issue/"+key+"/properties/p", `1`)
		_, present := res.Header["Retry-After"]
		if got := res.Header.Get("Retry-After"); got != c.want || present != (c.want != "") {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if got := w.Jira.Refusals()[0]; got.Until.Sub(got.At) != c.until {
			t.Errorf("%s: allowed after %v, want %v", name, got.Until.Sub(got.At), c.until)
		}
	}
}

func fixed(text string) func(*simtest.World) func(string, time.Duration) string {
	return func(*simtest.World) func(string, time.Duration) string {
		return func(string, time.Duration) string { return text }
	}
}

func TestARefusalCanBeAPageForPeople(t *testing.T) {
	t.Parallel()
	for _, opts := range [][]simtest.Option{nil, {simtest.DataCenter()}} {
		w := still(t, opts...)
		limit(w, sim.RateLimits{
			HTMLBody: true, Burst: map[string]int{http.MethodGet: 1}, TokenBucket: sim.TokenBucket{Limit: 1, FillRate: 1, Interval: time.Second},
		})
		codes(t, w, 1, http.MethodGet, w.JiraAPI()+"/myself", "")
		res, text := w.Do(t, http.MethodGet, w.JiraAPI()+"/myself", "")
		if res.StatusCode != http.StatusTooManyRequests || !strings.HasPrefix(text, "<!DOCTYPE html>") || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/html") {
			t.Errorf("%d %v %s", res.StatusCode, res.Header, text)
		}
	}
}

func TestRequestsThatComeSoonerThanAllowedAreRecorded(t *testing.T) {
	t.Parallel()
	w := still(t)
	key := issues(w, 1)[0]
	l := sim.RateLimits{Burst: map[string]int{"GET /myself": 1}, PerIssue2s: 1, InFlight: 100 * time.Millisecond}
	limit(w, l)
	myself, property := api+"/myself", api+"/issue/"+key+"/properties/p"
	codes(t, w, 2, http.MethodGet, myself, "")    // the second is refused until 1 s
	codes(t, w, 2, http.MethodPut, property, `1`) // the second is refused until 2 s
	codes(t, w, 2, http.MethodGet, myself, "")    // sent before anybody could know
	w.Advance(100 * time.Millisecond)
	codes(t, w, 1, http.MethodGet, myself, "")                                      // still under way: refused until 1.1 s
	codes(t, w, 3, http.MethodGet, api+"/status", "")                               // another endpoint
	codes(t, w, 1, http.MethodGet, property, "")                                    // no write
	w.Advance(500 * time.Millisecond)                                               // 0.6 s
	codes(t, w, 1, http.MethodDelete, property, "")                                 // impatient, refused until 2.6 s
	w.Advance(450 * time.Millisecond)                                               // 1.05 s
	if got := codes(t, w, 1, http.MethodGet, myself, ""); got[0] != http.StatusOK { // impatient although it is served
		t.Errorf("a request after the window: %v", got)
	}
	w.Advance(1550 * time.Millisecond) // 2.6 s
	codes(t, w, 1, http.MethodPut, property, `1`)
	got := []string{}
	for _, i := range w.Jira.Impatient() {
		got = append(got, fmt.Sprintf("%s %v %s %v", i.Method, i.At.Sub(start().Add(time.Second)), i.Refused.Reason, i.Refused.Until.Sub(i.At)))
	}
	want := []string{"DELETE 600ms jira-per-issue-on-write 1.4s", "GET 1.05s jira-burst-based 50ms"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("impatient (-want +got):\n%s", diff)
	}
}

func TestTheUsualLimitsAreThoseOfCloud(t *testing.T) {
	t.Parallel()
	w := still(t)
	key := issues(w, 1)[0]
	limit(w, sim.UsualRateLimits())
	got := codes(t, w, 21, http.MethodPut, api+"/issue/"+key+"/properties/p", `1`)
	if got[19] != http.StatusOK || got[20] != http.StatusTooManyRequests {
		t.Errorf("writes %v", got)
	}
	got = codes(t, w, 101, http.MethodGet, api+"/user/permission/search?projectKey=PROJ&permissions=EDIT_ISSUES&accountId="+url.QueryEscape(simtest.Alice), "")
	if got[99] != http.StatusOK || got[100] != http.StatusTooManyRequests {
		t.Errorf("reads %v", got[99:])
	}
}

func TestDataCenterHasATokenBucketForEachAccount(t *testing.T) {
	t.Parallel()
	w, v2 := center(t)
	limit(w, sim.RateLimits{
		TokenBucket: sim.TokenBucket{Limit: 3, FillRate: 2, Interval: 5 * time.Second},
		Burst:       map[string]int{http.MethodGet: 1}, PerIssue2s: 1, QuotaPerHour: 1, // Cloud's
	})
	var left []string
	for range 3 {
		res, _ := w.Do(t, http.MethodGet, v2+"/myself", "")
		left = append(left, res.Header.Get("X-Ratelimit-Remaining")+" "+res.Header.Get("Retry-After"))
	}
	if diff := cmp.Diff([]string{"2 0", "1 0", "0 0"}, left); diff != "" {
		t.Errorf("remaining, retry after (-want +got):\n%s", diff)
	}
	res, _ := w.Do(t, http.MethodGet, v2+"/status", "")
	for name, want := range map[string]string{
		"X-Ratelimit-Limit": "3", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Interval-Seconds": "5",
		"X-Ratelimit-Fillrate": "2", "Retry-After": "5", "Ratelimit-Reason": "", "X-Ratelimit-Reset": "",
	} {
		if got := res.Header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	w.Advance(4 * time.Second)
	status(t, w, http.MethodGet, v2+"/status", "", http.StatusTooManyRequests)
	w.Advance(time.Second)
	if diff := cmp.Diff([]int{200, 200, 429}, codes(t, w, 3, http.MethodGet, v2+"/status", "")); diff != "" {
		t.Errorf("after an interval (-want +got):\n%s", diff)
	}
	w.Advance(time.Hour)
	if diff := cmp.Diff([]int{200, 200, 200, 429}, codes(t, w, 4, http.MethodGet, v2+"/status", "")); diff != "" {
		t.Errorf("after an hour (-want +got):\n%s", diff)
	}
	if got := w.Jira.Impatient(); len(got) != 1 || got[0].Refused.Reason != sim.ReasonTokenBucket || got[0].Refused.Scope != "account bot" {
		t.Errorf("impatient %+v", got)
	}
}
