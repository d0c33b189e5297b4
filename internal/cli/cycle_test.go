package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fullsend/poll-action/internal/sim"
	"github.com/fullsend/poll-action/internal/sim/simtest"
)

const testHarness = `
role: triage
trigger: >-
  event.source.system == "jira" && event.transition.kind == "comment_added"
  && event.transition.comment.command == "/fs-triage"
`

// testConfig is a configuration with the given lock settings.
func testConfig(lock string) string {
	return fmt.Sprintf(`version: "1"
agents: [harness/triage.yaml]
poll:
  input_drivers:
    - type: jira-poll
      connection: {base_url: "${JIRA_BASE_URL}", email: "${JIRA_USER_EMAIL}", token: "${JIRA_TOKEN}"}
      flavour: cloud
      queries: [project = PROJ]
      lock: {%s}
  output_driver: gha-dispatch
  gha_dispatch: {workflow: fullsend-agent.yml, ref: main}
`, lock)
}

// poller is one installation of the product against a simulated world.
type poller struct {
	t    testing.TB
	w    *simtest.World
	dir  string
	env  map[string]string
	rand func() float64
	// transport, if set, stands between the product and the world.
	transport http.RoundTripper
}

// onDataCenter turns a configuration of the tests into one for Data Center.
func onDataCenter(config string) string {
	return strings.NewReplacer(`email: "${JIRA_USER_EMAIL}", `, "", "flavour: cloud", "flavour: datacenter").Replace(config)
}

// newPoller writes a .fullsend directory and points the product at w, of
// whichever flavour it is.
func newPoller(tb testing.TB, w *simtest.World, config string, seed uint64) *poller {
	tb.Helper()
	p := &poller{t: tb, w: w, dir: tb.TempDir()}
	if w.DataCenter() {
		config = onDataCenter(config)
	}
	p.write("config.yaml", config)
	p.write("harness/triage.yaml", testHarness)
	email, token := w.JiraCredentials()
	p.env = map[string]string{
		"JIRA_BASE_URL": w.JiraURL(), "JIRA_USER_EMAIL": email, "JIRA_TOKEN": token,
		"GITHUB_TOKEN": simtest.GitHubToken, "GITHUB_REPOSITORY": simtest.Repo, "GITHUB_API_URL": simtest.GitHubURL,
	}
	r := rand.New(rand.NewPCG(seed, 1))
	var mu sync.Mutex
	p.rand = func() float64 { mu.Lock(); defer mu.Unlock(); return r.Float64() }
	return p
}

func (p *poller) write(name, content string) {
	p.t.Helper()
	file := filepath.Join(p.dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// outcome is what one run of the program left.
type outcome struct {
	code           int
	stdout, stderr string
	result         result
}

// run runs the program with args and the poller's configuration.
func (p *poller) run(ctx context.Context, args ...string) outcome {
	p.t.Helper()
	var stdout, stderr bytes.Buffer
	transport := p.transport
	if transport == nil {
		transport = p.w.Net
	}
	code := Run(ctx, Process{
		Args:   append(args, "--config", filepath.Join(p.dir, "config.yaml")),
		Getenv: func(k string) string { return p.env[k] }, Stdout: &stdout, Stderr: &stderr,
		Transport: transport, Now: time.Now, Rand: p.rand,
	})
	return outcome{code: code, stdout: stdout.String(), stderr: stderr.String()}
}

// cycle runs one poll cycle.
func (p *poller) cycle() outcome {
	p.t.Helper()
	o := p.run(p.t.Context(), "poll", "--result", "-")
	if strings.HasPrefix(o.stdout, "{") {
		if err := json.Unmarshal([]byte(o.stdout), &o.result); err != nil {
			p.t.Fatalf("the result is no JSON: %v\n%s", err, o.stdout)
		}
	}
	return o
}

// mustCycle runs one poll cycle that has to succeed.
func (p *poller) mustCycle() outcome {
	p.t.Helper()
	o := p.cycle()
	if o.code != ExitOK {
		p.t.Fatalf("exit code %d\n%s", o.code, o.stderr)
	}
	return o
}

// lockProp is the lock's name for the test world's repository.
const lockProp = "fullsend.poll.acme.platform.lock"

// releaseAll plays runs that end: every lock is deleted, as each run would.
func releaseAll(w *simtest.World, issues []sim.Issue) {
	for _, i := range issues {
		w.Jira.DeleteProperty(i.Key, lockProp)
	}
}

func createIssues(w *simtest.World, n int) []sim.Issue {
	issues := make([]sim.Issue, n)
	for i := range issues {
		issues[i] = w.Jira.CreateIssue(sim.IssueSpec{Project: simtest.Project, Summary: fmt.Sprintf("issue %d", i), Reporter: simtest.Alice})
	}
	return issues
}

// runsPerKey counts the runs of every dispatch key.
func runsPerKey(w *simtest.World) map[string]int {
	counts := map[string]int{}
	for _, r := range w.GitHub.Runs() {
		counts[r.Inputs["dispatch_key"]]++
	}
	return counts
}

func settle(tb testing.TB, p *poller) {
	tb.Helper()
	time.Sleep(time.Minute)
	p.mustCycle()
	time.Sleep(time.Minute)
	p.w.Net.ResetLog()
}

func TestAnIdleCycleOverFiftyCandidatesCostsOneRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		createIssues(w, 50)
		p := newPoller(t, w, testConfig("m: 50, n: 5"), 1)
		settle(t, p)
		o := p.mustCycle()
		if j, g := w.Net.Count(simtest.JiraHost), w.Net.Count(simtest.GitHubHost); j != 1 || g != 0 {
			t.Errorf("%d Jira and %d GitHub requests, want 1 and 0", j, g)
		}
		if o.result.Candidates != 50 || o.result.Drivers[0].Requests != 1 {
			t.Errorf("the report says %d candidates and %d requests, want 50 and 1", o.result.Candidates, o.result.Drivers[0].Requests)
		}
	})
}

