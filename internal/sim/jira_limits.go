package sim

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Reasons for a 429, as the header RateLimit-Reason names them.
const (
	ReasonBurst       = "jira-burst-based"
	ReasonIssueWrites = "jira-per-issue-on-write"
	ReasonQuota       = "jira-quota-tenant-based"
	// ReasonTokenBucket is Data Center's, whose answers name no reason.
	ReasonTokenBucket = "token-bucket"
)

// RateLimits are limits on requests; 0 and nil mean none. A refused request
// uses nothing up. Burst, per-issue and quota limits are Cloud's, the token
// bucket is Data Center's.
type RateLimits struct {
	// Burst is how many requests one endpoint takes within any second, by
	// "METHOD /path/{wildcard}" (a route of [Jira.Routes] without the API's
	// path) or by "METHOD", which stands for every endpoint that is not named.
	Burst map[string]int
	// PerIssue2s and PerIssue30s are how many writes one issue takes within
	// any 2 and any 30 seconds, whoever makes them.
	PerIssue2s, PerIssue30s int
	// QuotaPerHour is the tenant's number of points in an hour, which begins
	// with the first request; every request is one point.
	QuotaPerHour int
	// TokenBucket is the limit of an account on Data Center.
	TokenBucket TokenBucket

	// RetryAfter writes the header of that name: "" leaves it out. It gets the
	// wait in whole seconds, at least one; nil writes their number. It must
	// not call the site.
	RetryAfter func(reason string, wait time.Duration) string
	// HTMLBody answers a page for people instead of Jira's error document.
	HTMLBody bool
	// NearLimit adds X-RateLimit-NearLimit when less than a fifth of a limit
	// is left. Cloud only.
	NearLimit bool
	// InFlight is the time after a 429 in which requests still arrive that
	// were sent before the client could know of it; these are not impatient.
	// Requests of the same instant never are.
	InFlight time.Duration
}

// TokenBucket holds at most Limit tokens, one for each request, and gets
// FillRate new ones at every Interval.
type TokenBucket struct {
	Limit, FillRate int
	Interval        time.Duration
}

// UsualRateLimits are the limits of Cloud that are known by number, with early
// warning. The quotas apply to apps only and are left out.
func UsualRateLimits() RateLimits {
	return RateLimits{
		Burst:      map[string]int{http.MethodGet: 100, http.MethodPost: 100, http.MethodPut: 50, http.MethodDelete: 50},
		PerIssue2s: 20, PerIssue30s: 100, NearLimit: true,
	}
}

// RetryAfterDate writes Retry-After as a date, never earlier than the wait.
func RetryAfterDate(now func() time.Time) func(string, time.Duration) string {
	return func(_ string, wait time.Duration) string {
		return now().Add(wait + time.Second - 1).UTC().Format(http.TimeFormat)
	}
}

// Refusal is a 429.
type Refusal struct {
	// Reason is one of the Reason constants; Scope is what ran out: an
	// endpoint with its method, an issue, the tenant, an account.
	Reason, Scope string
	Method, Path  string
	// At is when it was given. Until is when the next request of the scope may
	// come at the earliest, as far as a careful client can know: what
	// Retry-After says, and a second where that is missing, less or no time.
	At, Until time.Time
}

// Impatience is a request that came while a refusal of its scope stood.
type Impatience struct {
	Method, Path string
	At           time.Time
	Refused      Refusal
}

// Refusals returns every 429 so far.
func (j *Jira) Refusals() []Refusal {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.limiter.refusals)
}

// Impatient returns the requests so far that came sooner than a 429 allowed.
func (j *Jira) Impatient() []Impatience {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.limiter.impatient)
}

// limiter is what the limits remember.
type limiter struct {
	// admitted are the times of a scope's requests, as far as they count.
	admitted map[string][]time.Time
	// standing are a scope's refusals that have not ended yet.
	standing  map[string][]Refusal
	refusals  []Refusal
	impatient []Impatience

	points int
	hour   time.Time // the end of the quota's hour
	tokens int
	filled time.Time // the bucket's latest interval; zero before the first
}

// gauge is the state of one limit that a request is under.
type gauge struct {
	reason, scope string
	limit, used   int
	// wait is how long until a full limit takes one request more.
	wait time.Duration
	// take uses the limit.
	take func()
}

func (g gauge) left() int { return max(g.limit-g.used, 0) }

