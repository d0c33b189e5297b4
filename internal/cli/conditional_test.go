package cli

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fullsend/poll-action/internal/sim"
	"github.com/fullsend/poll-action/internal/sim/simtest"
)

const conditional = "mode: conditional, m: 50, n: 5"

// bulkPart is in the path of every bulk property operation.
const bulkPart = "/issue/properties/"

// bounded fails the test when a bulk operation was meant for every issue.
func bounded(t *testing.T, w *simtest.World) {
	t.Helper()
	if keys := w.Jira.UnboundedBulk(); len(keys) > 0 {
		t.Errorf("bulk operations on every issue of the site: %v", keys)
	}
}

// commands makes issues with a command each.
func commands(w *simtest.World, n int) []sim.Issue {
	issues := createIssues(w, n)
	time.Sleep(time.Minute)
	for _, i := range issues {
		w.Jira.Comment(i.Key, simtest.Alice, "/fs-triage go")
	}
	time.Sleep(time.Minute)
	return issues
}

func TestAConditionalCycleDispatchesOnceAndItsLocksKeepOthersOut(t *testing.T) {
	t.Parallel()
	for name, env := range map[string]map[string]string{"unsigned": nil, "signed": {secretName: "a secret of the repository"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				used := map[string]int{}
				for _, lock := range []string{"m: 50, n: 5", conditional} {
					w := simtest.New(t)
					w.Net.Latency = constant(50 * time.Millisecond)
					issues := commands(w, 5)
					p := newPoller(t, w, testConfig(lock), 1)
					for k, v := range env {
						p.env[k] = v
					}
					start := time.Now()
					if o := p.mustCycle(); o.result.Dispatched != 5 || len(w.GitHub.Runs()) != 5 {
						t.Fatalf("%d dispatched, %d runs\n%s", o.result.Dispatched, len(w.GitHub.Runs()), o.stderr)
					}
					used[lock] = w.Net.Count(simtest.JiraHost)
					t.Logf("%s: %d Jira requests, %s", lock, used[lock], time.Since(start))
					for _, r := range w.GitHub.Runs() {
						if key := r.Inputs["work_item_key"]; lockID(w, key) != r.Inputs["poll_lock_id"] {
							t.Errorf("%s is locked by %q", key, lockID(w, key))
						}
					}
					for _, i := range issues {
						w.Jira.Comment(i.Key, simtest.Alice, "/fs-triage once more")
					}
					time.Sleep(time.Minute)
					if o := p.mustCycle(); o.result.Dispatched != 0 {
						t.Errorf("%d dispatched while the runs work", o.result.Dispatched)
					}
					for _, i := range issues {
						for _, prop := range w.Jira.Properties(i.Key) {
							if strings.HasSuffix(prop, ".selftest") {
								t.Errorf("%s was left", prop)
							}
						}
					}
					if tasks := w.Jira.BulkTasks(); (tasks > 0) != (lock == conditional) {
						t.Errorf("%s: %d bulk operations", lock, tasks)
					}
					bounded(t, w)
				}
				// the self-test has 13 requests and looks at 6 tasks; a lock costs a look at its
				// task more, and is verified by itself
				if more := used[conditional] - used["m: 50, n: 5"]; more > 13+6+5*2 {
					t.Errorf("%d requests more than with mode verify", more)
				}
			})
		})
	}
}

func TestRacingConditionalPollersDispatchEveryCommandOnce(t *testing.T) {
	t.Parallel()
	for seed := range uint64(sized(12, 2)) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := simtest.New(t)
				var mu sync.Mutex
				r := rand.New(rand.NewPCG(seed, 7))
				upTo := func(d time.Duration) time.Duration {
					mu.Lock()
					defer mu.Unlock()
					return time.Duration(r.Int64N(int64(d)))
				}
				w.Net.Latency = func(*http.Request) time.Duration { return 20*time.Millisecond + upTo(time.Second) }
				w.Jira.Set(func(s *sim.JiraSwitches) {
					s.BulkDelay = func(int) time.Duration { return upTo(2 * time.Second) }
				})
				const total = 8
				commands(w, total)
				for range 6 {
					var wg sync.WaitGroup
					for i := range 4 {
						p := newPoller(t, w, testConfig("mode: conditional, m: 50, n: 4"), seed<<8|uint64(i))
						wg.Go(func() {
							time.Sleep(upTo(500 * time.Millisecond))
							p.cycle()
						})
					}
					wg.Wait()
					time.Sleep(time.Minute)
				}
				counts := runsPerKey(w)
				if len(counts) != total || len(w.GitHub.Runs()) != total {
					t.Errorf("%d commands and %d runs, want %d: %v", len(counts), len(w.GitHub.Runs()), total, counts)
				}
				bounded(t, w)
			})
		})
	}
}

