package jira

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fullsend/poll-action/internal/dispatch"
	"github.com/fullsend/poll-action/internal/lease"
	"github.com/fullsend/poll-action/internal/sim/simtest"
)

// The tests in this file replay public reports about other pollers of Jira, as
// far as they are about queries, paging and readers alone;
// docs/known-poller-defects.md lists them all.

// epochBound is a lower bound as a number of milliseconds, without quotes. In the
// bubbles, which begin in 2000, such a number has twelve digits.
var epochBound = regexp.MustCompile(`(?:^| )updated >= \d{12,13} `)

// zonesCase polls a site in one zone by an account in another: a comment of a
// minute ago is found, and every query is bounded below by a number and not above.
func zonesCase(t *testing.T, site, user *time.Location) {
	t.Helper()
	bubble(t, func(s *stage) {
		t, key := s.t, s.issue().Key
		time.Sleep(time.Minute)
		s.cycle()
		time.Sleep(time.Hour)
		id := s.w.Jira.Comment(key, simtest.Alice, "/fs-triage go")
		time.Sleep(time.Minute)
		s.reset()
		s.equal([]string{"comment-" + id}, occurrenceKeys(s.cycle()), "events")
		queries := s.searches()
		if len(queries) == 0 {
			t.Fatal("nothing was searched")
		}
		for _, q := range queries {
			if !epochBound.MatchString(q.JQL) || strings.ContainsAny(q.JQL, `<"'`) {
				t.Errorf("the query is %s", q.JQL)
			}
		}
	}, simtest.Zones(site, user))
}

func zone(tb testing.TB, name string) *time.Location {
	tb.Helper()
	l, err := time.LoadLocation(name)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// TestCaseE3AnAccountBehindUTCSearchesByMilliseconds: a bound written as text of
// UTC lay in that account's future.
// https://github.com/activepieces/activepieces/pull/14869
func TestCaseE3AnAccountBehindUTCSearchesByMilliseconds(t *testing.T) {
	t.Parallel()
	zonesCase(t, time.UTC, zone(t, "America/New_York"))
}

// TestCaseE9AnAccountFourHoursBehindFindsWhatIsNew: every run found nothing and
// called that a success.
// https://github.com/gastownhall/beads/issues/3788
func TestCaseE9AnAccountFourHoursBehindFindsWhatIsNew(t *testing.T) {
	t.Parallel()
	zonesCase(t, time.FixedZone("UTC-7", -7*3600), time.FixedZone("UTC-4", -4*3600))
}

// TestCaseE10NoQueryHasAnUpperBound: "updated <= now", written in UTC, left out
// the last three hours.
// https://github.com/constructorfabric/insight/issues/1739
func TestCaseE10NoQueryHasAnUpperBound(t *testing.T) {
	t.Parallel()
	zonesCase(t, time.UTC, time.FixedZone("UTC+3", 3*3600))
}

// TestCaseE4ATimeWithAnOffsetBecomesAnExactNumber: the offset was lost on the
// way into the query.
// https://github.com/airbytehq/airbyte/issues/48492
// https://github.com/airbytehq/airbyte/pull/48395
// https://github.com/airbytehq/airbyte/pull/48838
func TestCaseE4ATimeWithAnOffsetBecomesAnExactNumber(t *testing.T) {
	t.Parallel()
	row, err := decodeRow(json.RawMessage(`{"id":"1","key":"P-1","fields":{"updated":"2024-11-29T10:44:51.887-0800"}}`))
	if err != nil {
		t.Fatal(err)
	}
	query, _, err := searchQuery("project = P", row.Updated)
	if err != nil {
		t.Fatal(err)
	}
	if want := "(project = P) AND updated >= 1732905891887 ORDER BY updated DESC"; query != want {
		t.Errorf("the query is %s, want %s", query, want)
	}
}

// TestCaseE5AnEventOfTheSameEveningIsFound: a bookmark without a time of day
// left out what came later on that day.
// https://github.com/singer-io/tap-jira/pull/15
func TestCaseE5AnEventOfTheSameEveningIsFound(t *testing.T) {
	t.Parallel()
	site := time.FixedZone("UTC-7", -7*3600)
	bubble(t, func(s *stage) {
		t, key := s.t, s.issue().Key
		time.Sleep(time.Minute)
		s.cycle()
		evening := time.Date(2000, 1, 1, 23, 50, 0, 0, site)
		time.Sleep(time.Until(evening))
		s.set(key, s.props().LastCheck, evening.Format(time.RFC3339))
		time.Sleep(5 * time.Minute)
		id := s.w.Jira.Comment(key, simtest.Alice, "/fs-triage go")
		time.Sleep(time.Minute)
		s.equal([]string{"comment-" + id}, occurrenceKeys(s.cycle()), "events")
		raw, _ := s.w.Jira.Property(key, s.props().LastCheck)
		at, err := decodeLastCheck(raw)
		if err != nil || at.Before(evening) || at.Truncate(24*time.Hour).Equal(at) {
			t.Errorf("lastCheck is %s, %v", raw, err)
		}
	}, simtest.Zones(site, site))
}

// TestCaseE8AQueryWithABoundOfItsOwnIsWrappedOnce: two bounds without
// parentheses, one in the wrong zone, made a window in the future.
// https://github.com/apache/devlake/issues/4902
// https://github.com/apache/devlake/pull/4932
func TestCaseE8AQueryWithABoundOfItsOwnIsWrappedOnce(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		t := s.t
		s.o.Queries = []string{"project = PROJ AND updated >= -30d OR labels = urgent"}
		key := s.issue().Key
		time.Sleep(time.Minute)
		d, _ := s.discover()
		s.equal([]string{key}, keysOf(d), "items")
		jql := s.searches()[0].JQL
		rest, wrapped := strings.CutPrefix(jql, "("+s.o.Queries[0]+") AND ")
		if !wrapped || strings.Count(rest, "updated >=") != 1 || !epochBound.MatchString(rest) {
			t.Errorf("the query is %s", jql)
		}
	})
}