// admit lets a request through, or answers 429. Headers tell how the limits
// stand.
func (j *Jira) admit(w http.ResponseWriter, r *http.Request, pattern string) bool {
	now, limits := j.now(), j.switches.RateLimits
	gauges := j.gauges(limits, r, pattern, now)
	if len(gauges) == 0 {
		return true
	}
	j.notice(gauges, r, now, limits.InFlight)
	full := slices.DeleteFunc(slices.Clone(gauges), func(g gauge) bool { return g.used < g.limit })
	if len(full) > 0 {
		worst := slices.MaxFunc(full, func(a, b gauge) int { return cmp.Compare(a.wait, b.wait) })
		j.tell(w.Header(), limits, worst, gauges)
		j.turnAway(w, r, limits, worst, now)
		return false
	}
	for i := range gauges {
		gauges[i].take()
		gauges[i].used++
	}
	tightest := slices.MinFunc(gauges, func(a, b gauge) int { return cmp.Compare(a.left()*b.limit, b.left()*a.limit) })
	j.tell(w.Header(), limits, tightest, gauges)
	return true
}

// gauges are the limits that a request is under.
func (j *Jira) gauges(limits RateLimits, r *http.Request, pattern string, now time.Time) []gauge {
	l := &j.limiter
	if j.dc {
		if limits.TokenBucket.Limit <= 0 {
			return nil
		}
		return []gauge{l.bucket(limits.TokenBucket, j.self, now)}
	}
	var gauges []gauge
	endpoint := r.Method + " " + strings.TrimPrefix(strings.TrimPrefix(pattern, r.Method+" "), j.root)
	burst, named := limits.Burst[endpoint]
	if !named {
		burst = limits.Burst[r.Method]
	}
	if burst > 0 {
		gauges = append(gauges, l.window(ReasonBurst, endpoint, burst, time.Second, time.Second, now))
	}
	if is := j.find(r.PathValue("issue")); is != nil && r.Method != http.MethodGet {
		scope := "issue " + strconv.FormatInt(is.id, 10)
		issue := []gauge{
			l.window(ReasonIssueWrites, scope, limits.PerIssue2s, shortWrites, longWrites, now),
			l.window(ReasonIssueWrites, scope, limits.PerIssue30s, longWrites, longWrites, now),
		}
		issue = slices.DeleteFunc(issue, func(g gauge) bool { return g.limit <= 0 })
		for i := range issue[:max(len(issue)-1, 0)] {
			issue[i].take = func() {} // the last one notes the write for both
		}
		gauges = append(gauges, issue...)
	}
	if limits.QuotaPerHour > 0 {
		gauges = append(gauges, l.quota(limits.QuotaPerHour, now))
	}
	return gauges
}

// The spans in which writes to one issue are counted.
const (
	shortWrites = 2 * time.Second
	longWrites  = 30 * time.Second
)

// window is a limit on the requests of a scope within any span of a length;
// keep is the longest such span of the scope.
func (l *limiter) window(reason, scope string, limit int, span, keep time.Duration, now time.Time) gauge {
	old := func(since time.Duration) func(time.Time) bool {
		return func(t time.Time) bool { return !t.After(now.Add(-since)) }
	}
	if l.admitted == nil {
		l.admitted = map[string][]time.Time{}
	}
	l.admitted[scope] = slices.DeleteFunc(l.admitted[scope], old(keep))
	recent := slices.DeleteFunc(slices.Clone(l.admitted[scope]), old(span))
	g := gauge{reason: reason, scope: scope, limit: limit, used: len(recent)}
	if limit > 0 && g.used >= limit {
		g.wait = recent[g.used-limit].Add(span).Sub(now)
	}
	g.take = func() { l.admitted[scope] = append(l.admitted[scope], now) }
	return g
}

func (l *limiter) quota(limit int, now time.Time) gauge {
	if !now.Before(l.hour) {
		l.points, l.hour = 0, now.Add(time.Hour)
	}
	return gauge{
		reason: ReasonQuota, scope: "tenant", limit: limit, used: l.points, wait: l.hour.Sub(now),
		take: func() { l.points++ },
	}
}

func (l *limiter) bucket(b TokenBucket, account string, now time.Time) gauge {
	if l.filled.IsZero() {
		l.tokens, l.filled = b.Limit, now
	}
	wait := time.Hour // of a bucket that nothing fills
	if b.Interval > 0 {
		since := now.Sub(l.filled)
		l.filled = now.Add(-(since % b.Interval))
		l.tokens += min(int(since/b.Interval), b.Limit) * b.FillRate
		wait = l.filled.Add(b.Interval).Sub(now)
	}
	l.tokens = min(l.tokens, b.Limit)
	return gauge{
		reason: ReasonTokenBucket, scope: "account " + account, limit: b.Limit, used: b.Limit - l.tokens, wait: wait,
		take: func() { l.tokens-- },
	}
}

