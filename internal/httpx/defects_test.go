package httpx_test

// What other pollers of Jira did wrong on the wire, row by row of
// docs/known-poller-defects.md. The rows are defects that the poller of
// https://github.com/fullsend-ai/fullsend named itself, in the threads and
// commits that each comment gives; R rows are what was found in its code.

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fullsend/poll-action/internal/httpx"
)

// D50: fullsend-ai/fullsend pull request 2409 (jira-rate-limits-stale).
func TestDefectD50LimitsAreToldApartAndHoldBackTheirOwnScope(t *testing.T) {
	t.Parallel()
	for reason, name := range map[string]string{
		"jira-burst-based": httpx.ReasonBurst, "jira-per-issue-on-write": httpx.ReasonIssueWrites, "jira-quota-tenant-based": httpx.ReasonQuotaTenant,
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &server{answers: []answerer{answer(429, "RateLimit-Reason", reason, "Retry-After", "5"), answer(200)}}
				tr := newTransport(t, s, nil)
				if took := mustSend(t.Context(), t, tr, http.MethodGet, "/rest/api/3/issue/1"); took != seconds(5) {
					t.Errorf("waited %v", took)
				}
				want := map[string]httpx.Wait{name: {Count: 1, Total: seconds(5)}}
				if diff := cmp.Diff(want, tr.Stats().Waits); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// D66: fullsend-ai/fullsend commit 96f5d726.
func TestDefectD66NoHopOfARedirectCarriesCredentialsElsewhere(t *testing.T) {
	t.Parallel()
	for name, hops := range map[string][]answerer{
		"at the first hop": {answer(302, "Location", "https://evil.test/x"), answer(200)},
		"at the second":    {answer(302, "Location", "/next"), answer(302, "Location", "https://evil.test/x"), answer(200)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &server{answers: hops}
			var hosts []string
			tr := newTransport(t, s, func(o *httpx.Options) {
				o.Authorize = func(r *http.Request) {
					hosts = append(hosts, r.URL.Host)
					r.Header.Set("Authorization", "Basic secret")
				}
			})
			resp, err := tr.Client().Do(request(t.Context(), t, http.MethodGet, origin+"/x", ""))
			if err == nil {
				_ = resp.Body.Close()
			}
			if !errors.Is(err, httpx.ErrRedirect) || s.tries() != len(hops)-1 {
				t.Errorf("got %v after %d requests", err, s.tries())
			}
			for _, host := range hosts {
				if host != "jira.test" {
					t.Errorf("credentials were made for %s", host)
				}
			}
		})
	}
}

// R16: read in fullsend-ai/fullsend's client.
func TestDefectR16RetryAfterOfZeroOrADateIsAMinimum(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		value       func() string
		least, most time.Duration
	}{
		"zero":   {func() string { return "0" }, seconds(1), seconds(1)},
		"a date": {func() string { return time.Now().Add(seconds(9)).UTC().Format(http.TimeFormat) }, seconds(8), seconds(10)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &server{answers: []answerer{answer(429, "Retry-After", c.value(), "Date", time.Now().UTC().Format(http.TimeFormat)), answer(200)}}
				if took := mustSend(t.Context(), t, newTransport(t, s, nil), http.MethodGet, "/x"); took < c.least || took > c.most {
					t.Errorf("waited %v, want %v to %v", took, c.least, c.most)
				}
			})
		})
	}
}
