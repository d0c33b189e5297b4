package httpx_test

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fullsend/poll-action/internal/httpx"
)

// The tests in this file replay public reports about other clients of Jira;
// docs/known-poller-defects.md lists them all.

// TestCaseE37RetryAfterIsTheLeastThatIsWaited: zero meant a second 429 at once,
// and the value was taken for the most that may be waited.
// https://github.com/pycontribs/jira/issues/1805
// https://github.com/pycontribs/jira/pull/1825
func TestCaseE37RetryAfterIsTheLeastThatIsWaited(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		refusals []string // values of Retry-After
		least    time.Duration
	}{
		"zero":          {[]string{"0"}, seconds(1)},
		"zero, twice":   {[]string{"0", "0"}, seconds(2)},
		"three seconds": {[]string{"3"}, seconds(3)},
		"three, twice":  {[]string{"3", "3"}, seconds(6)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var took []time.Duration
				for _, roll := range []float64{0, 0.5} {
					s := &server{}
					for _, v := range c.refusals {
						s.answers = append(s.answers, answer(http.StatusTooManyRequests, "Retry-After", v))
					}
					s.answers = append(s.answers, answer(http.StatusOK))
					tr := newTransport(t, s, func(o *httpx.Options) { o.Rand = func() float64 { return roll } })
					took = append(took, mustSend(t.Context(), t, tr, http.MethodGet, "/rest/api/3/myself"))
				}
				if took[0] < c.least || took[1] <= took[0] {
					t.Errorf("waited %v without and %v with jitter, want at least %v and more", took[0], took[1], c.least)
				}
			})
		})
	}
}

// TestCaseXoA303OfABulkWriteIsReadAndNeverSentAgain: bulk writes of properties
// answer with the address of a task. A client that follows sees the task, one
// that does not sees the 303; the write itself is sent once.
func TestCaseXoA303OfABulkWriteIsReadAndNeverSentAgain(t *testing.T) {
	t.Parallel()
	const path, task = "/rest/api/3/issue/properties/x", "/rest/api/3/task/7"
	ask := func(t *testing.T, location string, follow bool) (*server, int, error) {
		t.Helper()
		s := &server{answers: []answerer{answer(http.StatusSeeOther, "Location", location), answer(http.StatusOK)}}
		tr := newTransport(t, s, nil)
		if !follow {
			status, err := send(t.Context(), t, tr, http.MethodPut, path)
			return s, status, err
		}
		resp, err := tr.Client().Do(request(t.Context(), t, http.MethodPut, origin+path, `{"value":{}}`))
		if err != nil {
			return s, 0, err
		}
		_ = resp.Body.Close()
		return s, resp.StatusCode, nil
	}
	if s, status, err := ask(t, task, false); status != http.StatusSeeOther || err != nil || s.tries() != 1 {
		t.Errorf("not following: status %d, %v after %d tries", status, err, s.tries())
	}
	s, status, err := ask(t, task, true)
	if status != http.StatusOK || err != nil || s.tries() != 2 || s.asked[1].Method != http.MethodGet || s.asked[1].Path != task || s.asked[1].Body != "" {
		t.Errorf("following: status %d, %v: %+v", status, err, s.asked)
	}
	if s, _, err := ask(t, "https://elsewhere.test"+task, true); !errors.Is(err, httpx.ErrRedirect) || s.tries() != 1 {
		t.Errorf("to another host: %v after %d tries", err, s.tries())
	}
}
