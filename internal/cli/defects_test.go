package cli

// What other pollers of Jira did wrong, row by row of
// docs/known-poller-defects.md: whole cycles against simulated servers. D rows
// are defects that the poller of https://github.com/fullsend-ai/fullsend named
// itself, in the threads and commits that each comment gives; R rows are what
// was found in its code by running or reading it.

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/fullsend/poll-action/internal/event"
	"github.com/fullsend/poll-action/internal/lease"
	"github.com/fullsend/poll-action/internal/sim"
	"github.com/fullsend/poll-action/internal/sim/simtest"
)

// with is the usual configuration with more members of the driver.
func with(members ...string) string {
	const at = "      queries: "
	return strings.Replace(testConfig("m: 50, n: 5"), at, "      "+strings.Join(members, "\n      ")+"\n"+at, 1)
}

// asking is the usual configuration with another query.
func asking(jql string) string {
	return strings.Replace(testConfig("m: 50, n: 5"), "queries: [project = PROJ]", "queries: ["+jql+"]", 1)
}

// triggered is a harness for one kind of transition.
func triggered(kind string) string {
	return fmt.Sprintf("role: triage\ntrigger: event.transition.kind == %q\n", kind)
}

// commanded is an issue with a command of Alice, a minute old.
func commanded(w *simtest.World) sim.Issue {
	i := createIssues(w, 1)[0]
	time.Sleep(time.Minute)
	w.Jira.Comment(i.Key, simtest.Alice, "/fs-triage go")
	time.Sleep(time.Minute)
	return i
}

// runsAre fails unless so many runs were started so far.
func runsAre(t *testing.T, w *simtest.World, n int, when string) {
	t.Helper()
	if got := len(w.GitHub.Runs()); got != n {
		t.Errorf("%s: %d runs, want %d", when, got, n)
	}
}

// stored is a property of the product as it stands in Jira.
func stored(w *simtest.World, key, short string) string {
	raw, _ := w.Jira.Property(key, propertyName(short))
	return string(raw)
}

// checkpoint is the stored lastCheck, zero where there is none.
func checkpoint(t *testing.T, w *simtest.World, key string) time.Time {
	t.Helper()
	raw := stored(w, key, "lastCheck")
	if raw == "" {
		return time.Time{}
	}
	var at time.Time
	if err := json.Unmarshal([]byte(raw), &at); err != nil {
		t.Fatalf("lastCheck %s: %v", raw, err)
	}
	return at
}

// forge stores a property as somebody else would.
func forge(t *testing.T, w *simtest.World, key, short string, value any) {
	t.Helper()
	raw, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	w.Jira.SetProperty(key, propertyName(short), raw)
}

// foreign is another poller's lock of the given age.
func foreign(id string, age time.Duration) map[string]string {
	return map[string]string{"id": id, "ts": time.Now().Add(-age).UTC().Format(time.RFC3339Nano), "phase": "pending"}
}

// said is what a cycle said, all of it.
func (o outcome) said() string { return o.stdout + o.stderr }

// saysAll fails unless the cycle said all parts.
func saysAll(t *testing.T, o outcome, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(o.said(), p) {
			t.Errorf("%q is not mentioned in\n%s", p, o.said())
		}
	}
}

// next lets the runs end and runs the cycle of a minute later.
func next(w *simtest.World, p *poller, issues ...sim.Issue) outcome {
	p.t.Helper()
	endRuns(w, issues)
	time.Sleep(time.Minute)
	return p.mustCycle()
}

// failing answers with a status where the request's method and path match.
func failing(w *simtest.World, method, path string, status int) {
	w.Net.Fault = func(r *http.Request) sim.Fault {
		if r.Method == method && strings.Contains(r.URL.Path, path) {
			return sim.Fault{Status: status}
		}
		return sim.Fault{}
	}
}

// asked counts the requests since the last reset whose path has the part.
func asked(w *simtest.World, part string) int {
	n := 0
	for _, e := range w.Net.Log() {
		if strings.Contains(e.Path, part) {
			n++
		}
	}
	return n
}

// refresh is a run's first step.
func refresh(t *testing.T, w *simtest.World, p *poller, run sim.Run) int {
	t.Helper()
	mine := *p
	mine.env = map[string]string{
		"GITHUB_RUN_ID":               strconv.FormatInt(run.ID, 10),
		"FULLSEND_WORK_ITEM_KEY":      run.Inputs["work_item_key"],
		"FULLSEND_WORK_ITEM_URL":      run.Inputs["work_item_url"],
		"FULLSEND_WORK_ITEM_SOURCE":   run.Inputs["work_item_source"],
		"FULLSEND_POLL_LOCK_ID":       run.Inputs["poll_lock_id"],
		"FULLSEND_POLL_LOCK_DRIVER":   run.Inputs["poll_lock_driver"],
		"FULLSEND_POLL_LOCK_PROPERTY": run.Inputs["poll_lock_property"],
	}
	for name, value := range p.env {
		mine.env[name] = value
	}
	w.GitHub.Start(run.ID)
	return mine.run(t.Context(), "lock", "refresh").code
}

// held is the lock as it stands in Jira.
func held(t *testing.T, w *simtest.World, key string) lease.Lock {
	t.Helper()
	l, err := lease.Decode([]byte(stored(w, key, "lock")))
	if err != nil {
		t.Fatalf("lock of %s: %v", key, err)
	}
	return l
}

// D1: fullsend-ai/fullsend commit 4cf7b52d.
func TestDefectD1TheLockIsReadAgainRightBeforeItIsWritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		i := commanded(w)
		w.Jira.Set(func(s *sim.JiraSwitches) { s.IndexLag = time.Minute })
		time.Sleep(time.Minute)
		forge(t, w, i.Key, "lock", foreign("live", 0)) // the search does not show it yet
		o := newPoller(t, w, testConfig("m: 50, n: 5"), 1).mustCycle()
		if id := lockID(w, i.Key); id != "live" || o.result.Contended != 1 {
			t.Errorf("the lock is %q now, %d contended", id, o.result.Contended)
		}
		runsAre(t, w, 0, "under a live lock")
	})
}

