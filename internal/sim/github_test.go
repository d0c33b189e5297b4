package sim_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fullsend/poll-action/internal/sim"
	"github.com/fullsend/poll-action/internal/sim/simtest"
)

const (
	repo       = simtest.GitHubURL + "/repos/" + simtest.Repo
	agentFile  = repo + "/actions/workflows/" + simtest.WorkflowFile
	dispatches = agentFile + "/dispatches"
)

const picky = `
name: Picky
"on":
  push:
  workflow_dispatch:
    inputs:
      level: {type: choice, options: [low, high], default: low}
      debug: {type: boolean, default: false}
      note: {required: true}
`

func TestADispatchWithDetailsNamesItsRun(t *testing.T) {
	t.Parallel()
	w := still(t)
	var seen sim.Run
	w.GitHub.OnDispatch(func(r sim.Run) {
		w.GitHub.Start(r.ID) // the observer may act on the run
		seen = r
	})
	text := status(t, w, http.MethodPost, dispatches,
		`{"ref":"main","inputs":{"agent":"triage","poll_lock_id":"L-1"},"return_run_details":true}`, http.StatusOK)
	got := parse[struct {
		ID  int64  `json:"workflow_run_id"`
		URL string `json:"run_url"`
	}](t, text)
	runs := w.GitHub.Runs()
	if len(runs) != 1 || runs[0].ID != got.ID || seen.ID != got.ID || runs[0].DisplayTitle != "triage L-1" || runs[0].Status != "in_progress" {
		t.Fatalf("answer %s, observed %+v, runs %+v", text, seen, runs)
	}
	if run := status(t, w, http.MethodGet, got.URL, "", http.StatusOK); !strings.Contains(run, `"display_title":"triage L-1"`) {
		t.Errorf("run %s", run)
	}
	if jobs := status(t, w, http.MethodGet, got.URL+"/jobs", "", http.StatusOK); !strings.Contains(jobs, `"status":"in_progress"`) {
		t.Errorf("jobs %s", jobs)
	}
}

func TestADispatchWithoutDetailsIsAnsweredWithNothing(t *testing.T) {
	t.Parallel()
	w := still(t)
	if text := status(t, w, http.MethodPost, dispatches, `{"ref":"refs/heads/main","inputs":{"agent":"a"}}`, http.StatusNoContent); text != "" {
		t.Errorf("body %s", text)
	}
	w.GitHub.Set(func(s *sim.GitHubSwitches) { s.Always204 = true })
	status(t, w, http.MethodPost, dispatches, `{"ref":"main","inputs":{"agent":"a"},"return_run_details":true}`, http.StatusNoContent)
	w.GitHub.Set(func(s *sim.GitHubSwitches) { s.NoRunDetails = true })
	text := status(t, w, http.MethodPost, dispatches, `{"ref":"main","inputs":{"agent":"a"},"return_run_details":true}`, http.StatusBadRequest)
	if !strings.Contains(text, "return_run_details") {
		t.Errorf("the refusal does not name the member: %s", text)
	}
	if n := len(w.GitHub.Runs()); n != 2 {
		t.Errorf("%d runs", n)
	}
}

