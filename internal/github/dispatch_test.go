package github_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fullsend/poll-action/internal/dispatch"
	"github.com/fullsend/poll-action/internal/github"
	"github.com/fullsend/poll-action/internal/httpx"
)

type answers = []func(*fake, post) (*http.Response, error)

func TestARunIsScheduledAndItsIDComesWithTheAnswer(t *testing.T) {
	t.Parallel()
	f := &fake{answers: answers{details(999)}}
	d, log := newDispatcher(t, f, nil)
	if err := d.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := d.Dispatch(t.Context(), order("triage"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(dispatch.Receipt{RunID: 999, RunURL: "https://ghes.test/acme/app/actions/runs/999"}, got); diff != "" {
		t.Error(diff)
	}
	want := []string{
		"GET /api/v3/repos/acme/app/contents/.github/workflows/agent.yml",
		"POST /api/v3/repos/acme/app/actions/workflows/agent.yml/dispatches",
	}
	if diff := cmp.Diff(want, f.asked); diff != "" {
		t.Error(diff)
	}
	p := f.posts[0]
	if p.Ref != "main" || p.ReturnRunDetails == nil || !*p.ReturnRunDetails || len(p.Inputs) != len(github.InputNames()) {
		t.Errorf("posted %+v", p)
	}
	if log.Len() != 0 {
		t.Errorf("log: %s", log)
	}
}

func TestADispatchThatNobodyPreparedPreparesItself(t *testing.T) {
	t.Parallel()
	f := &fake{answers: answers{details(1), details(2), details(3)}}
	d, _ := newDispatcher(t, f, nil)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if _, err := d.Dispatch(t.Context(), order("triage")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if len(f.asked) != 4 {
		t.Errorf("asked %q, want one file and three posts", f.asked)
	}
}

func TestAnEmptyRefMeansTheDefaultBranch(t *testing.T) {
	t.Parallel()
	f := &fake{answers: answers{details(1)}}
	d, _ := newDispatcher(t, f, func(o *github.Options) { o.Ref = "" })
	if _, err := d.Dispatch(t.Context(), order("triage")); err != nil {
		t.Fatal(err)
	}
	if f.posts[0].Ref != "trunk" {
		t.Errorf("posted to %q", f.posts[0].Ref)
	}
}

func TestAServerThatDoesNotKnowRunDetailsIsAskedOnceWithout(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status int
		body   string
	}{
		"400 with the field in the message": {400, `{"message":"Invalid request.\n\n\"return_run_details\" is not a permitted key."}`},
		"422 with the field in the errors":  {422, `{"message":"Validation failed","errors":[{"field":"return_run_details"}]}`},
		"400 that is no JSON":               {400, `unknown key return_run_details`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				accepted := says(204, "")
				f := &fake{answers: answers{says(c.status, c.body), runs(7, 2*time.Second, accepted), runs(8, 0, accepted)}}
				d, _ := newDispatcher(t, f, nil)
				for i, want := range []int64{7, 8} {
					o := order("triage")
					o.Lock.ID = fmt.Sprintf("%s-%d", lockID, i)
					got, err := d.Dispatch(t.Context(), o)
					if err != nil || got.RunID != want {
						t.Errorf("got %+v, %v, want run %d", got, err, want)
					}
				}
				var asked []bool
				for _, p := range f.posts {
					asked = append(asked, p.ReturnRunDetails != nil)
				}
				if diff := cmp.Diff([]bool{true, false, false}, asked); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

func TestALostAnswerIsSettledByLookingForTheRun(t *testing.T) {
	t.Parallel()
	reset := &net.OpError{Op: "read", Err: errors.New("connection reset by peer")}
	for name, then := range map[string]func(*fake, post) (*http.Response, error){
		"a lost connection":              broken(reset),
		"a 500":                          says(500, `{"message":"oops"}`),
		"a 502 page":                     says(502, "<html><script>alert(1)</script></html>"),
		"a 503":                          says(503, ""),
		"a 503 with Retry-After":         says(503, "", "Retry-After", "1"),
		"a 504":                          says(504, ""),
		"a 408":                          says(408, ""),
		"a 202":                          says(202, "{}"),
		"a 204":                          says(204, ""),
		"a 200 that is cut off":          says(200, `{"workflow_run_id":`),
		"a 200 without an id":            says(200, `{}`),
		"a 200 with an id that is text":  says(200, `{"workflow_run_id":"x"}`),
		"a 200 with null":                says(200, `null`),
		"a 200 with a page of HTML":      says(200, `<html>`),
		"a time-out inside the base":     broken(context.DeadlineExceeded),
		"an answer that never stops":     says(200, strings.Repeat(" ", 11<<20)),
		"a 200 with an id of zero":       says(200, `{"workflow_run_id":0}`),
		"a 200 with a negative id":       says(200, `{"workflow_run_id":-4}`),
		"a 200 with an id beyond int64":  says(200, `{"workflow_run_id":99999999999999999999}`),
		"a 200 with a fraction as an id": says(200, `{"workflow_run_id":1.5}`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := &fake{
					runs:    []run{{41, "triage some-other-lock", time.Now()}, {42, "fix " + lockID, time.Now()}},
					answers: answers{runs(43, 4*time.Second, then)},
				}
				d, _ := newDispatcher(t, f, nil)
				got, err := d.Dispatch(t.Context(), order("triage"))
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(dispatch.Receipt{RunID: 43, RunURL: "https://ghes.test/acme/app/actions/runs/43"}, got); diff != "" {
					t.Error(diff)
				}
				if len(f.posts) != 1 {
					t.Errorf("posted %d times", len(f.posts))
				}
			})
		})
	}
}

func TestWhatStaysOpenIsUnknownAndNeverPostedAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer func(*fake, post) (*http.Response, error)
		list   func(*http.Request) (*http.Response, error)
		says   string
	}{
		"no run appears":             {says(502, "<html>"), nil, "502"},
		"a 204 whose run is missing": {says(204, ""), nil, "without naming the run"},
		"the run of another agent": {runs(1, 0, func(f *fake, p post) (*http.Response, error) {
			f.runs[0].title = "triage-2 " + lockID
			return reply(500, "")
		}), nil, "500"},
		"the list fails":             {says(500, ""), func(*http.Request) (*http.Response, error) { return reply(500, `{"message":"no"}`) }, "500"},
		"the list is forbidden":      {says(500, ""), func(*http.Request) (*http.Response, error) { return reply(403, `{"message":"no"}`) }, "403"},
		"the list is nonsense":       {says(500, ""), func(*http.Request) (*http.Response, error) { return reply(200, `{"workflow_runs":[null,{}]}`) }, "500"},
		"the list is a page of HTML": {says(500, ""), func(*http.Request) (*http.Response, error) { return reply(200, `<html>`) }, "500"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := &fake{answers: answers{c.answer}, list: c.list}
				d, _ := newDispatcher(t, f, nil)
				start := time.Now()
				_, err := d.Dispatch(t.Context(), order("triage"))
				if dispatch.ClassOf(err) != dispatch.Unknown {
					t.Fatalf("got %v (%v), want unknown", err, dispatch.ClassOf(err))
				}
				for _, want := range []string{lockID, "triage:comment-501", c.says} {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%q lacks %q", err, want)
					}
				}
				if strings.ContainsAny(err.Error(), "\n<") {
					t.Errorf("not one clean line: %q", err)
				}
				if len(f.posts) != 1 {
					t.Errorf("posted %d times", len(f.posts))
				}
				if took := time.Since(start); took > 2*time.Minute {
					t.Errorf("looked for %v", took)
				}
			})
		})
	}
}