// D6: fullsend-ai/fullsend commit 08ca30b3.
func TestDefectD6APropertyThatIsNotThereIsNoLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		i := commanded(w)
		if names := w.Jira.Properties(i.Key); len(names) > 0 {
			t.Fatalf("the issue is not new to the product: %q", names)
		}
		o := newPoller(t, w, testConfig("m: 50, n: 5"), 1).mustCycle()
		if o.result.Locked != 1 || o.result.Contended != 0 {
			t.Errorf("locked %d, contended %d on a first poll", o.result.Locked, o.result.Contended)
		}
		runsAre(t, w, 1, "the first poll")
	})
}

// D7: fullsend-ai/fullsend commit 587306a8.
func TestDefectD7ALockDatedYearsAheadKeepsNobodyOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		i := commanded(w)
		forge(t, w, i.Key, "lock", foreign("for ever", -10*365*24*time.Hour))
		newPoller(t, w, testConfig("m: 50, n: 5"), 1).mustCycle()
		runsAre(t, w, 1, "in the next cycle")
	})
}

// D8: fullsend-ai/fullsend pull requests 5778 and 2409.
func TestDefectD8TheLockIsHeldThroughSchedulingAndHandedToTheRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		i := commanded(w)
		during := ""
		w.GitHub.OnDispatch(func(sim.Run) { during = lockID(w, i.Key) })
		p := newPoller(t, w, testConfig("m: 50, n: 5"), 1)
		p.mustCycle()
		run := w.GitHub.Runs()[0]
		if l := held(t, w, i.Key); during != l.ID || l.ID != run.Inputs["poll_lock_id"] || l.Phase != lease.Pending || l.RunID != run.ID {
			t.Errorf("held by %q while it was scheduled, afterwards %+v", during, l)
		}
		if code := refresh(t, w, p, run); code != ExitOK {
			t.Fatalf("the run's refresh ends with %d", code)
		}
		if l := held(t, w, i.Key); l.Phase != lease.Running || l.ID != run.Inputs["poll_lock_id"] {
			t.Errorf("after the refresh %+v", l)
		}
		w.Jira.Comment(i.Key, simtest.Alice, "/fs-triage more")
		time.Sleep(time.Minute)
		p.mustCycle()
		runsAre(t, w, 1, "while the run works")
		next(w, p, i)
		runsAre(t, w, 2, "when it has ended")
	})
}

// D9: fullsend-ai/fullsend commit a8790ee2 and its operator's guide.
func TestDefectD9ARefreshedLockOutlivesTheThresholdAndALostOneStopsTheRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		i := commanded(w)
		p := newPoller(t, w, testConfig("m: 50, n: 5"), 1)
		p.mustCycle()
		first := w.GitHub.Runs()[0]
		w.Jira.Comment(i.Key, simtest.Alice, "/fs-triage more")
		for range 8 { // forty minutes, the threshold is fifteen
			time.Sleep(5 * time.Minute)
			if code := refresh(t, w, p, first); code != ExitOK {
				t.Fatalf("the run's refresh ends with %d", code)
			}
			p.mustCycle()
		}
		runsAre(t, w, 1, "while the lock is refreshed")
		time.Sleep(16 * time.Minute)
		p.mustCycle()
		runsAre(t, w, 1, "after a stall longer than the threshold, while GitHub says that the run is at work")
		time.Sleep(6 * time.Hour)
		p.mustCycle()
		runsAre(t, w, 2, "after a stall longer than max_hold")
		if code := refresh(t, w, p, first); code != ExitLost {
			t.Errorf("the stalled run's refresh ends with %d, want %d", code, ExitLost)
		}
	})
}

// D10: fullsend-ai/fullsend pull request 2409 (lock-handoff-toctou-gap).
func TestDefectD10TheLockBridgesTheGapUntilTheRunsFirstStepRefreshesIt(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../examples/fullsend-agent.yml")
	if err != nil {
		t.Fatal(err)
	}
	var workflow struct {
		Jobs map[string]struct {
			Steps []struct {
				With map[string]string `yaml:"with"`
			} `yaml:"steps"`
		} `yaml:"jobs"`
	}
	if err := yaml.Unmarshal(raw, &workflow); err != nil {
		t.Fatal(err)
	}
	if job := workflow.Jobs["agent"]; len(job.Steps) == 0 || job.Steps[0].With["command"] != "lock-refresh" {
		t.Error("the job agent of the example does not refresh the lock first")
	}
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		i := commanded(w)
		newPoller(t, w, testConfig("m: 50, n: 5"), 1).mustCycle()
		w.Jira.Comment(i.Key, simtest.Alice, "/fs-triage more")
		other := newPoller(t, w, testConfig("m: 50, n: 5"), 2)
		for range 10 { // the run waits for a runner; both pollers have ended
			time.Sleep(time.Minute)
			other.mustCycle()
		}
		runsAre(t, w, 1, "before the first refresh")
		if code := refresh(t, w, other, w.GitHub.Runs()[0]); code != ExitOK {
			t.Errorf("the late refresh ends with %d", code)
		}
	})
}

// D11: fullsend-ai/fullsend commits 789dcf5a and a8790ee2.
func TestDefectD11ACycleInWhichEveryCandidateFailsFails(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(w *simtest.World, issues []sim.Issue){
		"no right to write": func(w *simtest.World, issues []sim.Issue) {
			for _, i := range issues {
				w.Jira.SetReadOnly(i.Key, true)
			}
		},
		"locks cannot be read": func(w *simtest.World, _ []sim.Issue) { failing(w, http.MethodGet, "/rest/api/3/issue/", 403) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := simtest.New(t)
				issues := createIssues(w, 3)
				time.Sleep(time.Minute)
				for _, i := range issues {
					w.Jira.Comment(i.Key, simtest.Alice, "/fs-triage go")
				}
				spoil(w, issues)
				o := newPoller(t, w, testConfig("m: 50, n: 5"), 1).cycle()
				if o.code != ExitFailed || o.result.OK || len(o.result.Drivers[0].Items) != 3 {
					t.Errorf("exit code %d, ok %t, items %+v", o.code, o.result.OK, o.result.Drivers[0].Items)
				}
				runsAre(t, w, 0, "nothing could be locked")
			})
		})
	}
}

