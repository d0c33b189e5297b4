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
)

// limited says that the server turned the request away for its rate. GitHub's
// secondary limit comes as a 403 with a Retry-After.
func limited(resp *http.Response) bool {
	return resp.StatusCode == http.StatusTooManyRequests ||
		resp.StatusCode == http.StatusForbidden && resp.Header.Get("Retry-After") != ""
}

// retryAfter reads a Retry-After header, seconds or an HTTP date (RFC 9110,
// 10.2.3). named is false for a missing or unreadable one.
func retryAfter(header string, now time.Time) (wait time.Duration, named bool) {
	header = strings.TrimSpace(header)
	if header == "" {
		return 0, false
	}
	if n, err := strconv.ParseInt(header, 10, 64); err == nil {
		const most = 365 * 24 * 60 * 60
		return time.Duration(min(max(n, 0), most)) * time.Second, true
	}
	at, err := http.ParseTime(header)
	if err != nil {
		return 0, false
	}
	return max(at.Sub(now), 0), true
}
