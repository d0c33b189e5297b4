package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/fullsend/poll-action/internal/sim"
	"github.com/fullsend/poll-action/internal/sim/simtest"
)

// dispatchSecret is the key of the signatures.
const dispatchSecret = "dispatch-secret-of-the-repository"

// withDriver adds members to the input driver of [testConfig].
func withDriver(config string, members ...string) string {
	const at = "      flavour: cloud\n"
	return strings.Replace(config, at, at+"      "+strings.Join(members, "\n      ")+"\n", 1)
}

// signs makes the poller sign; strict says that nothing unsigned counts for it.
func (p *poller) signs(strict bool) *poller {
	p.t.Helper()
	p.env[secretName] = dispatchSecret
	if strict {
		p.write("config.yaml", withDriver(testConfig("m: 50, n: 5"), "state: {accept_unsigned: false}"))
	}
	return p
}

// notesOf are the notes of an issue in the result.
func (o outcome) notesOf(key string) string {
	var all []string
	for _, d := range o.result.Drivers {
		for _, row := range d.Items {
			if row.Key == key {
				all = append(all, row.Notes...)
			}
		}
	}
	return strings.Join(all, "\n")
}

func (o outcome) mentions(tb testing.TB, parts ...string) {
	tb.Helper()
	for _, part := range parts {
		if !strings.Contains(o.stdout+o.stderr, part) {
			tb.Errorf("%q is not said:\n%s%s", part, o.stdout, o.stderr)
		}
	}
}

func TestSignedStateServesOverManyCyclesAndTheSecretIsNeverPrinted(t *testing.T) {
	t.Parallel()
	for _, strict := range []bool{false, true} {
		t.Run(fmt.Sprintf("strict %t", strict), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, issues, p := scene(t)
				p.signs(strict)
				for n := range 4 {
					o := p.mustCycle()
					if strings.Contains(o.stdout+o.stderr, dispatchSecret) {
						t.Error("the secret was printed")
					}
					for _, i := range issues {
						if notes := o.notesOf(i.Key); notes != "" {
							t.Errorf("cycle %d, %s: %s", n, i.Key, notes)
						}
					}
					endRuns(w, issues)
					time.Sleep(6 * time.Minute)
					w.Jira.Comment(issues[0].Key, simtest.Alice, fmt.Sprintf("/fs-triage round %d", n))
					time.Sleep(time.Minute)
				}
				untilQuiet(t, w, issues, p)
				counts := runsPerKey(w)
				if len(counts) != 6 || len(w.GitHub.Runs()) != 6 {
					t.Errorf("runs per command %v, want six, each once", counts)
				}
				for _, name := range []string{"lastCheck", "seen"} {
					raw, _ := w.Jira.Property(issues[0].Key, propertyName(name))
					if text := strings.HasPrefix(string(raw), `"`); text != (name == "lastCheck" && !strict) || !text && !strings.Contains(string(raw), `"sig":`) {
						t.Errorf("%s is %s", name, raw)
					}
				}
			})
		})
	}
}

func TestAnIdleCycleWithSignaturesCostsOneRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		createIssues(w, 20)
		p := newPoller(t, w, testConfig("m: 50, n: 5"), 1).signs(true)
		settle(t, p)
		p.mustCycle()
		if n := w.Net.Count(simtest.JiraHost); n != 1 {
			t.Errorf("%d requests, want 1", n)
		}
	})
}

func TestForgedStateIsReportedAndTheIssueServed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, issues, p := scene(t)
		key := issues[0].Key
		now := time.Now().UTC().Format(time.RFC3339)
		sig := strings.Repeat("ab", 32)
		w.Jira.SetProperty(key, lockProp, []byte(`{"id":"theirs","ts":"`+now+`","phase":"running","sig":"`+sig+`"}`))
		w.Jira.SetProperty(key, propertyName("lastCheck"), []byte(`{"ts":"`+now+`","sig":"`+sig+`"}`))
		w.Jira.SetProperty(key, propertyName("seen"), []byte(`{"v":1,"keys":{"triage:comment-10001":{"t":1,"run":1}},"sig":"`+sig+`"}`))
		p.signs(true)
		o := p.mustCycle()
		if n := len(w.GitHub.Runs()); n != 2 {
			t.Errorf("%d runs, want 2\n%s", n, o.stderr)
		}
		for _, part := range []string{"the stored lock is not trusted", "the stored lastCheck is not trusted", "the stored journal (seen) is not trusted"} {
			if !strings.Contains(o.notesOf(key), part) {
				t.Errorf("%q is not reported: %s", part, o.notesOf(key))
			}
		}
	})
}

