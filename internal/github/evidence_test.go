package github_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fullsend/poll-action/internal/dispatch"
	"github.com/fullsend/poll-action/internal/github"
	"github.com/fullsend/poll-action/internal/httpx"
	"github.com/fullsend/poll-action/internal/lease"
	"github.com/fullsend/poll-action/internal/sim"
	"github.com/fullsend/poll-action/internal/sim/simtest"
)

// stage is a dispatcher in front of the simulated GitHub.
type stage struct {
	t *testing.T
	w *simtest.World
	d *github.Dispatcher
	e *github.Evidence
}

func onStage(t *testing.T) *stage {
	t.Helper()
	w := simtest.New(t)
	tr, err := httpx.New(httpx.Options{
		Base: w.Net, Origin: simtest.GitHubURL, Now: time.Now,
		Authorize: func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+simtest.GitHubToken) },
	})
	if err != nil {
		t.Fatal(err)
	}
	d, err := github.NewDispatcher(github.Options{
		APIURL: simtest.GitHubURL, ServerURL: "https://github.com", Repo: simtest.Repo,
		Workflow: simtest.WorkflowFile, Ref: "main", HTTP: tr,
	})
	if err != nil {
		t.Fatal(err)
	}
	return &stage{t: t, w: w, d: d, e: d.Evidence(time.Now)}
}

// start makes a run under a lock as a poller would, and returns its id. The
// requests so far are forgotten.
func (s *stage) start(agent, id string) int64 {
	s.t.Helper()
	body := fmt.Sprintf(`{"ref":"main","inputs":{"agent":%q,"poll_lock_id":%q}}`, agent, id)
	answer, text := s.w.Do(s.t, http.MethodPost, simtest.GitHubURL+"/repos/"+simtest.Repo+"/actions/workflows/"+simtest.WorkflowFile+"/dispatches", body)
	if answer.StatusCode != http.StatusNoContent {
		s.t.Fatalf("dispatch: %d %s", answer.StatusCode, text)
	}
	s.w.Net.ResetLog()
	runs := s.w.GitHub.Runs()
	return runs[len(runs)-1].ID
}

// asked returns the requests since the last call: "run", "list", "jobs" or the
// last element of the path.
func (s *stage) asked() []string {
	var got []string
	for _, e := range s.w.Net.Log() {
		last := e.Path[strings.LastIndex(e.Path, "/")+1:]
		switch {
		case last == "runs":
			last = "list"
		case strings.Trim(last, "0123456789") == "":
			last = "run"
		}
		got = append(got, last)
	}
	s.w.Net.ResetLog()
	return got
}

