package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fullsend/poll-action/internal/sim"
	"github.com/fullsend/poll-action/internal/sim/simtest"
)

// Whole cycles against Jira Data Center. What they cost is a promise too: the
// numbers stand in the README.

func TestAnIdleCycleOnDataCenterCostsOneRequestAndOneMoreToAskForTheFlavour(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		flavour string
		silent  bool // searches do not give properties
		want    int
	}{
		"flavour datacenter":            {"datacenter", false, 1},
		"flavour auto":                  {"auto", false, 2},
		"searches without properties":   {"datacenter", true, 51},
		"both a question and no answer": {"auto", true, 52},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := simtest.New(t, simtest.DataCenter())
				w.Jira.Set(func(s *sim.JiraSwitches) { s.SearchWithoutProperties = tt.silent })
				createIssues(w, 50)
				p := newPoller(t, w, strings.Replace(onDataCenter(testConfig("m: 50, n: 5")), "flavour: datacenter", "flavour: "+tt.flavour, 1), 1)
				settle(t, p)
				o := p.mustCycle()
				if j, g := w.Net.Count(w.JiraHost()), w.Net.Count(simtest.GitHubHost); j != tt.want || g != 0 {
					t.Errorf("%d Jira and %d GitHub requests, want %d and 0", j, g, tt.want)
				}
				if o.result.Candidates != 50 || o.result.Drivers[0].Pending != 0 || o.result.Drivers[0].Requests != int64(tt.want) {
					t.Errorf("the report says %+v", o.result.Drivers[0])
				}
			})
		})
	}
}

func TestWatchingAsksForTheFlavourOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t, simtest.DataCenter())
		createIssues(w, 3)
		p := newPoller(t, w, strings.Replace(onDataCenter(testConfig("m: 50, n: 5")), "flavour: datacenter", "flavour: auto", 1), 1)
		settle(t, p)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		o := p.run(ctx, "poll", "--watch", "--interval", "60s")
		asked := 0
		for _, e := range w.Net.Log() {
			if strings.HasSuffix(e.Path, "/serverInfo") {
				asked++
			}
		}
		if all := w.Net.Count(w.JiraHost()); o.code != ExitOK || asked != 1 || all < 9 || all > 13 {
			t.Errorf("exit code %d, %d of %d requests ask for the flavour, want one, and one search a minute\n%s", o.code, asked, all, o.stderr)
		}
	})
}

func TestFiveOfFiftyChangedOnDataCenterStaysWithinTheRequestBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j, g, _ := fiveOfFifty(t, 0, simtest.DataCenter())
		t.Logf("%d Jira requests, %d GitHub requests", j, g)
		if j > 55 || g > 7 {
			t.Errorf("%d Jira and %d GitHub requests, at most 55 and 7 are allowed", j, g)
		}
	})
}

func TestTwoPollersOnDataCenterDispatchEveryCommandOnce(t *testing.T) {
	t.Parallel()
	for seed := range uint64(sized(10, 2)) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { twoPollers(t, seed, simtest.DataCenter()) })
		})
	}
}

func TestALostAnswerToAnyRequestOnDataCenterNeitherLosesNorDoublesAnything(t *testing.T) {
	t.Parallel()
	eachRequest(t, func(t *testing.T, n int, after bool) { t.Helper(); unlucky(t, n, after, simtest.DataCenter()) }, simtest.DataCenter())
}

func TestAPollerKilledAtAnyRequestOnDataCenterLosesNothingAndDoublesAtMostOnce(t *testing.T) {
	t.Parallel()
	eachRequest(t, func(t *testing.T, n int, after bool) { t.Helper(); killed(t, n, after, giveBack, simtest.DataCenter()) }, simtest.DataCenter())
}

