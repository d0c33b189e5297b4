package httpx

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	// baseBackoff is the wait before the second try; it doubles with each.
	baseBackoff = 500 * time.Millisecond
	// minRateWait is the shortest wait after a rate limit, whatever the server
	// says: "Retry-After: 0" is sent by busy servers and means nothing.
	minRateWait = time.Second
	// longest bounds what a header can make of a wait.
	longest = 365 * 24 * time.Hour
)

// delay is what a Retry-After or X-RateLimit-Reset header asks for. named is
// false for a missing or unreadable one.
type delay struct {
	wait  time.Duration
	named bool
}

// longer returns the longer of two delays; a named one is longer than none.
func (d delay) longer(o delay) delay {
	return delay{max(d.wait, o.wait), d.named || o.named}
}

// retryAfter reads the Retry-After headers, seconds or an HTTP date (RFC 9110,
// 10.2.3). Of several, which only proxies make, the longest counts. now is the
// server's clock.
func retryAfter(h http.Header, now time.Time) delay {
	var d delay
	for _, v := range h.Values("Retry-After") {
		v = strings.TrimSpace(v)
		if n, err := strconv.ParseInt(v, 10, 64); err == nil {
			n = min(max(n, 0), int64(longest/time.Second))
			d = d.longer(delay{time.Duration(n) * time.Second, true})
		} else if at, err := http.ParseTime(v); err == nil {
			d = d.longer(lasting(at, now))
		}
	}
	return d
}

// resetTime reads the ISO time of Jira Cloud's X-RateLimit-Reset. Its
// documented form has no seconds; which of the minute's is meant is not known,
// so it is the last.
func resetTime(h http.Header, now time.Time) delay {
	v := strings.TrimSpace(h.Get("X-RateLimit-Reset"))
	for _, form := range []string{time.RFC3339, "2006-01-02T15:04:05Z0700", "2006-01-02T15:04Z07:00", "2006-01-02T15:04Z0700"} {
		at, err := time.Parse(form, v)
		if err != nil {
			continue
		}
		if !strings.Contains(form, ":05") {
			at = at.Add(time.Minute)
		}
		return lasting(at, now)
	}
	return delay{}
}

// resetEpoch reads the Unix time of GitHub's X-RateLimit-Reset.
func resetEpoch(h http.Header, now time.Time) delay {
	n, err := strconv.ParseInt(strings.TrimSpace(h.Get("X-RateLimit-Reset")), 10, 64)
	if err != nil || n <= 0 || n >= 1<<40 {
		return delay{}
	}
	return lasting(time.Unix(n, 0), now)
}

// lasting is the delay that ends at a time of the clock that shows now.
func lasting(at, now time.Time) delay {
	return delay{min(max(at.Sub(now), 0), longest), true}
}

// count reads a header that is a number of requests or seconds; -1 for none.
func count(h http.Header, name string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(h.Get(name)), 10, 32)
	if err != nil || n < 0 {
		return -1
	}
	return n
}
