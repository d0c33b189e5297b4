package httpx

import (
	"net/http"
	"testing"
	"time"
)

// FuzzLimitHeaders lets an answer say anything about limits: the pause that
// comes of it is at least a second for a refusal, never without an end, and
// the spacing never longer than the longest wait.
func FuzzLimitHeaders(f *testing.F) {
	f.Add(429, "7", "", "jira-burst-based", "100", "0", "", "", "true")
	f.Add(429, "0", "2026-11-30T12:00Z", "", "", "", "", "", "")
	f.Add(429, "Mon, 30 Nov 2026 12:00:09 GMT", "2026-11-30T12:00:05+01:00", "jira-per-issue-on-write", "", "", "", "", "")
	f.Add(403, "", "4102444800", "", "1000", "0", "", "", "")
	f.Add(503, "-99999999999999999999", "0001-01-01T00:00:00Z", "::x", "-1", "-1", "2147483647", "1", "false")
	f.Add(200, "9223372036854775807", "9999-12-31T23:59Z", "", "2147483647", "1", "1", "2147483647", "TRUE")
	f.Fuzz(func(t *testing.T, status int, after, reset, reason, limit, remaining, interval, fill, near string) {
		h := http.Header{}
		for k, v := range map[string]string{
			"Retry-After": after, "X-RateLimit-Reset": reset, "RateLimit-Reason": reason, "X-RateLimit-Limit": limit,
			"X-RateLimit-Remaining": remaining, "X-RateLimit-Interval-Seconds": interval, "X-RateLimit-FillRate": fill, "X-RateLimit-NearLimit": near,
		} {
			h.Set(k, v)
		}
		now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
		tr, err := New(Options{Origin: "https://jira.test", Now: func() time.Time { return now }})
		if err != nil {
			t.Fatal(err)
		}
		away := tr.learn(t.Context(), scopes{endpoint: "e", issue: "i"}, &http.Response{StatusCode: status, Header: h}, now, now)
		paused := false
		for key, s := range tr.gate.scopes {
			if !s.until.IsZero() {
				paused = true
				if wait := s.until.Sub(now); wait < minRateWait || wait > longest+DefaultMaxWait || s.due.After(s.until) || s.reason == "" || len(s.reason) > maxReason {
					t.Errorf("%s: a pause of %v for %q", key, wait, s.reason)
				}
			}
			if s.gap < 0 || s.gap > DefaultMaxWait {
				t.Errorf("%s: a spacing of %v", key, s.gap)
			}
		}
		if (away || status == http.StatusTooManyRequests) && !paused {
			t.Error("a refusal pauses nothing")
		}
	})
}