func TestTwoHarnessesUnderOneLockAreToldApart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{answers: answers{runs(1, 0, says(502, "")), runs(2, 0, says(502, "")), runs(3, 0, says(502, ""))}}
		d, _ := newDispatcher(t, f, nil)
		// The second name contains the first; the third order is a second event
		// for the first agent.
		for i, agent := range []string{"triage", "re-triage", "triage"} {
			got, err := d.Dispatch(t.Context(), order(agent))
			if err != nil || got.RunID != int64(i+1) {
				t.Errorf("%s: got %+v, %v, want run %d", agent, got, err, i+1)
			}
		}
	})
}

func TestARunWhoseIDCameWithAnAnswerIsNobodyElses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{answers: answers{runs(1, 0, details(1)), says(502, "")}}
		d, _ := newDispatcher(t, f, nil)
		if _, err := d.Dispatch(t.Context(), order("triage")); err != nil {
			t.Fatal(err)
		}
		if got, err := d.Dispatch(t.Context(), order("triage")); dispatch.ClassOf(err) != dispatch.Unknown {
			t.Errorf("got %+v, %v: the first order's run was taken for the second's", got, err)
		}
	})
}

func TestTheLookStartsTwoMinutesBackOnGitHubsClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ahead := time.Hour
		var created, ev string
		f := &fake{answers: answers{says(500, "")}}
		f.content = func() (*http.Response, error) {
			f.content = nil
			return reply(503, "", "Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat))
		}
		f.list = func(r *http.Request) (*http.Response, error) {
			created, ev = r.URL.Query().Get("created"), r.URL.Query().Get("event")
			return reply(200, `{"workflow_runs":[]}`)
		}
		d, _ := newDispatcher(t, f, nil)
		if err := d.Prepare(t.Context()); err != nil {
			t.Fatal(err)
		}
		posted := time.Now()
		if _, err := d.Dispatch(t.Context(), order("triage")); dispatch.ClassOf(err) != dispatch.Unknown {
			t.Fatal(err)
		}
		at, err := time.Parse(">="+time.RFC3339, created)
		if err != nil || ev != "workflow_dispatch" {
			t.Fatalf("created=%q event=%q: %v", created, ev, err)
		}
		if off := at.Sub(posted.Add(ahead - 2*time.Minute)).Abs(); off > 2*time.Second {
			t.Errorf("the look starts at %v, off by %v", at, off)
		}
	})
}

