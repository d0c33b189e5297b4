package cli

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fullsend/poll-action/internal/lease"
	"github.com/fullsend/poll-action/internal/sim"
	"github.com/fullsend/poll-action/internal/sim/simtest"
)

// anyEvent is a harness that every event of Jira starts.
const anyEvent = `event.source.system == "jira"`

// TestCaseE31TheProductsOwnCommentsStartNothing: a service that acts as an
// ordinary account answered its own comments for ever.
// https://github.com/fullsend-ai/fullsend/issues/6835
// https://github.com/kubernetes/test-infra/issues/12138
// https://github.com/The-PR-Agent/pr-agent/issues/2398
func TestCaseE31TheProductsOwnCommentsStartNothing(t *testing.T) {
	t.Parallel()
	const other = "5f00:agent"
	for name, who := range map[string]string{"the polling account": simtest.Bot, "an account under bots": other} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := simtest.New(t)
				w.Jira.AddUser(sim.User{AccountID: other, DisplayName: "Ann", Type: "atlassian"})
				w.Jira.Grant(simtest.Project, "Developers", simtest.Bot, other)
				issues := createIssues(w, 1)
				config := strings.Replace(testConfig("m: 50, n: 5"), "      flavour:", "      bots: [\""+other+"\"]\n      flavour:", 1)
				p := newPoller(t, w, config, 1)
				settle(t, p)
				// Every run answers with a comment that reads like a command.
				w.GitHub.OnDispatch(func(r sim.Run) { w.Jira.Comment(r.Inputs["work_item_key"], who, "/fs-triage once more") })
				w.Jira.Comment(issues[0].Key, simtest.Alice, "/fs-triage go")
				for range 6 {
					later(t, p, issues)
				}
				wantRuns(t, w, 1)
			})
		})
	}
}

// TestCaseE31NothingThatTheProductsOwnAccountDoesIsAnEvent: labels and edits can
// make a loop as comments can.
// https://github.com/fullsend-ai/fullsend/issues/6835
func TestCaseE31NothingThatTheProductsOwnAccountDoesIsAnEvent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		w.Jira.Grant(simtest.Project, "Administrators", simtest.Bot)
		issues := createIssues(w, 1)
		p := newPoller(t, w, testConfig("m: 50, n: 5"), 1)
		settle(t, p)
		p.write("harness/triage.yaml", harnessFor(anyEvent))
		w.Jira.SetLabels(issues[0].Key, simtest.Bot, "go")
		w.Jira.Edit(issues[0].Key, simtest.Bot, "summary", "a", "b")
		w.Jira.Transition(issues[0].Key, simtest.Bot, "Done")
		w.Jira.Comment(issues[0].Key, simtest.Bot, "done")
		w.Jira.CreateIssue(sim.IssueSpec{Project: simtest.Project, Summary: "s", Reporter: simtest.Bot})
		for range 3 {
			later(t, p, issues)
		}
		wantRuns(t, w, 0)
	})
}

// sideBySide lets n pollers, all with the same account, cycle at the same time
// over slow requests, until rounds are over.
func sideBySide(t *testing.T, w *simtest.World, issues []sim.Issue, pollers []*poller, seed uint64, rounds int) {
	t.Helper()
	dice := rand.New(rand.NewPCG(seed, 3))
	var mu sync.Mutex
	w.Net.Latency = func(*http.Request) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return 20*time.Millisecond + time.Duration(dice.Int64N(int64(300*time.Millisecond)))
	}
	var all sync.WaitGroup
	for _, p := range pollers {
		all.Go(func() {
			for range rounds {
				if o := p.cycle(); o.code != ExitOK {
					t.Errorf("exit code %d\n%s", o.code, o.stderr)
				}
				endRuns(w, issues)
				time.Sleep(5 * time.Second)
			}
		})
	}
	all.Wait()
	w.Net.Latency = nil
}

// leaveStaleLock leaves a lock of yesterday on an issue. Jira does not tell the
// first who overwrites it from the second.
func leaveStaleLock(tb testing.TB, w *simtest.World, key string) {
	tb.Helper()
	raw, err := lease.Lock{ID: "yesterdays", TS: time.Now().Add(-24 * time.Hour), Phase: lease.Pending, Driver: "jira-poll"}.Encode()
	if err != nil {
		tb.Fatal(err)
	}
	w.Jira.SetProperty(key, lockProp, raw)
}

