package cli

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fullsend/poll-action/internal/sim"
	"github.com/fullsend/poll-action/internal/sim/simtest"
)

// The tests in this file and in cases_claim_test.go replay public reports about
// other pollers of Jira, in whole cycles; docs/known-poller-defects.md lists
// them. This file is about finding what happened, the other about claiming it
// and passing it on.

// edited is a network on which an answer's document is changed on its way.
type edited struct {
	net http.RoundTripper
	// suffix is how the path ends whose answers are changed.
	suffix string

	mu   sync.Mutex
	edit func(doc map[string]any)
}

// set changes what happens to the answers from here on; nil lets them pass.
func (e *edited) set(edit func(doc map[string]any)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.edit = edit
}

func (e *edited) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := e.net.RoundTrip(req)
	e.mu.Lock()
	edit := e.edit
	e.mu.Unlock()
	if err != nil || edit == nil || resp.StatusCode != http.StatusOK || !strings.HasSuffix(req.URL.Path, e.suffix) {
		return resp, err
	}
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	_ = resp.Body.Close()
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var doc map[string]any
	if err := dec.Decode(&doc); err != nil {
		return nil, err
	}
	edit(doc)
	if raw, err = json.Marshal(doc); err != nil {
		return nil, err
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
	resp.Header.Del("Content-Length")
	return resp, nil
}

// hide takes issues out of a search's answer, as an index does that lags for
// them alone.
func hide(keys ...string) func(map[string]any) {
	return func(doc map[string]any) {
		shown := []any{}
		issues, _ := doc["issues"].([]any)
		for _, raw := range issues {
			is, _ := raw.(map[string]any)
			hidden := false
			for _, k := range keys {
				hidden = hidden || is["key"] == k
			}
			if !hidden {
				shown = append(shown, is)
			}
		}
		doc["issues"] = shown
	}
}

// searching makes a poller whose searches can be edited.
func searching(tb testing.TB, w *simtest.World) (*poller, *edited) {
	tb.Helper()
	p := newPoller(tb, w, testConfig("m: 50, n: 5"), 1)
	e := &edited{net: w.Net, suffix: "/search/jql"}
	p.transport = e
	return p, e
}

// harnessFor is a harness whose trigger has a condition.
func harnessFor(condition string) string {
	return fmt.Sprintf("role: triage\ntrigger: >-\n  %s\n", condition)
}

// onKind is a harness for one kind of transition.
func onKind(kind string) string {
	return harnessFor(`event.source.system == "jira" && event.transition.kind == "` + kind + `"`)
}

// wantRuns fails unless so many runs were dispatched, each for another key.
func wantRuns(tb testing.TB, w *simtest.World, n int) {
	tb.Helper()
	if counts := runsPerKey(w); len(counts) != n || len(w.GitHub.Runs()) != n {
		tb.Errorf("%d runs of %d keys, want %d each: %v", len(w.GitHub.Runs()), len(counts), n, counts)
	}
}

// runFor returns the run that an issue's command became.
func runFor(tb testing.TB, w *simtest.World, key string) sim.Run {
	tb.Helper()
	for _, r := range w.GitHub.Runs() {
		if r.Inputs["work_item_key"] == key {
			return r
		}
	}
	tb.Fatalf("there is no run for %s", key)
	return sim.Run{}
}

// later lets a minute pass, polls, and lets the runs end.
func later(tb testing.TB, p *poller, issues []sim.Issue) outcome {
	tb.Helper()
	time.Sleep(time.Minute)
	o := p.mustCycle()
	endRuns(p.w, issues)
	return o
}

// TestCaseE1AnIssueThatTheIndexShowsLaterThanAYoungerOneIsServed: a global
// watermark had moved past the earlier issue.
// https://github.com/activepieces/activepieces/issues/14863
// https://github.com/activepieces/activepieces/pull/14921
func TestCaseE1AnIssueThatTheIndexShowsLaterThanAYoungerOneIsServed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		issues := createIssues(w, 2)
		p, search := searching(t, w)
		settle(t, p)
		time.Sleep(17 * time.Hour)
		w.Jira.Comment(issues[0].Key, simtest.Alice, "/fs-triage early")
		time.Sleep(7 * time.Minute)
		w.Jira.Comment(issues[1].Key, simtest.Alice, "/fs-triage late")
		search.set(hide(issues[0].Key))
		later(t, p, issues)
		wantRuns(t, w, 1)
		runFor(t, w, issues[1].Key)
		search.set(nil)
		later(t, p, issues)
		wantRuns(t, w, 2)
		runFor(t, w, issues[0].Key)
		later(t, p, issues)
		wantRuns(t, w, 2)
	})
}