func (s *stage) wantAsked(want ...string) {
	s.t.Helper()
	if diff := cmp.Diff(want, s.asked()); diff != "" {
		s.t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func times(n int, what string) []string { return slices.Repeat([]string{what}, n) }

// naming is a lock that names runs.
func naming(ids ...int64) lease.Lock {
	l := lease.Lock{ID: lockID, TS: time.Now(), Phase: lease.Pending}
	for _, id := range ids {
		l = l.WithRun(lease.Run{Agent: "triage", ID: id})
	}
	return l
}

func lives(standings []lease.Standing) []lease.Life {
	got := make([]lease.Life, len(standings))
	for i, s := range standings {
		got[i] = s.Life
	}
	return got
}

// inBubble runs a test with a simulated clock.
func inBubble(t *testing.T, f func(*stage)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { f(onStage(t)) })
}

func TestALockIsAliveWhileOneOfItsRunsIs(t *testing.T) {
	inBubble(t, func(s *stage) {
		done, gone, alive := s.start("a", "1"), s.start("b", "2"), s.start("c", "3")
		s.w.GitHub.Complete(done, "failure")
		s.w.GitHub.DeleteRun(gone)
		for name, c := range map[string]struct {
			lock  lease.Lock
			want  lease.Life
			asked int
		}{
			"its only run has ended":                   {naming(done), lease.Over, 1},
			"a run that does not exist any more":       {naming(gone), lease.Over, 1},
			"a run that never was":                     {naming(5), lease.Over, 1},
			"all have ended":                           {naming(done, gone), lease.Over, 2},
			"the first is alive":                       {naming(alive, done), lease.Alive, 2},
			"the last is, and nobody needs the others": {naming(done, gone, alive), lease.Alive, 1},
		} {
			e := s.d.Evidence(time.Now)
			got := e.Standings(s.t.Context(), []lease.Lock{c.lock})[0]
			if got.Life != c.want || got.Err != nil {
				s.t.Errorf("%s: %v, %v, want %v", name, got.Life, got.Err, c.want)
			}
			if diff := cmp.Diff(c.lock.Runs, got.Runs, cmpopts.IgnoreFields(lease.Run{}, "Created")); diff != "" {
				s.t.Errorf("%s: runs (-want +got):\n%s", name, diff)
			}
			if n := len(s.asked()); n != c.asked {
				s.t.Errorf("%s: %d requests, want %d", name, n, c.asked)
			}
		}
	})
}

func TestEveryLockGetsItsOwnStandingInOrder(t *testing.T) {
	inBubble(t, func(s *stage) {
		done, alive, other := s.start("a", "1"), s.start("b", "2"), s.start("c", lockID)
		s.w.GitHub.Complete(done, "success")
		unnamed := lease.Lock{ID: lockID, TS: time.Now()}
		got := s.e.Standings(s.t.Context(), []lease.Lock{naming(done), unnamed, naming(alive), {ID: "0b5e6f9e-0000", TS: time.Now()}, naming(done)})
		if diff := cmp.Diff([]lease.Life{lease.Over, lease.Alive, lease.Alive, lease.None, lease.Over}, lives(got)); diff != "" {
			s.t.Error(diff)
		}
		want := []lease.Run{{Agent: "c", ID: other, URL: fmt.Sprintf("https://github.com/%s/actions/runs/%d", simtest.Repo, other)}}
		if diff := cmp.Diff(want, got[1].Runs, cmpopts.IgnoreFields(lease.Run{}, "Created")); diff != "" {
			s.t.Error(diff)
		}
		for i, standing := range got[:3] {
			if !standing.Runs[0].Created.Equal(time.Now()) {
				s.t.Errorf("lock %d: its run was created at %s", i, standing.Runs[0].Created)
			}
		}
		s.wantAsked("run", "list", "run", "list")
		if got := s.e.Standings(s.t.Context(), nil); len(got) != 0 {
			s.t.Errorf("no locks: %v", got)
		}
	})
}

func TestAnAnswerIsRememberedForFifteenSeconds(t *testing.T) {
	inBubble(t, func(s *stage) {
		done, alive, gone := s.start("a", "1"), s.start("b", "2"), s.start("c", "3")
		s.w.GitHub.Complete(done, "success")
		s.w.GitHub.DeleteRun(gone)
		locks := []lease.Lock{naming(done), naming(alive), naming(gone)}
		ask := func(want ...lease.Life) {
			s.t.Helper()
			if diff := cmp.Diff(want, lives(s.e.Standings(s.t.Context(), locks))); diff != "" {
				s.t.Error(diff)
			}
		}
		ask(lease.Over, lease.Alive, lease.Over)
		s.wantAsked("run", "run", "run")
		s.w.GitHub.Complete(alive, "success")
		time.Sleep(15*time.Second - time.Millisecond)
		ask(lease.Over, lease.Alive, lease.Over)
		s.wantAsked()
		time.Sleep(time.Millisecond)
		ask(lease.Over, lease.Over, lease.Over)
		s.wantAsked("run", "run", "run")
		time.Sleep(15 * time.Second)
		s.w.GitHub.Start(done) // somebody has started it again
		ask(lease.Alive, lease.Over, lease.Over)
		s.wantAsked("run", "run", "run")
	})
}

func TestAClockThatIsSetBackProlongsNoMemory(t *testing.T) {
	inBubble(t, func(s *stage) {
		alive := s.start("a", "1")
		now := time.Now()
		e := s.d.Evidence(func() time.Time { return now })
		e.Standings(s.t.Context(), []lease.Lock{naming(alive)})
		now = now.Add(-time.Hour)
		e.Standings(s.t.Context(), []lease.Lock{naming(alive)})
		s.wantAsked("run", "run")
	})
}

func TestMoreThanFiveUnknownRunsAreReadFromOneList(t *testing.T) {
	inBubble(t, func(s *stage) {
		var locks []lease.Lock
		for i := range 6 {
			id := s.start("a", strconv.Itoa(i))
			if i%2 == 0 {
				s.w.GitHub.Complete(id, "success")
			}
			locks = append(locks, naming(id))
		}
		s.e.Standings(s.t.Context(), locks[:5])
		s.wantAsked(times(5, "run")...)
		got := s.e.Standings(s.t.Context(), locks) // one is unknown
		s.wantAsked("run")
		want := []lease.Life{lease.Over, lease.Alive, lease.Over, lease.Alive, lease.Over, lease.Alive}
		if diff := cmp.Diff(want, lives(got)); diff != "" {
			s.t.Error(diff)
		}
		if diff := cmp.Diff(want, lives(s.d.Evidence(time.Now).Standings(s.t.Context(), locks))); diff != "" {
			s.t.Error(diff)
		}
		if e := s.w.Net.Log()[0]; e.RawQuery != "event=workflow_dispatch&per_page=100" {
			s.t.Errorf("asked %s", e.RawQuery)
		}
		s.wantAsked("list")
		// The same run under many locks is one run.
		s.d.Evidence(time.Now).Standings(s.t.Context(), slices.Repeat(locks[:1], 10))
		s.wantAsked("run")
	})
}

func TestWhatTheListLacksIsAskedForOneByOneUpToTwenty(t *testing.T) {
	inBubble(t, func(s *stage) {
		var locks []lease.Lock
		s.w.GitHub.Set(func(g *sim.GitHubSwitches) { g.RunVisibleAfter = time.Hour })
		for i := range 30 { // none of them is in the list
			id := s.start("a", strconv.Itoa(i))
			s.w.GitHub.Complete(id, "success")
			locks = append(locks, naming(id))
		}
		got := s.e.Standings(s.t.Context(), locks)
		s.wantAsked(append([]string{"list"}, times(20, "run")...)...)
		if diff := cmp.Diff(append(slices.Repeat([]lease.Life{lease.Over}, 20), make([]lease.Life, 10)...), lives(got)); diff != "" {
			s.t.Error(diff)
		}
		if err := got[29].Err; err == nil || !strings.Contains(err.Error(), "not asked for") {
			s.t.Errorf("the last: %v", err)
		}
		if !slices.Equal(got[29].Runs, locks[29].Runs) {
			s.t.Errorf("the last: %v", got[29].Runs)
		}
		// The next call goes on where this one ended.
		got = s.e.Standings(s.t.Context(), locks)
		if i := slices.IndexFunc(got, func(s lease.Standing) bool { return s.Life != lease.Over }); i >= 0 {
			s.t.Errorf("lock %d: %v", i, got[i])
		}
		s.wantAsked(append([]string{"list"}, times(10, "run")...)...)
	})
}

func TestManyRunsAreForgottenAgain(t *testing.T) {
	inBubble(t, func(s *stage) {
		asked, from := 0, int64(1)
		s.w.Net.Fault = func(r *http.Request) sim.Fault {
			asked++
			last := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
			if last != "runs" {
				return sim.Fault{Status: 200, Body: `{"id":` + last + `,"status":"completed"}`}
			}
			var b strings.Builder
			for i := range int64(100) {
				fmt.Fprintf(&b, `,{"id":%d,"status":"completed"}`, from+i)
			}
			return sim.Fault{Status: 200, Body: `{"workflow_runs":[` + b.String()[1:] + `]}`}
		}
		const lists = 41 // of 100 runs; 4,096 are remembered
		for range lists {
			s.e.Standings(s.t.Context(), []lease.Lock{naming(from, from+1, from+2, from+3, from+4, from+5)})
			from += 100
		}
		s.e.Standings(s.t.Context(), []lease.Lock{naming(5), naming(from - 1)})
		if asked != lists {
			s.t.Errorf("%d requests, want %d", asked, lists)
		}
		s.e.Standings(s.t.Context(), []lease.Lock{naming(4)})
		if asked != lists+1 {
			s.t.Errorf("the oldest is remembered still: %d requests", asked)
		}
	})
}

func TestALockWithoutRunsIsLookedForByItsID(t *testing.T) {
	inBubble(t, func(s *stage) {
		s.start("other", "9b5e6f9e-7d3a-4f1e-9a46-5d0f3f6f0c11")
		first, second := s.start("triage", lockID), s.start("fix", lockID)
		lock := lease.Lock{ID: lockID, TS: time.Now(), Phase: lease.Pending}
		ask := func(want lease.Life, ids ...int64) {
			s.t.Helper()
			got := s.e.Standings(s.t.Context(), []lease.Lock{lock})[0]
			var have []int64
			for _, r := range got.Runs {
				have = append(have, r.ID)
			}
			if got.Life != want || !slices.Equal(have, ids) || (got.Err != nil) != (want == lease.Unknown) {
				s.t.Errorf("%v %v (%v), want %v %v", got.Life, have, got.Err, want, ids)
			}
			s.asked()
		}
		ask(lease.Alive, first, second)
		s.w.GitHub.Complete(first, "success")
		time.Sleep(time.Minute)
		ask(lease.Alive, first, second)
		s.w.GitHub.Complete(second, "success")
		time.Sleep(time.Minute)
		ask(lease.Over, first, second)
		lock.TS = lock.TS.Add(10 * time.Minute) // the end of what clocks and a hand-over explain
		ask(lease.Over, first, second)
		lock.TS = lock.TS.Add(time.Second)
		ask(lease.None)
		lock.Phase = lease.Running // refreshed: it may be old
		ask(lease.Over, first, second)
		lock.TS, lock.Phase = lock.TS.Add(-3*time.Hour), lease.Pending
		ask(lease.None)
	})
}

func TestSearchAsksByTheIDWhateverTheLockNames(t *testing.T) {
	inBubble(t, func(s *stage) {
		lost, named := s.start("triage", lockID), s.start("fix", lockID)
		inherited := s.start("old", "6b5e6f9e-7d3a-4f1e-9a46-5d0f3f6f0c11")
		for _, id := range []int64{lost, named, inherited} {
			s.w.GitHub.Complete(id, "success")
		}
		lock := naming(inherited, named)
		lock.TS = lock.TS.Add(6*time.Hour - time.Minute)
		got := s.e.Search(s.t.Context(), lock)
		want := append(slices.Clone(lock.Runs), lease.Run{
			Agent: "triage", ID: lost, URL: fmt.Sprintf("https://github.com/%s/actions/runs/%d", simtest.Repo, lost),
		})
		if diff := cmp.Diff(lease.Standing{Life: lease.Over, Runs: want}, got, cmpopts.IgnoreFields(lease.Run{}, "Created")); diff != "" {
			s.t.Error(diff)
		}
		if created, err := url.ParseQuery(s.w.Net.Log()[0].RawQuery); err != nil || !strings.Contains(created.Get("created"), "..") {
			s.t.Errorf("asked %s", s.w.Net.Log()[0].RawQuery)
		}
		s.wantAsked("list", "run")
		if got := s.e.Search(s.t.Context(), lease.Lock{ID: "5b5e6f9e-7d3a-4f1e-9a46-5d0f3f6f0c11", TS: time.Now()}); got.Life != lease.None || got.Err != nil || got.Runs != nil {
			s.t.Errorf("a lock without runs: %+v", got)
		}
	})
}

func TestAnIDThatIsNoneIsNeverLookedFor(t *testing.T) {
	inBubble(t, func(s *stage) {
		s.start("a", lockID)
		for _, id := range []string{
			"", "a", lockID[:7], "a ", " " + lockID, "a/../../../../b", "a&event=push", "../secrets", strings.Repeat(" ", 36),
			"0b5e6f9e_7d3a", "0b5e6f9e\n7d3a", "0b5e6f9é-7d3a", "0b5e6f9e%207d3a", "*********",
		} {
			lock := lease.Lock{ID: id, TS: time.Now()}
			if got := s.e.Standings(s.t.Context(), []lease.Lock{lock})[0]; got.Life != lease.None || got.Err != nil {
				s.t.Errorf("%q: %+v", id, got)
			}
			if got := s.e.Search(s.t.Context(), lock); got.Life != lease.None || got.Err != nil {
				s.t.Errorf("search %q: %+v", id, got)
			}
			if got, err := s.d.RunsByLock(s.t.Context(), id, time.Now().Add(-time.Hour), time.Time{}); len(got) != 0 || (err != nil) != (id == "") {
				s.t.Errorf("runs of %q: %v, %v", id, got, err)
			}
		}
		for _, ts := range []time.Time{{}, time.Date(9999, 12, 31, 23, 0, 0, 0, time.UTC)} {
			if got := s.e.Search(s.t.Context(), lease.Lock{ID: lockID, TS: ts}); got.Life != lease.None {
				s.t.Errorf("%v: %+v", ts, got)
			}
		}
		s.wantAsked()
		if got := s.e.Search(s.t.Context(), lease.Lock{ID: lockID[:8], TS: time.Now()}); got.Life != lease.Alive {
			s.t.Errorf("eight bytes: %+v", got)
		}
	})
}

func TestNotMoreThanTenLocksAreLookedForInOneCall(t *testing.T) {
	inBubble(t, func(s *stage) {
		// Those that cannot be looked for are not counted.
		got := s.e.Standings(s.t.Context(), append(slices.Repeat([]lease.Lock{{ID: "x", TS: time.Now()}}, 12), slices.Repeat([]lease.Lock{{ID: lockID, TS: time.Now()}}, 12)...))[12:]
		s.wantAsked(times(10, "list")...)
		for i, st := range got {
			if known := i < 10; known != (st.Life == lease.None) || known == (st.Err != nil) {
				s.t.Errorf("lock %d: %+v", i, st)
			}
		}
	})
}

func TestNoRunAmongTooManyIsNotNone(t *testing.T) {
	inBubble(t, func(s *stage) {
		page := 0
		title := "x"
		s.w.Net.Fault = func(*http.Request) sim.Fault {
			page++
			var b strings.Builder
			for i := range 100 {
				fmt.Fprintf(&b, `,{"id":%d,"status":"completed","display_title":%q}`, page*100+i, title)
			}
			f := sim.Fault{Status: 200, Body: `{"total_count":5000,"workflow_runs":[` + b.String()[1:] + `]}`}
			if page < 10 { // more is not listed, though there is more
				f.Header = http.Header{"Link": {fmt.Sprintf(`<%s/x?page=%d>; rel="next"`, simtest.GitHubURL, page+1)}}
			}
			return f
		}
		got := s.e.Search(s.t.Context(), lease.Lock{ID: lockID, TS: time.Now()})
		if got.Life != lease.Unknown || got.Err == nil || !strings.Contains(got.Err.Error(), "none of 1000") || page != 10 {
			s.t.Errorf("%+v after %d pages", got, page)
		}
		page = 0
		if _, err := s.d.RunsByLock(s.t.Context(), lockID, time.Now(), time.Now().Add(time.Hour)); dispatch.ClassOf(err) != dispatch.Transient || err == nil {
			s.t.Errorf("RunsByLock: %v", err)
		}
		page = 0
		if _, err := s.d.RunsByLock(s.t.Context(), lockID, time.Now(), time.Time{}); err == nil || page != 3 {
			s.t.Errorf("without an end: %v after %d pages", err, page)
		}
		page, title = 0, "triage "+lockID
		if got := s.e.Search(s.t.Context(), lease.Lock{ID: lockID, TS: time.Now()}); got.Life != lease.Unknown || len(got.Runs) != 1000 {
			s.t.Errorf("those that were found have ended, others may not have: %v, %d runs", got.Life, len(got.Runs))
		}
	})
}

func TestWhereNamesLackTheIDAnyRunMayBeTheLocks(t *testing.T) {
	inBubble(t, func(s *stage) {
		s.w.GitHub.AddWorkflow(simtest.WorkflowFile, "main", strings.Replace(simtest.Workflow, " ${{ inputs.poll_lock_id }}", "", 1))
		lock := lease.Lock{ID: lockID, TS: time.Now()}
		if err := s.d.Prepare(s.t.Context()); err != nil {
			s.t.Fatal(err)
		}
		if got := s.e.Search(s.t.Context(), lock); got.Life != lease.None {
			s.t.Errorf("there is no run at all: %+v", got)
		}
		s.start("a", lockID)
		if got := s.e.Search(s.t.Context(), lock); got.Life != lease.Unknown || got.Err == nil || !strings.Contains(got.Err.Error(), "run-name") {
			s.t.Errorf("%+v", got)
		}
	})
}

func TestAnAgentIsOnlyTakenFromWhereTheRunNameHasIt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ runName, want string }{
		"first":         {"${{ inputs.agent }} ${{ inputs.poll_lock_id }}", "triage"},
		"the event's":   {"${{github.event.inputs.agent}} for ${{ inputs.poll_lock_id }}", "triage"},
		"after a word":  {"Run ${{ inputs.agent }} ${{ inputs.poll_lock_id }}", ""},
		"after a key":   {"${{ inputs.work_item_key }} ${{ inputs.agent }} ${{ inputs.poll_lock_id }}", ""},
		"glued":         {"${{ inputs.agent }}-run ${{ inputs.poll_lock_id }}", ""},
		"another input": {"${{ inputs.role }} ${{ inputs.poll_lock_id }}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(s *stage) {
				s.w.GitHub.AddWorkflow(simtest.WorkflowFile, "main", strings.Replace(simtest.Workflow, "${{ inputs.agent }} ${{ inputs.poll_lock_id }}", c.runName, 1))
				if err := s.d.Prepare(s.t.Context()); err != nil {
					s.t.Fatal(err)
				}
				s.start("triage", lockID)
				got := s.e.Search(s.t.Context(), lease.Lock{ID: lockID, TS: time.Now()})
				if len(got.Runs) != 1 || got.Runs[0].Agent != c.want {
					s.t.Errorf("got %+v, want %q", got.Runs, c.want)
				}
			})
		})
	}
}