func TestAnotherPollersUnsignedLockIsRespectedInMixedOperationOnly(t *testing.T) {
	t.Parallel()
	for strict, want := range map[bool]int{false: 1, true: 2} {
		synctest.Test(t, func(t *testing.T) {
			w, issues, p := scene(t)
			w.Jira.SetProperty(issues[0].Key, lockProp, []byte(`{"id":"theirs","ts":"`+time.Now().UTC().Format(time.RFC3339)+`","phase":"running"}`))
			p.signs(strict).mustCycle()
			if n := len(w.GitHub.Runs()); n != want {
				t.Errorf("strict %t: %d runs, want %d", strict, n, want)
			}
		})
	}
}

// refresh is the first step of the n-th run.
func (p *poller) refresh(n int, secret string) outcome {
	p.t.Helper()
	r := p.w.GitHub.Runs()[n]
	runner := *p
	runner.env = map[string]string{
		"JIRA_BASE_URL": p.env["JIRA_BASE_URL"], "JIRA_USER_EMAIL": simtest.JiraEmail, "JIRA_TOKEN": simtest.JiraToken, "GITHUB_REPOSITORY": simtest.Repo,
		"GITHUB_RUN_ID": strconv.FormatInt(r.ID, 10), "FULLSEND_WORK_ITEM_KEY": r.Inputs["work_item_key"], "FULLSEND_POLL_LOCK_ID": r.Inputs["poll_lock_id"],
		"FULLSEND_POLL_LOCK_DRIVER": r.Inputs["poll_lock_driver"], "FULLSEND_POLL_LOCK_PROPERTY": r.Inputs["poll_lock_property"], secretName: secret,
	}
	return runner.run(p.t.Context(), "lock", "refresh")
}

func TestARunThatHasTheSecretKeepsItsLockFromStrictPollers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, secret string
		strict       bool
		runs         int
	}{
		{"with the secret", dispatchSecret, true, 1},
		{"without it the lock counts as absent and is taken over", "", true, 2},
		{"with another secret likewise", "another secret", true, 2},
		{"without it in mixed operation it is kept", "", false, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := simtest.New(t)
				issue := createIssues(w, 1)[0]
				time.Sleep(time.Minute)
				w.Jira.Comment(issue.Key, simtest.Alice, "/fs-triage one")
				time.Sleep(time.Minute)
				p := newPoller(t, w, testConfig("m: 50, n: 5"), 1).signs(c.strict)
				p.mustCycle()
				o := p.refresh(0, c.secret)
				foreign := c.secret != "" && c.secret != dispatchSecret
				if foreign != (o.code == ExitLost) || !foreign && o.code != ExitOK {
					t.Fatalf("exit code %d of the refresh\n%s", o.code, o.stderr)
				}
				if foreign { // its own lock is a stranger's to it: it ends
					return
				}
				w.Jira.Comment(issue.Key, simtest.Alice, "/fs-triage two")
				time.Sleep(time.Minute)
				o = p.mustCycle()
				if n := len(w.GitHub.Runs()); n != c.runs {
					t.Errorf("%d runs, want %d\n%s", n, c.runs, o.stderr)
				}
				if c.runs > 1 {
					o.mentions(t, "the stored lock is not trusted")
				}
			})
		})
	}
}

func TestRefusingUnsignedStateNeedsTheSecret(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, _, p := scene(t)
		p.signs(true)
		delete(p.env, secretName)
		o := p.cycle()
		if o.code != ExitUsage || w.Jira.PropertyWrites() != 0 {
			t.Errorf("exit code %d, %d writes", o.code, w.Jira.PropertyWrites())
		}
		o.mentions(t, "config.yaml:5", "state.accept_unsigned is false", secretName+" is not set")
	})
}

// eachSignedRequest runs f for every request of a cycle that signs, hit before
// and after the server has seen it.
func eachSignedRequest(t *testing.T, f func(t *testing.T, p *poller, w *simtest.World, issues []sim.Issue, n int, after bool)) {
	t.Helper()
	for _, strict := range []bool{false, true} {
		total := 0
		synctest.Test(t, func(t *testing.T) {
			w, _, p := scene(t)
			p.signs(strict).mustCycle()
			total = len(w.Net.Log())
		})
		if total < 20 {
			t.Fatalf("a cycle has %d requests, expected more; the test would prove little", total)
		}
		for n := 1; n <= total; n += sized(1, 9) {
			for _, after := range []bool{false, true} {
				t.Run(fmt.Sprintf("strict %t request %d after %t", strict, n, after), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						w, issues, p := scene(t)
						f(t, p.signs(strict), w, issues, n, after)
					})
				})
			}
		}
	}
}