// TestCaseE1AWholeIndexThatLagsLosesNothing is the same with all issues behind.
// https://github.com/activepieces/activepieces/issues/14863
func TestCaseE1AWholeIndexThatLagsLosesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		w.Jira.Set(func(s *sim.JiraSwitches) { s.IndexLag = 150 * time.Second })
		issues := createIssues(w, 3)
		p := newPoller(t, w, testConfig("m: 50, n: 5"), 1)
		for n, i := range issues {
			w.Jira.Comment(i.Key, simtest.Alice, fmt.Sprintf("/fs-triage %d", n))
			later(t, p, issues)
		}
		for range 6 {
			later(t, p, issues)
		}
		wantRuns(t, w, 3)
	})
}

// TestCaseE2EveryKindOfEventSurvivesAnIndexThatLags: five more triggers lost
// events for the reason of case 1, each by its own code.
// https://github.com/activepieces/activepieces/issues/15069
// https://github.com/activepieces/activepieces/pull/15072
func TestCaseE2EveryKindOfEventSurvivesAnIndexThatLags(t *testing.T) {
	t.Parallel()
	for kind, do := range map[string]func(w *simtest.World, key string){
		"comment_added": func(w *simtest.World, key string) { w.Jira.Comment(key, simtest.Alice, "hello") },
		"label_changed": func(w *simtest.World, key string) { w.Jira.SetLabels(key, simtest.Alice, "go") },
		"edited":        func(w *simtest.World, key string) { w.Jira.Edit(key, simtest.Alice, "assignee", "", "Bob") },
		"closed":        func(w *simtest.World, key string) { w.Jira.Transition(key, simtest.Alice, "Done") },
		"reopened":      func(w *simtest.World, key string) { w.Jira.Transition(key, simtest.Alice, "To Do") },
		"opened":        nil,
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := simtest.New(t)
				p, search := searching(t, w)
				p.write("harness/triage.yaml", onKind(kind))
				var issues []sim.Issue
				act := func(n int) {
					if do == nil {
						issues = append(issues, createIssues(w, 1)...)
						return
					}
					do(w, issues[n].Key)
				}
				if do != nil {
					issues = createIssues(w, 2)
					if kind == "reopened" {
						w.Jira.Transition(issues[0].Key, simtest.Alice, "Done")
						w.Jira.Transition(issues[1].Key, simtest.Alice, "Done")
					}
					settle(t, p)
				}
				act(0)
				time.Sleep(7 * time.Minute)
				act(1)
				search.set(hide(issues[0].Key))
				later(t, p, issues)
				wantRuns(t, w, 1)
				search.set(nil)
				later(t, p, issues)
				wantRuns(t, w, 2)
				runFor(t, w, issues[0].Key)
			})
		})
	}
}

// TestCaseE7AnIssueWithoutUpdatedIsServedAndStopsNobody: one row without the
// field stopped a whole synchronization.
// https://github.com/singer-io/tap-jira/pull/138
func TestCaseE7AnIssueWithoutUpdatedIsServedAndStopsNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		issues := createIssues(w, 2)
		for _, i := range issues {
			w.Jira.Comment(i.Key, simtest.Alice, "/fs-triage go")
		}
		w.Jira.BreakIssue(issues[0].Key, func(fields map[string]any) {
			for name := range fields {
				if name != "created" {
					delete(fields, name)
				}
			}
		})
		p := newPoller(t, w, testConfig("m: 50, n: 5"), 1)
		for range 3 {
			later(t, p, issues)
		}
		wantRuns(t, w, 2)
	})
}

