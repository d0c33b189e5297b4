package github_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fullsend/poll-action/internal/dispatch"
	"github.com/fullsend/poll-action/internal/github"
	"github.com/fullsend/poll-action/internal/httpx"
	"github.com/fullsend/poll-action/internal/sim"
	"github.com/fullsend/poll-action/internal/sim/simtest"
)

func TestACancelIsAcceptedAndOneOfACompletedRunIsDoneAlready(t *testing.T) {
	inBubble(t, func(s *stage) {
		s.w.GitHub.Set(func(g *sim.GitHubSwitches) { g.CancelTakes = time.Minute })
		id := s.start("a", lockID)
		for range 2 {
			if err := s.d.CancelRun(s.t.Context(), id, false); err != nil {
				s.t.Error(err)
			}
		}
		if run, found, err := s.d.GetRun(s.t.Context(), id); err != nil || !found || run.Completed {
			s.t.Errorf("right after: %+v, %v, %v", run, found, err)
		}
		time.Sleep(time.Minute)
		run, found, err := s.d.GetRun(s.t.Context(), id)
		want := github.Run{
			ID: id, URL: fmt.Sprintf("https://github.com/%s/actions/runs/%d", simtest.Repo, id), Title: "a " + lockID,
			Completed: true, Conclusion: "cancelled", CreatedAt: run.CreatedAt,
		}
		if diff := cmp.Diff(want, run); diff != "" || !found || err != nil || run.CreatedAt.IsZero() {
			s.t.Errorf("%v, %v: %s", found, err, diff)
		}
		if err := s.d.CancelRun(s.t.Context(), id, false); err != nil {
			s.t.Errorf("completed: %v", err)
		}
		s.wantAsked("cancel", "cancel", "run", "run", "cancel")
	})
}

func TestARunThatIgnoresACancelIsCancelledByForce(t *testing.T) {
	inBubble(t, func(s *stage) {
		s.w.GitHub.Set(func(g *sim.GitHubSwitches) { g.CancelIgnored = true })
		id := s.start("a", lockID)
		for _, force := range []bool{false, true, true} {
			if err := s.d.CancelRun(s.t.Context(), id, force); err != nil {
				s.t.Error(err)
			}
			if run, _, err := s.d.GetRun(s.t.Context(), id); err != nil || run.Completed != force {
				s.t.Errorf("force %v: %+v, %v", force, run, err)
			}
		}
		s.wantAsked("cancel", "run", "force-cancel", "run", "force-cancel", "run")
	})
}

func TestARunThatIsNotThereCannotBeCancelled(t *testing.T) {
	inBubble(t, func(s *stage) {
		id := s.start("a", lockID)
		s.w.GitHub.DeleteRun(id)
		for _, id := range []int64{id, 5} {
			for _, force := range []bool{false, true} {
				if err := s.d.CancelRun(s.t.Context(), id, force); !errors.Is(err, github.ErrNoRun) || !strings.Contains(err.Error(), strconv.FormatInt(id, 10)) {
					s.t.Errorf("cancel of %d: %v", id, err)
				}
			}
			if _, err := s.d.Jobs(s.t.Context(), id); !errors.Is(err, github.ErrNoRun) {
				s.t.Errorf("jobs of %d: %v", id, err)
			}
			if run, found, err := s.d.GetRun(s.t.Context(), id); found || err != nil {
				s.t.Errorf("run %d: %+v, %v", id, run, err)
			}
		}
		s.asked()
		for _, id := range []int64{0, -1} { // no request can be made of them
			if err := s.d.CancelRun(s.t.Context(), id, false); !errors.Is(err, github.ErrNoRun) {
				s.t.Error(err)
			}
			if _, err := s.d.Jobs(s.t.Context(), id); !errors.Is(err, github.ErrNoRun) {
				s.t.Error(err)
			}
			if _, found, err := s.d.GetRun(s.t.Context(), id); found || err != nil {
				s.t.Error(err)
			}
		}
		s.wantAsked()
	})
}

func TestACancelWithoutTheRightNamesIt(t *testing.T) {
	inBubble(t, func(s *stage) {
		id := s.start("a", lockID)
		s.w.GitHub.Set(func(g *sim.GitHubSwitches) { g.CancelForbidden = true })
		for _, force := range []bool{false, true} {
			err := s.d.CancelRun(s.t.Context(), id, force)
			if dispatch.ClassOf(err) != dispatch.Fatal || errors.Is(err, github.ErrNoRun) || !strings.Contains(err.Error(), "`actions: write`") {
				s.t.Error(err)
			}
		}
		if run, _, err := s.d.GetRun(s.t.Context(), id); err != nil || run.Completed {
			s.t.Errorf("%+v, %v", run, err)
		}
	})
}

func TestACancelIsRepeatedWhenGitHubHasAnOutage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault sim.Fault
		class dispatch.Class
		tries int
	}{
		"a 500":         {sim.Fault{Status: 500}, dispatch.Transient, 1 + httpx.DefaultRetries},
		"a lost answer": {sim.Fault{DropAfter: true}, dispatch.Transient, 1 + httpx.DefaultRetries},
		"a 401":         {sim.Fault{Status: 401, Body: `{"message":"Bad credentials"}`}, dispatch.Fatal, 1},
		"a 422":         {sim.Fault{Status: 422, Body: `{"message":"no"}`}, dispatch.Transient, 1},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(s *stage) {
				id := s.start("a", lockID)
				s.w.Net.Fault = func(*http.Request) sim.Fault { return c.fault }
				err := s.d.CancelRun(s.t.Context(), id, false)
				if !c.fault.DropAfter && (err == nil || dispatch.ClassOf(err) != c.class) || c.fault.DropAfter && err == nil {
					s.t.Errorf("%v", err)
				}
				if n := len(s.asked()); n != c.tries {
					s.t.Errorf("%d requests, want %d", n, c.tries)
				}
				faults := 0
				s.w.Net.Fault = func(*http.Request) sim.Fault {
					if faults++; faults == 1 {
						return c.fault
					}
					return sim.Fault{}
				}
				if err := s.d.CancelRun(s.t.Context(), id, false); (err == nil) != (c.tries > 1) {
					s.t.Errorf("once: %v", err)
				}
			})
		})
	}
}