func TestAPollerThatSignsAndIsKilledAtAnyRequestLosesNothing(t *testing.T) {
	t.Parallel()
	eachSignedRequest(t, func(t *testing.T, p *poller, w *simtest.World, issues []sim.Issue, n int, after bool) {
		t.Helper()
		dying := *p
		dying.transport = &cut{net: w.Net, left: n, after: after, dead: true}
		dying.cycle()
		untilQuiet(t, w, issues, p)
		counts := runsPerKey(w)
		if len(counts) != 2 {
			t.Errorf("%d commands were dispatched, want 2: %v", len(counts), counts)
		}
		for key, n := range counts {
			if n > 2 {
				t.Errorf("%s was dispatched %d times", key, n)
			}
		}
	})
}

func TestALostAnswerToAnyRequestOfAPollerThatSignsNeitherLosesNorDoubles(t *testing.T) {
	t.Parallel()
	eachSignedRequest(t, func(t *testing.T, p *poller, w *simtest.World, issues []sim.Issue, n int, after bool) {
		t.Helper()
		unlucky := *p
		unlucky.transport = &cut{net: w.Net, left: n, after: after}
		unlucky.cycle()
		untilQuiet(t, w, issues, p)
		if counts := runsPerKey(w); len(counts) != 2 || len(w.GitHub.Runs()) != 2 {
			t.Errorf("runs per command %v, want two, each once", counts)
		}
	})
}

// anyValue draws JSON values that somebody could have stored; names are those of
// members that mean something somewhere, and texts likewise.
func anyValue(depth int, names, texts []string) *rapid.Generator[string] {
	encoded := func(s string) string {
		raw, err := json.Marshal(s)
		if err != nil {
			panic(err)
		}
		return string(raw)
	}
	scalars := []*rapid.Generator[string]{
		rapid.SampledFrom([]string{`null`, `true`, `false`, `0`, `-1`, `1e99`, `9223372036854775808`, `946684800000`, `1`, `2`}),
		rapid.Map(rapid.SampledFrom(texts), encoded),
		rapid.Map(rapid.String(), encoded),
	}
	if depth == 0 {
		return rapid.OneOf(scalars...)
	}
	inner := anyValue(depth-1, names, texts)
	list := rapid.Custom(func(t *rapid.T) string {
		return "[" + strings.Join(rapid.SliceOfN(inner, 0, 4).Draw(t, "items"), ",") + "]"
	})
	object := rapid.Custom(func(t *rapid.T) string {
		var parts []string
		for _, name := range rapid.SliceOfN(rapid.SampledFrom(names), 0, 6).Draw(t, "names") {
			parts = append(parts, encoded(name)+":"+inner.Draw(t, "value"))
		}
		return "{" + strings.Join(parts, ",") + "}"
	})
	return rapid.OneOf(append(scalars, list, object, object, object)...)
}

// TestWhateverStandsInThePropertiesTheCycleGoesOnAndTheIssueIsServed: time in a
// bubble begins at 2000-01-01T00:00:00Z. A lock that somebody forged well holds
// for stale_threshold where unsigned state counts, so the cycle is given twenty
// minutes; the forged checkpoints are older than the command, or lie ahead.
func TestWhateverStandsInThePropertiesTheCycleGoesOnAndTheIssueIsServed(t *testing.T) {
	t.Parallel()
	names := []string{"id", "ts", "phase", "v", "keys", "retry", "t", "run", "run_id", "runs", "sig", "lastCheckSigs", "a:comment-1", "triage:opened-10001", "TS", "x"}
	texts := []string{"", "2000-01-01T00:00:30Z", "2000-01-01T00:05:00Z", "1999-12-30T00:00:00Z", "2000-01-01T03:00:00Z", "running", "pending", "\x00\n::error::", strings.Repeat("ab", 32)}
	value := map[string]*rapid.Generator[string]{
		"unsigned": anyValue(3, names, texts),
		"mixed":    anyValue(3, names, texts),
		// where a forged journal can hide nothing
		"strict": anyValue(3, append(slices.Clone(names), "triage:comment-10000", "triage:comment-10001", "triage:comment-10002"), texts),
	}
	done := 0
	rapid.Check(t, func(rt *rapid.T) {
		if done++; done > sized(done, 25) {
			return
		}
		mode := rapid.SampledFrom([]string{"unsigned", "mixed", "strict"}).Draw(rt, "mode")
		stored := map[string]string{}
		for _, name := range []string{"lock", "lastCheck", "seen"} {
			stored[name] = value[mode].Draw(rt, name)
		}
		problem := ""
		synctest.Test(t, func(t *testing.T) { problem = survives(t, mode, stored) })
		if problem != "" {
			rt.Fatal(problem)
		}
	})
}