// TestCaseE32TwoRunsOfOneAccountDoNotTakeEachOtherForThemselves: both wrote the
// same identity and read it back as their own.
// https://github.com/watt-mind/factory/issues/877
func TestCaseE32TwoRunsOfOneAccountDoNotTakeEachOtherForThemselves(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := simtest.New(t)
				issues := createIssues(w, 1)
				w.Jira.Comment(issues[0].Key, simtest.Alice, "/fs-triage go")
				leaveStaleLock(t, w, issues[0].Key)
				time.Sleep(time.Minute)
				config := testConfig("m: 50, n: 5")
				sideBySide(t, w, issues, []*poller{newPoller(t, w, config, 2*seed), newPoller(t, w, config, 2*seed+1)}, seed, 4)
				wantRuns(t, w, 1)
			})
		})
	}
}

// TestCaseE56ThreePollersStartOneRunForEachCommand: a label or a property as a
// claim, without more, let three pull requests come of one issue.
// https://github.com/bohemian-miser/RecipeLanes/pull/293
// https://github.com/Intense-Visions/harness-engineering/pull/182
func TestCaseE56ThreePollersStartOneRunForEachCommand(t *testing.T) {
	t.Parallel()
	for seed := range uint64(sized(10, 3)) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := simtest.New(t)
				issues := createIssues(w, 4)
				for n, i := range issues {
					w.Jira.Comment(i.Key, simtest.Alice, "/fs-triage go")
					if n%2 == 0 {
						leaveStaleLock(t, w, i.Key)
					}
				}
				time.Sleep(time.Minute)
				var pollers []*poller
				for n := range uint64(3) {
					pollers = append(pollers, newPoller(t, w, testConfig("m: 50, n: 5"), 3*seed+n))
				}
				sideBySide(t, w, issues, pollers, seed, 10)
				wantRuns(t, w, 4)
			})
		})
	}
}

// TestCaseE34WhatHappensWhileAnIssueIsLockedComesAfterwards: a lock that was
// held on had swallowed later updates.
// https://github.com/canonical/gh-jira-sync-bot/pull/98
func TestCaseE34WhatHappensWhileAnIssueIsLockedComesAfterwards(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		issues := createIssues(w, 1)
		p := newPoller(t, w, testConfig("m: 50, n: 5"), 1)
		settle(t, p)
		w.Jira.Comment(issues[0].Key, simtest.Alice, "/fs-triage one")
		time.Sleep(time.Minute)
		p.mustCycle()
		wantRuns(t, w, 1)
		holder := lockID(w, issues[0].Key)
		for range 3 {
			w.Jira.Comment(issues[0].Key, simtest.Alice, "/fs-triage two")
			time.Sleep(time.Minute)
			p.mustCycle()
		}
		if id := lockID(w, issues[0].Key); id != holder || holder == "" {
			t.Errorf("the lock is %q, want still %q", id, holder)
		}
		wantRuns(t, w, 1)
		endRuns(w, issues)
		later(t, p, issues)
		wantRuns(t, w, 4)
	})
}

// TestCaseE35ATokenThatHasExpiredIsNoEmptySite: Jira answers 200 and shows
// nothing, as to anybody who is not logged in.
// https://github.com/MrRefactoring/jira.js/issues/418
// https://github.com/raycast/extensions/issues/27550
func TestCaseE35ATokenThatHasExpiredIsNoEmptySite(t *testing.T) {
	t.Parallel()
	const empty = `{"issues":[],"isLast":true}`
	asJSON := func(name, value string) http.Header {
		return http.Header{"Content-Type": {"application/json"}, name: {value}}
	}
	for name, set := range map[string]func(w *simtest.World, p *poller){
		"the simulator's": func(w *simtest.World, p *poller) {
			w.Jira.Set(func(s *sim.JiraSwitches) { s.AuthMode = sim.AuthAnonymous200 })
			p.env["JIRA_TOKEN"] = "expired"
		},
		"told by the header": func(w *simtest.World, _ *poller) {
			w.Net.Fault = func(req *http.Request) sim.Fault {
				if strings.HasSuffix(req.URL.Path, "/search/jql") {
					return sim.Fault{Status: 200, Body: empty, Header: asJSON("X-Seraph-Loginreason", "AUTHENTICATED_FAILED")}
				}
				return sim.Fault{}
			}
		},
		"told by /myself alone": func(w *simtest.World, _ *poller) {
			w.Net.Fault = func(req *http.Request) sim.Fault {
				if strings.HasSuffix(req.URL.Path, "/search/jql") {
					return sim.Fault{Status: 200, Body: empty, Header: asJSON("X-Nothing", "1")}
				}
				return sim.Fault{Status: 401, Body: `{"errorMessages":["You are not authenticated."]}`, Header: asJSON("X-Nothing", "1")}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := simtest.New(t, simtest.Unchecked())
				issues := createIssues(w, 1)
				w.Jira.Comment(issues[0].Key, simtest.Alice, "/fs-triage go")
				time.Sleep(time.Minute)
				p := newPoller(t, w, testConfig("m: 50, n: 5"), 1)
				set(w, p)
				o := p.cycle()
				if o.code != ExitFailed || !strings.Contains(o.stderr, "JIRA_TOKEN") {
					t.Errorf("exit code %d\n%s", o.code, o.stderr)
				}
				w.Net.Fault = nil
				p.env["JIRA_TOKEN"] = simtest.JiraToken
				w.Jira.Set(func(s *sim.JiraSwitches) { s.AuthMode = sim.AuthNormal })
				later(t, p, issues)
				wantRuns(t, w, 1)
			})
		})
	}
}