func TestACancelAfterTheEndIsNotSent(t *testing.T) {
	inBubble(t, func(s *stage) {
		id := s.start("a", lockID)
		ctx, cancel := context.WithCancel(s.t.Context())
		cancel()
		if err := s.d.CancelRun(ctx, id, false); err == nil {
			s.t.Error("no error")
		}
		s.wantAsked()
	})
}

func TestAnAnswerThatIsNotAboutTheRunIsAnError(t *testing.T) {
	inBubble(t, func(s *stage) {
		id := s.start("a", lockID)
		for _, body := range []string{`null`, `{}`, `{"id":1,"status":"completed"}`, fmt.Sprintf(`{"id":%d}`, id), `[]`, `<html>`} {
			s.w.Net.Fault = func(*http.Request) sim.Fault { return sim.Fault{Status: 200, Body: body} }
			if run, found, err := s.d.GetRun(s.t.Context(), id); err == nil || found {
				s.t.Errorf("%s: %+v", body, run)
			}
			if jobs, err := s.d.Jobs(s.t.Context(), id); err == nil && !strings.HasPrefix(body, `{"id`) {
				s.t.Errorf("%s: %+v", body, jobs)
			}
		}
	})
}

func TestAllJobsOfARunAreListedWithTheirRunners(t *testing.T) {
	inBubble(t, func(s *stage) {
		id := s.start("a", lockID)
		want := []github.Job{
			{Name: "agent", Status: "in_progress", Runner: "GitHub Actions 7"},
			{Name: "keep / lock (1, \"x\")", Status: "queued"},
			{Name: "setup", Status: "completed", Conclusion: "success", Runner: "GitHub Actions 6", Completed: true},
		}
		for i := range 200 {
			want = append(want, github.Job{Name: fmt.Sprintf("m (%d)", i), Status: "waiting"})
		}
		var jobs []sim.Job
		for _, j := range want {
			jobs = append(jobs, sim.Job{Name: j.Name, Status: j.Status, Conclusion: j.Conclusion, Runner: j.Runner})
		}
		s.w.GitHub.SetJobs(id, jobs...)
		got, err := s.d.Jobs(s.t.Context(), id)
		if err != nil {
			s.t.Fatal(err)
		}
		var ids []int64
		for i, j := range got {
			ids = append(ids, j.ID)
			got[i].ID = 0
		}
		if diff := cmp.Diff(want, got); diff != "" {
			s.t.Error(diff)
		}
		slices.Sort(ids)
		if len(slices.Compact(ids)) != len(want) || ids[0] <= 0 {
			s.t.Error("the ids are not distinct")
		}
		if q := s.w.Net.Log()[0].RawQuery; q != "filter=latest&per_page=100" {
			s.t.Errorf("asked %s", q)
		}
		s.wantAsked("jobs", "jobs", "jobs")
	})
}

func TestMoreJobsThanAreReadAreAnErrorAndNotAShortList(t *testing.T) {
	inBubble(t, func(s *stage) {
		pages, page := 10, 0
		s.w.Net.Fault = func(*http.Request) sim.Fault {
			page++
			f := sim.Fault{Status: 200, Body: `{"total_count":1,"jobs":[null,{},{"id":` + strconv.Itoa(page) + `}]}`}
			if page < pages {
				f.Header = http.Header{"Link": {fmt.Sprintf(`<%s/x?page=%d>; rel="next"`, simtest.GitHubURL, page+1)}}
			}
			return f
		}
		if jobs, err := s.d.Jobs(s.t.Context(), 7); err != nil || len(jobs) != 10 {
			s.t.Errorf("%d jobs, %v", len(jobs), err)
		}
		pages, page = 11, 0
		if jobs, err := s.d.Jobs(s.t.Context(), 7); err == nil || jobs != nil || page != 10 {
			s.t.Errorf("%d jobs, %v, after %d pages", len(jobs), err, page)
		}
	})
}

func TestJobsWithoutTheRightNameWhatTheAgentsJobNeeds(t *testing.T) {
	inBubble(t, func(s *stage) {
		id := s.start("a", lockID)
		s.w.GitHub.Set(func(g *sim.GitHubSwitches) { g.RunsForbidden = true })
		_, err := s.d.Jobs(s.t.Context(), id)
		if dispatch.ClassOf(err) != dispatch.Fatal || !strings.Contains(err.Error(), "permissions: {actions: read}") || strings.Contains(err.Error(), "write") {
			s.t.Error(err)
		}
		s.w.Net.Fault = func(*http.Request) sim.Fault { return sim.Fault{Status: 503} }
		if _, err := s.d.Jobs(s.t.Context(), id); dispatch.ClassOf(err) != dispatch.Transient {
			s.t.Error(err)
		}
	})
}
