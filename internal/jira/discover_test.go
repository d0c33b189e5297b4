package jira

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fullsend/poll-action/internal/event"
	"github.com/fullsend/poll-action/internal/lease"
	"github.com/fullsend/poll-action/internal/sim"
	"github.com/fullsend/poll-action/internal/sim/simtest"
)

// settle gives an issue a checkpoint past everything that happened on it.
func (s *stage) settle(keys ...string) {
	s.t.Helper()
	for _, k := range keys {
		s.checked(k, s.w.Jira.Updated(k))
	}
}

// issues creates n issues, one second apart, oldest first.
func (s *stage) issues(n int) []string {
	s.t.Helper()
	keys := make([]string, n)
	for i := range n {
		keys[i] = s.issue().Key
		time.Sleep(time.Second)
	}
	return keys
}

func TestAnIdleDiscoveryIsOneRequest(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		s.settle(s.issues(50)...)
		s.reset()
		d, _ := s.discover()
		s.equal([]string{s.search()}, s.requests(), "requests")
		s.equal(0, len(d.Items)+d.Pending, "pending")
		s.equal(50, d.Scanned, "scanned")
	})
}

func TestOneSearchAsksForPropertiesAndNamedFieldsSinceMilliseconds(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		s.issue()
		s.discover()
		p := s.props()
		s.equal([]search{{
			JQL:        "(project = PROJ) AND updated >= " + ms(time.Now().Add(-7*day)) + " ORDER BY updated DESC",
			MaxResults: 100, Properties: []string{p.Lock, p.LastCheck, p.Seen},
			Fields: []string{"created", "updated", "reporter", "creator", "labels", "status", "project"},
		}}, s.searches(), "searches")
	})
}

func TestTheQueryIsTheSameWhateverTheZonesAre(t *testing.T) {
	t.Parallel()
	var seen []string
	for _, zones := range [][2]int{{0, 0}, {-7, 2}, {9, -4}} {
		site, user := time.FixedZone("site", zones[0]*3600), time.FixedZone("user", zones[1]*3600)
		for _, opts := range [][]simtest.Option{{simtest.Zones(site, user)}, {simtest.Zones(site, user), simtest.DataCenter()}} {
			bubble(t, func(s *stage) {
				key := s.issue().Key
				time.Sleep(time.Minute)
				d, _ := s.discover()
				s.equal([]string{key}, keysOf(d), "items")
				seen = append(seen, s.searches()[0].JQL)
			}, opts...)
		}
	}
	if len(slices.Compact(seen)) != 1 {
		t.Errorf("the zone or the flavour changes the query: %q", seen)
	}
	if strings.Contains(seen[0], "<") {
		t.Errorf("the query has an upper bound: %s", seen[0])
	}
}

func TestAQueryThatBringsItsOwnOrderKeepsItAndIsReadToTheEnd(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		t := s.t
		keys := s.issues(7)
		s.settle(keys[:6]...) // in this order the pending one comes last
		s.w.Jira.Set(func(sw *sim.JiraSwitches) { sw.MaxPage = 2 })
		s.o.Queries = []string{"project = PROJ OR labels = x ORDER BY key ASC"}
		d, _ := s.discover()
		s.equal([]string{keys[6]}, keysOf(d), "items")
		s.equal(4, len(s.searches()), "pages")
		for _, q := range s.searches() {
			if !strings.HasPrefix(q.JQL, "(project = PROJ OR labels = x) AND updated >= ") || !strings.HasSuffix(q.JQL, " ORDER BY key ASC") {
				t.Errorf("query %q", q.JQL)
			}
		}
	})
}