// TestCaseE36AMissingRightToReadRolesIsNamedAndNotTakenForABadToken: Cloud says
// 401 where the account is no administrator of the project.
// https://github.com/pycontribs/jira/issues/535
// https://github.com/fullsend-ai/fullsend/pull/6020
func TestCaseE36AMissingRightToReadRolesIsNamedAndNotTakenForABadToken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		w.Jira.Set(func(s *sim.JiraSwitches) { s.RolesForbidden = true })
		issues := createIssues(w, 1)
		w.Jira.Comment(issues[0].Key, simtest.Alice, "/fs-triage go")
		time.Sleep(time.Minute)
		p := newPoller(t, w, testConfig("m: 50, n: 5"), 1)
		o := p.cycle()
		if o.code != ExitFailed || strings.Contains(o.stderr+o.stdout, "JIRA_TOKEN") {
			t.Errorf("exit code %d\n%s", o.code, o.stderr)
		}
		for _, part := range []string{"Administer Projects", simtest.Project, "authorization: allow"} {
			if !strings.Contains(o.stderr+o.stdout, part) {
				t.Errorf("%q is not mentioned in\n%s%s", part, o.stderr, o.stdout)
			}
		}
		w.Jira.Set(func(s *sim.JiraSwitches) { s.RolesForbidden = false })
		later(t, p, issues)
		wantRuns(t, w, 1)
	})
}

// TestCaseE41PollersThatKnowAMovedIssueByTwoKeysShareOneLock: keys change, and
// a lock by key had two holders.
// https://github.com/opsknight-labs/OpsKnight/pull/620
func TestCaseE41PollersThatKnowAMovedIssueByTwoKeysShareOneLock(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := simtest.New(t)
				w.Jira.AddProject("NEW")
				w.Jira.Grant("NEW", "Developers", simtest.Alice)
				is := createIssues(w, 1)[0]
				w.Jira.Comment(is.Key, simtest.Alice, "/fs-triage go")
				moved := sim.Issue{ID: is.ID, Key: w.Jira.MoveIssue(is.Key, simtest.Alice, "NEW")}
				time.Sleep(time.Minute)
				config := strings.Replace(testConfig("m: 50, n: 5"), "[project = PROJ]", `['project in ("PROJ", "NEW")']`, 1)
				old, fresh := newPoller(t, w, config, 2*seed), newPoller(t, w, config, 2*seed+1)
				old.transport = &edited{net: w.Net, suffix: "/search/jql", edit: func(doc map[string]any) {
					issues, _ := doc["issues"].([]any)
					for _, raw := range issues {
						if m, ok := raw.(map[string]any); ok && m["id"] == is.ID {
							m["key"] = is.Key
							if f, ok := m["fields"].(map[string]any); ok {
								f["project"] = map[string]any{"key": simtest.Project}
							}
						}
					}
				}}
				sideBySide(t, w, []sim.Issue{moved}, []*poller{old, fresh}, seed, 4)
				wantRuns(t, w, 1)
				for _, e := range w.Net.Log() {
					if strings.Contains(e.Path, "/properties/") && !strings.Contains(e.Path, "/issue/"+is.ID+"/") {
						t.Errorf("%s %s goes by a key", e.Method, e.Path)
					}
				}
			})
		})
	}
}