// TestARunFindsItsLockByTheIssuesKeyInBothFlavours goes from a command to the
// run's own look at its lock.
func TestARunFindsItsLockByTheIssuesKeyInBothFlavours(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		opts    []simtest.Option
		signed  bool
		refresh int // requests of a refresh
	}{
		"Cloud":               {nil, false, 3},
		"Data Center":         {[]simtest.Option{simtest.DataCenter()}, false, 4}, // one asks for the flavour
		"Data Center, signed": {[]simtest.Option{simtest.DataCenter()}, true, 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := simtest.New(t, tt.opts...)
				is := createIssues(w, 1)[0]
				time.Sleep(time.Minute)
				w.Jira.Comment(is.Key, simtest.Alice, "/fs-triage go")
				time.Sleep(time.Minute)
				p := newPoller(t, w, testConfig("m: 50, n: 5"), 1)
				if tt.signed {
					p.env["FULLSEND_DISPATCH_SECRET"] = "a secret that only pollers and runs have"
				}
				p.mustCycle()
				runs := w.GitHub.Runs()
				if len(runs) != 1 {
					t.Fatalf("%d runs, want 1", len(runs))
				}
				in := runs[0].Inputs
				if in["work_item_key"] != is.Key || in["work_item_url"] != w.JiraURL()+"/browse/"+is.Key {
					t.Errorf("the run is told of %s at %s", in["work_item_key"], in["work_item_url"])
				}
				run := *p
				run.env = map[string]string{"GITHUB_ACTIONS": "true", "GITHUB_RUN_ID": strconv.FormatInt(runs[0].ID, 10)}
				for k, v := range p.env {
					run.env[k] = v
				}
				for _, file := range []string{"OUTPUT", "ENV", "STATE"} {
					run.env["GITHUB_"+file] = filepath.Join(t.TempDir(), file)
				}
				for variable, input := range map[string]string{
					"WORK_ITEM_KEY": "work_item_key", "WORK_ITEM_URL": "work_item_url", "POLL_LOCK_ID": "poll_lock_id",
					"POLL_LOCK_DRIVER": "poll_lock_driver", "POLL_LOCK_PROPERTY": "poll_lock_property",
				} {
					run.env["FULLSEND_"+variable] = in[input]
				}
				w.Net.ResetLog()
				if o := run.run(t.Context(), "lock", "refresh"); o.code != ExitOK {
					t.Fatalf("exit code %d\n%s%s", o.code, o.stdout, o.stderr)
				}
				if n := w.Net.Count(w.JiraHost()); n != tt.refresh {
					t.Errorf("%d requests, want %d: %v", n, tt.refresh, w.Net.Log())
				}
				lock, _ := w.Jira.Property(is.Key, lockProp)
				for _, part := range []string{`"phase":"running"`, `"id":"` + in["poll_lock_id"] + `"`, strconv.FormatInt(runs[0].ID, 10)} {
					if !strings.Contains(string(lock), part) {
						t.Errorf("no %s in the lock %s", part, lock)
					}
				}
				if signed := strings.Contains(string(lock), `"sig":"`); signed != tt.signed {
					t.Errorf("the lock is signed: %v", signed)
				}
				output, err := os.ReadFile(run.env["GITHUB_OUTPUT"])
				if err != nil || !strings.Contains(string(output), "held") {
					t.Errorf("outputs %q, err %v", output, err)
				}
				w.Jira.SetProperty(is.Key, lockProp, []byte(`{"id":"somebody-else","ts":"2026-01-01T00:00:00Z","phase":"running"}`))
				if o := run.run(t.Context(), "lock", "verify"); o.code != ExitLost {
					t.Errorf("exit code %d with somebody else's lock, want %d\n%s", o.code, ExitLost, o.stderr)
				}
			})
		})
	}
}

func TestAuthorizationThatFitsTheSiteSavesRequestsOnDataCenter(t *testing.T) {
	t.Parallel()
	for authorization, most := range map[string]int{
		"authorization: project-roles": 55, "authorization: permission": 52, "authorization: allow\n      allow: [Alice]": 51,
	} {
		t.Run(authorization, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := simtest.New(t, simtest.DataCenter())
				issues := createIssues(w, 50)
				p := newPoller(t, w, strings.Replace(testConfig("m: 50, n: 5"), "      flavour:", "      "+authorization+"\n      flavour:", 1), 2)
				settle(t, p)
				for _, i := range issues[10:15] {
					w.Jira.Comment(i.Key, simtest.Alice, "/fs-triage go")
				}
				time.Sleep(time.Minute)
				w.Net.ResetLog()
				p.mustCycle()
				if n := w.Net.Count(w.JiraHost()); n > most || len(w.GitHub.Runs()) != 5 {
					t.Errorf("%d Jira requests and %d runs, want at most %d and 5", n, len(w.GitHub.Runs()), most)
				}
			})
		})
	}
}
