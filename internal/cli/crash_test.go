package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fullsend/poll-action/internal/sim"
	"github.com/fullsend/poll-action/internal/sim/simtest"
)

// endRuns plays the runs of the world: each that is not completed ends and gives
// back its own lock.
func endRuns(w *simtest.World, issues []sim.Issue) {
	mine := map[string]bool{}
	for _, r := range w.GitHub.Runs() {
		mine[r.Inputs["poll_lock_id"]] = true
		if r.Status != "completed" {
			w.GitHub.Complete(r.ID, "success")
		}
	}
	for _, i := range issues {
		if id := lockID(w, i.Key); mine[id] {
			w.Jira.DeleteProperty(i.Key, lockProp)
		}
	}
}

// lockID returns the id of the lock on an issue, empty where there is none.
func lockID(w *simtest.World, key string) string {
	raw, ok := w.Jira.Property(key, lockProp)
	if !ok {
		return ""
	}
	var l struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(raw, &l); err != nil {
		return "unreadable"
	}
	return l.ID
}

// cut is a network that a process loses at its n-th request: before the server
// has seen it, or after.
type cut struct {
	net   http.RoundTripper
	mu    sync.Mutex
	left  int
	after bool
	// dead: no request gets through any more; else only the one is hit.
	dead bool
	hit  func()
}

var errCut = errors.New("the connection was cut")

func (c *cut) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	c.left--
	left := c.left
	c.mu.Unlock()
	switch {
	case left > 0:
		return c.net.RoundTrip(r)
	case left < 0 && !c.dead:
		return c.net.RoundTrip(r)
	case left == 0 && c.after:
		resp, err := c.net.RoundTrip(r)
		if err == nil {
			_ = resp.Body.Close()
		}
	}
	if left == 0 && c.hit != nil {
		c.hit()
	}
	return nil, errCut
}

// scene is two issues with a command each and one with chatter.
func scene(t *testing.T, opts ...simtest.Option) (*simtest.World, []sim.Issue, *poller) {
	t.Helper()
	w := simtest.New(t, opts...)
	issues := createIssues(w, 3)
	time.Sleep(time.Minute)
	w.Jira.Comment(issues[0].Key, simtest.Alice, "/fs-triage one")
	w.Jira.Comment(issues[1].Key, simtest.Bob, "/fs-triage two")
	w.Jira.Comment(issues[2].Key, simtest.Alice, "hello")
	time.Sleep(time.Minute)
	return w, issues, newPoller(t, w, testConfig("m: 50, n: 5"), 1)
}

// requestsOfACycle counts the requests of an undisturbed cycle of the scene.
func requestsOfACycle(t *testing.T, opts ...simtest.Option) int {
	t.Helper()
	n := 0
	synctest.Test(t, func(t *testing.T) {
		w, _, p := scene(t, opts...)
		p.mustCycle()
		n = len(w.Net.Log())
	})
	if n < 20 {
		t.Fatalf("a cycle has %d requests, expected more; the test would prove little", n)
	}
	return n
}

// within returns the poller as its process is within a run: with the event that
// started it.
func (p *poller) within(r sim.Run) *poller {
	p.t.Helper()
	event, err := json.Marshal(map[string]any{"inputs": r.Inputs})
	if err != nil {
		p.t.Fatal(err)
	}
	name := fmt.Sprintf("event-%d.json", r.ID)
	p.write(name, string(event))
	q := *p
	q.env = maps.Clone(p.env)
	q.env["GITHUB_EVENT_PATH"], q.env["GITHUB_RUN_ID"] = filepath.Join(p.dir, name), strconv.FormatInt(r.ID, 10)
	return &q
}

// giveBack lets all runs of the world end as they should: each gives its lock back.
func giveBack(p *poller) {
	p.t.Helper()
	for _, r := range p.w.GitHub.Runs() {
		if r.Status == "completed" {
			continue
		}
		if o := p.within(r).run(p.t.Context(), "lock", "release"); o.code != ExitOK {
			p.t.Errorf("run %d: lock release: exit code %d\n%s", r.ID, o.code, o.stderr)
		}
		p.w.GitHub.Complete(r.ID, "success")
	}
}

// die lets all runs of the world end by the death of their runners.
func die(p *poller) {
	for _, r := range p.w.GitHub.Runs() {
		p.w.GitHub.Complete(r.ID, "failure")
	}
}

// untilQuiet runs cycles with fresh processes, while runs end, until one finds
// nothing to do and nothing is locked.
func untilQuiet(t *testing.T, w *simtest.World, issues []sim.Issue, p *poller) {
	t.Helper()
	settles(t, w, issues, p, giveBack)
}