// D13: fullsend-ai/fullsend commit 587306a8.
func TestDefectD13AForgedLockIDBeginsNoLineOfTheLog(t *testing.T) {
	t.Parallel()
	for name, id := range map[string]string{"with a new line": "x\n::error::forged", "as a workflow command": "::error::forged", "escaped": `x\n::error::forged`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := simtest.New(t)
				i := commanded(w)
				// fresh on the issue and unknown to the search: the refusal names the holder
				w.Jira.Set(func(s *sim.JiraSwitches) { s.IndexLag = time.Minute })
				time.Sleep(time.Minute)
				forge(t, w, i.Key, "lock", foreign(id, 0))
				p := newPoller(t, w, testConfig("m: 50, n: 5"), 1)
				p.env["GITHUB_ACTIONS"] = "true"
				o := p.cycle()
				for line := range strings.Lines(o.said()) {
					if strings.HasPrefix(strings.TrimSpace(line), "::error::forged") {
						t.Errorf("a forged line: %q", line)
					}
				}
			})
		})
	}
}

// D14: fullsend-ai/fullsend commit d1775cfe.
func TestDefectD14SecondGrainCheckpointIsKeptToTheMillisecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		i := createIssues(w, 1)[0]
		time.Sleep(time.Minute + 987*time.Millisecond)
		w.Jira.Comment(i.Key, simtest.Alice, "/fs-triage go")
		time.Sleep(time.Minute)
		p := newPoller(t, w, testConfig("m: 50, n: 5"), 1)
		p.mustCycle()
		if at := checkpoint(t, w, i.Key); !at.Equal(w.Jira.Updated(i.Key)) || at.Nanosecond() == 0 {
			t.Errorf("lastCheck %v, the issue was updated %v", at, w.Jira.Updated(i.Key))
		}
		for range 3 { // without the journal the checkpoint alone has to hold
			w.Jira.DeleteProperty(i.Key, propertyName("seen"))
			next(w, p, i)
		}
		runsAre(t, w, 1, "after four cycles")
	})
}

// D15: fullsend-ai/fullsend commit f38403df.
func TestDefectD15TheCheckpointPassesChangesThatRouteNowhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		i := createIssues(w, 1)[0]
		p := newPoller(t, w, testConfig("m: 50, n: 5"), 1)
		settle(t, p)
		before := checkpoint(t, w, i.Key)
		w.Jira.Edit(i.Key, simtest.Alice, "Rank", "", "Ranked higher")
		time.Sleep(time.Minute)
		w.Jira.Touch(i.Key) // a worklog, say
		time.Sleep(time.Minute)
		p.mustCycle()
		if at := checkpoint(t, w, i.Key); !at.After(before) || at.Before(w.Jira.Updated(i.Key)) {
			t.Errorf("lastCheck %v, the issue was updated %v", at, w.Jira.Updated(i.Key))
		}
		w.Net.ResetLog()
		p.mustCycle()
		if n := len(w.Net.Log()); n != 1 {
			t.Errorf("%d requests in the next cycle, want the search alone", n)
		}
	})
}

// D16: fullsend-ai/fullsend commit 4cf7b52d.
func TestDefectD16TheCheckpointStaysWhenTheOutputFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		i := commanded(w)
		said := w.Jira.Updated(i.Key)
		w.GitHub.Set(func(s *sim.GitHubSwitches) { s.DispatchForbidden = true })
		p := newPoller(t, w, testConfig("m: 50, n: 5"), 1)
		if o := p.cycle(); o.code != ExitFailed {
			t.Errorf("exit code %d, want %d", o.code, ExitFailed)
		}
		if at := checkpoint(t, w, i.Key); !at.Before(said) {
			t.Errorf("lastCheck %v is past the command of %v", at, said)
		}
		w.GitHub.Set(func(s *sim.GitHubSwitches) { s.DispatchForbidden = false })
		next(w, p, i)
		runsAre(t, w, 1, "when GitHub allows it")
	})
}

// D17: fullsend-ai/fullsend commit 50430e22 (a limitation known there).
func TestDefectD17TheCheckpointWaitsForAConfirmedRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		i := commanded(w)
		said := w.Jira.Updated(i.Key)
		w.GitHub.Set(func(s *sim.GitHubSwitches) { s.Always204, s.RunVisibleAfter = true, time.Hour })
		o := newPoller(t, w, testConfig("m: 50, n: 5"), 1).cycle()
		if at := checkpoint(t, w, i.Key); !at.Before(said) || o.code != ExitFailed || o.result.Failed != 1 {
			t.Errorf("exit code %d, failed %d, lastCheck %v; the command is of %v", o.code, o.result.Failed, at, said)
		}
		if lockID(w, i.Key) == "" {
			t.Error("the lock was given back though a run may exist")
		}
	})
}

// D19: fullsend-ai/fullsend commit 2b4f1da5.
func TestDefectD19NoEventLiftsTheCheckpointAboveTheCeilingOrBackwards(t *testing.T) {
	t.Parallel()
	for name, ago := range map[string]time.Duration{"an old checkpoint": time.Hour, "one that is past the ceiling": 5 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := simtest.New(t)
				i := createIssues(w, 1)[0]
				time.Sleep(2 * time.Hour)
				w.Jira.Comment(i.Key, simtest.Alice, "/fs-triage just now")
				start := time.Now()
				before := start.Add(-ago)
				forge(t, w, i.Key, "lastCheck", before.UTC().Format(time.RFC3339Nano))
				newPoller(t, w, testConfig("m: 50, n: 5"), 1).mustCycle()
				runsAre(t, w, 1, "a command of this moment")
				at := checkpoint(t, w, i.Key)
				if at.Before(before) {
					t.Errorf("the checkpoint went back from %v to %v", before, at)
				}
				if ceiling := start.Add(-9 * time.Second); at.After(before) && at.After(ceiling) {
					t.Errorf("the checkpoint %v is past the ceiling %v", at, ceiling)
				}
			})
		})
	}
}