func TestReadingStopsAtAWhollySettledPageAndAWideScanReadsOn(t *testing.T) {
	t.Parallel()
	for _, wide := range []bool{false, true} {
		eachFlavour(t, func(s *stage) {
			keys := s.issues(8) // pages of two, newest first: 8 7 | 6 5 | 4 3 | 2 1
			s.settle(keys[1], keys[2], keys[3], keys[4], keys[5])
			s.w.Jira.Set(func(sw *sim.JiraSwitches) { sw.MaxPage = 2 })
			asked := 0
			s.o.IntN = func(n int) int {
				asked = n
				if wide {
					return 0
				}
				return n - 1
			}
			d, _ := s.discover()
			pages, items := 2, []string{keys[6], keys[7]}
			if wide {
				pages, items = 4, []string{keys[0], keys[6], keys[7]}
			}
			s.equal(pages, len(s.searches()), "pages")
			s.equal(items, keysOf(d), "items")
			s.equal(12, asked, "one discovery in so many is wide")
		})
	}
}

func TestAShortPageIsNoEnd(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		keys := s.issues(23)
		s.w.Jira.Set(func(sw *sim.JiraSwitches) { sw.MaxPage = 3 })
		d, _ := s.discover()
		s.equal(keys, keysOf(d), "items")
		s.equal(8, len(s.searches()), "pages")
	})
}

func TestTheScanLimitBoundsWhatIsReadAndSaysSo(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		t := s.t
		s.issues(12)
		s.w.Jira.Set(func(sw *sim.JiraSwitches) { sw.MaxPage = 4 })
		s.o.ScanLimit = 6
		d, _ := s.discover()
		s.equal(6, d.Scanned, "scanned")
		var sizes []int
		for _, q := range s.searches() {
			sizes = append(sizes, q.MaxResults)
		}
		s.equal([]int{6, 2}, sizes, "page sizes")
		mentions(t, strings.Join(d.Notes, "\n"), "scan_limit (6 issues)")
	})
}