// settles is untilQuiet with runs that end in a way of their own. Those that die
// leave their locks, which keep nobody out.
func settles(t *testing.T, w *simtest.World, issues []sim.Issue, p *poller, end func(*poller)) {
	t.Helper()
	for range 15 {
		end(p)
		time.Sleep(6 * time.Minute)
		o := p.cycle()
		keeping := 0
		for _, i := range issues {
			if id := lockID(w, i.Key); id != "" && !overUnder(w, id) {
				keeping++
			}
		}
		if o.code == ExitOK && o.result.Dispatched == 0 && o.result.Drivers[0].Pending == 0 && o.result.Drivers[0].Held == 0 && keeping == 0 {
			return
		}
	}
	t.Errorf("after an hour and a half of cycles there is still something pending or locked")
}

// overUnder reports whether there are runs under the lock, all of them completed.
func overUnder(w *simtest.World, id string) bool {
	over := false
	for _, r := range w.GitHub.Runs() {
		if r.Inputs["poll_lock_id"] == id {
			if r.Status != "completed" {
				return false
			}
			over = true
		}
	}
	return over
}

// eachRequest runs f for every request of a cycle of the scene with the same
// options, hit before and after the server has seen it.
func eachRequest(t *testing.T, f func(t *testing.T, n int, after bool), opts ...simtest.Option) {
	t.Helper()
	total := requestsOfACycle(t, opts...)
	for n := 1; n <= total; n += sized(1, 6) {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("request %d after %t", n, after), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { f(t, n, after) })
			})
		}
	}
}

func TestAPollerKilledAtAnyRequestLosesNothingAndDoublesNothing(t *testing.T) {
	t.Parallel()
	eachRequest(t, func(t *testing.T, n int, after bool) { t.Helper(); killed(t, n, after, giveBack) })
}

func TestAPollerKilledAtAnyRequestAndRunsThatDieToo(t *testing.T) {
	t.Parallel()
	eachRequest(t, func(t *testing.T, n int, after bool) { t.Helper(); killed(t, n, after, die) })
}

// killed lets a poller die at its n-th request and others go on, while runs end.
func killed(t *testing.T, n int, after bool, end func(*poller), opts ...simtest.Option) {
	t.Helper()
	w, issues, p := scene(t, opts...)
	dying := *p
	dying.transport = &cut{net: w.Net, left: n, after: after, dead: true}
	dying.cycle()
	settles(t, w, issues, p, end)
	counts := runsPerKey(w)
	if len(counts) != 2 {
		t.Errorf("%d commands were dispatched, want 2: %v", len(counts), counts)
	}
	for key, n := range counts {
		if n != 1 {
			t.Errorf("%s was dispatched %d times", key, n)
		}
	}
}

func TestALostAnswerToAnyRequestNeitherLosesNorDoublesAnything(t *testing.T) {
	t.Parallel()
	eachRequest(t, func(t *testing.T, n int, after bool) { t.Helper(); unlucky(t, n, after) })
}

// unlucky lets a poller lose its n-th request or the answer to it.
func unlucky(t *testing.T, n int, after bool, opts ...simtest.Option) {
	t.Helper()
	w, issues, p := scene(t, opts...)
	unlucky := *p
	unlucky.transport = &cut{net: w.Net, left: n, after: after}
	unlucky.cycle()
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
}

func TestASignalAtAnyRequestEndsTheCycleWithinFiveSecondsAndLeavesNoLockWithoutARun(t *testing.T) {
	t.Parallel()
	eachRequest(t, func(t *testing.T, n int, after bool) {
		t.Helper()
		w, issues, p := scene(t)
		w.Net.Latency = constant(100 * time.Millisecond)
		ctx, cancel := context.WithCancelCause(t.Context())
		var at time.Time
		stopped := *p
		stopped.transport = &tap{net: w.Net, left: n, after: after, hit: func() {
			at = time.Now()
			cancel(signalError{os.Interrupt})
		}}
		o := stopped.run(ctx, "poll")
		if took := time.Since(at); took > 5*time.Second {
			t.Errorf("the cycle went on for %s after the signal", took)
		}
		if o.code != ExitInterrupted {
			t.Errorf("exit code %d, want %d", o.code, ExitInterrupted)
		}
		withRun := map[string]bool{}
		for _, r := range w.GitHub.Runs() {
			withRun[r.Inputs["poll_lock_id"]] = true
		}
		for _, i := range issues {
			if id := lockID(w, i.Key); id != "" && !withRun[id] {
				t.Errorf("%s is locked and has no run", i.Key)
			}
		}
		w.Net.Latency = nil
		untilQuiet(t, w, issues, p)
		if counts := runsPerKey(w); len(counts) != 2 || len(w.GitHub.Runs()) != 2 {
			t.Errorf("runs per command %v, want each once", counts)
		}
	})
}

