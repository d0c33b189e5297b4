package cli

import (
	"context"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fullsend/poll-action/internal/sim"
	"github.com/fullsend/poll-action/internal/sim/simtest"
)

// diesAfter lets a process die after its n-th request that matches: the server has
// seen it, the answer and everything after it is lost.
type diesAfter struct {
	net    http.RoundTripper
	method string
	suffix string
	n      int
	mu     sync.Mutex
	dead   bool
}

func (d *diesAfter) RoundTrip(r *http.Request) (*http.Response, error) {
	d.mu.Lock()
	if d.dead {
		d.mu.Unlock()
		return nil, errCut
	}
	if r.Method == d.method && strings.HasSuffix(r.URL.Path, d.suffix) {
		d.n--
		d.dead = d.n == 0
	}
	dead := d.dead
	d.mu.Unlock()
	resp, err := d.net.RoundTrip(r)
	if dead {
		if err == nil {
			_ = resp.Body.Close()
		}
		return nil, errCut
	}
	return resp, err
}

func dyingAfter(p *poller, method, suffix string) *poller {
	q := *p
	q.transport = &diesAfter{net: p.w.Net, method: method, suffix: suffix, n: 1}
	return &q
}

// oneCommand is an issue with a command that is a minute old, and a poller for it.
func oneCommand(t *testing.T) (*simtest.World, sim.Issue, *poller) {
	t.Helper()
	w := simtest.New(t)
	issue := createIssues(w, 1)[0]
	p := newPoller(t, w, testConfig("m: 50, n: 5"), 1)
	time.Sleep(time.Minute)
	w.Jira.Comment(issue.Key, simtest.Alice, "/fs-triage one")
	time.Sleep(time.Minute)
	return w, issue, p
}

func once(t *testing.T, w *simtest.World, want int) {
	t.Helper()
	counts := runsPerKey(w)
	if len(counts) != want {
		t.Errorf("%d events have runs, want %d: %v", len(counts), want, counts)
	}
	for k, n := range counts {
		if n != 1 {
			t.Errorf("%s was dispatched %d times", k, n)
		}
	}
}

func TestARunIsNotAdoptedForAnEventThatCameAfterIt(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"edited", "deleted"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := simtest.New(t)
				issue := createIssues(w, 1)[0]
				p := newPoller(t, w, testConfig("m: 50, n: 5"), 1)
				time.Sleep(time.Minute)
				c := w.Jira.Comment(issue.Key, simtest.Alice, "/fs-triage one")
				time.Sleep(time.Minute)
				dyingAfter(p, http.MethodPost, "/dispatches").cycle()
				time.Sleep(10 * time.Minute)
				if what == "edited" {
					w.Jira.EditComment(issue.Key, c, simtest.Alice, "/fs-triage two")
				} else {
					w.Jira.DeleteComment(issue.Key, c)
					w.Jira.Comment(issue.Key, simtest.Alice, "/fs-triage two")
				}
				settles(t, w, []sim.Issue{issue}, p, die)
				if n := len(w.GitHub.Runs()); n != 2 {
					t.Errorf("%d runs %v, want one of each text", n, runsPerKey(w))
				}
			})
		})
	}
}

func TestACancelLeavesALockThatIsTheOnlyEvidenceOfARunThatSucceeded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, issue, p := oneCommand(t)
		dyingAfter(p, http.MethodPost, "/dispatches").cycle() // not journalled, not handed over
		time.Sleep(time.Minute)
		w.GitHub.Complete(w.GitHub.Runs()[0].ID, "success") // has no lock step, or its release failed
		time.Sleep(time.Minute)
		p.run(t.Context(), "cancel", "--issue", issue.Key)
		settles(t, w, []sim.Issue{issue}, p, die)
		once(t, w, 1)
	})
}

