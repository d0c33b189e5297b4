package sim_test

import (
	"encoding/json"
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

// center is a still world with a Data Center site, and the address of its API.
func center(t *testing.T, opts ...simtest.Option) (w *simtest.World, v2 string) {
	t.Helper()
	w = still(t, append(opts, simtest.DataCenter())...)
	return w, w.JiraAPI()
}

type dcPage struct {
	StartAt    int `json:"startAt"`
	MaxResults int `json:"maxResults"`
	Total      int `json:"total"`
	page
}

func TestDataCenterServesVersionTwoBelowItsContextPath(t *testing.T) {
	t.Parallel()
	w, v2 := center(t)
	if v2 != "https://jira.acme.example/jira/rest/api/2" || w.JiraHost() != "jira.acme.example" || !w.DataCenter() {
		t.Fatalf("API at %s", v2)
	}
	res, text := w.Do(t, http.MethodGet, v2+"/serverInfo", "")
	if !strings.Contains(text, `"deploymentType":"Server"`) || !strings.Contains(text, `"baseUrl":"`+simtest.DCURL+`"`) {
		t.Errorf("server info %s", text)
	}
	if res.Header.Get("X-Ausername") != "bot" || res.Header.Get("X-Aaccountid") != "" {
		t.Errorf("headers %v", res.Header)
	}
	w.Jira.Set(func(s *sim.JiraSwitches) { s.DeploymentType = "DataCenter" })
	if text := status(t, w, http.MethodGet, v2+"/serverInfo", "", http.StatusOK); !strings.Contains(text, `"deploymentType":"DataCenter"`) {
		t.Errorf("server info %s", text)
	}
}

func TestDataCenterHasNoneOfCloudsOperations(t *testing.T) {
	t.Parallel()
	w, v2 := center(t, simtest.Unchecked())
	key := issues(w, 1)[0]
	for _, call := range []string{
		"GET " + simtest.DCURL + "/rest/api/3/myself",
		"GET " + simtest.DCURL + "/rest/api/3/issue/" + key,
		"POST " + v2 + "/search/jql",
		"GET " + v2 + "/search/jql?jql=x",
		"POST " + v2 + "/search/approximate-count",
		"GET " + v2 + "/issue/" + key + "/changelog",
		"POST " + v2 + "/issue/bulkfetch",
		"POST " + v2 + "/changelog/bulkfetch",
		"GET " + v2 + "/user/groups?username=bob",
		"GET https://jira.acme.example/rest/api/2/myself",
	} {
		method, target, _ := strings.Cut(call, " ")
		body := ""
		if method == http.MethodPost {
			body = `{}`
		}
		text := status(t, w, method, target, body, http.StatusNotFound)
		got := parse[struct {
			Message string `json:"message"`
			Code    int    `json:"status-code"`
		}](t, text)
		if !strings.HasPrefix(got.Message, "null for uri: ") || got.Code != http.StatusNotFound {
			t.Errorf("%s: %s", call, text)
		}
	}
	if n := len(w.Jira.Unknown()); n != 10 {
		t.Errorf("%d unknown requests", n)
	}
}

func TestTheDeploymentTypeIsAskedInVersionTwoOfBothFlavours(t *testing.T) {
	t.Parallel()
	for want, opts := range map[string][]simtest.Option{"Cloud": nil, "Server": {simtest.DataCenter()}} {
		w := still(t, opts...)
		text := status(t, w, http.MethodGet, w.JiraURL()+"/rest/api/2/serverInfo", "", http.StatusOK)
		if !strings.Contains(text, `"deploymentType":"`+want+`"`) {
			t.Errorf("%s: %s", want, text)
		}
	}
}

func TestDataCenterTakesAPersonalAccessTokenOrAPassword(t *testing.T) {
	t.Parallel()
	w, v2 := center(t)
	for name, c := range map[string]struct {
		auth func(*http.Request)
		want int
	}{
		"a token":              {func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+simtest.DCToken) }, 200},
		"a password":           {func(r *http.Request) { r.SetBasicAuth(simtest.DCUser, simtest.DCPassword) }, 200},
		"nothing":              {func(*http.Request) {}, 401},
		"a wrong token":        {func(r *http.Request) { r.Header.Set("Authorization", "Bearer x") }, 401},
		"a wrong password":     {func(r *http.Request) { r.SetBasicAuth(simtest.DCUser, "x") }, 401},
		"the token as Basic":   {func(r *http.Request) { r.SetBasicAuth(simtest.JiraEmail, simtest.DCToken) }, 401},
		"Cloud's token":        {func(r *http.Request) { r.SetBasicAuth(simtest.JiraEmail, simtest.JiraToken) }, 401},
		"somebody's user name": {func(r *http.Request) { r.SetBasicAuth("alice", simtest.DCPassword) }, 401},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, v2+"/myself", nil)
		if err != nil {
			t.Fatal(err)
		}
		c.auth(req)
		res, err := w.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != c.want {
			t.Errorf("%s: %d, want %d", name, res.StatusCode, c.want)
		}
	}
	w.Jira.Set(func(s *sim.JiraSwitches) { s.AuthMode = sim.AuthAnonymous200 })
	res, text := w.Do(t, http.MethodPost, v2+"/search", `{"jql":"project = PROJ"}`)
	if res.Header.Get("X-Ausername") != "anonymous" || res.Header.Get("X-Seraph-Loginreason") != "AUTHENTICATED_FAILED" || !strings.Contains(text, `"total":0`) {
		t.Errorf("anonymous: %v %s", res.Header, text)
	}
}