// TestCaseE42ProjectsWhoseKeysAreWordsOfJQLArePolled: the names IF, DO and SET
// were refused in every cycle.
// https://github.com/sooperset/mcp-atlassian/issues/966
// https://github.com/prometheus-community/jiralert/issues/14
// https://github.com/canonical/gh-jira-sync-bot/issues/45
func TestCaseE42ProjectsWhoseKeysAreWordsOfJQLArePolled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		var issues []sim.Issue
		for _, key := range []string{"IF", "DO", "SET"} {
			w.Jira.AddProject(key)
			w.Jira.Grant(key, "Developers", simtest.Alice)
			is := w.Jira.CreateIssue(sim.IssueSpec{Project: key, Summary: "s", Reporter: simtest.Alice})
			w.Jira.Comment(is.Key, simtest.Alice, "/fs-triage go")
			issues = append(issues, is)
		}
		time.Sleep(time.Minute)
		unquoted := newPoller(t, w, strings.Replace(testConfig("m: 50, n: 5"), "project = PROJ", "project = DO", 1), 1)
		if o := unquoted.cycle(); o.code != ExitUsage || !strings.Contains(o.stderr, "project = DO") || !strings.Contains(o.stderr, "reserved") {
			t.Errorf("exit code %d\n%s", o.code, o.stderr)
		}
		quoted := newPoller(t, w, strings.Replace(testConfig("m: 50, n: 5"), "[project = PROJ]", `['project in ("IF", "DO", "SET")']`, 1), 1)
		later(t, quoted, issues)
		wantRuns(t, w, 3)
	})
}

// TestCaseE43OnlyThreePropertiesOfAnIssueAreEverWritten: labels that were taken
// off and put on by two requests came back. The product writes none.
// https://github.com/opendatahub-io/rfe-creator/pull/103
func TestCaseE43OnlyThreePropertiesOfAnIssueAreEverWritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, issues, p := scene(t)
		w.Jira.SetLabels(issues[0].Key, simtest.Alice, "a", "b")
		time.Sleep(10 * time.Millisecond)
		w.Jira.SetLabels(issues[0].Key, simtest.Alice, "b")
		for range 3 {
			later(t, p, issues)
		}
		wantRuns(t, w, 2)
		writes := 0
		for _, e := range w.Net.Log() {
			reads := e.Method == http.MethodGet || strings.HasSuffix(e.Path, "/search/jql") || strings.HasSuffix(e.Path, "fetch")
			if e.Host != simtest.JiraHost || reads {
				continue
			}
			writes++
			if !strings.Contains(e.Path, "/properties/"+propertyName("")) {
				t.Errorf("%s %s was sent", e.Method, e.Path)
			}
		}
		if writes == 0 {
			t.Error("nothing was written, the test would prove nothing")
		}
	})
}

// TestCaseE45TwoDispatchesWithinASecondGetTheirOwnRuns: the newest run of the
// list had been taken for one's own.
// https://github.com/cli/cli/issues/4001
// https://github.com/convictional/trigger-workflow-and-wait/issues/6
func TestCaseE45TwoDispatchesWithinASecondGetTheirOwnRuns(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(s *sim.GitHubSwitches){
		"by the answer":       func(*sim.GitHubSwitches) {},
		"by the run's name":   func(s *sim.GitHubSwitches) { s.NoRunDetails = true },
		"listed seconds late": func(s *sim.GitHubSwitches) { s.NoRunDetails, s.RunVisibleAfter = true, 3*time.Second },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := simtest.New(t)
				w.GitHub.Set(set)
				issues := createIssues(w, 3)
				for _, i := range issues {
					w.Jira.Comment(i.Key, simtest.Alice, "/fs-triage go")
				}
				time.Sleep(time.Minute)
				o := newPoller(t, w, testConfig("m: 50, n: 5"), 1).mustCycle()
				wantRuns(t, w, 3)
				told := map[string]int64{}
				for _, row := range o.result.Drivers[0].Items {
					for _, r := range row.Runs {
						told[row.Key] = r.RunID
					}
				}
				for _, i := range issues {
					run := runFor(t, w, i.Key)
					raw, _ := w.Jira.Property(i.Key, lockProp)
					if told[i.Key] != run.ID || !strings.Contains(string(raw), strconv.FormatInt(run.ID, 10)) || run.Inputs["poll_lock_id"] != lockID(w, i.Key) {
						t.Errorf("%s has run %d; the report says %d and the lock %s", i.Key, run.ID, told[i.Key], raw)
					}
				}
			})
		})
	}
}