// TestCaseE12ASearchThatFindsNothingMovesNothing: a successful search without
// a result had moved the window on.
// https://github.com/onyx-dot-app/onyx/pull/14114
func TestCaseE12ASearchThatFindsNothingMovesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t, simtest.Zones(time.UTC, time.FixedZone("behind", -8*3600)))
		issues := createIssues(w, 2)
		p, search := searching(t, w)
		settle(t, p)
		w.Jira.Comment(issues[0].Key, simtest.Alice, "/fs-triage go")
		search.set(hide(issues[0].Key, issues[1].Key))
		writes := w.Jira.PropertyWrites()
		for range 3 {
			if o := later(t, p, issues); o.result.Candidates != 0 {
				t.Fatalf("%d candidates, the test wants none", o.result.Candidates)
			}
		}
		if n := w.Jira.PropertyWrites() - writes; n != 0 {
			t.Errorf("%d properties were written after empty searches", n)
		}
		search.set(nil)
		later(t, p, issues)
		wantRuns(t, w, 1)
	})
}

// TestCaseE13TheHourThatADaylightSavingChangeRepeatsIsPolledTwice: a bound
// written as text inside that hour missed its first pass.
// https://github.com/estuary/connectors/pull/2874
func TestCaseE13TheHourThatADaylightSavingChangeRepeatsIsPolledTwice(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		first := time.Date(2026, 10, 25, 0, 30, 0, 0, time.UTC) // 02:30, and an hour later 02:30 again
		second := first.Add(time.Hour)
		if a, b := first.In(berlin).Format("15:04"), second.In(berlin).Format("15:04"); a != "02:30" || b != "02:30" {
			t.Fatalf("the clock shows %s and %s, the test wants 02:30 twice", a, b)
		}
		time.Sleep(time.Until(first.Add(-10 * time.Minute)))
		w := simtest.New(t, simtest.Zones(berlin, berlin))
		issues := createIssues(w, 3)
		p := newPoller(t, w, testConfig("m: 50, n: 5"), 1)
		settle(t, p)
		time.Sleep(time.Until(first))
		w.Jira.Comment(issues[0].Key, simtest.Alice, "/fs-triage in the first pass")
		w.Jira.Comment(issues[1].Key, simtest.Alice, "/fs-triage in the first pass, seen in the second")
		p.transport = &edited{net: w.Net, suffix: "/search/jql", edit: hide(issues[1].Key)}
		later(t, p, issues)
		wantRuns(t, w, 1)
		p.transport = nil
		time.Sleep(time.Until(second))
		w.Jira.Comment(issues[2].Key, simtest.Alice, "/fs-triage in the second pass")
		later(t, p, issues)
		wantRuns(t, w, 3)
		later(t, p, issues)
		wantRuns(t, w, 3)
	})
}

// bodies is a network that keeps the bodies of searches.
type bodies struct {
	net http.RoundTripper
	mu  sync.Mutex
	all []string
}

func (b *bodies) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := b.keep(req); err != nil {
		return nil, err
	}
	return b.net.RoundTrip(req)
}

func (b *bodies) keep(req *http.Request) error {
	if !strings.HasSuffix(req.URL.Path, "/search/jql") {
		return nil
	}
	raw, err := io.ReadAll(req.Body)
	if err != nil {
		return err
	}
	req.Body = io.NopCloser(bytes.NewReader(raw))
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = append(b.all, string(raw))
	return nil
}

// zoneFile writes a time zone of a fixed offset, for hosts that have no database
// of them (RFC 8536: a header, one local time type and its name).
func zoneFile(tb testing.TB, hours int) string {
	tb.Helper()
	raw := append([]byte("TZif"), make([]byte, 40)...)
	raw[39], raw[43] = 1, 4 // one type; four bytes of names
	raw = binary.BigEndian.AppendUint32(raw, uint32(int32(hours*3600)))
	raw = append(raw, 0, 0, 'H', 'S', 'T', 0)
	if _, err := time.LoadLocationFromTZData("HST", raw); err != nil {
		tb.Fatal(err)
	}
	file := filepath.Join(tb.TempDir(), "zone")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		tb.Fatal(err)
	}
	return file
}