func TestDispatchRefusesWhatGitHubRefuses(t *testing.T) {
	t.Parallel()
	w := still(t)
	w.GitHub.AddWorkflow("picky.yml", "main", picky)
	w.GitHub.AddWorkflow("push.yml", "main", "on: push\n")
	w.GitHub.AddWorkflow("list.yml", "main", "on: [push, workflow_dispatch]\n")
	w.GitHub.AddWorkflow("topic-only.yml", "topic", "on: workflow_dispatch\n")
	w.GitHub.AddWorkflow("off.yml", "main", "on: workflow_dispatch\n")
	w.GitHub.SetState("off.yml", "disabled_manually")
	var extra strings.Builder
	for i := range 26 {
		fmt.Fprintf(&extra, `,"i%d":"x"`, i)
	}
	many := extra.String()
	for name, c := range map[string]struct {
		file, body string
		status     int
		message    string
	}{
		"an unknown file":         {"none.yml", `{"ref":"main"}`, 404, "Not Found"},
		"a file on another ref":   {"topic-only.yml", `{"ref":"topic"}`, 404, "Not Found"},
		"an unknown ref":          {"list.yml", `{"ref":"gone"}`, 422, "No ref found for: gone"},
		"no ref":                  {"list.yml", `{}`, 422, "ref"},
		"no trigger":              {"push.yml", `{"ref":"main"}`, 422, "Workflow does not have 'workflow_dispatch' trigger"},
		"no file at the ref":      {"list.yml", `{"ref":"topic"}`, 422, "Workflow does not have 'workflow_dispatch' trigger"},
		"a disabled workflow":     {"off.yml", `{"ref":"main"}`, 422, "Cannot trigger a 'workflow_dispatch' on a disabled workflow"},
		"an undeclared input":     {"picky.yml", `{"ref":"main","inputs":{"note":"n","x":"1"}}`, 422, `Unexpected inputs provided: ["x"]`},
		"a missing input":         {"picky.yml", `{"ref":"main","inputs":{}}`, 422, "Required input 'note' not provided"},
		"a value that is not one": {"picky.yml", `{"ref":"main","inputs":{"note":"n","level":"mid"}}`, 422, "Provided value 'mid' for input 'level' not in the list of allowed values"},
		"an odd boolean":          {"picky.yml", `{"ref":"main","inputs":{"note":"n","debug":""}}`, 422, "Provided value '' for input 'debug' not in the list of allowed values"},
		"a JSON boolean":          {"picky.yml", `{"ref":"main","inputs":{"note":"n","debug":true}}`, 422, "Invalid value for input 'debug'"},
		"too many inputs":         {"picky.yml", `{"ref":"main","inputs":{"note":"n"` + many + `}}`, 422, "25"},
		"too long inputs":         {"picky.yml", `{"ref":"main","inputs":{"note":"` + strings.Repeat("é", 65536) + `"}}`, 422, "too large"},
		"no JSON":                 {"picky.yml", `ref=main`, 400, "Problems parsing JSON"},
		"an unknown member":       {"picky.yml", `{"ref":"main","input":{}}`, 400, "input"},
	} {
		text := status(t, w, http.MethodPost, repo+"/actions/workflows/"+c.file+"/dispatches", c.body, c.status)
		got := parse[struct{ Message string }](t, text).Message
		if !strings.Contains(got, c.message) {
			t.Errorf("%s: %q, want %q", name, got, c.message)
		}
	}
	w.GitHub.Set(func(s *sim.GitHubSwitches) { s.DispatchForbidden = true })
	text := status(t, w, http.MethodPost, dispatches, `{"ref":"main"}`, http.StatusForbidden)
	if !strings.Contains(text, "Resource not accessible by integration") {
		t.Errorf("forbidden: %s", text)
	}
	if n := len(w.GitHub.Runs()); n != 0 {
		t.Errorf("%d runs were created", n)
	}
}

func TestDeclaredDefaultsAreFilledIn(t *testing.T) {
	t.Parallel()
	w := still(t)
	w.GitHub.AddWorkflow("picky.yml", "main", picky)
	status(t, w, http.MethodPost, repo+"/actions/workflows/picky.yml/dispatches", `{"ref":"main","inputs":{"note":"n"}}`, http.StatusNoContent)
	run := w.GitHub.Runs()[0]
	if diff := cmp.Diff(map[string]string{"note": "n", "level": "low", "debug": "false"}, run.Inputs); diff != "" || run.DisplayTitle != "Picky" {
		t.Errorf("title %q, inputs (-want +got):\n%s", run.DisplayTitle, diff)
	}
}

type runList struct {
	Total int `json:"total_count"`
	Runs  []struct {
		ID    int64  `json:"id"`
		Title string `json:"display_title"`
	} `json:"workflow_runs"`
}

