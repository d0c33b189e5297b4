package simtest

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fullsend/poll-action/internal/sim"
)

// seen checks one made-up exchange with a Data Center site.
func seen(t *testing.T, method, target, body string, status int, header http.Header, answer string) error {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, DCURL+target, nil)
	if err != nil {
		t.Fatal(err)
	}
	return checkDataCenter(req, []byte(body), status, header, []byte(answer))
}

func TestWhatDataCenterDoesNotHaveIsReported(t *testing.T) {
	t.Parallel()
	get, put, post := http.MethodGet, http.MethodPut, http.MethodPost
	for name, c := range map[string]struct {
		method, target, body string
		status               int
		answer, want         string
	}{
		"version three":          {get, "/rest/api/3/myself", ``, 404, `{}`, "no such operation"},
		"no API":                 {get, "/browse/P-1", ``, 200, `{}`, "no such operation"},
		"Cloud's search":         {post, "/rest/api/2/search/jql", `{}`, 404, `{}`, "no such operation"},
		"the changelog":          {get, "/rest/api/2/issue/P-1/changelog", ``, 404, `{}`, "no such operation"},
		"an empty key":           {get, "/rest/api/2/issue/", ``, 404, `{}`, "no such operation"},
		"an account id":          {get, "/rest/api/2/myself", ``, 200, `{"groups":[{"accountId":"x"}]}`, `"accountId"`},
		"an account id asked":    {get, "/rest/api/2/user/permission/search?accountId=x", ``, 200, `[]`, `"accountId"`},
		"a token":                {post, "/rest/api/2/search", `{"nextPageToken":"x"}`, 200, `{}`, "request"},
		"a group's id":           {get, "/rest/api/2/project/P/role/1", ``, 200, `{"groupId":"x"}`, `"groupId"`},
		"a page instead of JSON": {get, "/rest/api/2/status", ``, 200, `<html>`, "response: no JSON"},
		"a request of no JSON":   {post, "/rest/api/2/search", `jql=x`, 200, `{}`, "request: no JSON"},
		"a misspelt parameter":   {put, "/rest/api/2/issue/P-1/properties/p?x=1", `{}`, 200, ``, `no query parameter "x"`},
	} {
		err := seen(t, c.method, c.target, c.body, c.status, nil, c.answer)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want something on %q", name, err, c.want)
		}
	}
}

func TestWhatDataCenterMayDoPasses(t *testing.T) {
	t.Parallel()
	get, put, post := http.MethodGet, http.MethodPut, http.MethodPost
	page := http.Header{"Content-Type": {"text/html"}}
	for name, c := range map[string]struct {
		method, target, body string
		status               int
		header               http.Header
		answer               string
	}{
		"an empty answer":              {put, "/rest/api/2/issue/P-1/properties/p", `{}`, 201, nil, ``},
		"what a property holds":        {get, "/rest/api/2/issue/P-1/properties/p", ``, 200, nil, `{"key":"p","value":{"accountId":"x"}}`},
		"what a property is to hold":   {put, "/rest/api/2/issue/P-1/properties/p", `{"accountId":"x"}`, 200, nil, ``},
		"a refused request of rubbish": {post, "/rest/api/2/search", `jql=x`, 400, nil, `{}`},
		"a page with a 429":            {get, "/rest/api/2/status", ``, 429, page, `<html>`},
		"planted data":                 {get, "/rest/api/2/issue/P-1", ``, 200, http.Header{sim.PlantedHeader: {"true"}}, `{"accountId":"x"}`},
	} {
		if err := seen(t, c.method, c.target, c.body, c.status, c.header, c.answer); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestADataCenterWorldFailsTheTestOnCloudsForms(t *testing.T) {
	t.Parallel()
	planted := &recording{TB: t}
	w := New(planted, DataCenter(), Clock(func() time.Time { return time.Date(2026, 9, 1, 0, 0, 0, 0, time.UTC) }))
	key := w.Jira.CreateIssue(sim.IssueSpec{Project: Project, Reporter: Alice}).Key
	w.Do(t, http.MethodGet, w.JiraAPI()+"/issue/"+key, "")
	if len(planted.errors) != 0 {
		t.Fatalf("a good exchange fails: %v", planted.errors)
	}
	w.Do(t, http.MethodGet, w.JiraAPI()+"/issue/"+key+"/changelog", "")
	before := len(planted.errors)
	for _, f := range planted.cleanups {
		f()
	}
	if before != 1 || len(planted.errors) != 2 {
		t.Errorf("an unknown route gives %d errors, %d after the test", before, len(planted.errors))
	}
}

func TestAWorldNamesPlacesAndPeopleOfItsFlavour(t *testing.T) {
	t.Parallel()
	clock := Clock(func() time.Time { return time.Date(2026, 9, 1, 0, 0, 0, 0, time.UTC) })
	cloud, center := New(t, clock), New(t, clock, DataCenter())
	email, token := cloud.JiraCredentials()
	if cloud.JiraURL() != JiraURL || cloud.JiraHost() != JiraHost || cloud.ID(Alice) != Alice || email != JiraEmail || token != JiraToken || cloud.DataCenter() {
		t.Errorf("Cloud: %s %s %s %s", cloud.JiraURL(), cloud.JiraHost(), cloud.ID(Alice), email)
	}
	email, token = center.JiraCredentials()
	if center.JiraURL() != DCURL || center.JiraHost() != DCHost || center.ID(Alice) != "alice" || email != "" || token != DCToken || !center.DataCenter() {
		t.Errorf("Data Center: %s %s %s %s", center.JiraURL(), center.JiraHost(), center.ID(Alice), email)
	}
}

func TestTheCheckKnowsEveryRouteOfDataCenterAndNoMore(t *testing.T) {
	t.Parallel()
	routes := sim.NewJira(sim.JiraConfig{DataCenter: true}).Routes()
	for _, r := range routes {
		method, path, _ := strings.Cut(strings.NewReplacer("{", "", "}", "").Replace(r), " ")
		path = strings.TrimPrefix(path, "/rest/api/2")
		if !slices.ContainsFunc(dcOperations(), func(o dcOperation) bool { return o.has(method, path) }) {
			t.Errorf("%s is not known", r)
		}
	}
	if n := len(dcOperations()); n != len(routes) {
		t.Errorf("%d operations known, %d served", n, len(routes))
	}
}
