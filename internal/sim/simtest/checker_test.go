package simtest

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fullsend/poll-action/internal/sim"
)

// verdict checks one made-up exchange with Jira or GitHub.
func verdict(t *testing.T, target, body string, status int, answer string) error {
	t.Helper()
	load := JiraDescription
	if strings.HasPrefix(target, "/repos/") {
		load = GitHubDescription
	}
	d, err := load()
	if err != nil {
		t.Fatal(err)
	}
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	return d.Check(req, []byte(body), status, http.Header{"Content-Type": {"application/json;charset=UTF-8"}}, []byte(answer))
}

func TestPlantedViolationsAreReported(t *testing.T) {
	t.Parallel()
	search := "/rest/api/3/search/jql"
	for name, c := range map[string]struct {
		target, body string
		status       int
		answer, want string
	}{
		"a member that answers do not have":  {search, `{"jql":"x"}`, 200, `{"issues":[],"total":3}`, "total"},
		"a 429 that is not Jira's":           {search, `{"jql":"x"}`, 429, `{"message":"no"}`, "status is not supported"},
		"another resource of version two":    {"/rest/api/2/myself", ``, 200, `{}`, "not in the description"},
		"a value of another type":            {search, `{"jql":"x"}`, 200, `{"issues":[{"id":10001}]}`, "/issues/0/id"},
		"a member that requests do not have": {search, `{"jql":"x","startAt":5}`, 200, `{"issues":[]}`, "startAt"},
		"an array where a text belongs":      {search, `{"jql":"x","expand":["a"]}`, 200, `{"issues":[]}`, "/expand"},
		"an undeclared query parameter":      {search + "?startAt=5", ``, 200, `{"issues":[]}`, `"startAt"`},
		"an undeclared status":               {search, `{"jql":"x"}`, 418, ``, "status is not supported"},
		"a 401 that is not Jira's":           {"/rest/api/3/changelog/bulkfetch", `{"issueIdsOrKeys":["1"]}`, 401, `<html>`, "status is not supported"},
		"a time that is none":                {"/rest/api/3/issue/P-1/comment", ``, 200, `{"comments":[{"created":"yesterday"}]}`, "created"},
		"an unknown path":                    {"/rest/api/3/search", `{"jql":"x"}`, 200, `{}`, "not in the description"},
		"an operation the simulator lacks":   {"/repos/a/b/issues", ``, 200, `[]`, "not in the description"},
		"a run without a title":              {"/repos/a/b/actions/runs/1", ``, 200, `{"id":1}`, "display_title"},
		"an error without GitHub's shape":    {"/repos/a/b/actions/workflows/w.yml/dispatches", `{"ref":"main"}`, 404, `{}`, "status is not supported"},
		"a dispatch without a ref":           {"/repos/a/b/actions/workflows/w.yml/dispatches", `{"inputs":{}}`, 204, ``, "ref"},
		"a range that GitHub does not know":  {"/repos/a/b/actions/workflows/w.yml/runs?created=now", ``, 200, `{"total_count":0,"workflow_runs":[]}`, "created"},
	} {
		err := verdict(t, c.target, c.body, c.status, c.answer)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want something on %q", name, err, c.want)
		}
	}
}