// D20: fullsend-ai/fullsend commit 587306a8.
func TestDefectD20ACheckpointInTheFutureSilencesNoIssue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		i := commanded(w)
		forge(t, w, i.Key, "lastCheck", time.Now().AddDate(5, 0, 0).UTC().Format(time.RFC3339))
		o := newPoller(t, w, testConfig("m: 50, n: 5"), 1).mustCycle()
		runsAre(t, w, 1, "in spite of the forged checkpoint")
		saysAll(t, o, "lies in the future")
		if at := checkpoint(t, w, i.Key); at.After(time.Now()) {
			t.Errorf("the forged lastCheck %v still stands", at)
		}
	})
}

// D21: fullsend-ai/fullsend commit 587306a8.
func TestDefectD21ARewoundCheckpointReplaysNothingThatWasDispatched(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		i := commanded(w)
		p := newPoller(t, w, testConfig("m: 50, n: 5"), 1)
		p.mustCycle()
		year := time.Now().AddDate(-1, 0, 0).UTC().Format(time.RFC3339)
		forge(t, w, i.Key, "lastCheck", year)
		next(w, p, i)
		runsAre(t, w, 1, "the journal remembers the command")

		time.Sleep(30 * 24 * time.Hour)
		w.Jira.DeleteProperty(i.Key, propertyName("seen"))
		forge(t, w, i.Key, "lastCheck", year)
		w.Jira.Touch(i.Key) // back into the scan window
		o := next(w, p, i)
		runsAre(t, w, 1, "without a journal the replay window holds")
		saysAll(t, o, "older than replay_window")
	})
}

// D22: fullsend-ai/fullsend commit 2b4f1da5.
func TestDefectD22ACheckpointThatCannotBeStoredFailsTheCycle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		i := commanded(w)
		failing(w, http.MethodPut, ".lastCheck", 500)
		p := newPoller(t, w, testConfig("m: 50, n: 5"), 1)
		o := p.cycle()
		if o.code != ExitFailed {
			t.Errorf("exit code %d, want %d", o.code, ExitFailed)
		}
		saysAll(t, o, "store lastCheck")
		w.Net.Fault = nil
		next(w, p, i)
		runsAre(t, w, 1, "in the end")
	})
}

// D23: fullsend-ai/fullsend commit feac6385.
func TestDefectD23FirstSightOfABacklogOpensOnlyWhatIsNew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		createIssues(w, 20)
		time.Sleep(48 * time.Hour)
		fresh, broken := createIssues(w, 1)[0], createIssues(w, 1)[0]
		w.Jira.BreakIssue(broken.Key, func(fields map[string]any) { fields["created"] = "the day before" })
		time.Sleep(time.Hour)
		p := newPoller(t, w, testConfig("m: 50, n: 50"), 1)
		p.write("harness/triage.yaml", triggered("opened"))
		p.mustCycle()
		if got := slices.Sorted(maps.Keys(runsPerKey(w))); !slices.Equal(got, []string{"triage:opened-" + fresh.ID}) {
			t.Errorf("dispatched %q, want the new issue alone", got)
		}
	})
}

// D24: fullsend-ai/fullsend commit 156b1716.
func TestDefectD24AFirstPollReplaysNoOldHistory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		i := createIssues(w, 1)[0]
		for range 5 {
			time.Sleep(time.Hour)
			w.Jira.Comment(i.Key, simtest.Alice, "/fs-triage long ago")
			w.Jira.SetLabels(i.Key, simtest.Alice, "old")
			w.Jira.SetLabels(i.Key, simtest.Alice)
		}
		time.Sleep(30 * time.Hour)
		id := w.Jira.Comment(i.Key, simtest.Alice, "/fs-triage now")
		time.Sleep(time.Hour)
		o := newPoller(t, w, testConfig("m: 50, n: 5"), 1).mustCycle()
		if got := runsPerKey(w); len(got) != 1 || got["triage:comment-"+id] != 1 {
			t.Errorf("dispatched %v", got)
		}
		if o.result.Events != 1 {
			t.Errorf("%d events, want the new comment alone", o.result.Events)
		}
	})
}

// D25: fullsend-ai/fullsend pull request 5778.
func TestDefectD25TheFirstPollsWindowIsConfiguredAndWhatItLeavesOutIsNamed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		window  string
		runs    int
		skipped bool
	}{{"24h", 0, true}, {"72h", 1, false}} {
		t.Run(c.window, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := simtest.New(t)
				i := createIssues(w, 1)[0]
				id := w.Jira.Comment(i.Key, simtest.Alice, "/fs-triage go")
				time.Sleep(48 * time.Hour)
				o := newPoller(t, w, with("first_poll_window: "+c.window), 1).mustCycle()
				runsAre(t, w, c.runs, "a command two days old")
				named := strings.Contains(o.stdout, `"key":"comment-`+id+`"`) && strings.Contains(o.stdout, "older than first_poll_window")
				if named != c.skipped {
					t.Errorf("named as skipped: %t\n%s", named, o.stdout)
				}
			})
		})
	}
}

// D27: fullsend-ai/fullsend commit 2b4f1da5.
func TestDefectD27RolesThatCannotBeReadRefuseNothingAndKeepTheCheckpoint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		i := commanded(w)
		failing(w, http.MethodGet, "/role", 500)
		p := newPoller(t, w, testConfig("m: 50, n: 5"), 1)
		if o := p.cycle(); o.code != ExitFailed {
			t.Errorf("exit code %d, want %d", o.code, ExitFailed)
		}
		if raw := stored(w, i.Key, "lastCheck"); raw != "" {
			t.Errorf("lastCheck became %s", raw)
		}
		w.Net.Fault = nil
		next(w, p, i)
		runsAre(t, w, 1, "when roles can be read again")
	})
}

// D28: fullsend-ai/fullsend pull request 6020.
func TestDefectD28AMissingProjectRightIsNamedWithTheModeThatNeedsLess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		commanded(w)
		w.Jira.Set(func(s *sim.JiraSwitches) { s.RolesForbidden = true })
		o := newPoller(t, w, testConfig("m: 50, n: 5"), 1).cycle()
		if o.code != ExitFailed {
			t.Errorf("exit code %d, want %d", o.code, ExitFailed)
		}
		saysAll(t, o, "Administer Projects in project PROJ", "the credentials are good", "authorization: allow")
		newPoller(t, w, with("authorization: allow", `allow: ["`+simtest.Alice+`"]`), 1).mustCycle()
		runsAre(t, w, 1, "with the mode that was named")
	})
}