func TestARefusedOrderDoesNotKeepRunsFromBeingAdopted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, issue, p := oneCommand(t)
		w.Net.Fault = func(r *http.Request) sim.Fault {
			if strings.HasSuffix(r.URL.Path, "/dispatches") {
				return sim.Fault{Status: http.StatusUnprocessableEntity, Body: `{"message":"inputs are too large."}`}
			}
			return sim.Fault{}
		}
		p.cycle()
		w.Net.Fault = nil
		time.Sleep(time.Minute)
		w.Jira.Comment(issue.Key, simtest.Alice, "/fs-triage two")
		time.Sleep(time.Minute)
		dyingAfter(p, http.MethodPost, "/dispatches").cycle()
		settles(t, w, []sim.Issue{issue}, p, die)
		once(t, w, 1)
	})
}

func TestARunThatIsStartedAgainIsNotRememberedAsEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := atWork(t)
		die(s.p) // without a release: the lock stands and names the run
		time.Sleep(time.Minute)
		s.w.Jira.Comment(s.issue.Key, simtest.Alice, "/fs-triage more")
		time.Sleep(20 * time.Second)
		var mu sync.Mutex
		down := true
		s.w.Net.Fault = func(r *http.Request) sim.Fault {
			mu.Lock()
			defer mu.Unlock()
			if down && strings.Contains(r.URL.Path, "/contents/") {
				return sim.Fault{Status: http.StatusBadGateway}
			}
			return sim.Fault{}
		}
		ctx, cancel := contextWithCause(t)
		done := make(chan outcome, 1)
		go func() { done <- s.p.run(ctx, "poll", "--watch", "--interval", "60s") }()
		time.Sleep(20 * time.Second) // a cycle has seen that the run has ended; the output was not ready
		j := startJob(t, s.p, s.w.GitHub.Runs()[0])
		j.do(ExitOK, "lock", "refresh") // somebody has pressed "Re-run jobs"
		id := lockID(s.w, s.issue.Key)
		mu.Lock()
		down = false
		mu.Unlock()
		time.Sleep(8 * time.Minute)
		if now := lockID(s.w, s.issue.Key); now != id || len(s.w.GitHub.Runs()) != 1 {
			t.Errorf("while its run works the lock %s became %s, and there are %d runs", id, now, len(s.w.GitHub.Runs()))
		}
		cancel()
		<-done
	})
}

func TestARunThatGaveItsEventBackIsAdoptedForNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, issue, p := oneCommand(t)
		p.mustCycle() // run 1 stays in the queue
		time.Sleep(20 * time.Minute)
		w.Jira.Comment(issue.Key, simtest.Alice, "/fs-triage two")
		time.Sleep(time.Minute)
		w.Net.Fault = func(r *http.Request) sim.Fault { // GitHub does not tell about runs
			if strings.Contains(r.URL.Path, "/runs") {
				return sim.Fault{Status: http.StatusBadGateway}
			}
			return sim.Fault{}
		}
		dyingAfter(p, http.MethodPut, lockProp).cycle() // takes the stale lock over and dies
		w.Net.Fault = nil
		one := w.GitHub.Runs()[0]
		startJob(t, p, one).do(ExitLost, "lock", "refresh")
		w.GitHub.Complete(one.ID, "failure")
		time.Sleep(20 * time.Minute)
		dyingAfter(p, http.MethodPut, propertyName("seen")).cycle() // starts run 2, journals it and dies
		time.Sleep(time.Minute)
		settles(t, w, []sim.Issue{issue}, p, die)
		counts := runsPerKey(w)
		if len(counts) != 2 {
			seen, _ := w.Jira.Property(issue.Key, propertyName("seen"))
			t.Errorf("the second command is lost: %v %s", counts, seen)
		}
	})
}

func TestALockThatNames64RunsIsNotRenewedForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := atWork(t)
		ids := make([]int64, 64)
		for i := range ids {
			ids[i] = int64(i + 1)
		}
		s.lock("", time.Minute, ids...)
		s.w.Jira.Comment(s.issue.Key, simtest.Alice, "/fs-triage more")
		for range 100 {
			time.Sleep(6 * time.Minute)
			s.p.cycle()
		}
		if len(s.w.GitHub.Runs()) == 1 {
			t.Errorf("held after 10 hours, max_hold is 6")
		}
	})
}

func contextWithCause(t *testing.T) (context.Context, func()) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	return ctx, func() { cancel(signalError{os.Interrupt}) }
}