func TestASiteWithoutBasicLoginTakesNoEmptyPassword(t *testing.T) {
	t.Parallel()
	j := sim.NewJira(sim.JiraConfig{BaseURL: simtest.DCURL, Now: start, Token: "t", DataCenter: true, Self: sim.User{AccountID: "bot"}})
	n := sim.NewNet()
	n.Handle(simtest.DCHost, j)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, simtest.DCURL+"/rest/api/2/myself", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth("bot", "")
	res, err := n.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusUnauthorized {
		t.Errorf("status %d", res.StatusCode)
	}
}

func TestDataCenterSearchPagesByOffsetAndCountsAll(t *testing.T) {
	t.Parallel()
	w, v2 := center(t)
	want := issues(w, 7)
	w.Jira.Set(func(s *sim.JiraSwitches) { s.MaxPage = 3 })
	var got []string
	for len(got) < 7 {
		body := fmt.Sprintf(`{"jql":"project = PROJ ORDER BY updated ASC","startAt":%d,"maxResults":50,"fields":["summary"]}`, len(got))
		p := parse[dcPage](t, status(t, w, http.MethodPost, v2+"/search", body, http.StatusOK))
		if p.Total != 7 || p.StartAt != len(got) || p.MaxResults != 3 || len(p.Issues) == 0 {
			t.Fatalf("page %+v", p)
		}
		got = append(got, p.keys()...)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
	w.Jira.Set(func(s *sim.JiraSwitches) { s.MaxPage = 0 })
	text := status(t, w, http.MethodGet, v2+"/search?startAt=6&maxResults=5000&fields=summary&jql="+url.QueryEscape("ORDER BY key ASC"), "", http.StatusOK)
	if p := parse[dcPage](t, text); p.MaxResults != 1000 || len(p.Issues) != 1 || p.Issues[0].Key != "PROJ-7" {
		t.Errorf("last page %s", text)
	}
	if p := parse[dcPage](t, status(t, w, http.MethodPost, v2+"/search", `{"jql":"","startAt":99}`, http.StatusOK)); p.Total != 7 || len(p.Issues) != 0 {
		t.Errorf("page after the end %+v", p)
	}
}

func TestDataCenterSearchRefusesCloudsForms(t *testing.T) {
	t.Parallel()
	w, v2 := center(t)
	for name, body := range map[string]string{
		"a text expand":   `{"jql":"project = PROJ","expand":"changelog"}`,
		"a token":         `{"jql":"project = PROJ","nextPageToken":"x"}`,
		"reconciliation":  `{"jql":"project = PROJ","reconcileIssues":[1]}`,
		"a negative page": `{"jql":"project = PROJ","maxResults":-1}`,
		"a reserved word": `{"jql":"project = DO"}`,
		"six properties":  `{"jql":"project = PROJ","properties":["a","b","c","d","e","f"]}`,
	} {
		if text := status(t, w, http.MethodPost, v2+"/search", body, http.StatusBadRequest); !strings.Contains(text, "errorMessages") {
			t.Errorf("%s: %s", name, text)
		}
	}
	status(t, w, http.MethodGet, v2+"/search?jql=key%3D1&startAt=x", "", http.StatusBadRequest)
}

func TestDataCenterSearchReturnsPropertiesUnlessItCannot(t *testing.T) {
	t.Parallel()
	w, v2 := center(t)
	key := issues(w, 1)[0]
	w.Jira.SetProperty(key, "p", []byte(`{"a":1}`))
	ask := func() string {
		return status(t, w, http.MethodPost, v2+"/search", `{"jql":"project = PROJ","fields":["summary"],"properties":["p"]}`, http.StatusOK)
	}
	if text := ask(); !strings.Contains(text, `"properties":{"p":{"a":1}}`) {
		t.Errorf("search %s", text)
	}
	w.Jira.Set(func(s *sim.JiraSwitches) { s.SearchWithoutProperties = true })
	if text := ask(); strings.Contains(text, "properties") {
		t.Errorf("search %s", text)
	}
	if text := status(t, w, http.MethodGet, v2+"/issue/"+key+"?properties=p&fields=summary", "", http.StatusOK); !strings.Contains(text, `"properties":{"p":{"a":1}}`) {
		t.Errorf("issue %s", text)
	}
}

func TestDataCenterIndexCanLagToo(t *testing.T) {
	t.Parallel()
	w, v2 := center(t)
	issues(w, 1)
	w.Jira.Set(func(s *sim.JiraSwitches) { s.IndexLag = time.Minute })
	total := func() int {
		return parse[dcPage](t, status(t, w, http.MethodPost, v2+"/search", `{"jql":"project = PROJ"}`, http.StatusOK)).Total
	}
	before := total()
	w.Advance(time.Minute)
	if after := total(); before != 0 || after != 1 {
		t.Errorf("%d found at once, %d later", before, after)
	}
}

func TestDataCenterExpandsTheWholeChangelog(t *testing.T) {
	t.Parallel()
	w, v2 := center(t)
	key := issues(w, 1)[0]
	for i := range 120 {
		w.Jira.SetLabels(key, simtest.Alice, fmt.Sprint("l", i))
		w.Advance(time.Second)
	}
	type expanded struct {
		Changelog struct {
			StartAt, MaxResults, Total int
			Histories                  []struct {
				Author map[string]any
				Items  []map[string]any
			}
		}
	}
	text := status(t, w, http.MethodGet, v2+"/issue/"+key+"?expand=changelog&fields=summary", "", http.StatusOK)
	log := parse[expanded](t, text).Changelog
	if log.Total != 120 || log.MaxResults != 120 || len(log.Histories) != 120 || log.Histories[0].Author["name"] != "alice" {
		t.Fatalf("changelog of %d: %d", log.Total, len(log.Histories))
	}
	want := map[string]any{"field": "labels", "fieldtype": "jira", "from": nil, "fromString": "", "to": nil, "toString": "l0"}
	if diff := cmp.Diff(want, log.Histories[0].Items[0]); diff != "" {
		t.Errorf("item (-want +got):\n%s", diff)
	}
	w.Jira.Set(func(s *sim.JiraSwitches) { s.HistoriesNewestFirst = true })
	text = status(t, w, http.MethodPost, v2+"/search", `{"jql":"project = PROJ","expand":["changelog"]}`, http.StatusOK)
	if strings.Index(text, `"toString":"l119"`) > strings.Index(text, `"toString":"l118"`) || !strings.Contains(text, `"toString":"l0"`) {
		t.Errorf("order of %s", text)
	}
}

func TestDataCenterGivesAllCommentsUnlessAskedForFewer(t *testing.T) {
	t.Parallel()
	w, v2 := center(t)
	key := issues(w, 1)[0]
	for i := range 120 {
		w.Jira.Comment(key, simtest.Alice, fmt.Sprint("comment ", i))
		w.Advance(time.Second)
	}
	type comments struct {
		Total    int
		Comments []struct {
			Body   any
			Author map[string]any
		}
	}
	base := v2 + "/issue/" + key + "/comment"
	for query, want := range map[string]int{"": 120, "?startAt=100": 20, "?maxResults=50": 50, "?maxResults=110&orderBy=-created": 110} {
		got := parse[comments](t, status(t, w, http.MethodGet, base+query, "", http.StatusOK))
		if got.Total != 120 || len(got.Comments) != want {
			t.Errorf("%q: %d of %d, want %d", query, len(got.Comments), got.Total, want)
		}
	}
	newest := parse[comments](t, status(t, w, http.MethodGet, base+"?maxResults=1&orderBy=-created", "", http.StatusOK)).Comments[0]
	if newest.Body != "comment 119" || newest.Author["name"] != "alice" {
		t.Errorf("newest %+v", newest)
	}
	status(t, w, http.MethodGet, base+"?orderBy=updated", "", http.StatusBadRequest)
}

func TestDataCenterKnowsPeopleByName(t *testing.T) {
	t.Parallel()
	w, v2 := center(t)
	key := w.Jira.CreateIssue(sim.IssueSpec{Project: simtest.Project, Reporter: simtest.Alice, Creator: "5f00:gone"}).Key
	fields := parse[struct {
		Fields map[string]map[string]any
	}](t, status(t, w, http.MethodGet, v2+"/issue/"+key+"?fields=reporter,creator", "", http.StatusOK)).Fields
	want := map[string]any{
		"self": v2 + "/user?username=alice", "name": "alice", "key": "JIRAUSER10101", "displayName": "Alice",
		"active": true, "emailAddress": "alice@users.example", "timeZone": "UTC",
	}
	if diff := cmp.Diff(want, fields["reporter"]); diff != "" {
		t.Errorf("reporter (-want +got):\n%s", diff)
	}
	if c := fields["creator"]; c["active"] != false || c["name"] != "gone" {
		t.Errorf("creator %v", c)
	}
	text := status(t, w, http.MethodGet, v2+"/myself", "", http.StatusOK)
	if me := parse[map[string]any](t, text); me["name"] != w.ID(simtest.Bot) || me["key"] != "JIRAUSER10100" || me["emailAddress"] != simtest.JiraEmail {
		t.Errorf("myself %s", text)
	}
	for jql, want := range map[string]int{`reporter = alice`: 1, `reporter = "5f00:alice"`: 0, `reporter = currentUser()`: 0} {
		body, err := json.Marshal(map[string]any{"jql": jql})
		if err != nil {
			t.Fatal(err)
		}
		if p := parse[dcPage](t, status(t, w, http.MethodPost, v2+"/search", string(body), http.StatusOK)); p.Total != want {
			t.Errorf("%s finds %d", jql, p.Total)
		}
	}
}

func TestDataCenterBodiesAreWikiMarkup(t *testing.T) {
	t.Parallel()
	w, v2 := center(t)
	text := func(s string, marks ...any) map[string]any {
		return map[string]any{"type": "text", "text": s, "marks": marks}
	}
	node := func(kind string, attrs map[string]any, content ...any) map[string]any {
		return map[string]any{"type": kind, "attrs": attrs, "content": content}
	}
	doc := map[string]any{"type": "doc", "version": 1, "content": []map[string]any{
		node("heading", map[string]any{"level": 2}, text("Title")),
		node("paragraph", nil,
			node("mention", map[string]any{"id": simtest.Bob, "text": "@Bob"}), text(" see "),
			node("inlineCard", map[string]any{"url": "https://x.example"}), node("hardBreak", nil),
			text("bold", map[string]any{"type": "strong"}), text(" "), text("it", map[string]any{"type": "em"}),
			text(" "), text("no", map[string]any{"type": "strike"}), text(" "), text("c", map[string]any{"type": "code"}), text(" "),
			text("link", map[string]any{"type": "link", "attrs": map[string]any{"href": "https://y.example"}}),
			node("emoji", map[string]any{"shortName": ":smile:"})),
		node("codeBlock", nil, text("/fs-code")),
		node("blockquote", nil, node("paragraph", nil, text("/fs-quoted"))),
		node("bulletList", nil,
			node("listItem", nil, node("paragraph", nil, text("one")),
				node("orderedList", nil, node("listItem", nil, node("paragraph", nil, text("deep"))))),
			node("listItem", nil, node("paragraph", nil, text("two")))),
		node("panel", nil, node("paragraph", nil, text("p"))),
		node("rule", nil),
		node("expand", nil, node("paragraph", nil, text("inside"))),
	}}
	key := w.Jira.CreateIssue(sim.IssueSpec{Project: simtest.Project, Reporter: simtest.Alice, Description: doc}).Key
	got := parse[struct {
		Fields struct{ Description string }
	}](t, status(t, w, http.MethodGet, v2+"/issue/"+key+"?fields=description", "", http.StatusOK)).Fields.Description
	want := `h2. Title

[~bob] see [https://x.example]
*bold* _it_ -no- {{c}} [link|https://y.example]:smile:

{code}
/fs-code
{code}

{quote}
/fs-quoted
{quote}

* one
*# deep
* two

{panel}
p
{panel}

----

inside`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("description (-want +got):\n%s", diff)
	}
	base := v2 + "/issue/" + key + "/comment"
	status(t, w, http.MethodPost, base, `{"body":"thanks, [~alice]"}`, http.StatusCreated)
	status(t, w, http.MethodPost, base, `{"body":{"type":"doc","version":1,"content":[]}}`, http.StatusBadRequest)
	status(t, w, http.MethodPost, base, `{"body":" "}`, http.StatusBadRequest)
	status(t, w, http.MethodPost, base, `{"body":"x","jsdPublic":false}`, http.StatusBadRequest)
	w.Jira.Edit(key, simtest.Alice, "description", "", "*new*")
	if text := status(t, w, http.MethodGet, v2+"/issue/"+key+"?fields=description", "", http.StatusOK); !strings.Contains(text, `"description":"*new*"`) {
		t.Errorf("edited %s", text)
	}
}

