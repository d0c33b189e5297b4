package httpx

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Reasons of waits and of [LimitError], the server's own words where it has
// any (RateLimit-Reason). A reason that is not listed here is passed on as the
// server gave it and treated as one for the whole transport.
const (
	// ReasonBurst is Jira Cloud's limit per second of one endpoint and method.
	ReasonBurst = "jira-burst-based"
	// ReasonIssueWrites is Jira Cloud's limit of writes to one issue.
	ReasonIssueWrites = "jira-per-issue-on-write"
	// ReasonQuotaGlobal and ReasonQuotaTenant are Jira Cloud's hourly points.
	ReasonQuotaGlobal = "jira-quota-global-based"
	// ReasonQuotaTenant: see [ReasonQuotaGlobal].
	ReasonQuotaTenant = "jira-quota-tenant-based"
	// ReasonTokenBucket is Jira Data Center's limit per user. Its answers name
	// no reason; the bucket's headers give it away.
	ReasonTokenBucket = "token-bucket"
	// ReasonGitHubPrimary is GitHub's limit per hour.
	ReasonGitHubPrimary = "github-primary"
	// ReasonGitHubSecondary is GitHub's limit of how fast or how much at once.
	ReasonGitHubSecondary = "github-secondary"
	// ReasonNearLimit is the spacing of requests before a limit is reached.
	ReasonNearLimit = "near-limit"
	// ReasonUnknown is a limit that nothing is said about.
	ReasonUnknown = "unknown"
)

const (
	// secondaryWait is GitHub's least wait after a secondary limit that does
	// not say how long it lasts.
	secondaryWait = time.Minute
	// maxReason and maxReasons bound what a server's words take up.
	maxReason  = 48
	maxReasons = 32
)

// LimitError says that a request was not sent, or not again, because a rate
// limit holds for longer than its context or [Options.MaxWait] allow to wait.
// It comes together with [ErrNotSent] unless an earlier try reached the server.
type LimitError struct {
	// Reason is one of the Reason constants, or another word of the server.
	Reason string
	// Until is when the request may be made again, by the local clock.
	Until time.Time
	// Wait is how long that was from the moment of the error.
	Wait time.Duration
}

// Error names the limit and how long it holds.
func (e *LimitError) Error() string {
	return fmt.Sprintf("rate limit %q holds for another %v, until %s, which is too long to wait for",
		e.Reason, e.Wait.Round(time.Millisecond), e.Until.UTC().Format(time.RFC3339))
}

// Wait is a number of waits for one reason and how long they took together.
type Wait struct {
	Count int
	Total time.Duration
}

// Reasons returns the keys of s.Waits in alphabetical order, for reports.
func (s Stats) Reasons() []string { return slices.Sorted(maps.Keys(s.Waits)) }

func (s *Stats) waited(h held) {
	if h.wait <= 0 {
		return
	}
	s.RateLimitWaits++
	s.Waited += h.wait
	if s.Waits == nil {
		s.Waits = make(map[string]Wait)
	}
	reason := h.reason
	if _, ok := s.Waits[reason]; !ok && len(s.Waits) >= maxReasons {
		reason = ReasonUnknown
	}
	w := s.Waits[reason]
	s.Waits[reason] = Wait{w.Count + 1, w.Total + h.wait}
}

// limited says that the server turned the request away for its rate. GitHub's
// limits come as a 403 with a Retry-After or with nothing left of the hour.
func limited(resp *http.Response) bool {
	return resp.StatusCode == http.StatusTooManyRequests ||
		resp.StatusCode == http.StatusForbidden && (resp.Header.Get("Retry-After") != "" || hourUsedUp(resp.Header))
}