func TestAConditionalPollerThatIsCutOffAtAnyRequestLosesNothing(t *testing.T) {
	t.Parallel()
	for name, dead := range map[string]bool{"killed": true, "one answer lost": false} {
		for n := 1; n <= 50; n += sized(3, 17) {
			for _, after := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, request %d, after %t", name, n, after), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						w, issues, _ := scene(t)
						p := newPoller(t, w, testConfig(conditional), 1)
						dying := *p
						dying.transport = &cut{net: w.Net, left: n, after: after, dead: dead}
						dying.cycle()
						untilQuiet(t, w, issues, p)
						counts := runsPerKey(w)
						if len(counts) != 2 {
							t.Errorf("%d commands were dispatched, want 2: %v", len(counts), counts)
						}
						for key, n := range counts {
							if n != 1 {
								t.Errorf("%s was dispatched %d times", key, n)
							}
						}
						bounded(t, w)
					})
				})
			}
		}
	}
}

func TestASiteWithoutReliableConditionalWritesGetsNoLockAndOneSentence(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		site   func(*sim.JiraSwitches)
		opts   []simtest.Option
		config func(string) string
		want   string
	}{
		"both racing tasks take effect": {site: func(s *sim.JiraSwitches) {
			s.BulkNotAtomic = true
			s.BulkDelay = func(n int) time.Duration { return time.Duration(n%2) * 700 * time.Millisecond }
		}, want: "both of two racing writes"},
		"conditions are ignored": {site: func(s *sim.JiraSwitches) { s.BulkIgnoresCriteria = true }, want: "cannot be relied on"},
		"tasks fail":             {site: func(s *sim.JiraSwitches) { s.BulkFails = true }, want: "FAILED"},
		"a Data Center site that the configuration does not tell": {
			opts: []simtest.Option{simtest.DataCenter()}, want: "Data Center",
			config: func(c string) string { return strings.Replace(c, "flavour: cloud", "flavour: auto", 1) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := simtest.New(t, tc.opts...)
				if tc.site != nil {
					w.Jira.Set(tc.site)
				}
				config := testConfig(conditional)
				if tc.config != nil {
					config = tc.config(config)
				}
				issues := commands(w, 3)
				o := newPoller(t, w, config, 1).cycle()
				if o.code == ExitOK || o.result.Dispatched != 0 || len(w.GitHub.Runs()) != 0 {
					t.Errorf("exit code %d, %d dispatched, %d runs", o.code, o.result.Dispatched, len(w.GitHub.Runs()))
				}
				if !strings.Contains(o.stderr, tc.want) || !strings.Contains(o.stderr, "lock.mode: verify") {
					t.Errorf("it says\n%s", o.stderr)
				}
				for _, i := range issues {
					if left := w.Jira.Properties(i.Key); len(left) > 0 {
						t.Errorf("%s has %v", i.Key, left)
					}
				}
				for _, e := range w.Net.Log() {
					if strings.HasSuffix(e.Path, ".lock") {
						t.Errorf("%s %s", e.Method, e.Path)
					}
				}
				bounded(t, w)
			})
		})
	}
}

func TestTheDoctorTriesTheConditionalModeWhereItIsOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		createIssues(w, 1)
		for lock, want := range map[string]bool{"m: 50, n: 5": false, conditional: true} {
			w.Net.ResetLog()
			o := newPoller(t, w, testConfig(lock), 1).run(t.Context(), "doctor")
			if got := strings.Contains(o.stdout, "✓ jira-poll: lock.mode conditional: of two racing"); got != want {
				t.Errorf("%s: the check is there: %t\n%s", lock, got, o.stdout)
			}
			for _, e := range w.Net.Log() {
				if strings.Contains(e.Path, bulkPart) && !strings.HasSuffix(e.Path, ".selftest") {
					t.Errorf("%s %s", e.Method, e.Path)
				}
			}
		}
		bounded(t, w)
	})
}