// TestCaseE46OfThreeEventsOfOneIssueTheNewestRunSurvivesAndTheLockOutlivesTheOthers:
// GitHub keeps one run and one waiting run of a concurrency group, and a run
// that gave way had been taken for one that was done.
// https://github.com/benc-uk/workflow-dispatch/pull/107
func TestCaseE46OfThreeEventsOfOneIssueTheNewestRunSurvivesAndTheLockOutlivesTheOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		issues := createIssues(w, 1)
		var last string
		for n := range 3 {
			last = w.Jira.Comment(issues[0].Key, simtest.Alice, fmt.Sprintf("/fs-triage %d", n))
			time.Sleep(time.Second)
		}
		// What GitHub does with the concurrency group of the example workflow.
		w.GitHub.OnDispatch(func(fresh sim.Run) {
			for _, r := range w.GitHub.Runs() {
				if r.ID != fresh.ID && r.Status != "completed" && group(t, r) == group(t, fresh) {
					w.GitHub.Complete(r.ID, "cancelled")
				}
			}
		})
		p := newPoller(t, w, testConfig("m: 50, n: 5"), 1)
		time.Sleep(time.Minute)
		p.mustCycle()
		wantRuns(t, w, 3)
		var alive []sim.Run
		for _, r := range w.GitHub.Runs() {
			if r.Status != "completed" {
				alive = append(alive, r)
			}
		}
		if len(alive) != 1 || !strings.Contains(alive[0].Inputs["dispatch_key"], last) {
			t.Fatalf("the runs that live are %+v, want the one of comment %s", alive, last)
		}
		// Two of its runs have ended without doing anything; it is still held.
		w.Jira.Comment(issues[0].Key, simtest.Alice, "/fs-triage another")
		time.Sleep(time.Minute)
		p.mustCycle()
		wantRuns(t, w, 3)
		if id := lockID(w, issues[0].Key); id != alive[0].Inputs["poll_lock_id"] {
			t.Errorf("the lock is %q, want the survivor's", id)
		}
		endRuns(w, issues)
		later(t, p, issues)
		wantRuns(t, w, 4)
	})
}

// group is the concurrency group of a run, as the example workflow makes it.
func group(tb testing.TB, r sim.Run) string {
	tb.Helper()
	var payload struct {
		Issue struct {
			Number int64 `json:"number"`
		} `json:"issue"`
	}
	if err := json.Unmarshal([]byte(r.Inputs["event_payload"]), &payload); err != nil || payload.Issue.Number == 0 {
		tb.Errorf("the payload %q names no issue: %v", r.Inputs["event_payload"], err)
	}
	return fmt.Sprintf("%s-%s-%d", r.Inputs["agent"], r.Inputs["source_repo"], payload.Issue.Number)
}

// storedCheck is the stored lastCheck, zero where there is none.
func storedCheck(tb testing.TB, w *simtest.World, key string) time.Time {
	tb.Helper()
	raw, ok := w.Jira.Property(key, propertyName("lastCheck"))
	if !ok {
		return time.Time{}
	}
	var at time.Time
	if err := json.Unmarshal(raw, &at); err != nil {
		tb.Fatal(err)
	}
	return at
}

// TestCaseE49ADispatchThatFailsUsesUpNothing: the cursor had moved before the
// action could start.
// https://github.com/ohdearquant/lionagi/issues/2538
func TestCaseE49ADispatchThatFailsUsesUpNothing(t *testing.T) {
	t.Parallel()
	for _, status := range []int{403, 404, 429, 500, 503} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := simtest.New(t)
				issues := createIssues(w, 1)
				p := newPoller(t, w, testConfig("m: 50, n: 5"), 1)
				settle(t, p)
				at := time.Now()
				w.Jira.Comment(issues[0].Key, simtest.Alice, "/fs-triage go")
				time.Sleep(time.Minute)
				w.Net.Fault = func(req *http.Request) sim.Fault {
					if strings.HasSuffix(req.URL.Path, "/dispatches") {
						return sim.Fault{Status: status, Body: `{"message":"no"}`, Header: http.Header{"Content-Type": {"application/json"}}}
					}
					return sim.Fault{}
				}
				if o := p.cycle(); o.code != ExitFailed {
					t.Errorf("exit code %d\n%s", o.code, o.stderr)
				}
				if now := storedCheck(t, w, issues[0].Key); now.IsZero() || !now.Before(at) {
					t.Errorf("lastCheck is %v, want before the command of %v", now, at)
				}
				w.Net.Fault = nil
				time.Sleep(16 * time.Minute) // a dispatch that may have happened keeps its lock so long
				later(t, p, issues)
				wantRuns(t, w, 1)
			})
		})
	}
}