// TestCaseE14TheZoneOfTheHostChangesNothing runs real processes in two zones:
// a service had moved to a host on UTC and found nothing any more.
// https://github.com/openshift/ci-search/pull/128
func TestCaseE14TheZoneOfTheHostChangesNothing(t *testing.T) {
	t.Parallel()
	program := build(t)
	bound := regexp.MustCompile(`updated >= (\d{13}) `)
	for zone, hours := range map[string]int{"Tokyo": 9, "UTC": 0, "Los Angeles": -8} {
		t.Run(zone, func(t *testing.T) {
			t.Parallel()
			w := simtest.New(t)
			issues := createIssues(w, 2)
			w.Jira.Comment(issues[0].Key, simtest.Alice, "/fs-triage go")
			w.Advance(time.Minute)
			p := newPoller(t, w, testConfig("m: 50, n: 5, guard: 150ms, jitter_min: 50ms, jitter_max: 60ms"), 1)
			seen := &bodies{net: w.Net}
			w.Net.Fault = func(req *http.Request) sim.Fault {
				if err := seen.keep(req); err != nil {
					t.Error(err)
				}
				return sim.Fault{}
			}
			p.env["JIRA_BASE_URL"], p.env["GITHUB_API_URL"] = w.Listen(t)
			p.env["TZ"] = zoneFile(t, hours)
			began := time.Now()
			for range 2 {
				if out, err := start(p, program, "poll").CombinedOutput(); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				endRuns(w, issues)
				w.Advance(time.Minute)
			}
			wantRuns(t, w, 1)
			seen.mu.Lock()
			defer seen.mu.Unlock()
			if len(seen.all) < 2 {
				t.Fatalf("%d searches were seen", len(seen.all))
			}
			for _, body := range seen.all {
				var q struct {
					JQL string `json:"jql"`
				}
				if err := json.Unmarshal([]byte(body), &q); err != nil {
					t.Fatal(err)
				}
				m := bound.FindStringSubmatch(q.JQL)
				if m == nil || strings.Replace(q.JQL, m[1], "N", 1) != "(project = PROJ) AND updated >= N ORDER BY updated DESC" {
					t.Fatalf("the query is %s", q.JQL)
				}
				ms, err := strconv.ParseInt(m[1], 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				// The server's clock is some minutes ahead, and no zone's offset.
				if off := time.UnixMilli(ms).Sub(began.Add(-7 * 24 * time.Hour)); off < -5*time.Minute || off > 5*time.Minute {
					t.Errorf("the lower bound is %v off", off)
				}
			}
		})
	}
}

// TestCaseE15ACommentThatComesBackInThreePollsIsDispatchedOnce: a zone ahead
// of the server's made every poll return what the last one had.
// https://github.com/demisto/content/pull/39234
func TestCaseE15ACommentThatComesBackInThreePollsIsDispatchedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t, simtest.Zones(time.FixedZone("site", 9*3600), time.FixedZone("user", 5*3600)))
		issues := createIssues(w, 1)
		p := newPoller(t, w, testConfig("m: 50, n: 5"), 1)
		settle(t, p)
		before := []byte(`"` + time.Now().UTC().Format(time.RFC3339Nano) + `"`)
		time.Sleep(time.Second)
		w.Jira.Comment(issues[0].Key, simtest.Alice, "/fs-triage go")
		for range 3 {
			o := later(t, p, issues)
			if o.result.Events != 1 {
				t.Errorf("%d events, want the comment again", o.result.Events)
			}
			w.Jira.SetProperty(issues[0].Key, propertyName("lastCheck"), before)
		}
		wantRuns(t, w, 1)
	})
}

// TestCaseE16ADescriptionOfAnyShapeRejectsNoPage: a description that is a
// document, and not a text, made the decoder refuse the whole page.
// https://github.com/qf-studio/pilot/issues/4929
func TestCaseE16ADescriptionOfAnyShapeRejectsNoPage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		shapes := []any{map[string]any{"type": "doc", "version": 1, "content": []any{}}, "a text", nil, []any{"a", 7}, 7, true}
		issues := createIssues(w, len(shapes))
		for n, i := range issues {
			w.Jira.BreakIssue(i.Key, func(fields map[string]any) { fields["description"] = shapes[n] })
			w.Jira.Comment(i.Key, simtest.Alice, "/fs-triage go")
		}
		p := newPoller(t, w, testConfig("m: 50, n: 10"), 1)
		later(t, p, issues)
		wantRuns(t, w, len(shapes))
	})
}