// tell writes how the limits stand; g is the one to show.
func (j *Jira) tell(h http.Header, limits RateLimits, g gauge, all []gauge) {
	h.Set("X-RateLimit-Limit", strconv.Itoa(g.limit))
	h.Set("X-RateLimit-Remaining", strconv.Itoa(g.left()))
	if j.dc {
		h.Set("X-RateLimit-Interval-Seconds", strconv.Itoa(int(limits.TokenBucket.Interval/time.Second)))
		h.Set("X-RateLimit-FillRate", strconv.Itoa(limits.TokenBucket.FillRate))
		h.Set("Retry-After", "0")
		return
	}
	for _, one := range all {
		if limits.NearLimit && one.left()*5 < one.limit {
			h.Set("X-RateLimit-NearLimit", "true")
		}
		if one.reason == ReasonQuota {
			h.Set("Beta-RateLimit-Policy", fmt.Sprintf(`"tenant";q=%d;w=3600`, one.limit))
			h.Set("Beta-RateLimit", fmt.Sprintf(`"tenant";r=%d;t=%d`, one.left(), seconds(one.wait)))
		}
	}
}

// seconds is a wait in whole seconds, at least one.
func seconds(wait time.Duration) int {
	return max(int((wait+time.Second-1)/time.Second), 1)
}

// turnAway answers 429 and remembers it.
func (j *Jira) turnAway(w http.ResponseWriter, r *http.Request, limits RateLimits, g gauge, now time.Time) {
	whole := seconds(g.wait)
	retry := strconv.Itoa(whole)
	if limits.RetryAfter != nil {
		retry = limits.RetryAfter(g.reason, time.Duration(whole)*time.Second)
	}
	h := w.Header()
	h.Set("Retry-After", retry)
	if retry == "" {
		h.Del("Retry-After")
	}
	if !j.dc {
		h.Set("RateLimit-Reason", g.reason)
		h.Set("X-RateLimit-Reset", now.Add(g.wait+time.Second-1).UTC().Format(time.RFC3339))
	}
	refusal := Refusal{
		Reason: g.reason, Scope: g.scope, Method: r.Method, Path: r.URL.Path, At: now, Until: earliest(retry, now),
	}
	if j.limiter.standing == nil {
		j.limiter.standing = map[string][]Refusal{}
	}
	j.limiter.refusals = append(j.limiter.refusals, refusal)
	j.limiter.standing[g.scope] = append(j.limiter.standing[g.scope], refusal)
	if limits.HTMLBody {
		h.Set("Content-Type", "text/html;charset=UTF-8")
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = w.Write([]byte("<!DOCTYPE html><html><head><title>Too many requests</title></head><body><p>Rate limit exceeded.</p></body></html>"))
		return
	}
	write(w, refuse(http.StatusTooManyRequests, "Rate limit exceeded."))
}

// earliest is when a client may come again that was told retry.
func earliest(retry string, now time.Time) time.Time {
	until := now.Add(time.Second)
	if n, err := strconv.Atoi(retry); err == nil && n > 1 {
		return now.Add(time.Duration(n) * time.Second)
	}
	if t, err := http.ParseTime(retry); err == nil && t.After(until) {
		return t
	}
	return until
}

// notice records a request that comes while a refusal of its scopes stands.
func (j *Jira) notice(gauges []gauge, r *http.Request, now time.Time, inFlight time.Duration) {
	var latest *Refusal
	for _, g := range gauges {
		standing := slices.DeleteFunc(j.limiter.standing[g.scope], func(f Refusal) bool { return !now.Before(f.Until) })
		for i, f := range standing {
			if now.After(f.At.Add(inFlight)) && (latest == nil || f.Until.After(latest.Until)) {
				latest = &standing[i]
			}
		}
		if len(standing) > 0 {
			j.limiter.standing[g.scope] = standing
		} else {
			delete(j.limiter.standing, g.scope)
		}
	}
	if latest != nil {
		j.limiter.impatient = append(j.limiter.impatient, Impatience{r.Method, r.URL.Path, now, *latest})
	}
}