// D29: fullsend-ai/fullsend commit 8da43b2e.
func TestDefectD29ARoleCountsInItsOwnProjectOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		w.Jira.AddProject("OTHER")
		w.Jira.Grant("OTHER", "Developers", simtest.Mallory)
		here := createIssues(w, 1)[0]
		there := w.Jira.CreateIssue(sim.IssueSpec{Project: "OTHER", Summary: "s", Reporter: simtest.Alice})
		time.Sleep(time.Minute)
		for _, i := range []sim.Issue{here, there} {
			w.Jira.Comment(i.Key, simtest.Mallory, "/fs-triage go")
		}
		time.Sleep(time.Minute)
		newPoller(t, w, asking("'project in (PROJ, OTHER)'"), 1).mustCycle()
		runsAre(t, w, 1, "a developer of OTHER commands in both")
		if runs := w.GitHub.Runs(); len(runs) == 1 && runs[0].Inputs["work_item_key"] != there.Key {
			t.Errorf("the run is for %s", runs[0].Inputs["work_item_key"])
		}
	})
}

// D30: fullsend-ai/fullsend commit c526a223 and its operator's guide.
func TestDefectD30TheRealPermissionCanBeAskedForInsteadOfRoleNames(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		issues := createIssues(w, 2)
		time.Sleep(time.Minute)
		w.Jira.Comment(issues[0].Key, simtest.Alice, "/fs-triage go")
		w.Jira.Comment(issues[1].Key, simtest.Mallory, "/fs-triage go")
		time.Sleep(time.Minute)
		newPoller(t, w, with("authorization: permission"), 1).mustCycle()
		runsAre(t, w, 1, "one of the two may edit issues")
		if n := asked(w, "/role"); n > 0 {
			t.Errorf("%d requests for roles", n)
		}
	})
}

// D31: https://github.com/fullsend-ai/fullsend/issues/6089.
func TestDefectD31TheProjectOfARoleIsTheIssuesAlsoWhereTheQueryNamesNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		commanded(w)
		newPoller(t, w, asking("statusCategory != Done"), 1).mustCycle()
		runsAre(t, w, 1, "a developer's command")
	})
}

// D33: the first plan of fullsend-ai/fullsend pull request 5778.
func TestDefectD33AnActorWithoutARoleIsExternal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		i := createIssues(w, 1)[0]
		time.Sleep(time.Minute)
		w.Jira.Comment(i.Key, simtest.Mallory, "/fs-triage go")
		time.Sleep(time.Minute)
		o := newPoller(t, w, testConfig("m: 50, n: 5"), 1).mustCycle()
		runsAre(t, w, 0, "a command of somebody without a role")
		saysAll(t, o, "1 refused by the gate")
	})
}

// D34: fullsend-ai/fullsend commit bd99ed49.
func TestDefectD34TheGitHubPermissionOfALinkedAccountDecides(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		i := commanded(w)
		w.GitHub.SetPermission("alice-gh", "read")
		p := newPoller(t, w, with(`github-users: {"`+simtest.Alice+`": alice-gh}`), 1)
		p.mustCycle()
		runsAre(t, w, 0, "a Jira developer who may only read on GitHub")
		w.GitHub.SetPermission("alice-gh", "write")
		w.Jira.Comment(i.Key, simtest.Alice, "/fs-triage again")
		next(w, p, i)
		runsAre(t, w, 1, "one who may write there")
	})
}

// D35: https://github.com/fullsend-ai/fullsend/issues/6835.
func TestDefectD35WhatTheProductsOwnAccountWritesTriggersNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		w.Jira.Grant(simtest.Project, "Developers", simtest.Bot) // an ordinary user with every right
		i := commanded(w)
		p := newPoller(t, w, testConfig("m: 50, n: 5"), 1)
		p.write("harness/triage.yaml", "role: triage\ntrigger: event.transition.kind == \"comment_added\" || event.transition.kind == \"label_changed\"\n")
		p.mustCycle()
		for range 5 { // the agent answers, asks and labels, as agents do
			w.Jira.Comment(i.Key, simtest.Bot, "/fs-triage I need more information")
			w.Jira.SetLabels(i.Key, simtest.Bot, "needs-info")
			next(w, p, i)
			w.Jira.SetLabels(i.Key, simtest.Bot)
		}
		runsAre(t, w, 1, "after five answers of its own")
	})
}

// D36: fullsend-ai/fullsend commits 89bf5ebe and 9722d192.
func TestDefectD36AnAccountThatIsListedAsABotCommandsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		commanded(w) // Alice is a developer
		newPoller(t, w, with(`bots: ["`+simtest.Alice+`"]`), 1).mustCycle()
		runsAre(t, w, 0, "a command of a listed bot")
	})
}

// D37: fullsend-ai/fullsend commit feac6385.
func TestDefectD37AnEditOfAnOldCommentIsSeen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		i := createIssues(w, 1)[0]
		id := w.Jira.Comment(i.Key, simtest.Alice, "thinking")
		p := newPoller(t, w, testConfig("m: 50, n: 5"), 1)
		settle(t, p)
		time.Sleep(10 * 24 * time.Hour)
		w.Jira.EditComment(i.Key, id, simtest.Alice, "/fs-triage go")
		next(w, p, i)
		runsAre(t, w, 1, "a command that was edited into a comment of ten days ago")
	})
}

// D38: fullsend-ai/fullsend commit 587306a8 and pull request 5996.
func TestDefectD38AnEditorsTextRunsUnderTheEditorsRole(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		author, editor string
		runs           int
	}{{simtest.Alice, simtest.Mallory, 0}, {simtest.Mallory, simtest.Alice, 1}} {
		t.Run(c.editor, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := simtest.New(t)
				i := createIssues(w, 1)[0]
				time.Sleep(time.Minute)
				id := w.Jira.Comment(i.Key, c.author, "thinking")
				time.Sleep(time.Minute)
				w.Jira.EditComment(i.Key, id, c.editor, "/fs-triage go")
				time.Sleep(time.Minute)
				newPoller(t, w, testConfig("m: 50, n: 5"), 1).mustCycle()
				runsAre(t, w, c.runs, "edited by "+c.editor)
			})
		})
	}
}