func TestTheMutatorsWorkOnDataCenterToo(t *testing.T) {
	t.Parallel()
	w, v2 := center(t)
	key := issues(w, 1)[0]
	internal := false
	id := w.Jira.Comment(key, simtest.Alice, "first")
	w.Jira.CommentADF(key, simtest.Bob, sim.Paragraph("inside"), map[string]any{"type": "role", "value": "Developers"}, &internal)
	w.Advance(time.Second)
	w.Jira.EditComment(key, id, simtest.Bob, "second")
	base := v2 + "/issue/" + key
	text := status(t, w, http.MethodGet, base+"/comment?expand=properties", "", http.StatusOK)
	for _, want := range []string{
		`"body":"second"`, `"updateAuthor":{"active":true,"displayName":"Bob"`, `"body":"inside"`,
		`"visibility":{"type":"role","value":"Developers"}`, `{"key":"sd.public.comment","value":{"internal":true}}`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	w.Jira.Transition(key, simtest.Bob, "Done")
	w.Jira.AddHistory(key, map[string]any{"author": map[string]any{"accountId": simtest.Mallory}, "items": []any{}})
	w.Jira.DeleteComment(key, id)
	text = status(t, w, http.MethodGet, base+"?expand=changelog&fields=status", "", http.StatusOK)
	for _, want := range []string{`"toString":"Done"`, `"name":"mallory"`, `"field":"Comment","fieldtype":"jira","from":null,"fromString":"second"`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
}

func TestDataCenterPropertiesAreObjects(t *testing.T) {
	t.Parallel()
	w, v2 := center(t)
	base := v2 + "/issue/" + issues(w, 1)[0] + "/properties/"
	for _, value := range []string{`"2026-09-01T00:00:00Z"`, `1`, `[{}]`, `null`, `true`, `{`} {
		status(t, w, http.MethodPut, base+"p", value, http.StatusBadRequest)
	}
	status(t, w, http.MethodPut, base+"p", ` {"ts":"x"}`, http.StatusCreated)
	status(t, w, http.MethodPut, base+"p", `{}`, http.StatusOK)
	status(t, w, http.MethodDelete, base+"p", "", http.StatusNoContent)
	status(t, w, http.MethodGet, base+"p", "", http.StatusNotFound)
}

func TestDataCenterRolesGroupsAndPermissionsGoByName(t *testing.T) {
	t.Parallel()
	w, v2 := center(t)
	w.Jira.AddUser(sim.User{AccountID: "5f00:alice2", DisplayName: "Another Alice"})
	w.Jira.Grant(simtest.Project, "Developers", "5f00:alice2")
	roles := parse[map[string]string](t, status(t, w, http.MethodGet, v2+"/project/PROJ/role", "", http.StatusOK))
	type role struct{ Actors []map[string]any }
	developers := parse[role](t, status(t, w, http.MethodGet, roles["Developers"], "", http.StatusOK)).Actors
	want := map[string]any{"id": 20000.0, "name": "alice", "type": "atlassian-user-role-actor", "displayName": "Alice"}
	if diff := cmp.Diff(want, developers[0]); diff != "" {
		t.Errorf("actor (-want +got):\n%s", diff)
	}
	admins := parse[role](t, status(t, w, http.MethodGet, roles["Administrators"], "", http.StatusOK)).Actors
	want = map[string]any{"id": 20000.0, "name": "jira-admins", "type": "atlassian-group-role-actor", "displayName": "jira-admins"}
	if diff := cmp.Diff(want, admins[0]); diff != "" {
		t.Errorf("group (-want +got):\n%s", diff)
	}

	bob := status(t, w, http.MethodGet, v2+"/user?username=bob&expand=groups", "", http.StatusOK)
	if !strings.Contains(bob, `"size":2`) || !strings.Contains(bob, `"name":"jira-admins"`) {
		t.Errorf("Bob %s", bob)
	}
	key, _ := parse[map[string]any](t, bob)["key"].(string)
	if text := status(t, w, http.MethodGet, v2+"/user?key="+key, "", http.StatusOK); !strings.Contains(text, `"name":"bob"`) || !strings.Contains(text, `"groups":{"items":[],"size":2}`) {
		t.Errorf("Bob by key %s", text)
	}
	status(t, w, http.MethodGet, v2+"/user?username=nobody", "", http.StatusNotFound)
	status(t, w, http.MethodGet, v2+"/user", "", http.StatusBadRequest)

	search := v2 + "/user/permission/search?permissions=EDIT_ISSUES&projectKey=PROJ"
	for query, want := range map[string][]string{
		"&username=alice":                         {"alice", "alice2"}, // a filter by prefix
		"&username=alice&maxResults=1":            {"alice"},
		"&username=alice&startAt=1":               {"alice2"},
		"&username=mallory":                       {},
		"&username=bob&permissions=DELETE_ISSUES": {"bob"},
		"": {"alice", "alice2", "bob", "bot"},
	} {
		got := []string{}
		for _, u := range parse[[]struct{ Name string }](t, status(t, w, http.MethodGet, search+query, "", http.StatusOK)) {
			got = append(got, u.Name)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", query, diff)
		}
	}
	status(t, w, http.MethodGet, v2+"/user/permission/search?permissions=EDIT_ISSUES", "", http.StatusBadRequest)
	status(t, w, http.MethodGet, v2+"/user/permission/search?permissions=FLY&projectKey=PROJ", "", http.StatusBadRequest)
	status(t, w, http.MethodGet, v2+"/user/permission/search?permissions=EDIT_ISSUES&projectKey=NONE", "", http.StatusNotFound)
	if text := status(t, w, http.MethodGet, v2+"/mypermissions?projectKey=PROJ", "", http.StatusOK); !strings.Contains(text, `"ADMINISTER_PROJECTS":{`) {
		t.Errorf("permissions %s", text)
	}

	w.Jira.Set(func(s *sim.JiraSwitches) { s.RolesForbidden, s.GroupsForbidden = true, true })
	status(t, w, http.MethodGet, v2+"/project/PROJ/role", "", http.StatusUnauthorized)
	status(t, w, http.MethodGet, search+"&username=alice", "", http.StatusForbidden)
	status(t, w, http.MethodGet, v2+"/user?username=bob&expand=groups", "", http.StatusForbidden)
	w.Jira.Revoke(simtest.Project, "Developers", simtest.Alice)
	w.Jira.Set(func(s *sim.JiraSwitches) { s.RolesForbidden = false })
	if text := status(t, w, http.MethodGet, roles["Developers"], "", http.StatusOK); strings.Contains(text, `"name":"alice"`) {
		t.Errorf("Developers without Alice: %s", text)
	}
}

func TestDataCenterServesStatusesAndListens(t *testing.T) {
	t.Parallel()
	w, v2 := center(t)
	if text := status(t, w, http.MethodGet, v2+"/status", "", http.StatusOK); !strings.Contains(text, `"key":"indeterminate"`) {
		t.Errorf("statuses %s", text)
	}
	status(t, w, http.MethodGet, v2+"/status/Done", "", http.StatusOK)
	base, _ := w.Listen(t)
	if base != w.JiraURL() || !strings.HasPrefix(base, "http://127.0.0.1:") || !strings.HasSuffix(base, "/jira") {
		t.Fatalf("listens at %s", base)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.JiraAPI()+"/myself", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, token := w.JiraCredentials()
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Errorf("status %d", res.StatusCode)
	}
}