func TestWhatGitHubDoesNotAnswerIsUnknownAndNeverNone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault sim.Fault
		says  string
	}{
		"a 500":           {sim.Fault{Status: 500, Body: `{"message":"oops"}`}, "500"},
		"a 502 page":      {sim.Fault{Status: 502, Body: `<html>`}, "502"},
		"a 401":           {sim.Fault{Status: 401, Body: `{"message":"Bad credentials"}`}, "github-token"},
		"a 403":           {sim.Fault{Status: 403, Body: `{"message":"Resource not accessible by integration"}`}, "`actions: read`"},
		"a rate limit":    {sim.Fault{Status: 403, Header: http.Header{"X-Ratelimit-Remaining": {"0"}}, Body: `{"message":"API rate limit exceeded"}`}, "rate limit"},
		"a 429":           {sim.Fault{Status: 429, Header: http.Header{"Retry-After": {"3600"}}}, "rate limit"},
		"a moved repo":    {sim.Fault{Status: 301, Header: http.Header{"Location": {"https://api.github.com/repositories/1"}}}, "moved"},
		"no connection":   {sim.Fault{DropBefore: true}, "connection"},
		"null":            {sim.Fault{Status: 200, Body: `null`}, ""},
		"an empty object": {sim.Fault{Status: 200, Body: `{}`}, ""},
		"another run":     {sim.Fault{Status: 200, Body: `{"id":4711,"status":"completed"}`}, ""},
		"a page of HTML":  {sim.Fault{Status: 200, Body: `<html>`}, ""},
		"another form":    {sim.Fault{Status: 200, Body: `[]`}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(s *stage) {
				s.w.Net.Fault = func(*http.Request) sim.Fault { return c.fault }
				unnamed := lease.Lock{ID: lockID, TS: time.Now()}
				for _, got := range []lease.Standing{
					s.e.Standings(s.t.Context(), []lease.Lock{naming(17)})[0],
					s.e.Standings(s.t.Context(), []lease.Lock{naming(1, 2, 3, 4, 5, 6)})[0],
					s.e.Standings(s.t.Context(), []lease.Lock{unnamed})[0],
					s.e.Search(s.t.Context(), naming(18)),
				} {
					if got.Life != lease.Unknown || got.Err == nil || !strings.Contains(got.Err.Error(), c.says) {
						s.t.Errorf("%v, %v, want an error with %q", got.Life, got.Err, c.says)
					}
				}
			})
		})
	}
}