// D39: the operator's guide of fullsend-ai/fullsend.
func TestDefectD39AnEditThatChangesNothingInACommandDispatchesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		i := createIssues(w, 1)[0]
		time.Sleep(time.Minute)
		id := w.Jira.Comment(i.Key, simtest.Alice, "/fs-triage go")
		time.Sleep(time.Minute)
		p := newPoller(t, w, testConfig("m: 50, n: 5"), 1)
		p.mustCycle()
		for range 3 { // who may see it is changed, and changed back
			w.Jira.EditComment(i.Key, id, simtest.Alice, "/fs-triage go")
			next(w, p, i)
		}
		runsAre(t, w, 1, "after three touches")
		w.Jira.EditComment(i.Key, id, simtest.Alice, "/fs-triage go on")
		next(w, p, i)
		runsAre(t, w, 2, "after an edit of the command")
		w.Jira.EditComment(i.Key, id, simtest.Alice, "/fs-triage go on")
		next(w, p, i)
		runsAre(t, w, 2, "after a touch of the edited command")
		w.Jira.EditComment(i.Key, id, simtest.Alice, "/fs-triage go")
		next(w, p, i)
		runsAre(t, w, 3, "after an edit back to the first text")
	})
}

// D44: fullsend-ai/fullsend commit e2777427.
func TestDefectD44ClosedIssuesAreNotReadOverAndOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		for _, i := range createIssues(w, 20) {
			w.Jira.Transition(i.Key, simtest.Alice, "Done")
		}
		p := newPoller(t, w, testConfig("m: 50, n: 5"), 1)
		settle(t, p)
		for range 5 {
			time.Sleep(time.Minute)
			p.mustCycle()
		}
		if n := len(w.Net.Log()); n != 5 {
			t.Errorf("%d requests in five cycles, want a search each", n)
		}
	})
}

// D45: fullsend-ai/fullsend pull request 2409 and its operator's guide.
func TestDefectD45IssuesBeyondTheTopAreServedToo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		quiet := createIssues(w, 5)
		time.Sleep(time.Minute)
		for _, i := range quiet {
			w.Jira.Comment(i.Key, simtest.Alice, "/fs-triage go")
		}
		busy := createIssues(w, 5)
		p := newPoller(t, w, testConfig("m: 3, n: 1"), 1)
		served := func() int {
			n := 0
			for _, r := range w.GitHub.Runs() {
				if slices.ContainsFunc(quiet, func(i sim.Issue) bool { return i.Key == r.Inputs["work_item_key"] }) {
					n++
				}
			}
			return n
		}
		for range 60 {
			for _, i := range busy { // always updated last, and always with something to do
				w.Jira.Comment(i.Key, simtest.Alice, "/fs-triage me first")
			}
			next(w, p, append(slices.Clone(quiet), busy...)...)
			if served() == len(quiet) {
				return
			}
		}
		t.Errorf("%d of %d quiet issues were served in an hour", served(), len(quiet))
	})
}

// D47: fullsend-ai/fullsend commit f902438e.
func TestDefectD47RolesAreAskedForWhenAnEventNeedsThemOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		issues := createIssues(w, 10)
		p := newPoller(t, w, testConfig("m: 50, n: 5"), 1)
		settle(t, p)
		for _, i := range issues {
			w.Jira.Touch(i.Key)
		}
		time.Sleep(time.Minute)
		p.mustCycle()
		if n := asked(w, "/role") + asked(w, "/groups"); n > 0 {
			t.Errorf("%d role requests in cycles without an event", n)
		}
		w.Jira.Comment(issues[0].Key, simtest.Alice, "/fs-triage go")
		next(w, p)
		if asked(w, "/role") == 0 {
			t.Error("no role request for a command: the test proves nothing")
		}
	})
}

// D53: https://github.com/fullsend-ai/fullsend/issues/6339.
func TestDefectD53OneWorkflowServesAllAgentsAndAMissingOneFailsTheCycle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		i := commanded(w)
		config := strings.Replace(testConfig("m: 50, n: 5"), "agents: [harness/triage.yaml]", "agents: [harness/triage.yaml, harness/code.yaml]", 1)
		config = strings.Replace(config, "fullsend-agent.yml", "one.yml", 1)
		p := newPoller(t, w, config, 1)
		p.write("harness/code.yaml", testHarness)
		o := p.cycle()
		if o.code != ExitFailed || lockID(w, i.Key) != "" || stored(w, i.Key, "lastCheck") != "" {
			t.Errorf("exit code %d, lock %q, lastCheck %s", o.code, lockID(w, i.Key), stored(w, i.Key, "lastCheck"))
		}
		saysAll(t, o, "one.yml")
		w.GitHub.AddWorkflow("one.yml", "main", simtest.Workflow)
		next(w, p, i)
		agents := []string{}
		for _, r := range w.GitHub.Runs() {
			agents = append(agents, r.Inputs["agent"]+" "+r.Workflow)
		}
		slices.Sort(agents)
		if !slices.Equal(agents, []string{"code one.yml", "triage one.yml"}) {
			t.Errorf("runs %q", agents)
		}
	})
}

// payload is a run's input event_payload, as far as it is looked at.
type payload struct {
	Issue struct {
		Number json.Number `json:"number"`
		URL    string      `json:"html_url"`
	} `json:"issue"`
	Comment struct {
		Body string `json:"body"`
	} `json:"comment"`
}

// dispatched runs a cycle over one command and returns its issue, its run and the
// run's payload.
func dispatched(t *testing.T, w *simtest.World, text string) (sim.Issue, sim.Run, payload) {
	t.Helper()
	i := createIssues(w, 1)[0]
	time.Sleep(time.Minute)
	w.Jira.Comment(i.Key, simtest.Alice, text)
	time.Sleep(time.Minute)
	newPoller(t, w, testConfig("m: 50, n: 5"), 1).mustCycle()
	runs := w.GitHub.Runs()
	if len(runs) != 1 {
		t.Fatalf("%d runs", len(runs))
	}
	var p payload
	if err := json.Unmarshal([]byte(runs[0].Inputs["event_payload"]), &p); err != nil {
		t.Fatal(err)
	}
	return i, runs[0], p
}