// survives runs cycles over an issue with the stored properties and one without,
// each with a command, and says what is wrong afterwards.
func survives(t *testing.T, mode string, stored map[string]string) string {
	t.Helper()
	w := simtest.New(t)
	issues := createIssues(w, 2)
	time.Sleep(time.Minute)
	for name, raw := range stored {
		w.Jira.SetProperty(issues[0].Key, propertyName(name), []byte(raw))
	}
	p := newPoller(t, w, testConfig("m: 50, n: 5"), 1)
	if mode != "unsigned" {
		p.signs(mode == "strict")
	}
	time.Sleep(5 * time.Minute)
	w.Jira.Comment(issues[0].Key, simtest.Alice, "/fs-triage one")
	w.Jira.Comment(issues[1].Key, simtest.Alice, "/fs-triage two")
	time.Sleep(time.Minute)
	for range 3 {
		if o := p.cycle(); o.code != ExitOK {
			return fmt.Sprintf("exit code %d\n%s", o.code, o.stderr)
		} else if strings.Contains(o.stderr, "\n::error::") {
			return "text from outside forged a line\n" + o.stderr
		}
		endRuns(w, issues)
		time.Sleep(10 * time.Minute)
	}
	per := map[string]int{}
	for _, r := range w.GitHub.Runs() {
		if strings.HasPrefix(r.Inputs["dispatch_key"], "triage:comment-") {
			per[r.Inputs["work_item_key"]]++
		}
	}
	if len(per) != 2 || per[issues[0].Key] != 1 || per[issues[1].Key] != 1 {
		return fmt.Sprintf("runs per issue %v, want each one", per)
	}
	return ""
}

// fiveChanged runs the cycle in which five of fifty issues have a command, with
// more members in the driver, and returns the world after it.
func fiveChanged(t *testing.T, people []string, members ...string) (*simtest.World, *poller, outcome) {
	t.Helper()
	w := simtest.New(t)
	issues := createIssues(w, 50)
	p := newPoller(t, w, withDriver(testConfig("m: 50, n: 5"), members...), 2)
	settle(t, p)
	for n, i := range issues[10:15] {
		w.Jira.Comment(i.Key, people[n%len(people)], "/fs-triage check acceptance criteria")
	}
	time.Sleep(time.Minute)
	w.Net.ResetLog()
	return w, p, p.mustCycle()
}

// requestsTo counts the requests whose path has a part.
func requestsTo(w *simtest.World, part string) int {
	n := 0
	for _, e := range w.Net.Log() {
		if strings.Contains(e.Path, part) {
			n++
		}
	}
	return n
}

func TestFiveOfFiftyInTheModePermissionCostsAtMost46Requests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, p, o := fiveChanged(t, []string{simtest.Alice}, "authorization: permission")
		jira, github := w.Net.Count(simtest.JiraHost), w.Net.Count(simtest.GitHubHost)
		t.Logf("%d Jira and %d GitHub requests", jira, github)
		if o.result.Dispatched != 5 || jira > 46 || github > 7 {
			t.Errorf("%d dispatched with %d Jira and %d GitHub requests, want 5 with at most 46 and 7", o.result.Dispatched, jira, github)
		}
		if n := requestsTo(w, "/user/permission/search"); n != 1 {
			t.Errorf("%d permission searches for one account in one project, want 1", n)
		}
		if n := requestsTo(w, "/role"); n != 0 {
			t.Errorf("%d requests for roles, want none", n)
		}
		for _, r := range w.GitHub.Runs() {
			w.Jira.DeleteProperty(r.Inputs["work_item_key"], lockProp)
		}
		time.Sleep(6 * time.Minute)
		p.mustCycle()
		w.Net.ResetLog()
		p.mustCycle()
		if n := w.Net.Count(simtest.JiraHost); n != 1 {
			t.Errorf("an idle cycle costs %d requests, want 1", n)
		}
	})
}

func TestTheAllowListCostsNoRequestsForRoles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, _, o := fiveChanged(t, []string{simtest.Mallory, simtest.Alice}, "allow: ["+simtest.Mallory+"]")
		if o.result.Dispatched != 3 {
			t.Errorf("%d dispatched, want the three of the listed account\n%s", o.result.Dispatched, o.stderr)
		}
		for _, part := range []string{"/role", "/user/", "/collaborators/"} {
			if n := requestsTo(w, part); n != 0 {
				t.Errorf("%d requests to %s, want none", n, part)
			}
		}
	})
}