func TestAFaultOfTheRequestItselfEndsTheCallAndOneOfARunDoesNot(t *testing.T) {
	inBubble(t, func(s *stage) {
		var locks []lease.Lock
		for i := range 5 {
			locks = append(locks, naming(s.start("a", strconv.Itoa(i))))
		}
		bad := locks[1].Runs[0].ID
		s.w.Net.Fault = func(r *http.Request) (f sim.Fault) {
			if strings.HasSuffix(r.URL.Path, strconv.FormatInt(bad, 10)) {
				f.Status = http.StatusInternalServerError
			}
			return f
		}
		a, u := lease.Alive, lease.Unknown
		if diff := cmp.Diff([]lease.Life{a, u, a, a, a, u}, lives(s.e.Standings(s.t.Context(), append(locks, locks[1])))); diff != "" {
			s.t.Error(diff)
		}
		if n := len(s.asked()); n != 4+1+httpx.DefaultRetries {
			s.t.Errorf("%d requests", n)
		}
		time.Sleep(time.Minute)
		s.w.Net.Fault = nil
		six := append(slices.Clone(locks), naming(s.start("a", "5")))
		s.w.Net.Fault = func(r *http.Request) (f sim.Fault) {
			if id := r.URL.Path[len(r.URL.Path)-1]; id%2 == byte(bad%2) {
				f.Status = http.StatusInternalServerError
			}
			return f
		}
		got := lives(s.d.Evidence(time.Now).Standings(s.t.Context(), six[1:6]))
		if diff := cmp.Diff([]lease.Life{u, a, u, a, u}, got); diff != "" {
			s.t.Errorf("three failures, not in a row: %s", diff)
		}
		got = lives(s.d.Evidence(time.Now).Standings(s.t.Context(), append([]lease.Lock{six[1], six[2], six[3], six[5]}, six[4])))
		if diff := cmp.Diff([]lease.Life{u, a, u, u, a}, got); diff != "" {
			s.t.Errorf("two in a row: %s", diff)
		}
		s.asked()
		time.Sleep(time.Minute)
		s.w.Net.Fault = func(*http.Request) sim.Fault { return sim.Fault{Status: 500} }
		s.e.Standings(s.t.Context(), locks)
		if n := len(s.asked()); n != 3*(1+httpx.DefaultRetries) {
			s.t.Errorf("an outage costs %d requests", n)
		}
		s.w.Net.Fault = nil
		s.w.GitHub.Set(func(g *sim.GitHubSwitches) { g.RunsForbidden = true })
		for i, st := range s.e.Standings(s.t.Context(), append(locks, lease.Lock{ID: lockID, TS: time.Now()})) {
			if st.Life != u || dispatch.ClassOf(st.Err) != dispatch.Fatal {
				s.t.Errorf("lock %d without the right: %+v", i, st)
			}
		}
		s.wantAsked("run")
		ctx, cancel := context.WithCancel(s.t.Context())
		cancel()
		if got := s.e.Standings(ctx, locks); got[0].Life != u || got[0].Err == nil {
			s.t.Errorf("after the end: %+v", got[0])
		}
		s.wantAsked()
	})
}