func TestFiveOfFiftyChangedStaysWithinTheRequestBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j, g, _ := fiveOfFifty(t, 0)
		t.Logf("%d Jira requests, %d GitHub requests", j, g)
		if j > 52 || g > 7 {
			t.Errorf("%d Jira and %d GitHub requests, at most 52 and 7 are allowed", j, g)
		}
	})
}

// fiveOfFifty runs the cycle in which five of fifty issues have a command, by a
// developer each, and returns its requests and its duration in virtual time.
func fiveOfFifty(tb testing.TB, latency time.Duration, opts ...simtest.Option) (jira, github int, took time.Duration) {
	tb.Helper()
	w := simtest.New(tb, opts...)
	issues := createIssues(w, 50)
	p := newPoller(tb, w, testConfig("m: 50, n: 5"), 2)
	settle(tb, p)
	for _, i := range issues[10:15] {
		w.Jira.Comment(i.Key, simtest.Alice, "/fs-triage check acceptance criteria")
	}
	time.Sleep(time.Minute)
	w.Net.ResetLog()
	w.Net.Latency = constant(latency)
	start := time.Now()
	o := p.mustCycle()
	if o.result.Dispatched != 5 || len(w.GitHub.Runs()) != 5 {
		tb.Fatalf("%d dispatched, %d runs, want 5\n%s", o.result.Dispatched, len(w.GitHub.Runs()), o.stderr)
	}
	return w.Net.Count(w.JiraHost()), w.Net.Count(simtest.GitHubHost), time.Since(start)
}

func TestOrdinaryChatterIsCheckpointedWithoutLocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		issues := createIssues(w, 200)
		p := newPoller(t, w, testConfig("m: 200, n: 5"), 3)
		settle(t, p)
		for n, i := range issues {
			w.Jira.Edit(i.Key, simtest.Alice, "summary", "a", fmt.Sprintf("b%d", n))
			w.Jira.Comment(i.Key, simtest.Alice, "looks good to me")
		}
		time.Sleep(time.Minute)
		w.Net.ResetLog()
		o := p.mustCycle()
		requests := w.Net.Count(simtest.JiraHost)
		t.Logf("%d Jira requests for %d events", requests, o.result.Events)
		if requests > 410 {
			t.Errorf("%d Jira requests, at most 410 are allowed", requests)
		}
		if o.result.Events != 400 || o.result.Locked != 0 {
			t.Errorf("%d events and %d locks, want 400 and 0", o.result.Events, o.result.Locked)
		}
		for _, e := range w.Net.Log() {
			if strings.HasSuffix(e.Path, ".lock") {
				t.Errorf("a lock was touched: %s %s", e.Method, e.Path)
			}
		}
		time.Sleep(time.Minute)
		w.Net.ResetLog()
		if o = p.mustCycle(); o.result.Drivers[0].Pending != 0 {
			t.Errorf("%d issues are still pending in the next cycle, want all settled", o.result.Drivers[0].Pending)
		}
		t.Logf("the next cycle costs %d requests", w.Net.Count(simtest.JiraHost))
	})
}

func TestFiveHundredCommandsAreEachDispatchedOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ m, n, cycles int }{{50, 5, 110}, {50, 50, 11}} {
		t.Run(fmt.Sprintf("n is %d", c.n), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := simtest.New(t)
				total := sized(500, 100)
				issues := createIssues(w, total)
				for _, i := range issues {
					w.Jira.Comment(i.Key, simtest.Alice, "/fs-triage go")
				}
				p := newPoller(t, w, testConfig(fmt.Sprintf("m: %d, n: %d", c.m, c.n)), 4)
				longest := 0
				for cycle := 1; cycle <= c.cycles && len(w.GitHub.Runs()) < total; cycle++ {
					time.Sleep(time.Minute)
					if cycle == 5 {
						w.Net.Check = nil // from here on the same exchanges over and over
					}
					p.mustCycle()
					releaseAll(w, issues)
					longest = cycle
				}
				t.Logf("the last one waited %d cycles", longest)
				counts := runsPerKey(w)
				if len(counts) != total || len(w.GitHub.Runs()) != total {
					t.Errorf("%d keys and %d runs after %d cycles, want %d of each", len(counts), len(w.GitHub.Runs()), longest, total)
				}
			})
		})
	}
}

// sized is how much of a long test is run: all of it, or under the race detector
// a part. CI runs both.
func sized(all, raced int) int {
	if underRace {
		return raced
	}
	return all
}

func constant(d time.Duration) func(*http.Request) time.Duration {
	if d == 0 {
		return nil
	}
	return func(*http.Request) time.Duration { return d }
}