func TestRunsAreFoundOnLaterPagesAndTheLookIsBounded(t *testing.T) {
	t.Parallel()
	f := &fake{}
	f.list = func(r *http.Request) (*http.Response, error) {
		page := r.URL.Query().Get("page")
		next := `<https://ghes.test/api/v3/repos/acme/app/actions/workflows/agent.yml/runs?page=` + strconv.Itoa(len(page)+2) + `>; rel="next"`
		if page == "2" {
			return reply(200, `{"workflow_runs":[{"id":5,"display_title":"triage `+lockID+`","status":"completed","conclusion":"failure","html_url":"javascript:alert(1)"}]}`, "Link", next)
		}
		return reply(200, `{"workflow_runs":[{"id":4,"display_title":"x"}]}`, "Link", next)
	}
	d, _ := newDispatcher(t, f, nil)
	got, err := d.RunsByLock(t.Context(), lockID, time.Now(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	want := []github.Run{{ID: 5, URL: "https://ghes.test/acme/app/actions/runs/5", Title: "triage " + lockID, Completed: true, Conclusion: "failure"}}
	if diff := cmp.Diff(want, got[:1]); diff != "" {
		t.Error(diff)
	}
	if f.listed != 3 {
		t.Errorf("%d pages read, want 3", f.listed)
	}
	if _, err := d.RunsByLock(t.Context(), "", time.Now(), time.Time{}); err == nil {
		t.Error("an empty lock id finds every run")
	}
}

func TestAPostThatWasNeverSentIsTransientAndNotLookedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{answers: answers{broken(&net.OpError{Op: "dial", Err: errors.New("connection refused")})}}
		d, _ := newDispatcher(t, f, nil)
		_, err := d.Dispatch(t.Context(), order("triage"))
		if !errors.Is(err, httpx.ErrNotSent) || dispatch.ClassOf(err) != dispatch.Transient || f.listed != 0 {
			t.Errorf("got %v (%v), looked %d times", err, dispatch.ClassOf(err), f.listed)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = d.Dispatch(ctx, order("triage"))
		if !errors.Is(err, httpx.ErrNotSent) || !errors.Is(err, context.Canceled) || len(f.posts) != 1 {
			t.Errorf("cancelled before: got %v after %d posts", err, len(f.posts))
		}
	})
}