func TestAnAbsentANullAndAnEmptyTokenEndTheSearch(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]string{
		"absent, and no isLast": `{"issues":[{"id":"2"}]}`,
		"null":                  `{"issues":[{"id":"2"}],"nextPageToken":null,"isLast":false}`,
		"empty":                 `{"issues":[{"id":"2"}],"nextPageToken":""}`,
		"last with a token":     `{"issues":[{"id":"2"}],"nextPageToken":"b","isLast":true}`,
		"an empty page":         `{"issues":[],"nextPageToken":"b"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(s *stage) {
				pages := 0
				s.answer = func(req *http.Request, _ []byte) *http.Response {
					if !strings.HasSuffix(req.URL.Path, "/search/jql") {
						return nil
					}
					if pages++; pages == 1 {
						return reply(req, 200, `{"issues":[{"id":"1"}],"nextPageToken":"a"}`)
					}
					return reply(req, 200, end)
				}
				s.discover()
				s.equal(2, pages, "pages")
			})
		})
	}
	t.Run("null, from the simulator", func(t *testing.T) {
		t.Parallel()
		bubble(t, func(s *stage) {
			keys := s.issues(5)
			s.w.Jira.Set(func(sw *sim.JiraSwitches) { sw.MaxPage, sw.NullLastToken = 2, true })
			d, _ := s.discover()
			s.equal(keys, keysOf(d), "items")
		})
	})
}

func TestAServerThatNeverStopsGivingTokensIsLeft(t *testing.T) {
	t.Parallel()
	for name, token := range map[string]func(int) string{
		"the same token":   func(int) string { return "same" },
		"ever new tokens":  func(n int) string { return strconv.Itoa(n) },
		"a pair of tokens": func(n int) string { return strconv.Itoa(n % 2) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(s *stage) {
				t := s.t
				pages := 0
				s.answer = func(req *http.Request, _ []byte) *http.Response {
					pages++
					return reply(req, 200, fmt.Sprintf(`{"issues":[{"id":"%d"}],"nextPageToken":%q}`, pages, token(pages)))
				}
				in, _ := s.process()
				_, err := in.Discover(t.Context())
				if !errors.Is(err, errPages) {
					t.Errorf("err %v", err)
				}
				if pages > maxPages+1 {
					t.Errorf("%d pages were read", pages)
				}
			})
		})
	}
}

func TestAnIssueThatSeveralQueriesFindIsOneItem(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		a := s.issue("x")
		time.Sleep(time.Second)
		b := s.issue()
		s.o.Queries = []string{"project = PROJ", "labels = x", "project = PROJ"}
		d, _ := s.discover()
		s.equal([]string{a.Key, b.Key}, keysOf(d), "items")
		s.equal([]int{2, 2}, []int{d.Scanned, d.Pending}, "scanned and pending")
	})
}

func TestAPageOfPendingIssuesThatAnEarlierQueryFoundEndsNoQuery(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		old := s.issue().Key
		time.Sleep(time.Second)
		var labelled []string
		for range 2 {
			labelled = append(labelled, s.issue("x").Key)
			time.Sleep(time.Second)
		}
		s.w.Jira.Set(func(sw *sim.JiraSwitches) { sw.MaxPage = 2 })
		s.o.Queries = []string{"labels = x", "project = PROJ"}
		d, _ := s.discover()
		s.equal(append([]string{old}, labelled...), keysOf(d), "items")
	})
}

func TestAnIssueThatSomebodyWorksOnIsLeftOutAndTakesNoPlace(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		t := s.t
		keys := s.issues(4)
		lock := func(key string, age time.Duration) {
			raw, err := lease.Lock{ID: "x", TS: time.Now().Add(-age), Phase: lease.Running}.Encode()
			if err != nil {
				t.Fatal(err)
			}
			s.w.Jira.SetProperty(key, s.props().Lock, raw)
		}
		lock(keys[0], time.Minute)
		lock(keys[1], time.Hour)       // stale
		lock(keys[2], -10*time.Minute) // forged: dated ahead
		s.o.M = 3
		d, _ := s.discover()
		s.equal(keys[1:], keysOf(d), "items")
		s.equal([]int{4, 3, 1}, []int{d.Scanned, d.Pending, d.Held}, "scanned, pending, held")
	})
}

func TestTheLongestWaitingComeFirst(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		keys := s.issues(5)
		now := time.Now()
		time.Sleep(time.Hour)
		for _, k := range keys {
			s.w.Jira.Touch(k) // all pending
		}
		s.checked(keys[0], now.Add(3*time.Minute))
		s.checked(keys[1], now.Add(2*time.Minute))
		s.checked(keys[3], now.Add(-time.Hour)) // before the creation of the others
		s.o.M = 4
		d, _ := s.discover()
		s.equal([]string{keys[3], keys[2], keys[4], keys[1]}, keysOf(d), "items")
		s.equal(5, d.Pending, "pending")
	})
}

func TestCorruptIssuesAreReportedAndTheOthersServed(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		t := s.t
		keys := s.issues(7)
		breaks := []func(map[string]any){
			func(f map[string]any) { delete(f, "updated") },
			func(f map[string]any) { f["updated"] = "yesterday" },
			func(f map[string]any) { f["creator"], f["reporter"] = nil, nil },
			func(f map[string]any) { f["creator"], f["reporter"] = "bob", map[string]any{"accountId": 5} },
			func(f map[string]any) { f["labels"], f["status"], f["project"] = map[string]any{}, 3, []any{} },
			func(f map[string]any) { clear(f) },
		}
		for i, b := range breaks {
			s.w.Jira.BreakIssue(keys[i], b)
		}
		d, state := s.discover()
		s.equal(7, len(d.Items), "items")
		notes := map[string]string{}
		for _, it := range d.Items {
			delta := s.detectItem(it, state.Peek(it.Ref()).Checkpoint)
			notes[it.Ref().Key] = strings.Join(delta.Notes, "\n")
			for _, o := range delta.Events {
				if o.Event.Actor.ID == "unknown" && o.Event.Actor.Role != event.RoleExternal {
					t.Errorf("nobody has role %s", o.Event.Actor.Role)
				}
			}
			if it.Ref().Key != keys[5] && len(delta.Events) != 1 {
				t.Errorf("%s has %d events", it.Ref().Key, len(delta.Events))
			}
			if delta.Next.IsZero() {
				t.Errorf("%s has no next checkpoint", it.Ref().Key)
			}
		}
		mentions(t, notes[keys[0]], "updated cannot be read: no time")
		mentions(t, notes[keys[1]], `updated cannot be read: "yesterday" is no time`)
		mentions(t, notes[keys[3]], "reporter has an unknown shape", "creator has an unknown shape")
		mentions(t, notes[keys[4]], "labels has an unknown shape", "status has an unknown shape", "project has an unknown shape")
		s.equal("", notes[keys[6]], "notes of the sound one")
	})
}

func TestARowWithoutAUsableIDIsLeftOutAndNamed(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]string{
		"a number":   `{"id":17,"key":"PROJ-9"}`,
		"no number":  `{"id":"x::y","key":"PROJ-9"}`,
		"none":       `{"key":"PROJ-9"}`,
		"negative":   `{"id":"-3","key":"PROJ-9"}`,
		"a list":     `["PROJ-9"]`,
		"null":       `null`,
		"no fields":  `{"id":"17","key":"PROJ-9","fields":"none"}`,
		"a text":     `"PROJ-9"`,
		"key number": `{"id":"17","key":9}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachFlavour(t, func(s *stage) {
				t := s.t
				good := s.issue().Key
				s.answer = func(req *http.Request, _ []byte) *http.Response {
					if !s.isSearch(req) {
						return nil
					}
					return reply(req, 200, s.page(row, `{"id":"10001","key":"`+good+`","fields":{"created":"1999-12-31T23:00:00.000+0000","updated":"1999-12-31T23:00:00.000+0000"}}`))
				}
				d, _ := s.discover()
				s.equal([]string{good}, keysOf(d), "items")
				s.equal(1, len(d.Notes), "notes")
				mentions(t, d.Notes[0], "is left out")
				if strings.ContainsAny(d.Notes[0], "\r\n") {
					t.Errorf("a note of several lines: %q", d.Notes[0])
				}
			})
		})
	}
}