// TestCaseE53AnIssueThatMayNotBeWrittenIsReportedAndHoldsUpNoOther: a bot that
// may see an issue and not write to it had failed altogether.
// https://github.com/openshift/sippy/pull/2998
func TestCaseE53AnIssueThatMayNotBeWrittenIsReportedAndHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		issues := createIssues(w, 3)
		for _, i := range issues {
			w.Jira.Comment(i.Key, simtest.Alice, "/fs-triage go")
		}
		w.Jira.SetReadOnly(issues[1].Key, true)
		time.Sleep(time.Minute)
		p := newPoller(t, w, testConfig("m: 50, n: 5"), 1)
		o := p.cycle()
		wantRuns(t, w, 2)
		if !strings.Contains(o.stderr+o.stdout, "Edit Issues") || !strings.Contains(o.stderr+o.stdout, issues[1].Key) {
			t.Errorf("the right and the issue are not named in\n%s%s", o.stderr, o.stdout)
		}
		endRuns(w, issues)
		w.Jira.SetReadOnly(issues[1].Key, false)
		later(t, p, issues)
		wantRuns(t, w, 3)
	})
}

// TestCaseE54WhatNotEverybodyMayReadLeavesJiraNowhere: confidential text had
// been published.
// https://github.com/mozilla/fxa/issues/13267
func TestCaseE54WhatNotEverybodyMayReadLeavesJiraNowhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		issues := createIssues(w, 4)
		no := false
		const secret = "the merger is on Friday"
		body := sim.Paragraph("/fs-triage " + secret)
		w.Jira.CommentADF(issues[0].Key, simtest.Alice, body, map[string]any{"type": "role", "value": "Administrators"}, nil)
		w.Jira.CommentADF(issues[1].Key, simtest.Alice, body, nil, &no)
		w.Jira.CommentADF(issues[2].Key, simtest.Alice, body, map[string]any{"type": "group", "value": "board", "identifier": "1"}, nil)
		w.Jira.Comment(issues[3].Key, simtest.Alice, "/fs-triage public")
		p := newPoller(t, w, testConfig("m: 50, n: 5"), 1)
		p.env["GITHUB_STEP_SUMMARY"] = p.dir + "/summary.md"
		p.env["GITHUB_OUTPUT"] = p.dir + "/output"
		var said strings.Builder
		for range 3 {
			o := later(t, p, issues)
			said.WriteString(o.stdout + o.stderr)
		}
		wantRuns(t, w, 1)
		for _, r := range w.GitHub.Runs() {
			fmt.Fprint(&said, r)
		}
		for _, i := range issues {
			for _, name := range w.Jira.Properties(i.Key) {
				raw, _ := w.Jira.Property(i.Key, name)
				said.Write(raw)
			}
		}
		said.WriteString(readAll(t, p.dir))
		if text := said.String(); strings.Contains(text, "merger") || !strings.Contains(text, "public") {
			t.Errorf("the restricted text got out, or the public one did not:\n%s", text)
		}
	})
}

// TestCaseE58APollerKilledBeforeItsDispatchHasUsedUpNothing: the cursor was
// saved, then the process died before it passed the event on.
// https://github.com/WallyDoodlez/SquidSquad/issues/9898
func TestCaseE58APollerKilledBeforeItsDispatchHasUsedUpNothing(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]bool{"before GitHub saw it": false, "after GitHub saw it": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := simtest.New(t)
				issues := createIssues(w, 1)
				p := newPoller(t, w, testConfig("m: 50, n: 5"), 1)
				settle(t, p)
				at := time.Now()
				w.Jira.Comment(issues[0].Key, simtest.Alice, "/fs-triage go")
				time.Sleep(time.Minute)
				dying := *p
				dying.transport = &dies{net: w.Net, suffix: "/dispatches", after: after}
				dying.cycle()
				if now := storedCheck(t, w, issues[0].Key); !now.Before(at) {
					t.Errorf("lastCheck is %v, past the command of %v", now, at)
				}
				untilQuiet(t, w, issues, p)
				if counts, runs := runsPerKey(w), len(w.GitHub.Runs()); len(counts) != 1 || runs > 2 || !after && runs != 1 {
					t.Errorf("%d runs: %v", runs, counts)
				}
			})
		})
	}
}