func TestACancelledLookLeavesTheOrderUnknown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		f := &fake{answers: answers{func(*fake, post) (*http.Response, error) { cancel(); return nil, context.Canceled }}}
		d, _ := newDispatcher(t, f, nil)
		_, err := d.Dispatch(ctx, order("triage"))
		if dispatch.ClassOf(err) != dispatch.Unknown {
			t.Errorf("got %v (%v)", err, dispatch.ClassOf(err))
		}
	})
}

func TestRefusalsNameCauseAndCure(t *testing.T) {
	t.Parallel()
	msg := func(s string) string { return fmt.Sprintf(`{"message":%q,"documentation_url":"https://docs.test"}`, s) }
	for name, c := range map[string]struct {
		answer func(*fake, post) (*http.Response, error)
		class  dispatch.Class
		says   []string
	}{
		"401": {says(401, msg("Bad credentials")), dispatch.Fatal, []string{"401", "Bad credentials", "github-token"}},
		"403 for the token": {
			says(403, msg("Resource not accessible by integration")), dispatch.Fatal,
			[]string{"actions: write", "permissions: {actions: write, contents: read}"},
		},
		"403 for a personal token": {says(403, msg("Resource not accessible by personal access token")), dispatch.Fatal, []string{"actions: write"}},
		"403 for an archived repository": {
			says(403, msg("Repository was archived so is read-only.")), dispatch.Fatal, []string{"archived"},
		},
		"403, primary limit": {
			says(403, msg("API rate limit exceeded"), "X-RateLimit-Limit", "1000", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "4102444800"),
			dispatch.Transient,
			[]string{"primary rate limit", "1000", "2100-01-01T00:00:00Z"},
		},
		"403, secondary limit": {
			says(403, `{"message":"You have exceeded a secondary rate limit","documentation_url":"https://docs.github.com/rest/overview/rate-limits-for-the-rest-api#about-secondary-rate-limits"}`, "Retry-After", "60"),
			dispatch.Transient,
			[]string{"secondary rate limit", "it ends in 1m0s"},
		},
		"429, primary limit": {
			says(429, msg("API rate limit exceeded"), "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "4102444800"),
			dispatch.Transient,
			[]string{"primary rate limit", "2100-01-01T00:00:00Z"},
		},
		"429 with Retry-After": {says(429, "", "Retry-After", "60"), dispatch.Transient, []string{"secondary rate limit", "it ends in 1m0s"}},
		"429 as a page":        {says(429, "<html>slow down</html>"), dispatch.Transient, []string{"rate limit"}},
		"404": {
			says(404, msg("Not Found")), dispatch.Fatal,
			[]string{"default branch", "no repository acme/app", "the token cannot see it", "not a plain file name"},
		},
		"422 without a trigger": {
			says(422, msg("Workflow does not have 'workflow_dispatch' trigger")), dispatch.Fatal,
			[]string{".github/workflows/agent.yml at main of acme/app", "workflow_dispatch", "`on:`"},
		},
		"422 without the ref": {says(422, msg("No ref found for: main")), dispatch.Fatal, []string{"gha_dispatch.ref", "main"}},
		"422 disabled": {
			says(422, msg("Cannot trigger a 'workflow_dispatch' on a disabled workflow")), dispatch.Fatal,
			[]string{"gh workflow enable agent.yml --repo acme/app"},
		},
		"422 unexpected inputs": {says(422, msg(`Unexpected inputs provided: ["role"]`)), dispatch.Fatal, []string{"role", `"agent"`, `"dispatch_key"`}},
		"422 required input":    {says(422, msg("Required input 'env' not provided")), dispatch.Fatal, []string{"env", "required: false"}},
		"422 choice":            {says(422, msg("Provided value 'x' for input 'agent' not in the list of allowed values")), dispatch.Fatal, []string{"agent", "type: string"}},
		"422 too large":         {says(422, msg("inputs are too large.")), dispatch.Permanent, []string{"too large"}},
		"422 something else":    {says(422, msg("Something new")), dispatch.Transient, []string{"Something new"}},
		"422 as a page":         {says(422, "<html>x</html>"), dispatch.Transient, []string{"a page of HTML"}},
		"400 something else":    {says(400, msg("Problems parsing JSON")), dispatch.Transient, []string{"400", "Problems parsing JSON"}},
		"a renamed repository":  {says(307, "", "Location", "https://ghes.test/api/v3/repositories/1/dispatches"), dispatch.Fatal, []string{"renamed"}},
		"another server":        {says(302, "", "Location", "https://login.test/"), dispatch.Fatal, []string{"API URL"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := &fake{answers: answers{c.answer}}
				d, _ := newDispatcher(t, f, nil)
				_, err := d.Dispatch(t.Context(), order("triage"))
				if err == nil || dispatch.ClassOf(err) != c.class {
					t.Fatalf("got %v (%v), want %v", err, dispatch.ClassOf(err), c.class)
				}
				for _, want := range c.says {
					if !strings.Contains(err.Error(), want) && !strings.Contains(err.Error(), strings.Trim(fmt.Sprintf("%q", want), `"`)) {
						t.Errorf("%q lacks %q", err, want)
					}
				}
				if strings.ContainsAny(err.Error(), "\r\n<") {
					t.Errorf("not one clean line: %q", err)
				}
				if len(f.posts) != 1 || f.listed != 0 {
					t.Errorf("%d posts, %d looks, want 1 and 0", len(f.posts), f.listed)
				}
			})
		})
	}
}