func TestRunListsAreNewestFirstFilteredAndLate(t *testing.T) {
	t.Parallel()
	w := still(t)
	for i := range 5 {
		status(t, w, http.MethodPost, dispatches, fmt.Sprintf(`{"ref":"main","inputs":{"agent":"a%d"}}`, i), http.StatusNoContent)
		w.Advance(time.Minute)
	}
	lists := func(query string) runList {
		return parse[runList](t, status(t, w, http.MethodGet, agentFile+"/runs?"+query, "", http.StatusOK))
	}
	between := func(a, b int) string {
		at := func(n int) string {
			return start().Add(time.Duration(n) * time.Minute).UTC().Format("2006-01-02T15:04:05Z")
		}
		return at(a) + ".." + at(b)
	}
	since := url.QueryEscape(">=" + start().Add(3*time.Minute).Format(time.RFC3339))
	for query, want := range map[string]int{
		"":                               5,
		"event=workflow_dispatch":        5,
		"event=push":                     0,
		"branch=main&created=" + since:   2,
		"branch=topic":                   0,
		"status=queued":                  5,
		"status=completed":               0,
		"created=2026-09-01":             5,
		"created=2026-08-01..2026-08-31": 0,
		"created=" + between(1, 3):       3,
		"created=" + between(3, 1):       0,
		"created=" + url.QueryEscape("<2026-09-01T16:13:44Z"): 1,
	} {
		if got := lists(query); got.Total != want || len(got.Runs) != want {
			t.Errorf("%q: %d of %d runs, want %d", query, len(got.Runs), got.Total, want)
		}
	}
	res, text := w.Do(t, http.MethodGet, repo+"/actions/runs?per_page=2&page=2", "")
	got := parse[runList](t, text)
	if got.Total != 5 || len(got.Runs) != 2 || got.Runs[0].Title != "a2" || !strings.Contains(res.Header.Get("Link"), "page=3") {
		t.Errorf("page 2: %+v, link %s", got, res.Header.Get("Link"))
	}
	w.GitHub.Set(func(s *sim.GitHubSwitches) { s.RunVisibleAfter, s.RunTitleWithoutLock = 90*time.Second, true })
	status(t, w, http.MethodPost, dispatches, `{"ref":"main","inputs":{"agent":"new"}}`, http.StatusNoContent)
	if got := lists(""); got.Total != 4 {
		t.Errorf("a new run is visible at once: %d", got.Total)
	}
	w.Advance(2 * time.Minute)
	if got := lists(""); got.Total != 6 || got.Runs[0].Title != "Fullsend agent" {
		t.Errorf("later: %+v", got)
	}
	status(t, w, http.MethodGet, agentFile+"/runs?created=soon", "", http.StatusUnprocessableEntity)
}

func TestCancelIsAskedForOnceAndForcedWhenIgnored(t *testing.T) {
	t.Parallel()
	w := still(t)
	ids := []string{}
	for range 3 {
		status(t, w, http.MethodPost, dispatches, `{"ref":"main","inputs":{"agent":"a"}}`, http.StatusNoContent)
	}
	for _, r := range w.GitHub.Runs() {
		ids = append(ids, fmt.Sprintf("%s/actions/runs/%d", repo, r.ID))
	}
	status(t, w, http.MethodPost, ids[0]+"/cancel", "", http.StatusAccepted)
	text := status(t, w, http.MethodPost, ids[0]+"/cancel", "", http.StatusConflict)
	if !strings.Contains(text, "Cannot cancel a workflow run that is completed.") {
		t.Errorf("conflict: %s", text)
	}
	w.GitHub.Set(func(s *sim.GitHubSwitches) { s.CancelTakes = time.Minute })
	status(t, w, http.MethodPost, ids[1]+"/cancel", "", http.StatusAccepted)
	status(t, w, http.MethodPost, ids[1]+"/cancel", "", http.StatusAccepted)
	w.Advance(time.Minute)
	w.GitHub.Set(func(s *sim.GitHubSwitches) { s.CancelIgnored = true })
	status(t, w, http.MethodPost, ids[2]+"/cancel", "", http.StatusAccepted)
	w.Advance(time.Hour)
	got := []string{}
	for _, r := range w.GitHub.Runs() {
		got = append(got, r.Status+" "+r.Conclusion)
	}
	if diff := cmp.Diff([]string{"completed cancelled", "completed cancelled", "queued "}, got); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
	status(t, w, http.MethodPost, ids[2]+"/force-cancel", "", http.StatusAccepted)
	status(t, w, http.MethodPost, ids[2]+"/force-cancel", "", http.StatusConflict)
	status(t, w, http.MethodPost, repo+"/actions/runs/1/cancel", "", http.StatusNotFound)
}