func TestALaggingIndexLosesNothing(t *testing.T) {
	t.Parallel()
	for _, lag := range []time.Duration{5 * time.Second, 50 * time.Second, 200 * time.Second} {
		eachFlavour(t, func(s *stage) {
			s.w.Jira.Set(func(sw *sim.JiraSwitches) { sw.IndexLag = lag })
			want := map[string]bool{}
			got := map[string]bool{}
			var keys []string
			for i := range 27 {
				if i%8 == 0 {
					is := s.issue()
					keys = append(keys, is.Key)
					want["opened-"+is.ID] = true
				} else {
					want["comment-"+s.w.Jira.Comment(keys[i*7%len(keys)], simtest.Alice, "x")] = true
				}
				time.Sleep(time.Duration(i*37%29) * time.Second)
				if i%3 == 0 {
					for _, o := range s.cycle() {
						got[o.Key] = true
					}
				}
			}
			for range 12 { // the index catches up
				time.Sleep(time.Minute)
				for _, o := range s.cycle() {
					got[o.Key] = true
				}
			}
			s.equal(want, got, "occurrences with lag "+lag.String())
			s.reset()
			d, _ := s.discover()
			s.equal([]string{}, keysOf(d), "pending in the end with lag "+lag.String())
		})
	}
}

func TestAllRefusedQueriesAreReportedTogether(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		t := s.t
		s.issue()
		s.o.Queries = []string{"nonsense = 3", "project = PROJ", "project = NOWHERE"}
		in, _ := s.process()
		_, err := in.Discover(t.Context())
		if err == nil {
			t.Fatal("refused queries are no error")
		}
		mentions(t, err.Error(), `refuses query 1 ("nonsense = 3")`, `refuses query 3 ("project = NOWHERE")`)
		var q *QueryError
		if !errors.As(err, &q) || q.Index != 0 || q.JQL != "nonsense = 3" {
			t.Errorf("%v holds %+v", err, q)
		}
		if strings.Contains(err.Error(), "query 2") {
			t.Errorf("a good query is reported: %v", err)
		}
		s.equal(3, len(s.searches()), "searches")
	})
}