// dies is a network that a process loses for good with its first request to a
// path: before the server has seen it, or after.
type dies struct {
	net    http.RoundTripper
	suffix string
	after  bool

	mu   sync.Mutex
	dead bool
}

func (d *dies) RoundTrip(req *http.Request) (*http.Response, error) {
	d.mu.Lock()
	dead, last := d.dead, strings.HasSuffix(req.URL.Path, d.suffix)
	d.dead = dead || last
	d.mu.Unlock()
	switch {
	case dead:
		return nil, errCut
	case !last:
		return d.net.RoundTrip(req)
	case d.after:
		if resp, err := d.net.RoundTrip(req); err == nil {
			_ = resp.Body.Close()
		}
	}
	return nil, errCut
}

// TestCaseXbALockThatIsGoneWhenItIsGivenBackIsGivenBack: Jira answers 404 to the
// deletion of what is not there.
func TestCaseXbALockThatIsGoneWhenItIsGivenBackIsGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		issues := createIssues(w, 1)
		w.Jira.Comment(issues[0].Key, simtest.Alice, "/fs-triage go")
		time.Sleep(time.Minute)
		gone := false
		w.Net.Fault = func(req *http.Request) sim.Fault {
			switch {
			case strings.HasSuffix(req.URL.Path, "/dispatches"):
				return sim.Fault{Status: 403, Body: `{"message":"no"}`, Header: http.Header{"Content-Type": {"application/json"}}}
			case req.Method == http.MethodDelete:
				gone = true
				w.Jira.DeleteProperty(issues[0].Key, lockProp)
			}
			return sim.Fault{}
		}
		p := newPoller(t, w, testConfig("m: 50, n: 5"), 1)
		o := p.cycle()
		if !gone || lockID(w, issues[0].Key) != "" {
			t.Error("the lock was not given back")
		}
		if strings.Contains(o.stderr+o.stdout, "could not be released") || o.result.Drivers[0].Released != 1 {
			t.Errorf("it is reported as a failure:\n%s%s", o.stderr, o.stdout)
		}
		w.Net.Fault = nil
		later(t, p, issues)
		wantRuns(t, w, 1)
	})
}

// TestCaseXjTwoSitesMayHaveTheSameIssueID: the sites number their issues and
// comments alike.
func TestCaseXjTwoSitesMayHaveTheSameIssueID(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const host = "other.atlassian.net"
		w := simtest.New(t)
		second := sim.NewJira(sim.JiraConfig{
			BaseURL: "https://" + host, Now: w.Now, Email: simtest.JiraEmail, Token: simtest.JiraToken,
			Self: sim.User{AccountID: simtest.Bot, DisplayName: "Fullsend"},
		})
		second.AddUser(sim.User{AccountID: simtest.Alice, DisplayName: "Alice"})
		second.AddProject(simtest.Project)
		second.Grant(simtest.Project, "Developers", simtest.Alice)
		w.Net.Handle(host, second)
		a := createIssues(w, 1)[0]
		b := second.CreateIssue(sim.IssueSpec{Project: simtest.Project, Summary: "s", Reporter: simtest.Alice})
		if ca, cb := w.Jira.Comment(a.Key, simtest.Alice, "/fs-triage go"), second.Comment(b.Key, simtest.Alice, "/fs-triage go"); a != b || ca != cb {
			t.Fatalf("the sites differ: %v and %v, %s and %s", a, b, ca, cb)
		}
		config := testConfig("m: 50, n: 5")
		from, to := strings.Index(config, "    - type"), strings.Index(config, "  output_driver")
		one := config[from:to]
		two := strings.NewReplacer("- type: jira-poll", "- type: jira-poll\n      name: second", "${JIRA_BASE_URL}", "${SECOND_URL}").Replace(one)
		p := newPoller(t, w, config[:from]+strings.Replace(one, "- type: jira-poll", "- type: jira-poll\n      name: first", 1)+two+config[to:], 1)
		p.env["SECOND_URL"] = "https://" + host
		time.Sleep(time.Minute)
		for range 2 {
			p.mustCycle()
			time.Sleep(time.Minute)
		}
		sites, locks := map[string]bool{}, map[string]bool{}
		for _, r := range w.GitHub.Runs() {
			sites[r.Inputs["work_item_url"]], locks[r.Inputs["poll_lock_id"]] = true, true
		}
		if len(w.GitHub.Runs()) != 2 || len(locks) != 2 || !sites[simtest.JiraURL+"/browse/"+a.Key] || !sites["https://"+host+"/browse/"+b.Key] {
			t.Errorf("%d runs with %d locks for %v, want one of each site", len(w.GitHub.Runs()), len(locks), sites)
		}
	})
}