func TestADeletedRunIsUnknownAndRightsCanBeTaken(t *testing.T) {
	t.Parallel()
	w := still(t)
	for range 2 {
		status(t, w, http.MethodPost, dispatches, `{"ref":"main","inputs":{"agent":"a"}}`, http.StatusNoContent)
	}
	gone, kept := w.GitHub.Runs()[0].ID, w.GitHub.Runs()[1].ID
	of := func(id int64, tail string) string { return fmt.Sprintf("%s/actions/runs/%d%s", repo, id, tail) }
	w.GitHub.DeleteRun(gone)
	status(t, w, http.MethodGet, of(gone, ""), "", http.StatusNotFound)
	status(t, w, http.MethodGet, of(gone, "/jobs"), "", http.StatusNotFound)
	status(t, w, http.MethodPost, of(gone, "/cancel"), "", http.StatusNotFound)
	status(t, w, http.MethodPost, of(gone, "/force-cancel"), "", http.StatusNotFound)
	if got := parse[runList](t, status(t, w, http.MethodGet, agentFile+"/runs", "", http.StatusOK)); got.Total != 1 || got.Runs[0].ID != kept {
		t.Errorf("listed %+v", got)
	}
	w.GitHub.SetJobs(kept, sim.Job{Name: "agent", Status: "in_progress", Runner: "runner-1"}, sim.Job{Name: "next", Status: "queued"})
	type jobs struct {
		Jobs []struct {
			Name   string
			Runner *string `json:"runner_name"`
		}
	}
	got := parse[jobs](t, status(t, w, http.MethodGet, of(kept, "/jobs?filter=latest"), "", http.StatusOK)).Jobs
	if len(got) != 2 || got[0].Runner == nil || *got[0].Runner != "runner-1" || got[1].Runner != nil {
		t.Errorf("jobs %+v", got)
	}
	w.GitHub.Set(func(s *sim.GitHubSwitches) { s.CancelForbidden = true })
	status(t, w, http.MethodPost, of(kept, "/cancel"), "", http.StatusForbidden)
	status(t, w, http.MethodPost, of(kept, "/force-cancel"), "", http.StatusForbidden)
	status(t, w, http.MethodPost, dispatches, `{"ref":"main","inputs":{"agent":"a"}}`, http.StatusNoContent)
	w.GitHub.Set(func(s *sim.GitHubSwitches) { s.RunsForbidden = true })
	for _, url := range []string{of(kept, ""), of(kept, "/jobs"), agentFile + "/runs", repo + "/actions/runs"} {
		status(t, w, http.MethodGet, url, "", http.StatusForbidden)
	}
}