func TestGitHubDecidesForAccountsThatItKnows(t *testing.T) {
	t.Parallel()
	for _, unknown404 := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := simtest.New(t)
			w.GitHub.SetPermission("mallory-m", "maintain")
			w.GitHub.SetPermission("alice-a", "triage")
			w.GitHub.Set(func(g *sim.GitHubSwitches) { g.UnknownLogin404 = unknown404 })
			issues := createIssues(w, 6)
			p := newPoller(t, w, withDriver(testConfig("m: 50, n: 6"),
				`github-users: {"`+simtest.Mallory+`": mallory-m, "`+simtest.Alice+`": alice-a, "`+simtest.Bob+`": no-such-login}`), 2)
			settle(t, p)
			for n, i := range issues { // Alice and Bob would have a role in Jira
				w.Jira.Comment(i.Key, []string{simtest.Mallory, simtest.Alice, simtest.Bob}[n%3], "/fs-triage go")
			}
			time.Sleep(time.Minute)
			w.Net.ResetLog()
			o := p.mustCycle()
			if o.result.Dispatched != 2 {
				t.Errorf("%d dispatched, want the two of the maintainer\n%s", o.result.Dispatched, o.stderr)
			}
			for _, login := range []string{"mallory-m", "alice-a", "no-such-login"} {
				if n := requestsTo(w, "/collaborators/"+login+"/permission"); n != 1 {
					t.Errorf("GitHub was asked %d times about %s, want once in a cycle", n, login)
				}
			}
			if n := requestsTo(w, "/role"); n != 0 {
				t.Errorf("%d requests for roles in Jira, want none", n)
			}
		})
	}
}

func TestWhereGitHubRefusesToTellNothingIsDispatchedOrPassedOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, issues, p := scene(t)
		w.GitHub.SetPermission("alice-a", "write")
		w.GitHub.Set(func(g *sim.GitHubSwitches) { g.PermissionForbidden = true })
		p.write("config.yaml", withDriver(testConfig("m: 50, n: 5"), `github-users: {"`+simtest.Alice+`": alice-a}`))
		o := p.cycle()
		if o.code != ExitFailed {
			t.Errorf("exit code %d, want %d", o.code, ExitFailed)
		}
		o.mentions(t, "alice-a", "cannot be read")
		w.GitHub.Set(func(g *sim.GitHubSwitches) { g.PermissionForbidden = false })
		untilQuiet(t, w, issues, p)
		if counts := runsPerKey(w); len(counts) != 2 || len(w.GitHub.Runs()) != 2 {
			t.Errorf("runs per command %v, want two, each once", counts)
		}
	})
}

func TestAMissingRightIsSaidWithTheModesThatNeedLess(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"project-roles", "permission"} {
		for _, status := range []int{0, 403} {
			synctest.Test(t, func(t *testing.T) {
				w, issues, p := scene(t)
				w.Jira.Set(func(j *sim.JiraSwitches) { j.RolesForbidden, j.PermissionSearchStatus = true, status })
				p.write("config.yaml", withDriver(testConfig("m: 50, n: 5"), "authorization: "+mode))
				o := p.cycle()
				if o.code != ExitFailed || len(w.GitHub.Runs()) != 0 {
					t.Errorf("exit code %d and %d runs, want %d and 0", o.code, len(w.GitHub.Runs()), ExitFailed)
				}
				o.mentions(t, "roles in project PROJ cannot be read", "Administer Projects", "authorization: allow", "github-users")
				// the mode that needs less, without any other right
				p.write("config.yaml", withDriver(testConfig("m: 50, n: 5"), "allow: ["+simtest.Alice+", "+simtest.Bob+"]"))
				untilQuiet(t, w, issues, p)
				if counts := runsPerKey(w); len(counts) != 2 {
					t.Errorf("runs per command %v, want two: nothing was passed over", counts)
				}
			})
		}
	}
}

func TestRenamedRolesStartAgents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, issues, p := scene(t)
		p.write("config.yaml", withDriver(testConfig("m: 50, n: 5"), "roles: {write: [Developers, Viewers]}"))
		w.Jira.Grant(simtest.Project, "Viewers", simtest.Mallory)
		w.Jira.Comment(issues[2].Key, simtest.Mallory, "/fs-triage as a viewer")
		time.Sleep(time.Minute)
		p.mustCycle()
		if n := len(w.GitHub.Runs()); n != 3 {
			t.Errorf("%d runs, want 3", n)
		}
	})
}