// tap calls hit at the n-th request, before the server sees it or after.
type tap struct {
	net   http.RoundTripper
	mu    sync.Mutex
	left  int
	after bool
	hit   func()
}

func (c *tap) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	c.left--
	left := c.left
	c.mu.Unlock()
	if left == 0 && !c.after {
		c.hit()
	}
	resp, err := c.net.RoundTrip(r)
	if left == 0 && c.after {
		c.hit()
	}
	return resp, err
}

func TestTwoPollersDispatchEveryCommandOnce(t *testing.T) {
	t.Parallel()
	for seed := range uint64(sized(50, 4)) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { twoPollers(t, seed) })
		})
	}
}

// twoPollers lets two pollers cycle side by side over twenty commands while
// every request takes 30 to 400 ms.
func twoPollers(t *testing.T, seed uint64, opts ...simtest.Option) {
	t.Helper()
	w := simtest.New(t, opts...)
	if seed >= 5 {
		w.Net.Check = nil // the first seeds were held against the descriptions
	}
	issues := createIssues(w, 20)
	time.Sleep(time.Minute)
	for _, i := range issues {
		w.Jira.Comment(i.Key, simtest.Alice, "/fs-triage go")
	}
	time.Sleep(time.Minute)
	dice := rand.New(rand.NewPCG(seed, 7))
	var mu sync.Mutex
	w.Net.Latency = func(*http.Request) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return 30*time.Millisecond + time.Duration(dice.Int64N(int64(370*time.Millisecond)))
	}
	var pollers sync.WaitGroup
	for n := range uint64(2) {
		p := newPoller(t, w, testConfig("m: 50, n: 5"), seed*2+n)
		pollers.Go(func() {
			for left := 12; left > 0; left-- {
				if o := p.cycle(); o.code != ExitOK {
					t.Errorf("exit code %d\n%s", o.code, o.stderr)
				}
				endRuns(w, issues)
				if len(w.GitHub.Runs()) >= len(issues) {
					left = min(left, 3) // time for a double to show
				}
				time.Sleep(5 * time.Second)
			}
		})
	}
	pollers.Wait()
	counts := runsPerKey(w)
	if len(counts) != len(issues) {
		t.Errorf("%d of %d commands were dispatched", len(counts), len(issues))
	}
	for key, n := range counts {
		if n != 1 {
			t.Errorf("%s was dispatched %d times", key, n)
		}
	}
}

// SEEDS is how many seeds are run, 20 where it is not set.
func TestEightPollersDispatchEveryCommandOnceWithinFiveCyclesEach(t *testing.T) {
	t.Parallel()
	seeds, err := strconv.ParseUint(os.Getenv("SEEDS"), 10, 16)
	if err != nil {
		seeds = uint64(sized(20, 1))
	}
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { eightPollers(t, seed) })
		})
	}
}

// eightPollers lets eight pollers start within ten seconds of each other and cycle
// side by side over twenty commands, while every request takes 50 ms to 1 s. Runs
// keep their locks until the last poller is done.
func eightPollers(t *testing.T, seed uint64) {
	t.Helper()
	w := simtest.New(t)
	if seed > 0 {
		w.Net.Check = nil // the first seed was held against the descriptions
	}
	issues := createIssues(w, 20)
	time.Sleep(time.Minute)
	for _, i := range issues {
		w.Jira.Comment(i.Key, simtest.Alice, "/fs-triage go")
	}
	time.Sleep(time.Minute)
	dice := rand.New(rand.NewPCG(seed, 8))
	var mu sync.Mutex
	between := func(low, high time.Duration) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return low + time.Duration(dice.Int64N(int64(high-low)))
	}
	w.Net.Latency = func(*http.Request) time.Duration { return between(50*time.Millisecond, time.Second) }
	const rounds = 5
	var pollers sync.WaitGroup
	for n := range uint64(8) {
		p := newPoller(t, w, testConfig("m: 50, n: 5"), seed*8+n)
		first := between(0, 10*time.Second)
		pollers.Go(func() {
			time.Sleep(first)
			for range rounds {
				if o := p.cycle(); o.code != ExitOK {
					t.Errorf("exit code %d\n%s", o.code, o.stderr)
				}
				time.Sleep(5 * time.Second)
			}
		})
	}
	pollers.Wait()
	counts := runsPerKey(w)
	if len(counts) != len(issues) {
		t.Errorf("%d of %d commands were dispatched after %d cycles of each poller", len(counts), len(issues), rounds)
	}
	for key, n := range counts {
		if n != 1 {
			t.Errorf("%s was dispatched %d times", key, n)
		}
	}
}