// eventOf is the event that a run got.
func eventOf(run sim.Run) (event.NormalizedEvent, error) {
	var ev event.NormalizedEvent
	err := json.Unmarshal([]byte(run.Inputs["normalized_event"]), &ev)
	return ev, err
}

// D54: fullsend-ai/fullsend commit 03e43d90.
func TestDefectD54TheIssuesNumberIsANumber(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		i, run, p := dispatched(t, w, "/fs-triage go")
		if p.Issue.Number.String() != i.ID || strings.Contains(run.Inputs["event_payload"], `"number":"`) {
			t.Errorf("issue.number is %s in %s, the issue's id is %s", p.Issue.Number, run.Inputs["event_payload"], i.ID)
		}
	})
}

// D55: fullsend-ai/fullsend commit 113285ef.
func TestDefectD55TheRunGetsTheEvent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		i, run, p := dispatched(t, w, "/fs-triage go")
		ev, err := eventOf(run)
		if err != nil || ev.Entity.Key != i.Key || ev.Transition.Comment == nil || p.Issue.URL != ev.Entity.URL || p.Comment.Body != "/fs-triage go" {
			t.Errorf("event %+v, %v; payload %+v", ev, err, p)
		}
	})
}

// D56: fullsend-ai/fullsend pull request 2409 (work-item-missing-trigger-details).
func TestDefectD56TheCommandsArgumentsReachTheRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		_, run, _ := dispatched(t, w, "/fs-triage check the acceptance criteria")
		ev, err := eventOf(run)
		if err != nil {
			t.Fatal(err)
		}
		if c := ev.Transition.Comment; c == nil || c.Command != "/fs-triage" || c.Instruction != "check the acceptance criteria" {
			t.Errorf("the comment is %+v", c)
		}
	})
}

// D58: fullsend-ai/fullsend pull request 2409.
func TestDefectD58EveryRunHasAnIdempotencyKeyOfItsEvent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		i := createIssues(w, 1)[0]
		time.Sleep(time.Minute)
		one, two := w.Jira.Comment(i.Key, simtest.Alice, "/fs-triage one"), w.Jira.Comment(i.Key, simtest.Alice, "/fs-triage two")
		time.Sleep(time.Minute)
		p := newPoller(t, w, testConfig("m: 50, n: 5"), 1)
		p.mustCycle()
		// even where checkpoint and lock are gone, the key in the journal holds
		w.Jira.DeleteProperty(i.Key, propertyName("lastCheck"))
		next(w, p, i)
		if got := runsPerKey(w); len(got) != 2 || got["triage:comment-"+one] != 1 || got["triage:comment-"+two] != 1 {
			t.Errorf("runs per key %v", got)
		}
	})
}

// D59: fullsend-ai/fullsend pull request 2409.
func TestDefectD59AnAgentAndAQueryThatServeNothingAreWarnedOf(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		o := newPoller(t, w, testConfig("m: 50, n: 5"), 1).run(t.Context(), "doctor")
		saysAll(t, o, "! jira-poll: candidates: no query finds an issue")
		orphan := strings.Replace(testConfig("m: 50, n: 5"), "agents: [harness/triage.yaml]", "agents: []", 1)
		o = newPoller(t, w, orphan, 1).run(t.Context(), "doctor")
		saysAll(t, o, "! harnesses: no agent is registered")
	})
}

// D60: decided and not built there (ADR 63 of fullsend-ai/fullsend).
func TestDefectD60TheLockNamesItsRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		i, run, _ := dispatched(t, w, "/fs-triage go")
		l := held(t, w, i.Key)
		if l.RunID != run.ID || l.RunURL != run.URL || len(l.Runs) != 1 || l.Runs[0].Agent != "triage" {
			t.Errorf("the lock is %+v, the run %d %s", l, run.ID, run.URL)
		}
	})
}

// D67: fullsend-ai/fullsend commit 96f5d726.
func TestDefectD67CredentialsInTheBaseURLAreRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		commanded(w)
		p := newPoller(t, w, testConfig("m: 50, n: 5"), 1)
		p.env["JIRA_BASE_URL"] = "https://somebody:hunter2@" + simtest.JiraHost
		o := p.cycle()
		if o.code != ExitUsage || len(w.Net.Log()) > 0 {
			t.Errorf("exit code %d after %d requests", o.code, len(w.Net.Log()))
		}
		if strings.Contains(o.said(), "hunter2") {
			t.Errorf("the password is printed: %s", o.said())
		}
		saysAll(t, o, "base_url")
	})
}

// D68: fullsend-ai/fullsend commits cd0a2030 and 372f4e62.
func TestDefectD68OnCloudATokenWithoutAnEmailIsRefusedWithASentence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		commanded(w)
		p := newPoller(t, w, strings.Replace(testConfig("m: 50, n: 5"), `email: "${JIRA_USER_EMAIL}", `, "", 1), 1)
		delete(p.env, "JIRA_USER_EMAIL")
		o := p.cycle()
		if o.code != ExitUsage || len(w.Net.Log()) > 0 {
			t.Errorf("exit code %d after %d requests", o.code, len(w.Net.Log()))
		}
		saysAll(t, o, "JIRA_USER_EMAIL", "on Jira Cloud")
	})
}

// D69: fullsend-ai/fullsend commit 587306a8.
func TestDefectD69TheRunsOfOneIssueAreCappedPerCycleAndTheRestFollows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		i := createIssues(w, 1)[0]
		time.Sleep(time.Minute)
		for n := range 10 {
			w.Jira.Comment(i.Key, simtest.Alice, fmt.Sprint("/fs-triage ", n))
			time.Sleep(time.Second)
		}
		time.Sleep(time.Minute)
		p := newPoller(t, w, with("max_events_per_issue: 4"), 1)
		before := 0
		for range 6 {
			o := next(w, p, i)
			started := len(w.GitHub.Runs()) - before
			if started > 4 {
				t.Errorf("%d runs in one cycle", started)
			}
			if before == 0 {
				saysAll(t, o, "more than 4 events")
			}
			before = len(w.GitHub.Runs())
		}
		if got := runsPerKey(w); len(got) != 10 || len(w.GitHub.Runs()) != 10 {
			t.Errorf("runs per key %v, want ten once each", got)
		}
	})
}