// searchPages answers searches with pages, the last one for ever, and returns
// how many were read.
func searchPages(s *stage, pages ...string) *int {
	read := 0
	s.answer = func(req *http.Request, _ []byte) *http.Response {
		if !strings.HasSuffix(req.URL.Path, "/search/jql") {
			return nil
		}
		page := pages[min(read, len(pages)-1)]
		read++
		resp := reply(req, http.StatusOK, page)
		resp.Header.Set("X-Aaccountid", simtest.Bot)
		return resp
	}
	return &read
}

// TestCaseE18AServerThatAlwaysGivesATokenIsLeft: the walk never ended.
// https://github.com/elasticclaw/elasticclaw/pull/428
func TestCaseE18AServerThatAlwaysGivesATokenIsLeft(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		t := s.t
		read := searchPages(s, `{"issues":[{"id":"1","key":"PROJ-1","fields":{}}],"nextPageToken":"same"}`)
		in, _ := s.process()
		if _, err := in.Discover(t.Context()); !errors.Is(err, errPages) {
			t.Errorf("err %v, want one that says so", err)
		}
		s.equal(2, *read, "pages")
	})
}

// TestCaseE19APageWithoutTokenAndIsLastIsTheLast: the walk hung on it.
// https://github.com/mongodb/kingfisher/pull/460
func TestCaseE19APageWithoutTokenAndIsLastIsTheLast(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		read := searchPages(s,
			`{"issues":[{"id":"1","key":"PROJ-1","fields":{}}],"nextPageToken":"two","isLast":false}`,
			`{"issues":[{"id":"2","key":"PROJ-2","fields":{}}]}`)
		d, _ := s.discover()
		s.equal(2, *read, "pages")
		s.equal(2, d.Scanned, "issues")
	})
}

// TestCaseE22AnAbsentANullAndAnEmptyTokenAreTheSame: clients waited for a null
// that never came.
// https://jira.atlassian.com/browse/JRACLOUD-92184
func TestCaseE22AnAbsentANullAndAnEmptyTokenAreTheSame(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]string{"absent": "", "null": `,"nextPageToken":null`, "empty": `,"nextPageToken":""`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(s *stage) {
				read := searchPages(s,
					`{"issues":[{"id":"1","key":"PROJ-1","fields":{}}],"nextPageToken":"two"}`,
					`{"issues":[{"id":"2","key":"PROJ-2","fields":{}}]`+end+`}`)
				d, _ := s.discover()
				s.equal(2, *read, "pages")
				s.equal(2, d.Scanned, "issues")
			})
		})
	}
}