// unavailable is a status that passes by itself.
func unavailable(status int) bool {
	switch status {
	case http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

func hourUsedUp(h http.Header) bool {
	return count(h, "X-RateLimit-Remaining") == 0 && resetEpoch(h, time.Time{}).named
}

func fromGitHub(h http.Header) bool {
	return h.Get("X-GitHub-Request-Id") != "" || h.Get("X-RateLimit-Resource") != ""
}

// bucket is Jira Data Center's token bucket: fill tokens come every interval.
type bucket struct {
	interval time.Duration
	fill     int64
}

func bucketOf(h http.Header) (bucket, bool) {
	seconds, fill := count(h, "X-RateLimit-Interval-Seconds"), count(h, "X-RateLimit-FillRate")
	return bucket{time.Duration(seconds) * time.Second, fill}, seconds > 0 && fill > 0
}

// reasonOf tells the limits apart and says which scope one concerns.
func (s scopes) reasonOf(resp *http.Response) (reason, key string) {
	h := resp.Header
	refused := !unavailable(resp.StatusCode)
	switch reason := word(h.Get("RateLimit-Reason")); {
	case reason == ReasonBurst:
		return reason, s.endpoint
	case reason == ReasonIssueWrites && s.issue != "":
		return reason, s.issue
	case reason == ReasonIssueWrites:
		return reason, s.endpoint
	case reason != "":
		return reason, whole
	}
	if _, ok := bucketOf(h); ok {
		return ReasonTokenBucket, whole
	}
	switch {
	case refused && hourUsedUp(h):
		return ReasonGitHubPrimary, whole
	case refused && fromGitHub(h):
		return ReasonGitHubSecondary, whole
	case refused:
		return ReasonUnknown, whole
	}
	return ReasonUnknown, s.endpoint // one service of many is down or busy
}

// word returns a header that is a plain word, in lower case; "" for others.
func word(s string) string {
	s = strings.ToLower(strings.TrimSpace(s))
	if len(s) > maxReason || strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
		return ""
	}
	return s
}

// learn takes from an answer what it says about limits. It returns true when
// the request was turned away for a while.
func (t *Transport) learn(ctx context.Context, s scopes, resp *http.Response, sent, received time.Time) bool {
	h, now := resp.Header, t.serverSoonest(received)
	after := retryAfter(h, now)
	turnedAway := limited(resp) || unavailable(resp.StatusCode) && after.named
	tokens, hasBucket := bucketOf(h)

	near := nearLimit(h)
	switch {
	case near && hasBucket:
		// This is the pace at which the bucket does not get emptier.
		pace := min(max(tokens.interval/time.Duration(tokens.fill), firstGap), t.opts.MaxWait)
		t.gate.slow(whole, sent, received, pace, min(max(lastGap, 2*pace), t.opts.MaxWait))
	case near:
		key := s.endpoint
		if h.Get("RateLimit-Reason") != "" {
			_, key = s.reasonOf(resp)
		}
		t.gate.slow(key, sent, received, firstGap, lastGap)
	}

	c := closing{named: after.wait, least: minRateWait, refused: turnedAway, jitter: t.jitter}
	switch {
	case turnedAway:
		var key string
		c.reason, key = s.reasonOf(resp)
		if !after.named {
			c.least, c.named = unnamed(c.reason, h, now)
		}
		wait := t.gate.pause(key, c, sent, received)
		t.opts.Log.WarnContext(ctx, "rate limited", slog.Int("status", resp.StatusCode),
			slog.Duration("retry_after", wait), slog.String("reason", c.reason), slog.String("scope", key))
	case hasBucket && after.wait > 0:
		// The bucket is empty: the next request would be the refused one.
		c.reason = ReasonTokenBucket
		t.gate.pause(whole, c, sent, received)
	}
	if !turnedAway && resp.StatusCode < http.StatusInternalServerError {
		t.gate.clear(s.keys(), sent, received, !near)
	}
	return turnedAway
}

// unnamed returns the waits for a limit without a Retry-After. GitHub's time of
// reset is that of the hour and says nothing of its other limits.
func unnamed(reason string, h http.Header, now time.Time) (least, named time.Duration) {
	if reason == ReasonGitHubSecondary {
		return secondaryWait, 0
	}
	return minRateWait, resetTime(h, now).longer(resetEpoch(h, now)).wait
}

// nearLimit says that less than a fifth of a limit is left. GitHub's numbers
// are those of an hour and of many programs, and no reason to go slow.
func nearLimit(h http.Header) bool {
	if strings.EqualFold(strings.TrimSpace(h.Get("X-RateLimit-NearLimit")), "true") {
		return true
	}
	limit, left := count(h, "X-RateLimit-Limit"), count(h, "X-RateLimit-Remaining")
	return limit > 0 && left >= 0 && left*5 < limit && !fromGitHub(h) && !resetEpoch(h, time.Time{}).named
}

// jitter adds up to a quarter, so that programs that were turned away together
// do not come back together.
func (t *Transport) jitter(wait time.Duration) time.Duration {
	return time.Duration(t.opts.Rand() * float64(min(wait, t.opts.MaxWait)) / 4)
}

// serverSoonest is the earliest that the server's clock may show at the local
// time now: waits until a time of that clock must not end too soon.
func (t *Transport) serverSoonest(now time.Time) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.clock.known {
		return now
	}
	return now.Add(t.clock.low)
}