func TestWorkflowFilesAndStatesCanBeRead(t *testing.T) {
	t.Parallel()
	w := still(t)
	w.GitHub.AddRef("empty")
	text := status(t, w, http.MethodGet, repo+"/contents/.github/workflows/fullsend-agent.yml?ref=main", "", http.StatusOK)
	content := parse[struct{ Content string }](t, text).Content
	raw, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(content, "\n", ""))
	if err != nil || string(raw) != simtest.Workflow {
		t.Errorf("content %q, %v", raw, err)
	}
	status(t, w, http.MethodGet, repo+"/contents/.github/workflows/fullsend-agent.yml?ref=empty", "", http.StatusNotFound)
	status(t, w, http.MethodGet, repo+"/contents/.github/workflows/fullsend-agent.yml?ref=gone", "", http.StatusNotFound)
	status(t, w, http.MethodGet, repo+"/contents/README.md", "", http.StatusNotFound)
	w.GitHub.SetState(simtest.WorkflowFile, "disabled_inactivity")
	if text := status(t, w, http.MethodGet, agentFile, "", http.StatusOK); !strings.Contains(text, `"state":"disabled_inactivity"`) {
		t.Errorf("workflow %s", text)
	}
	status(t, w, http.MethodGet, repo+"/actions/workflows", "", http.StatusOK)
	w.GitHub.SetPermission("alice", "write")
	if text := status(t, w, http.MethodGet, repo+"/collaborators/alice/permission", "", http.StatusOK); !strings.Contains(text, `"permission":"write"`) {
		t.Errorf("permission %s", text)
	}
	status(t, w, http.MethodGet, simtest.GitHubURL+"/repos/acme/other/actions/workflows", "", http.StatusNotFound)
}

func TestTheRepositoryAndPeoplesRolesCanBeRead(t *testing.T) {
	t.Parallel()
	w := still(t)
	if text := status(t, w, http.MethodGet, repo, "", http.StatusOK); !strings.Contains(text, `"default_branch":"main"`) || !strings.Contains(text, `"full_name":"`+simtest.Repo+`"`) {
		t.Errorf("repository %s", text)
	}
	status(t, w, http.MethodGet, simtest.GitHubURL+"/repos/acme/other", "", http.StatusNotFound)
	for _, role := range []string{"admin", "maintain", "write", "triage", "read", "none"} {
		w.GitHub.SetPermission(role, role)
	}
	w.GitHub.SetRole("custom", "release-captain", "write")
	type permission struct {
		Permission string `json:"permission"`
		Role       string `json:"role_name"`
	}
	of := func(login string) permission {
		return parse[permission](t, status(t, w, http.MethodGet, repo+"/collaborators/"+login+"/permission", "", http.StatusOK))
	}
	for login, want := range map[string]permission{
		"admin": {"admin", "admin"}, "maintain": {"write", "maintain"}, "write": {"write", "write"}, "triage": {"read", "triage"},
		"read": {"read", "read"}, "none": {"none", "none"}, "nobody": {"none", "none"}, "custom": {"write", "release-captain"},
	} {
		if got := of(login); got != want {
			t.Errorf("%s has %v, want %v", login, got, want)
		}
	}
	w.GitHub.Set(func(s *sim.GitHubSwitches) { s.UnknownLogin404 = true })
	status(t, w, http.MethodGet, repo+"/collaborators/nobody/permission", "", http.StatusNotFound)
	w.GitHub.Set(func(s *sim.GitHubSwitches) { s.PermissionForbidden = true })
	status(t, w, http.MethodGet, repo+"/collaborators/admin/permission", "", http.StatusForbidden)
}

func TestGitHubCountsRequestsAndRefusesWrongTokens(t *testing.T) {
	t.Parallel()
	w := still(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, agentFile, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer wrong")
	res, err := w.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusUnauthorized || res.Header.Get("Date") == "" {
		t.Errorf("wrong token: %d", res.StatusCode)
	}
	w.GitHub.Set(func(s *sim.GitHubSwitches) { s.RateLimit = 2 })
	answer, _ := w.Do(t, http.MethodGet, agentFile, "")
	if got := answer.Header.Get("X-Ratelimit-Remaining"); got != "1" {
		t.Errorf("remaining %s", got)
	}
	status(t, w, http.MethodGet, agentFile, "", http.StatusOK)
	status(t, w, http.MethodGet, agentFile, "", http.StatusForbidden)
	w.Advance(time.Hour + time.Second)
	status(t, w, http.MethodGet, agentFile, "", http.StatusOK)
}