// TestCaseE25AChangelogPageIsReadFromItsValues: the code, and its mock, read
// "histories", which that endpoint does not have.
// https://github.com/heymrun/heym/pull/293
func TestCaseE25AChangelogPageIsReadFromItsValues(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		t, key := s.t, s.issue().Key
		time.Sleep(time.Minute)
		s.cycle()
		time.Sleep(time.Minute)
		s.w.Jira.SetLabels(key, simtest.Alice, "go")
		time.Sleep(time.Minute)
		s.answer = func(req *http.Request, _ []byte) *http.Response {
			switch {
			case strings.HasSuffix(req.URL.Path, "/changelog/bulkfetch"):
				return reply(req, http.StatusOK, `{"issueChangeLogs":[]}`)
			case !strings.HasSuffix(req.URL.Path, "/changelog"):
				return nil
			}
			resp := s.pass(req)
			raw, err := io.ReadAll(resp.Body)
			if err != nil || !bytes.Contains(raw, []byte(`"values"`)) || bytes.Contains(raw, []byte(`"histories"`)) {
				t.Errorf("the simulator's page is %s, %v", raw, err)
			}
			return reply(req, http.StatusOK, strings.Replace(string(raw), "{", `{"histories":[],`, 1))
		}
		events := s.detect(key).Events
		if len(events) != 1 || events[0].Event.Transition.Label == nil {
			t.Errorf("the events are %v, want the label", occurrenceKeys(events))
		}
	})
}

// TestCaseE26TheServersOwnFormOf404IsRead: Jira Server's 404 for an endpoint
// that it does not have has a form of its own.
// https://github.com/atlassian-api/atlassian-python-api/issues/1396
func TestCaseE26TheServersOwnFormOf404IsRead(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		t, key := s.t, s.issue().Key
		time.Sleep(time.Minute)
		s.answer = func(req *http.Request, _ []byte) *http.Response {
			switch {
			case strings.HasSuffix(req.URL.Path, "/changelog/bulkfetch"):
				return reply(req, http.StatusOK, `{"issueChangeLogs":[]}`)
			case strings.HasSuffix(req.URL.Path, "/changelog"):
				return reply(req, http.StatusNotFound, `{"message":"null for uri: https://jira.example/rest/api/2/issue/1/changelog","status-code":404}`)
			}
			return nil
		}
		mentions(t, s.detectError(key).Error(), "404", "null for uri")
	})
}

// TestCaseXbDeletingALockThatIsGoneIsSuccess: it is what was wanted.
func TestCaseXbDeletingALockThatIsGoneIsSuccess(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		t, is := s.t, s.issue()
		_, state := s.process()
		if err := state.Delete(t.Context(), is.ID); err != nil {
			t.Errorf("err %v", err)
		}
		s.equal(1, s.count("DELETE "), "requests")
		if _, err := state.Get(t.Context(), is.ID); !errors.Is(err, lease.ErrAbsent) {
			t.Errorf("err %v, want that there is none", err)
		}
	})
}

// TestCaseXeAValueAboveJirasLimitIsRefusedWithoutARequest: 32,768 bytes are the
// most that Jira takes.
func TestCaseXeAValueAboveJirasLimitIsRefusedWithoutARequest(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		t, is := s.t, s.issue()
		_, state := s.process()
		value := func(n int) []byte { return []byte(`"` + strings.Repeat("x", n-2) + `"`) }
		_, err := state.Put(t.Context(), is.ID, value(32769))
		if dispatch.ClassOf(err) != dispatch.Permanent {
			t.Errorf("err %v, want a permanent one", err)
		}
		mentions(t, fmt.Sprint(err), "32769", "32768")
		s.equal(0, len(s.requests()), "requests")
		if _, err := state.Put(t.Context(), is.ID, value(32768)); err != nil {
			t.Errorf("the longest that fits: %v", err)
		}
	})
}