func TestOneQueryCanBeCheckedByItself(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		t := s.t
		in, _ := s.process()
		if err := in.CheckQuery(t.Context(), 4, "project = PROJ"); err != nil {
			t.Errorf("a good query: %v", err)
		}
		s.equal([]string{"id"}, s.searches()[0].Fields, "fields")
		var q *QueryError
		if err := in.CheckQuery(t.Context(), 4, "project = NOWHERE"); !errors.As(err, &q) || q.Index != 4 {
			t.Errorf("a bad query: %v", err)
		}
		if err := in.CheckQuery(t.Context(), 4, "project = PROJ) OR (labels = x"); err == nil {
			t.Error("a query that escapes its parentheses passes")
		}
	})
}

func TestABaselineSeedsEverythingThatHasNoCheckpoint(t *testing.T) {
	t.Parallel()
	for name, queries := range map[string][]string{"with a query": {"project = PROJ"}, "without any": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachFlavour(t, func(s *stage) {
				t := s.t
				s.o.Queries = queries
				keys := s.issues(7)
				time.Sleep(60 * day) // far outside every window
				s.checked(keys[3], time.Now().Add(-50*day))
				s.w.Jira.Set(func(sw *sim.JiraSwitches) { sw.MaxPage = 2 })
				s.o.ScanLimit = 2
				in, _ := s.process()
				seeds, err := in.Baseline(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				s.equal(7, len(seeds), "seeds")
				for _, seed := range seeds {
					if seed.Ref.Key == keys[3] {
						s.equal(true, seed.Checkpoint.IsZero(), "the known one is kept")
						continue
					}
					about(t, time.Now().Add(-safetyMargin), seed.Checkpoint.At, "the seed of "+seed.Ref.Key)
				}
			})
		})
	}
}

func TestAPropertyNestedTooDeepForAnyReaderHidesNoIssue(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(s *stage) {
		t := s.t
		good := s.issue().Key
		s.answer = func(req *http.Request, _ []byte) *http.Response {
			if !s.isSearch(req) {
				return nil
			}
			deep := strings.Repeat("[", 16_000) + strings.Repeat("]", 16_000)
			return reply(req, 200, s.page(`{"id":"7","key":"PROJ-7","properties":{"`+s.props().Lock+`":`+deep+`}}`, `{"id":"10001","key":"`+good+`"}`))
		}
		in, _ := s.process()
		d, err := in.Discover(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s.equal([]string{good, "PROJ-7"}, keysOf(d), "items")
	})
}

func TestChangelogsOfAllItemsAreReadWithOneRequest(t *testing.T) {
	t.Parallel()
	bubble(t, func(s *stage) {
		keys := s.issues(5)
		for _, k := range keys {
			s.w.Jira.Edit(k, simtest.Alice, "summary", "a", "b")
		}
		s.reset()
		d, _ := s.discover()
		s.equal([]string{"POST /search/jql", "POST /changelog/bulkfetch"}, s.requests(), "requests of the discovery")
		s.reset()
		for _, it := range d.Items {
			s.detectItem(it, it.(*Item).cycle.input.state.Peek(it.Ref()).Checkpoint)
		}
		s.equal(5, s.count("/comment"), "comment reads")
		s.equal(0, s.count("/changelog"), "further changelog reads")
	})
}

func TestWhatTheDriverIsCalledIsItsName(t *testing.T) {
	t.Parallel()
	if got := NewInput(nil, nil, InputOptions{Name: "n"}).Name(); got != "n" {
		t.Errorf("name %q", got)
	}
}

// raw is JSON that the tests build.
func raw(tb testing.TB, v any) json.RawMessage {
	tb.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}