// TestCaseE21AllOf150IssuesAreFoundByToken: an offset, which the endpoint does
// not know, ended the walk after one page.
// https://github.com/open-webui/oikb/pull/69
func TestCaseE21AllOf150IssuesAreFoundByToken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		issues := createIssues(w, 150)
		w.Jira.Comment(issues[0].Key, simtest.Alice, "/fs-triage go") // the last of all by its time
		for _, i := range issues[1:] {
			time.Sleep(time.Second)
			w.Jira.Touch(i.Key)
		}
		p := newPoller(t, w, testConfig("m: 500, n: 5"), 1)
		seen := &bodies{net: w.Net}
		p.transport = seen
		if o := later(t, p, issues); o.result.Candidates != 150 {
			t.Errorf("%d candidates, want 150", o.result.Candidates)
		}
		wantRuns(t, w, 1)
		if len(seen.all) != 2 || !strings.Contains(seen.all[1], "nextPageToken") || strings.Contains(strings.Join(seen.all, ""), "startAt") {
			t.Errorf("the searches are %q", seen.all)
		}
	})
}

// TestCaseE24ALabelAt120Of250HistoriesIsFound: the changelog that comes with an
// issue is cut, and older entries were missing without a warning.
// https://github.com/pycontribs/jira/issues/712
// https://github.com/pycontribs/jira/issues/911
// https://github.com/estuary/connectors/issues/2523
// https://github.com/bobmatnyc/trusty-tools/issues/4084
func TestCaseE24ALabelAt120Of250HistoriesIsFound(t *testing.T) {
	t.Parallel()
	for name, leftOut := range map[string]bool{"in the bulk answer": false, "issue by issue": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := simtest.New(t)
				w.Jira.Set(func(s *sim.JiraSwitches) {
					s.BulkLeavesOut = func(path, _ string) bool { return leftOut && strings.HasSuffix(path, "/changelog/bulkfetch") }
				})
				issues := createIssues(w, 1)
				for n := range 250 {
					time.Sleep(time.Second)
					if n == 120 {
						w.Jira.SetLabels(issues[0].Key, simtest.Alice, "go")
						continue
					}
					w.Jira.Edit(issues[0].Key, simtest.Alice, "summary", "a", fmt.Sprint("b", n))
				}
				p := newPoller(t, w, testConfig("m: 50, n: 5"), 1)
				p.write("harness/triage.yaml", onKind("label_changed"))
				for range 4 { // a cycle takes 100 events of one issue
					later(t, p, issues)
				}
				wantRuns(t, w, 1)
				for _, e := range w.Net.Log() {
					if strings.Contains(e.RawQuery, "expand=changelog") {
						t.Errorf("the cut changelog was asked for: %s?%s", e.Path, e.RawQuery)
					}
				}
			})
		})
	}
}

// TestCaseE27CommandInComment119Of120IsFound: one page of comments was taken
// for all of them.
// https://github.com/pycontribs/jira/issues/1938
// https://github.com/meteora-pro/devboy-tools/issues/112
// https://github.com/atlassian/atlassian-mcp-server/issues/230
func TestCaseE27CommandInComment119Of120IsFound(t *testing.T) {
	t.Parallel()
	for _, at := range []int{1, 20, 100, 101, 119, 120} {
		t.Run(strconv.Itoa(at), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := simtest.New(t)
				issues := createIssues(w, 1)
				for n := range 120 {
					text := "looks good"
					if n+1 == at {
						text = "/fs-triage go"
					}
					time.Sleep(time.Second)
					w.Jira.Comment(issues[0].Key, simtest.Alice, text)
				}
				p := newPoller(t, w, testConfig("m: 50, n: 5"), 1)
				for range 3 { // a cycle takes 100 events of one issue
					later(t, p, issues)
				}
				wantRuns(t, w, 1)
			})
		})
	}
}

// TestCaseE28AChangeWithoutAFieldIDIsKnownByItsFieldName: an item without
// fieldId was dropped.
// https://github.com/Jellyfish-AI/jf_agent/pull/110
func TestCaseE28AChangeWithoutAFieldIDIsKnownByItsFieldName(t *testing.T) {
	t.Parallel()
	for name, field := range map[string]string{"as reported": "labels", "in another case": "Labels"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := simtest.New(t)
				issues := createIssues(w, 1)
				p := newPoller(t, w, testConfig("m: 50, n: 5"), 1)
				p.write("harness/triage.yaml", harnessFor(
					`event.transition.kind == "label_changed" && event.transition.label.name == "go" && event.transition.label.action == "added"`))
				settle(t, p)
				w.Jira.AddHistory(issues[0].Key, map[string]any{
					"created": time.Now().Format("2006-01-02T15:04:05.000-0700"),
					"author":  map[string]any{"accountId": simtest.Alice, "displayName": "Alice"},
					"items":   []any{map[string]any{"field": field, "fromString": "", "toString": "go"}},
				})
				w.Jira.Touch(issues[0].Key)
				for range 2 {
					later(t, p, issues)
				}
				wantRuns(t, w, 1)
			})
		})
	}
}