func TestKnownContradictionsOfTheRealServersPass(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		target, body string
		status       int
		answer       string
	}{
		"an offset without colon":     {"/rest/api/3/issue/P-1/comment", ``, 200, `{"comments":[{"created":"2026-09-01T09:12:44.513-0700"}]}`},
		"an epoch number":             {"/rest/api/3/changelog/bulkfetch", `{"issueIdsOrKeys":["1"]}`, 200, `{"issueChangeLogs":[{"changeHistories":[{"created":1492070429}]}]}`},
		"null sides of a change":      {"/rest/api/3/issue/P-1/changelog", ``, 200, `{"values":[{"items":[{"from":null,"toString":"x"}]}]}`},
		"a limit that is reached":     {"/rest/api/3/search/jql", `{"jql":"x"}`, 429, `{"errorMessages":["no"],"errors":{}}`},
		"the flavour in version two":  {"/rest/api/2/serverInfo", ``, 200, `{"deploymentType":"Cloud"}`},
		"a null token":                {"/rest/api/3/search/jql", `{"jql":"x"}`, 200, `{"issues":[],"nextPageToken":null}`},
		"a null field":                {"/rest/api/3/issue/P-1", ``, 200, `{"id":"1","fields":{"assignee":null}}`},
		"a 401 that is not described": {"/rest/api/3/changelog/bulkfetch", `{"issueIdsOrKeys":["1"]}`, 401, `{"errorMessages":["no"],"errors":{}}`},
		"a search range":              {"/repos/a/b/actions/workflows/w.yml/runs?created=%3E%3D2026-09-01T00:00:00Z", ``, 200, `{"total_count":0,"workflow_runs":[]}`},
		"a refusal in GitHub's shape": {"/repos/a/b/actions/workflows/w.yml/dispatches", `{"ref":"main"}`, 422, `{"message":"No ref found for: main","documentation_url":"https://docs.github.com/rest"}`},
		"a workflow by number":        {"/repos/a/b/actions/workflows/123/dispatches", `{"ref":"main"}`, 204, ``},
	} {
		if err := verdict(t, c.target, c.body, c.status, c.answer); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestViolationsDoNotQuoteBodies(t *testing.T) {
	t.Parallel()
	err := verdict(t, "/rest/api/3/search/jql", `{"jql":"x"}`, 200, `{"issues":[{"id":{"secret":"hunter2"}}]}`)
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("%v", err)
	}
}

func TestEveryRouteIsDescribedAndEveryDescriptionServed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		load   func() (*Description, error)
		routes []string
	}{
		"Jira":   {JiraDescription, sim.NewJira(sim.JiraConfig{}).Routes()},
		"GitHub": {GitHubDescription, sim.NewGitHub(sim.GitHubConfig{}).Routes()},
	} {
		d, err := c.load()
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range c.routes {
			method, path, _ := strings.Cut(strings.NewReplacer("{", "", "}", "", "...", "").Replace(r), " ")
			if !d.Has(method, path) {
				t.Errorf("%s: %s is not described", name, r)
			}
		}
		if len(d.routes) != len(c.routes) {
			t.Errorf("%s: %d operations described, %d served", name, len(d.routes), len(c.routes))
		}
	}
}

// recording is a test that only remembers that it failed.
type recording struct {
	testing.TB
	errors   []string
	cleanups []func()
}

func (r *recording) Helper() {}

func (r *recording) Errorf(format string, args ...any) { r.errors = append(r.errors, format) }

func (r *recording) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

func TestAWorldFailsTheTestOnViolationsAndUnknownRoutes(t *testing.T) {
	t.Parallel()
	planted := &recording{TB: t}
	w := New(planted, Clock(func() time.Time { return time.Date(2026, 9, 1, 0, 0, 0, 0, time.UTC) }))
	key := w.Jira.CreateIssue(sim.IssueSpec{Project: Project, Reporter: Alice}).Key
	w.Do(t, http.MethodGet, JiraURL+"/rest/api/3/issue/"+key, "")
	if len(planted.errors) != 0 {
		t.Fatalf("a good exchange fails: %v", planted.errors)
	}
	w.Jira.AddHistory(key, map[string]any{"surprise": true})
	w.Do(t, http.MethodGet, JiraURL+"/rest/api/3/issue/"+key+"/changelog", "")
	w.Jira.BreakIssue(key, func(fields map[string]any) { fields["updated"] = 7 })
	w.Do(t, http.MethodGet, JiraURL+"/rest/api/3/issue/"+key, "")
	if len(planted.errors) != 0 {
		t.Fatalf("planted data fail the test: %v", planted.errors)
	}
	w.Jira.CommentADF(key, Alice, sim.Paragraph("x"), 5, nil) // a visibility is an object
	w.Do(t, http.MethodGet, JiraURL+"/rest/api/3/issue/"+key+"/comment", "")
	if len(planted.errors) != 1 {
		t.Errorf("a bad answer gives %d errors", len(planted.errors))
	}
	res, body := w.Do(t, http.MethodGet, JiraURL+"/rest/api/3/search?jql=x", "")
	if res.StatusCode != http.StatusNotFound || !strings.Contains(body, "null for uri") {
		t.Errorf("unknown route: %d %s", res.StatusCode, body)
	}
	before := len(planted.errors)
	for _, f := range planted.cleanups {
		f()
	}
	if before != 2 || len(planted.errors) != 3 {
		t.Errorf("an unknown route gives %d errors, %d after the test", before, len(planted.errors))
	}
}