func TestAnErrorTextFromTheServerIsQuotedAndCut(t *testing.T) {
	t.Parallel()
	f := &fake{answers: answers{says(422, `{"message":"`+strings.Repeat("x", 5000)+`\n::error::y"}`)}}
	d, _ := newDispatcher(t, f, nil)
	_, err := d.Dispatch(t.Context(), order("triage"))
	if err == nil || len(err.Error()) > 1000 || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v", err)
	}
}

func TestAnAcceptedDispatchThatCannotBeLookedForIsAReceiptWithoutARun(t *testing.T) {
	t.Parallel()
	f := &fake{
		workflow: "on: {workflow_dispatch: {inputs: {agent: {}}}}",
		answers:  answers{says(204, "")},
	}
	d, log := newDispatcher(t, f, nil)
	got, err := d.Dispatch(t.Context(), order("triage"))
	if err != nil || got != (dispatch.Receipt{}) || f.listed != 0 {
		t.Errorf("got %+v, %v after %d looks", got, err, f.listed)
	}
	if !strings.Contains(log.String(), "run-name") {
		t.Errorf("log: %s", log)
	}
}

func TestOptionsThatCannotWorkAreRefused(t *testing.T) {
	t.Parallel()
	tr, err := httpx.New(httpx.Options{Origin: "https://ghes.test", Now: time.Now, Base: &fake{}})
	if err != nil {
		t.Fatal(err)
	}
	good := github.Options{APIURL: api, Repo: "acme/app", Workflow: "agent.yml", HTTP: tr}
	for name, change := range map[string]func(*github.Options){
		"no API URL":                 func(o *github.Options) { o.APIURL = "" },
		"an API URL with a password": func(o *github.Options) { o.APIURL = "https://u:p@ghes.test" },
		"no repository":              func(o *github.Options) { o.Repo = "" },
		"a repository without owner": func(o *github.Options) { o.Repo = "app" },
		"a repository of three":      func(o *github.Options) { o.Repo = "a/b/c" },
		"a way out of the path":      func(o *github.Options) { o.Repo = "../app" },
		"no workflow":                func(o *github.Options) { o.Workflow = "" },
		"a workflow that is a dir":   func(o *github.Options) { o.Workflow = "x/" },
		"only an extension":          func(o *github.Options) { o.Workflow = ".yml" },
		"a workflow with a query":    func(o *github.Options) { o.Workflow = "a?b.yml" },
		"a ref with a blank":         func(o *github.Options) { o.Ref = "a b" },
		"no transport":               func(o *github.Options) { o.HTTP = nil },
	} {
		o := good
		change(&o)
		if _, err := github.NewDispatcher(o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	o := good
	o.Workflow = ".github/workflows/agent.yml"
	if d, err := github.NewDispatcher(o); err != nil || d.Name() != "gha-dispatch" {
		t.Errorf("a path before the file name: %v", err)
	}
}