// TestCaseE29ACommandFromBeforeALaterChangeIsFoundAfterAnOutage: what was older
// than the last run was left out although nobody had seen it.
// https://github.com/mojira/arisa-kt/issues/753
func TestCaseE29ACommandFromBeforeALaterChangeIsFoundAfterAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		issues := createIssues(w, 2)
		p := newPoller(t, w, testConfig("m: 50, n: 5"), 1)
		settle(t, p)
		time.Sleep(30 * time.Minute)
		w.Jira.Comment(issues[0].Key, simtest.Alice, "/fs-triage go")
		time.Sleep(time.Hour)
		w.Jira.Touch(issues[0].Key) // an attachment
		time.Sleep(30 * time.Minute)
		later(t, p, issues)
		wantRuns(t, w, 1)
	})
}

// TestCaseE30AnIssueCreatedWhileTheSearchRunsIsFoundLater: it had been missed
// once, and so for ever.
// https://github.com/mojira/arisa-kt/issues/401
func TestCaseE30AnIssueCreatedWhileTheSearchRunsIsFoundLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		old := createIssues(w, 1)
		p, search := searching(t, w)
		p.write("harness/triage.yaml", onKind("opened"))
		later(t, p, old)
		wantRuns(t, w, 1)
		time.Sleep(time.Minute)
		fresh := createIssues(w, 1)
		time.Sleep(200 * time.Millisecond)
		search.set(hide(fresh[0].Key))
		p.mustCycle()
		wantRuns(t, w, 1)
		search.set(nil)
		later(t, p, append(old, fresh...))
		wantRuns(t, w, 2)
		runFor(t, w, fresh[0].Key)
	})
}

// TestCaseE50OnlyTheKindThatWasAskedForStartsARunAndOnce: filters were ignored,
// and every poll told the same change again.
// https://github.com/n8n-io/n8n/pull/25797
func TestCaseE50OnlyTheKindThatWasAskedForStartsARunAndOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		issues := createIssues(w, 1)
		key := issues[0].Key
		p := newPoller(t, w, testConfig("m: 50, n: 5"), 1)
		p.write("harness/triage.yaml", harnessFor(
			`event.transition.kind == "label_changed" && event.transition.label.name == "go" && event.transition.label.action == "added"`))
		settle(t, p)
		before := []byte(`"` + time.Now().UTC().Format(time.RFC3339Nano) + `"`)
		time.Sleep(time.Second)
		w.Jira.Edit(key, simtest.Alice, "description", "a", "go")
		w.Jira.SetLabels(key, simtest.Alice, "gone")
		w.Jira.Comment(key, simtest.Alice, "go")
		w.Jira.Transition(key, simtest.Alice, "Done")
		later(t, p, issues)
		wantRuns(t, w, 0)
		w.Jira.SetLabels(key, simtest.Alice, "gone", "go")
		for range 3 {
			later(t, p, issues)
			w.Jira.SetProperty(key, propertyName("lastCheck"), before)
		}
		wantRuns(t, w, 1)
	})
}

// TestCaseE55AChangedDescriptionIsNoChangeOfStatus: any update had fired the
// trigger for status changes.
// https://github.com/activepieces/activepieces/pull/8117
func TestCaseE55AChangedDescriptionIsNoChangeOfStatus(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		issues := createIssues(w, 1)
		key := issues[0].Key
		p := newPoller(t, w, testConfig("m: 50, n: 5"), 1)
		p.write("harness/triage.yaml", harnessFor(`event.transition.kind in ["closed", "reopened"]`))
		settle(t, p)
		w.Jira.Edit(key, simtest.Alice, "description", "a", "Done")
		w.Jira.Touch(key)
		later(t, p, issues)
		wantRuns(t, w, 0)
		w.Jira.Transition(key, simtest.Alice, "In Progress") // within one category
		later(t, p, issues)
		wantRuns(t, w, 0)
		w.Jira.Transition(key, simtest.Alice, "Done")
		later(t, p, issues)
		wantRuns(t, w, 1)
	})
}