// D70: the branch adr-poll-privacy-gate of fullsend-ai/fullsend.
func TestDefectD70NoTextOfTheIssueAndNoRestrictedCommentLeavesJira(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		i := w.Jira.CreateIssue(sim.IssueSpec{Project: simtest.Project, Summary: "secret-summary", Description: sim.Paragraph("secret-description"), Reporter: simtest.Alice})
		time.Sleep(time.Minute)
		w.Jira.CommentADF(i.Key, simtest.Alice, sim.Paragraph("/fs-triage secret-role"), map[string]string{"type": "role", "value": "Administrators"}, nil)
		no := false
		w.Jira.CommentADF(i.Key, simtest.Alice, sim.Paragraph("/fs-triage secret-internal"), nil, &no)
		w.Jira.Comment(i.Key, simtest.Alice, "secret-talk between two commands")
		w.Jira.Comment(i.Key, simtest.Alice, "/fs-triage in the open")
		time.Sleep(time.Minute)
		o := newPoller(t, w, testConfig("m: 50, n: 5"), 1).mustCycle()
		runsAre(t, w, 1, "the one command that everybody may read")
		for _, r := range w.GitHub.Runs() {
			if text := fmt.Sprint(r.Inputs, r.DisplayTitle); strings.Contains(text, "secret-") {
				t.Errorf("the run got %s", text)
			}
		}
		if strings.Contains(o.said(), "secret-") {
			t.Errorf("the report says %s", o.said())
		}
	})
}

// R1: found by running fullsend-ai/fullsend's Jira poller.
func TestDefectR1ALockThatIsNoObjectIsTakenOverWithAWarning(t *testing.T) {
	t.Parallel()
	for _, value := range []any{"x", 7, []int{1}, true, map[string]int{"id": 1}} {
		t.Run(fmt.Sprint(value), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := simtest.New(t)
				i := commanded(w)
				forge(t, w, i.Key, "lock", value)
				o := newPoller(t, w, testConfig("m: 50, n: 5"), 1).mustCycle()
				runsAre(t, w, 1, "under a lock that is none")
				saysAll(t, o, "cannot be understood, it is overwritten")
			})
		})
	}
}

// R2: found by running fullsend-ai/fullsend's Jira poller.
func TestDefectR2ACheckpointThatIsNoTimeCountsAsAbsentAndIsOverwritten(t *testing.T) {
	t.Parallel()
	for _, value := range []any{map[string]int{"a": 1}, 7, "yesterday", []string{}, map[string]any{"ts": 7}} {
		t.Run(fmt.Sprint(value), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := simtest.New(t)
				i := commanded(w)
				forge(t, w, i.Key, "lastCheck", value)
				o := newPoller(t, w, testConfig("m: 50, n: 5"), 1).mustCycle()
				runsAre(t, w, 1, "with a lastCheck that is none")
				saysAll(t, o, "cannot be understood and counts as absent")
				if at := checkpoint(t, w, i.Key); at.IsZero() {
					t.Error("it was not overwritten")
				}
			})
		})
	}
}

// R3: found by running fullsend-ai/fullsend's Jira poller.
func TestDefectR3AForgedLockALittleAheadBlocksNoLongerThanClocksDiffer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		i := commanded(w)
		forge(t, w, i.Key, "lock", foreign("forged", -14*time.Minute))
		newPoller(t, w, testConfig("m: 50, n: 5"), 1).mustCycle()
		runsAre(t, w, 1, "14 minutes ahead is not believed")
	})
}

// R4: found by running fullsend-ai/fullsend's Jira poller.
func TestDefectR4ACommandWrittenWhileThePollerWasDownIsNotLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		i := createIssues(w, 1)[0]
		p := newPoller(t, w, testConfig("m: 50, n: 5"), 1)
		settle(t, p)
		time.Sleep(18 * time.Hour)
		w.Jira.Comment(i.Key, simtest.Alice, "/fs-triage go")
		time.Sleep(30 * time.Hour)
		p.mustCycle()
		runsAre(t, w, 1, "after 48 hours without a poller")
	})
}

// R5: found by running fullsend-ai/fullsend's Jira poller.
func TestDefectR5ACommandSecondsBeforeThePollIsDispatchedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		i := createIssues(w, 1)[0]
		p := newPoller(t, w, testConfig("m: 50, n: 5"), 1)
		settle(t, p)
		w.Jira.Comment(i.Key, simtest.Alice, "/fs-triage go")
		time.Sleep(3 * time.Second)
		start := time.Now()
		p.mustCycle()
		if at := checkpoint(t, w, i.Key); at.After(start.Add(-9 * time.Second)) {
			t.Errorf("lastCheck %v leaves no overlap before the poll of %v", at, start)
		}
		for range 5 {
			next(w, p, i)
		}
		runsAre(t, w, 1, "after six cycles")
	})
}

// R12: inferred from fullsend-ai/fullsend's default query.
func TestDefectR12AnIssueThatWasJustClosedIsFound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		i := createIssues(w, 1)[0]
		p := newPoller(t, w, testConfig("m: 50, n: 5"), 1)
		p.write("harness/triage.yaml", triggered("closed"))
		settle(t, p)
		w.Jira.Transition(i.Key, simtest.Alice, "Done")
		next(w, p)
		runsAre(t, w, 1, "after it was closed")
	})
}

// R13: inferred from the random choice in fullsend-ai/fullsend's Jira poller.
func TestDefectR13UnchangedIssuesTakeNoPlaceOfChangedOnes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		issues := createIssues(w, 50)
		p := newPoller(t, w, testConfig("m: 50, n: 1"), 1)
		settle(t, p)
		for n := range 10 { // a draw of 1 in 50 would miss nearly all
			w.Jira.Comment(issues[7*n%50].Key, simtest.Alice, "/fs-triage go")
			next(w, p, issues...)
			runsAre(t, w, n+1, "in the very next cycle")
		}
	})
}