// beforeLock calls f when the lock of an issue is about to be written.
func beforeLock(w *simtest.World, id string, f func()) {
	var once sync.Once
	w.Net.Fault = func(req *http.Request) sim.Fault {
		if req.Method == http.MethodPut && strings.HasSuffix(req.URL.Path, "/issue/"+id+"/properties/"+lockProp) {
			once.Do(f)
		}
		return sim.Fault{}
	}
}

// TestCaseXkAnIssueDeletedBetweenSearchAndLockHoldsUpNoOther: its lock cannot be
// written, 404.
func TestCaseXkAnIssueDeletedBetweenSearchAndLockHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		issues := createIssues(w, 2)
		for _, i := range issues {
			w.Jira.Comment(i.Key, simtest.Alice, "/fs-triage go")
		}
		deleted := false
		beforeLock(w, issues[0].ID, func() { deleted = true; w.Jira.DeleteIssue(issues[0].Key) })
		p := newPoller(t, w, testConfig("m: 50, n: 5"), 1)
		time.Sleep(time.Minute)
		o := p.cycle()
		if !deleted {
			t.Fatal("no lock was written")
		}
		if !strings.Contains(o.stderr+o.stdout, issues[0].Key) {
			t.Errorf("the issue is not named in\n%s%s", o.stderr, o.stdout)
		}
		wantRuns(t, w, 1)
		runFor(t, w, issues[1].Key)
		endRuns(w, issues[1:])
		for range 2 {
			later(t, p, issues[1:])
		}
		wantRuns(t, w, 1)
	})
}

// TestCaseXlACommandDeletedBetweenDetectionAndDispatchIsDispatchedOnce: it was
// given, and seen; nothing is stuck afterwards.
func TestCaseXlACommandDeletedBetweenDetectionAndDispatchIsDispatchedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		issues := createIssues(w, 1)
		id := w.Jira.Comment(issues[0].Key, simtest.Alice, "/fs-triage go")
		deleted := false
		beforeLock(w, issues[0].ID, func() { deleted = true; w.Jira.DeleteComment(issues[0].Key, id) })
		p := newPoller(t, w, testConfig("m: 50, n: 5"), 1)
		later(t, p, issues)
		if !deleted {
			t.Fatal("no lock was written")
		}
		wantRuns(t, w, 1)
		writes := w.Jira.PropertyWrites()
		for range 5 {
			later(t, p, issues)
		}
		wantRuns(t, w, 1)
		if n := w.Jira.PropertyWrites() - writes; n > 1 || lockID(w, issues[0].Key) != "" {
			t.Errorf("%d properties were written afterwards, and the lock is %q", n, lockID(w, issues[0].Key))
		}
	})
}

// TestCaseXmTheSameCommandOfTwoPeopleInOneCycleIsTwoRuns: they are two comments.
func TestCaseXmTheSameCommandOfTwoPeopleInOneCycleIsTwoRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		issues := createIssues(w, 1)
		w.Jira.Comment(issues[0].Key, simtest.Alice, "/fs-triage go")
		w.Jira.Comment(issues[0].Key, simtest.Bob, "/fs-triage go")
		p := newPoller(t, w, testConfig("m: 50, n: 5"), 1)
		for range 3 {
			later(t, p, issues)
		}
		wantRuns(t, w, 2)
		actors := map[string]bool{}
		for _, r := range w.GitHub.Runs() {
			var ev struct {
				Actor struct {
					ID string `json:"id"`
				} `json:"actor"`
			}
			if err := json.Unmarshal([]byte(r.Inputs["normalized_event"]), &ev); err != nil {
				t.Fatal(err)
			}
			actors[ev.Actor.ID] = true
		}
		if !actors[simtest.Alice] || !actors[simtest.Bob] {
			t.Errorf("the actors are %v, want both", actors)
		}
	})
}