// datacenter makes a poller against a Data Center site whose kind nobody has
// configured.
func datacenter(tb testing.TB, w *simtest.World) *poller {
	tb.Helper()
	config := strings.NewReplacer(`email: "${JIRA_USER_EMAIL}", `, "", "flavour: cloud", "flavour: auto").Replace(testConfig("m: 50, n: 5"))
	p := newPoller(tb, w, config, 1)
	delete(p.env, "JIRA_USER_EMAIL")
	p.env["JIRA_BASE_URL"] = w.JiraURL()
	_, p.env["JIRA_TOKEN"] = w.JiraCredentials()
	return p
}

// TestCaseE26OnDataCenterTheChangelogComesWithTheIssue: the endpoint of Cloud
// is not there and answers 404.
// https://github.com/atlassian-api/atlassian-python-api/issues/1396
func TestCaseE26OnDataCenterTheChangelogComesWithTheIssue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t, simtest.DataCenter())
		issues := createIssues(w, 1)
		p := datacenter(t, w)
		p.write("harness/triage.yaml", onKind("label_changed"))
		settle(t, p)
		w.Jira.SetLabels(issues[0].Key, simtest.Alice, "go")
		later(t, p, issues)
		wantRuns(t, w, 1)
		expanded := false
		for _, e := range w.Net.Log() {
			expanded = expanded || strings.Contains(e.RawQuery, "expand=changelog")
			if strings.Contains(e.Path, "/changelog") {
				t.Errorf("%s %s was asked, which Data Center does not have", e.Method, e.Path)
			}
		}
		if !expanded {
			t.Error("no changelog was read with its issue")
		}
	})
}

// TestCaseE52TheSiteSaysItselfThatItIsNoCloud: everything had been moved to
// the endpoint that only Cloud has.
// https://gitlab.com/gitlab-org/gitlab/-/merge_requests/208859
func TestCaseE52TheSiteSaysItselfThatItIsNoCloud(t *testing.T) {
	t.Parallel()
	for _, deployment := range []string{"Server", "DataCenter"} {
		t.Run(deployment, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := simtest.New(t, simtest.DataCenter())
				w.Jira.Set(func(s *sim.JiraSwitches) { s.DeploymentType = deployment })
				issues := createIssues(w, 1)
				w.Jira.Comment(issues[0].Key, simtest.Alice, "/fs-triage go")
				p := datacenter(t, w)
				later(t, p, issues)
				wantRuns(t, w, 1)
				for _, e := range w.Net.Log() {
					if strings.Contains(e.Path, "/search/jql") || strings.Contains(e.Path, "/rest/api/3") {
						t.Errorf("%s %s was asked, which only Cloud has", e.Method, e.Path)
					}
				}
			})
		})
	}
}

// TestCaseXiACommentWithoutAnAuthorStartsNothingAndStopsNobody: automation and
// deleted accounts leave such comments (section A.3 of the notes on Jira).
func TestCaseXiACommentWithoutAnAuthorStartsNothingAndStopsNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		issues := createIssues(w, 2)
		w.Jira.Comment(issues[0].Key, simtest.Alice, "/fs-triage by nobody")
		w.Jira.Comment(issues[1].Key, simtest.Alice, "/fs-triage by alice")
		p := newPoller(t, w, testConfig("m: 50, n: 5"), 1)
		p.transport = &edited{net: w.Net, suffix: "/issue/" + issues[0].ID + "/comment", edit: func(doc map[string]any) {
			comments, _ := doc["comments"].([]any)
			for _, raw := range comments {
				if c, ok := raw.(map[string]any); ok {
					c["author"], c["updateAuthor"] = nil, nil
				}
			}
		}}
		for range 2 {
			later(t, p, issues)
		}
		wantRuns(t, w, 1)
		runFor(t, w, issues[1].Key)
	})
}

// readAll returns every file below a folder as one text.
func readAll(tb testing.TB, dir string) string {
	tb.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		all.Write(raw)
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	return all.String()
}
