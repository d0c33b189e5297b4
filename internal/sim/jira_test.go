package sim_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fullsend/poll-action/internal/sim"
	"github.com/fullsend/poll-action/internal/sim/simtest"
)

const api = simtest.JiraURL + "/rest/api/3"

// start is the moment at which the worlds of these tests begin.
func start() time.Time { return time.Date(2026, 9, 1, 16, 12, 44, 513_000_000, time.UTC) }

// still is a world whose clock stands until it is advanced.
func still(t *testing.T, opts ...simtest.Option) *simtest.World {
	t.Helper()
	return simtest.New(t, append([]simtest.Option{simtest.Clock(start)}, opts...)...)
}

type page struct {
	Issues []struct {
		ID         string                     `json:"id"`
		Key        string                     `json:"key"`
		Fields     map[string]any             `json:"fields"`
		Properties map[string]json.RawMessage `json:"properties"`
	} `json:"issues"`
	Token  string `json:"nextPageToken"`
	IsLast bool   `json:"isLast"`
}

func (p page) keys() []string {
	keys := []string{}
	for _, is := range p.Issues {
		keys = append(keys, is.Key)
	}
	return keys
}

// search posts a search with more members than the query, as JSON.
func search(t *testing.T, w *simtest.World, jql, more string) page {
	t.Helper()
	body := fmt.Sprintf(`{"jql":%q,"fields":["summary","updated"]%s}`, jql, more)
	res, text := w.Do(t, http.MethodPost, api+"/search/jql", body)
	if res.StatusCode != http.StatusOK {
		t.Fatalf("search %s: %d %s", jql, res.StatusCode, text)
	}
	return parse[page](t, text)
}

func parse[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

func status(t *testing.T, w *simtest.World, method, target, body string, want int) string {
	t.Helper()
	res, text := w.Do(t, method, target, body)
	if res.StatusCode != want {
		t.Errorf("%s %s: %d, want %d: %s", method, target, res.StatusCode, want, text)
	}
	return text
}

func issues(w *simtest.World, n int) []string {
	var keys []string
	for i := range n {
		keys = append(keys, w.Jira.CreateIssue(sim.IssueSpec{
			Project: simtest.Project, Summary: fmt.Sprintf("issue %d", i+1), Reporter: simtest.Alice,
		}).Key)
		w.Advance(time.Second)
	}
	return keys
}

func TestSearchPagesByTokenWithoutLossOrRepetition(t *testing.T) {
	t.Parallel()
	w := still(t)
	want := issues(w, 7)
	w.Jira.Set(func(s *sim.JiraSwitches) { s.MaxPage = 3 })
	var got []string
	token, pages := "", 0
	for {
		more := `,"maxResults":50`
		if token != "" {
			more += fmt.Sprintf(`,"nextPageToken":%q`, token)
		}
		p := search(t, w, "project = PROJ ORDER BY updated ASC, key ASC", more)
		got = append(got, p.keys()...)
		pages++
		if p.IsLast {
			if p.Token != "" {
				t.Error("the last page has a token")
			}
			break
		}
		token = p.Token
	}
	if diff := cmp.Diff(want, got); diff != "" || pages != 3 {
		t.Errorf("%d pages, keys (-want +got):\n%s", pages, diff)
	}
}

func TestSearchDefaultsToIDsOfFiftyIssues(t *testing.T) {
	t.Parallel()
	w := still(t)
	issues(w, 51)
	_, text := w.Do(t, http.MethodGet, api+"/search/jql?jql="+url.QueryEscape("project = PROJ"), "")
	p := parse[page](t, text)
	if len(p.Issues) != 50 || p.IsLast || p.Issues[0].Key != "" || p.Issues[0].Fields != nil || p.Issues[0].ID == "" {
		t.Errorf("%d issues, first %+v", len(p.Issues), p.Issues[0])
	}
}

func TestSearchOfEqualSortValuesIsOrderedByID(t *testing.T) {
	t.Parallel()
	w := still(t)
	var want []string
	for range 12 {
		want = append(want, w.Jira.CreateIssue(sim.IssueSpec{Project: simtest.Project, Reporter: simtest.Alice}).Key)
	}
	if diff := cmp.Diff(want, search(t, w, "project = PROJ ORDER BY updated DESC", "").keys()); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
}

func TestSearchRefusesWhatJiraRefuses(t *testing.T) {
	t.Parallel()
	w := still(t)
	for jql, want := range map[string]string{
		"":                             "Unbounded JQL queries are not allowed here",
		"ORDER BY updated":             "Unbounded JQL queries are not allowed here",
		"(project = PROJ":              "Expecting ')' before the end of the query.",
		`summary ~ "open`:              "has not been completed",
		"project = DO":                 "'DO' is a reserved JQL word",
		"labels = go":                  "'go' is a reserved JQL word",
		"project = NONE":               "The value 'NONE' does not exist for the field 'project'.",
		"key = PROJ-404":               "An issue with key 'PROJ-404' does not exist",
		"colour = red":                 "Field 'colour' does not exist",
		"status = Nowhere":             "The value 'Nowhere' does not exist for the field 'status'.",
		"project > PROJ":               "operator '>' is not supported",
		"updated >= yesterday":         "Date value 'yesterday' for field 'updated' is invalid",
		`updated >= "1787222400000"`:   "is invalid",
		"project = PROJ ORDER BY hue":  "Not able to sort using field 'hue'.",
		"project = PROJ project = X":   "Expecting either 'OR' or 'AND'",
		"project = PROJ AND":           "Expecting a field name before the end",
		"project PROJ":                 "Expecting operator but",
		"project = PROJ ORDER updated": "Expecting 'BY'",
		"project in PROJ":              "Expecting '('",
		"key = 1; drop":                "reserved JQL character",
		"project = PROJ ORDER BY key,key,key,key,key,key,key,key": "at most 7 fields",
	} {
		body := fmt.Sprintf(`{"jql":%q}`, jql)
		text := status(t, w, http.MethodPost, api+"/search/jql", body, http.StatusBadRequest)
		if got := parse[struct{ ErrorMessages []string }](t, text); len(got.ErrorMessages) != 1 || !strings.Contains(got.ErrorMessages[0], want) {
			t.Errorf("%s: %s, want %q", jql, text, want)
		}
		status(t, w, http.MethodPost, api+"/search/approximate-count", body, http.StatusBadRequest)
	}
	for name, body := range map[string]string{
		"six properties":   `{"jql":"project = PROJ","properties":["a","b","c","d","e","f"]}`,
		"a foreign token":  `{"jql":"project = PROJ","nextPageToken":"abc"}`,
		"an array expand":  `{"jql":"project = PROJ","expand":["names"]}`,
		"an unknown field": `{"jql":"project = PROJ","startAt":50}`,
		"no JSON":          `jql`,
	} {
		if text := status(t, w, http.MethodPost, api+"/search/jql", body, http.StatusBadRequest); !strings.Contains(text, "errorMessages") {
			t.Errorf("%s: %s", name, text)
		}
	}
}

func TestSearchRefusesATokenOfAnotherQuery(t *testing.T) {
	t.Parallel()
	w := still(t)
	issues(w, 3)
	p := search(t, w, "project = PROJ", `,"maxResults":1`)
	body := fmt.Sprintf(`{"jql":"labels = x","nextPageToken":%q}`, p.Token)
	status(t, w, http.MethodPost, api+"/search/jql", body, http.StatusBadRequest)
}

func TestQueriesSelectWhatTheySay(t *testing.T) {
	t.Parallel()
	w := still(t)
	keys := issues(w, 4)
	w.Jira.SetLabels(keys[1], simtest.Alice, "ready", "urgent")
	w.Jira.SetLabels(keys[2], simtest.Alice, "later")
	w.Jira.Transition(keys[3], simtest.Alice, "Done")
	w.Jira.CreateIssue(sim.IssueSpec{Project: "DO", Summary: "other project", Reporter: simtest.Bob})
	one, two, three, four, other := "PROJ-1", "PROJ-2", "PROJ-3", "PROJ-4", "DO-1"
	at := start().Add(time.Second).UnixMilli()
	for jql, want := range map[string][]string{
		"project = PROJ":                            {one, two, three, four},
		`project = "proj"`:                          {one, two, three, four},
		`project in ("DO", PROJ)`:                   {one, two, three, four, other},
		`project not in (PROJ)`:                     {other},
		"key = PROJ-2":                              {two},
		"key in (PROJ-1, PROJ-3)":                   {one, three},
		"labels = ready":                            {two},
		"labels in (ready, later)":                  {two, three},
		"labels != ready":                           {three},
		"NOT labels = ready":                        {three},
		"labels is EMPTY":                           {one, four, other},
		"project = PROJ AND statusCategory != Done": {one, two, three},
		"statusCategory = Done":                     {four},
		`status = "To Do" AND project = PROJ`:       {one, two, three},
		"status = 10001":                            {four},

		"(project = DO2 OR labels = ready) AND project = PROJ":           nil,
		`(labels = later OR labels = ready) AND (project = "PROJ")`:      {two, three},
		"NOT (labels = later OR labels = ready)":                         {},
		"project = PROJ AND NOT (statusCategory = Done OR key = PROJ-1)": {two, three},
		fmt.Sprintf("created >= %d", at):                                 {two, three, four, other},
		fmt.Sprintf("created > %d", at):                                  {three, four, other},
		fmt.Sprintf("created <= %d", at):                                 {one, two},
		fmt.Sprintf("created < %d AND project = PROJ", at):               {one},
		"reporter = currentUser()":                                       {},
		`reporter = "5f00:bob"`:                                          {other},
		`summary ~ "ISSUE 3"`:                                            {three},
		"updated >= -1d AND project = DO2":                               nil,
		`updated >= "-1h" && labels = ready || key = PROJ-1`:             {one, two},
		"issuetype = Task and priority = Medium and assignee is empty":   {one, two, three, four, other},
	} {
		if want == nil {
			status(t, w, http.MethodPost, api+"/search/jql", fmt.Sprintf(`{"jql":%q}`, jql), http.StatusBadRequest)
			continue
		}
		got := search(t, w, jql+" ORDER BY id ASC", "").keys()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", jql, diff)
		}
	}
}

func TestTextDatesAreReadInTheUsersZoneAndNumbersAreNot(t *testing.T) {
	t.Parallel()
	berlin := time.FixedZone("Europe/Berlin", 2*60*60)
	w := still(t, simtest.Zones(time.FixedZone("site", -7*60*60), berlin))
	key := issues(w, 1)[0]
	for jql, found := range map[string]bool{
		`updated >= "2026-09-01 18:12"`: true, // 16:12 UTC
		`updated >= "2026-09-01 18:13"`: false,
		`updated >= "2026/09/01"`:       true,
		"updated >= 1788279164513":      true,
		"updated >= 1788279164514":      false,
	} {
		if got := len(search(t, w, jql, "").Issues) == 1; got != found {
			t.Errorf("%s found: %t", jql, got)
		}
	}
	text := status(t, w, http.MethodGet, api+"/issue/"+key+"?fields=updated", "", http.StatusOK)
	if !strings.Contains(text, `"updated":"2026-09-01T09:12:44.513-0700"`) {
		t.Errorf("body time is not in the site's zone: %s", text)
	}
}

func TestIndexLagShowsEveryIssueAsItWas(t *testing.T) {
	t.Parallel()
	w := still(t)
	key := issues(w, 1)[0]
	w.Jira.SetProperty(key, "p", []byte(`1`))
	w.Advance(time.Minute)
	w.Jira.Set(func(s *sim.JiraSwitches) { s.IndexLag = 30 * time.Second })
	w.Jira.SetProperty(key, "p", []byte(`2`))
	w.Jira.SetLabels(key, simtest.Alice, "ready")
	fresh := issues(w, 1)[0]

	p := search(t, w, "project = PROJ", `,"properties":["p"]`)
	if diff := cmp.Diff([]string{key}, p.keys()); diff != "" {
		t.Errorf("a new issue is visible (-want +got):\n%s", diff)
	}
	if got := string(p.Issues[0].Properties["p"]); got != "1" {
		t.Errorf("property %s is not the old one", got)
	}
	if n := len(search(t, w, "labels = ready", "").Issues); n != 0 {
		t.Error("a new label is found")
	}
	id := idOf(t, w, fresh)
	if got := search(t, w, "project = PROJ", `,"reconcileIssues":[`+id+`]`).keys(); len(got) != 2 {
		t.Errorf("reconciled search found %v", got)
	}
	text := status(t, w, http.MethodPost, api+"/issue/bulkfetch", `{"issueIdsOrKeys":["`+key+`"],"properties":["p"]}`, http.StatusOK)
	if !strings.Contains(text, `"p":2`) {
		t.Errorf("bulkfetch is stale: %s", text)
	}

	w.Jira.DeleteIssue(key)
	w.Advance(20 * time.Second)
	if got := search(t, w, "project = PROJ", "").keys(); len(got) != 1 {
		t.Errorf("within the lag: %v", got)
	}
	w.Advance(20 * time.Second)
	if diff := cmp.Diff([]string{fresh}, search(t, w, "project = PROJ", "").keys()); diff != "" {
		t.Errorf("after the lag (-want +got):\n%s", diff)
	}
	status(t, w, http.MethodGet, api+"/issue/"+key, "", http.StatusNotFound)
}

func idOf(t *testing.T, w *simtest.World, key string) string {
	t.Helper()
	return parse[struct{ ID string }](t, status(t, w, http.MethodGet, api+"/issue/"+key, "", http.StatusOK)).ID
}

func TestCommentsAndChangesMoveUpdatedAndPropertyWritesDoNot(t *testing.T) {
	t.Parallel()
	w := still(t)
	key := issues(w, 1)[0]
	begin := w.Jira.Updated(key)
	moved := func(what string, want bool, f func()) {
		t.Helper()
		before := w.Jira.Updated(key)
		w.Advance(time.Second)
		f()
		if got := !w.Jira.Updated(key).Equal(before); got != want {
			t.Errorf("%s moved updated: %t", what, got)
		}
	}
	property := api + "/issue/" + key + "/properties/p"
	moved("a property put", false, func() { w.Do(t, http.MethodPut, property, `1`) })
	moved("a property set", false, func() { w.Jira.SetProperty(key, "p", []byte(`2`)) })
	moved("a property delete", false, func() { w.Do(t, http.MethodDelete, property, "") })
	id := ""
	moved("a comment", true, func() { id = w.Jira.Comment(key, simtest.Alice, "hello") })
	moved("an edited comment", true, func() { w.Jira.EditComment(key, id, simtest.Bob, "hi") })
	moved("labels", true, func() { w.Jira.SetLabels(key, simtest.Alice, "x") })
	moved("a transition", true, func() { w.Jira.Transition(key, simtest.Alice, "Done") })
	moved("an edit", true, func() { w.Jira.Edit(key, simtest.Alice, "summary", "a", "b") })
	w.Jira.Set(func(s *sim.JiraSwitches) { s.BumpUpdatedOnPropertyWrite = true })
	moved("a property put with the switch on", true, func() { w.Do(t, http.MethodPut, property, `1`) })
	if !w.Jira.Updated(key).After(begin) || w.Jira.PropertyWrites() != 3 {
		t.Errorf("updated %v, %d property writes", w.Jira.Updated(key), w.Jira.PropertyWrites())
	}
}

func TestPropertiesAnswerCreatedReplacedGoneAndRefused(t *testing.T) {
	t.Parallel()
	w := still(t)
	key := issues(w, 1)[0]
	base := api + "/issue/" + key + "/properties/"
	name := "fullsend.poll.acme.a%252Eb.lock" // the key has a literal %2E
	status(t, w, http.MethodGet, base+name, "", http.StatusNotFound)
	status(t, w, http.MethodPut, base+name, `{"id":"<a&b>"}`, http.StatusCreated)
	status(t, w, http.MethodPut, base+name, `{"id":"<a&b>"}`, http.StatusOK)
	text := status(t, w, http.MethodGet, base+name, "", http.StatusOK)
	if want := `{"key":"fullsend.poll.acme.a%2Eb.lock","value":{"id":"<a&b>"}}`; strings.TrimSpace(text) != want {
		t.Errorf("%s, want %s", text, want)
	}
	if raw, found := w.Jira.Property(key, "fullsend.poll.acme.a%2Eb.lock"); !found || string(raw) != `{"id":"<a&b>"}` {
		t.Errorf("stored %s", raw)
	}
	status(t, w, http.MethodDelete, base+name, "", http.StatusNoContent)
	status(t, w, http.MethodDelete, base+name, "", http.StatusNotFound)

	status(t, w, http.MethodPut, base+"p", `"`+strings.Repeat("x", 32766)+`"`, http.StatusCreated)
	status(t, w, http.MethodPut, base+"p", `"`+strings.Repeat("x", 32767)+`"`, http.StatusBadRequest)
	status(t, w, http.MethodPut, base+"p", "{", http.StatusBadRequest)
	status(t, w, http.MethodPut, base+"p", "", http.StatusBadRequest)
	status(t, w, http.MethodPut, base+strings.Repeat("k", 255), `1`, http.StatusCreated)
	status(t, w, http.MethodPut, base+strings.Repeat("k", 256), `1`, http.StatusBadRequest)
	status(t, w, http.MethodPut, api+"/issue/PROJ-404/properties/p", `1`, http.StatusNotFound)
	w.Jira.SetReadOnly(key, true)
	status(t, w, http.MethodPut, base+"p", `1`, http.StatusForbidden)
	status(t, w, http.MethodDelete, base+"p", "", http.StatusNotFound)
}

func TestBulkFetchAnswersInOrderOfIDAndSilentlyWithoutTheMissing(t *testing.T) {
	t.Parallel()
	w := still(t)
	issues(w, 3)
	w.Jira.DeleteIssue("PROJ-2")
	text := status(t, w, http.MethodPost, api+"/issue/bulkfetch",
		`{"issueIdsOrKeys":["PROJ-3","PROJ-2","proj-1","NONE-1","PROJ-3"],"fields":["status"]}`, http.StatusOK)
	if diff := cmp.Diff([]string{"PROJ-1", "PROJ-3"}, parse[page](t, text).keys()); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
	many, err := json.Marshal(map[string]any{"issueIdsOrKeys": strings.Split(strings.Repeat("PROJ-1,", 100)+"PROJ-1", ",")})
	if err != nil {
		t.Fatal(err)
	}
	status(t, w, http.MethodPost, api+"/issue/bulkfetch", string(many), http.StatusBadRequest)
	status(t, w, http.MethodPost, api+"/issue/bulkfetch", `{"issueIdsOrKeys":[]}`, http.StatusBadRequest)
}

func TestBulkAnswersCanLeaveIssuesOut(t *testing.T) {
	t.Parallel()
	w := still(t)
	keys := issues(w, 3)
	for _, key := range keys {
		w.Jira.SetLabels(key, simtest.Alice, "x")
		w.Jira.SetProperty(key, "lock", []byte(`{"id":"L"}`))
	}
	w.Jira.Set(func(s *sim.JiraSwitches) {
		s.BulkLeavesOut = func(path, key string) bool {
			return key == "PROJ-2" || path == "/changelog/bulkfetch" && key == "PROJ-3"
		}
	})
	text := status(t, w, http.MethodPost, api+"/issue/bulkfetch",
		`{"issueIdsOrKeys":["PROJ-1","PROJ-2","PROJ-3"],"fields":["status"],"properties":["lock","none"]}`, http.StatusOK)
	if diff := cmp.Diff([]string{"PROJ-1", "PROJ-3"}, parse[page](t, text).keys()); diff != "" || strings.Count(text, `"properties":{"lock":{"id":"L"}}`) != 2 {
		t.Errorf("issues %s (-want +got):\n%s", text, diff)
	}
	text = status(t, w, http.MethodPost, api+"/changelog/bulkfetch", `{"issueIdsOrKeys":["PROJ-1","PROJ-2","PROJ-3"]}`, http.StatusOK)
	if n := strings.Count(text, `"issueId"`); n != 1 {
		t.Errorf("%d changelogs in %s", n, text)
	}
	if n := len(search(t, w, "project = PROJ", "").Issues); n != 3 {
		t.Errorf("a search finds %d", n)
	}
}

func TestThePermissionSearchAnswersForOneAccountAndScope(t *testing.T) {
	t.Parallel()
	w := still(t)
	key := issues(w, 1)[0]
	target := api + "/user/permission/search?permissions=EDIT_ISSUES&accountId=" + url.QueryEscape(simtest.Alice)
	for query, want := range map[string]int{
		"&issueKey=" + key:                      http.StatusOK,
		"&projectKey=PROJ":                      http.StatusOK,
		"&projectKey=NONE":                      http.StatusNotFound,
		"&issueKey=PROJ-404":                    http.StatusNotFound,
		"":                                      http.StatusBadRequest,
		"&projectKey=PROJ&query=al":             http.StatusBadRequest,
		"&projectKey=PROJ&permissions=FLY_HIGH": http.StatusBadRequest,
	} {
		text := status(t, w, http.MethodGet, target+query, "", want)
		if want == http.StatusOK && len(parse[[]any](t, text)) != 1 {
			t.Errorf("%s finds %s", query, text)
		}
	}
	w.Jira.Set(func(s *sim.JiraSwitches) { s.RolesForbidden, s.PermissionSearchStatus = true, http.StatusForbidden })
	status(t, w, http.MethodGet, target+"&projectKey=PROJ", "", http.StatusForbidden)
	status(t, w, http.MethodGet, api+"/project/PROJ/role", "", http.StatusUnauthorized)
}

func TestBulkChangelogsAreOldestFirstAndSplitOverPages(t *testing.T) {
	t.Parallel()
	w := still(t)
	issues(w, 3)
	for i := range 3 {
		w.Jira.SetLabels("PROJ-1", simtest.Alice, fmt.Sprint("a", i))
		w.Advance(time.Second)
		w.Jira.Edit("PROJ-2", simtest.Bob, "summary", "", fmt.Sprint("b", i))
		w.Advance(time.Second)
	}
	var got []string
	token := ""
	for pages := 0; ; pages++ {
		body := `{"issueIdsOrKeys":["PROJ-2","PROJ-1","PROJ-3"],"maxResults":4` + token + `}`
		text := status(t, w, http.MethodPost, api+"/changelog/bulkfetch", body, http.StatusOK)
		p := parse[struct {
			Logs []struct {
				IssueID   string `json:"issueId"`
				Histories []struct {
					Items []struct {
						To string `json:"toString"`
					} `json:"items"`
				} `json:"changeHistories"`
			} `json:"issueChangeLogs"`
			Token string `json:"nextPageToken"`
		}](t, text)
		for _, l := range p.Logs {
			words := []string{strconv.Itoa(pages)}
			for _, h := range l.Histories {
				words = append(words, h.Items[0].To)
			}
			got = append(got, strings.Join(words, " "))
		}
		if p.Token == "" {
			break
		}
		token = fmt.Sprintf(`,"nextPageToken":%q`, p.Token)
	}
	if diff := cmp.Diff([]string{"0 a0 a1", "0 b0 b1", "0", "1 a2", "1 b2"}, got); diff != "" {
		t.Errorf("pages (-want +got):\n%s", diff)
	}
	w.Jira.Set(func(s *sim.JiraSwitches) { s.OmitEmptyChangelogs, s.Epoch = true, sim.EpochMillis })
	text := status(t, w, http.MethodPost, api+"/changelog/bulkfetch", `{"issueIdsOrKeys":["PROJ-2","PROJ-3"],"fieldIds":["labels"]}`, http.StatusOK)
	if strings.TrimSpace(text) != `{"issueChangeLogs":[]}` {
		t.Errorf("empty changelogs: %s", text)
	}
	text = status(t, w, http.MethodPost, api+"/changelog/bulkfetch", `{"issueIdsOrKeys":["PROJ-2"]}`, http.StatusOK)
	if want := fmt.Sprintf(`"created":%d`, start().Add(4*time.Second).UnixMilli()); !strings.Contains(text, want) {
		t.Errorf("no %s in %s", want, text)
	}
}

func TestLabelHistoryHasWholeSetsAndStatusHistoryHasIDs(t *testing.T) {
	t.Parallel()
	w := still(t)
	key := issues(w, 1)[0]
	w.Jira.SetLabels(key, simtest.Alice, "a", "b")
	w.Jira.SetLabels(key, simtest.Alice, "b")
	w.Jira.Transition(key, simtest.Bob, "Closed")
	w.Jira.AddHistory(key, map[string]any{"created": "2020-01-01T00:00:00.000+0000", "items": []any{map[string]any{"field": "Labels", "toString": "old"}}})
	text := status(t, w, http.MethodGet, api+"/issue/"+key+"/changelog?startAt=1&maxResults=2", "", http.StatusOK)
	p := parse[struct {
		Total  int  `json:"total"`
		IsLast bool `json:"isLast"`
		Values []struct {
			Author struct {
				AccountID string `json:"accountId"`
			} `json:"author"`
			Items []map[string]any `json:"items"`
		} `json:"values"`
	}](t, text)
	want := map[string]any{"field": "labels", "fieldId": "labels", "fieldtype": "jira", "from": nil, "fromString": "a b", "to": nil, "toString": "b"}
	if diff := cmp.Diff(want, p.Values[1].Items[0]); diff != "" || p.Total != 4 || p.IsLast {
		t.Errorf("total %d, last %t, item (-want +got):\n%s", p.Total, p.IsLast, diff)
	}
	text = status(t, w, http.MethodGet, api+"/issue/"+key+"/changelog?startAt=3", "", http.StatusOK)
	if !strings.Contains(text, `"from":"10000","fromString":"To Do","to":"6","toString":"Closed"`) || !strings.Contains(text, `"isLast":true`) {
		t.Errorf("status change: %s", text)
	}
}

func TestCommentsArePagedAtMostAHundredAndSortedByCreation(t *testing.T) {
	t.Parallel()
	w := still(t)
	key := issues(w, 1)[0]
	for i := range 120 {
		w.Jira.Comment(key, simtest.Alice, fmt.Sprint("comment ", i))
		w.Advance(time.Second)
	}
	type comments struct {
		Total    int `json:"total"`
		Comments []struct {
			ID     string         `json:"id"`
			Author map[string]any `json:"author"`
		} `json:"comments"`
	}
	base := api + "/issue/" + key + "/comment"
	first := parse[comments](t, status(t, w, http.MethodGet, base+"?maxResults=5000", "", http.StatusOK))
	rest := parse[comments](t, status(t, w, http.MethodGet, base+"?startAt=100", "", http.StatusOK))
	newest := parse[comments](t, status(t, w, http.MethodGet, base+"?orderBy=-created&maxResults=1", "", http.StatusOK))
	if first.Total != 120 || len(first.Comments) != 100 || len(rest.Comments) != 20 || newest.Comments[0].ID != rest.Comments[19].ID {
		t.Errorf("total %d, pages of %d and %d", first.Total, len(first.Comments), len(rest.Comments))
	}
	status(t, w, http.MethodGet, base+"?orderBy=updated", "", http.StatusBadRequest)
	w.Jira.DeleteComment(key, newest.Comments[0].ID)
	if got := parse[comments](t, status(t, w, http.MethodGet, base, "", http.StatusOK)); got.Total != 119 {
		t.Errorf("after a delete %d", got.Total)
	}
}

func TestEveryAnswerHasTheServersDateAndTheCallersAccount(t *testing.T) {
	t.Parallel()
	w := still(t)
	res, _ := w.Do(t, http.MethodGet, api+"/myself", "")
	if res.Header.Get("Date") != "Tue, 01 Sep 2026 16:12:44 GMT" || res.Header.Get("X-Aaccountid") != simtest.Bot {
		t.Errorf("headers %v", res.Header)
	}
	w.Jira.Set(func(s *sim.JiraSwitches) { s.NoAccountHeader = true })
	if res, _ := w.Do(t, http.MethodGet, api+"/myself", ""); res.Header.Get("X-Aaccountid") != "" {
		t.Error("account header despite the switch")
	}
}

func TestWrongCredentialsAreRefusedEverywhere(t *testing.T) {
	t.Parallel()
	w := still(t)
	issues(w, 1)
	for _, path := range []string{"/myself", "/serverInfo", "/issue/PROJ-1", "/status", "/project/PROJ/role"} {
		for name, auth := range map[string]func(*http.Request){
			"none":        func(*http.Request) {},
			"wrong token": func(r *http.Request) { r.SetBasicAuth(simtest.JiraEmail, "x") },
			"wrong email": func(r *http.Request) { r.SetBasicAuth("x", simtest.JiraToken) },
			"bearer":      func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+simtest.JiraToken) },
		} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, api+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			auth(req)
			res, err := w.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			if res.StatusCode != http.StatusUnauthorized {
				t.Errorf("%s with %s: %d", path, name, res.StatusCode)
			}
		}
	}
}

func TestAnExpiredTokenCanLookLikeAnEmptySite(t *testing.T) {
	t.Parallel()
	w := still(t)
	key := issues(w, 1)[0]
	w.Jira.Set(func(s *sim.JiraSwitches) { s.AuthMode = sim.AuthAnonymous200 })
	if p := search(t, w, "project = PROJ", ""); len(p.Issues) != 0 || !p.IsLast {
		t.Errorf("search found %v", p.keys())
	}
	res, text := w.Do(t, http.MethodPost, api+"/issue/bulkfetch", `{"issueIdsOrKeys":["PROJ-1"]}`)
	if res.Header.Get("X-Seraph-LoginReason") != "AUTHENTICATED_FAILED" || strings.Contains(text, key) {
		t.Errorf("headers %v, body %s", res.Header, text)
	}
	status(t, w, http.MethodGet, api+"/myself", "", http.StatusUnauthorized)
	status(t, w, http.MethodGet, api+"/issue/"+key, "", http.StatusNotFound)
}

func TestRolesGroupsAndPermissionsAgree(t *testing.T) {
	t.Parallel()
	w := still(t)
	roles := parse[map[string]string](t, status(t, w, http.MethodGet, api+"/project/PROJ/role", "", http.StatusOK))
	if len(roles) != 4 {
		t.Fatalf("roles %v", roles)
	}
	text := status(t, w, http.MethodGet, roles["Developers"], "", http.StatusOK)
	if !strings.Contains(text, simtest.Alice) || strings.Contains(text, `"admin":true`) {
		t.Errorf("Developers: %s", text)
	}
	text = status(t, w, http.MethodGet, roles["Administrators"], "", http.StatusOK)
	groups := status(t, w, http.MethodGet, api+"/user/groups?accountId="+url.QueryEscape(simtest.Bob), "", http.StatusOK)
	if id := `"groupId":"` + sim.GroupID("jira-admins") + `"`; !strings.Contains(text, id) || !strings.Contains(groups, id) {
		t.Errorf("Administrators: %s\nBob's groups: %s", text, groups)
	}
	for account, want := range map[string]bool{simtest.Alice: true, simtest.Bob: true, simtest.Mallory: false} {
		text := status(t, w, http.MethodGet, api+"/user/permission/search?projectKey=PROJ&permissions=EDIT_ISSUES&accountId="+url.QueryEscape(account), "", http.StatusOK)
		if got := strings.Contains(text, account); got != want {
			t.Errorf("%s may edit: %t", account, got)
		}
	}
	text = status(t, w, http.MethodGet, api+"/mypermissions?projectKey=PROJ&permissions=EDIT_ISSUES,ADMINISTER_PROJECTS", "", http.StatusOK)
	if strings.Contains(text, `"havePermission":false`) {
		t.Errorf("the bot's permissions: %s", text)
	}
	status(t, w, http.MethodGet, api+"/mypermissions", "", http.StatusBadRequest)

	w.Jira.Set(func(s *sim.JiraSwitches) { s.RolesForbidden, s.GroupsForbidden = true, true })
	status(t, w, http.MethodGet, api+"/project/PROJ/role", "", http.StatusUnauthorized)
	status(t, w, http.MethodGet, roles["Developers"], "", http.StatusUnauthorized)
	status(t, w, http.MethodGet, api+"/user/groups?accountId=x", "", http.StatusForbidden)
	status(t, w, http.MethodGet, api+"/user/permission/search?projectKey=PROJ&permissions=EDIT_ISSUES&accountId=x", "", http.StatusUnauthorized)
	status(t, w, http.MethodGet, api+"/myself", "", http.StatusOK)
	text = status(t, w, http.MethodGet, api+"/mypermissions?projectKey=PROJ&permissions=ADMINISTER_PROJECTS", "", http.StatusOK)
	if !strings.Contains(text, `"havePermission":false`) {
		t.Errorf("the bot administers without the right: %s", text)
	}
}

func TestSiteResourcesAreServed(t *testing.T) {
	t.Parallel()
	w := still(t)
	issues(w, 2)
	for path, want := range map[string]string{
		"/serverInfo":                  `"deploymentType":"Cloud"`,
		"/status":                      `"key":"indeterminate"`,
		"/status/10001":                `"name":"Done"`,
		"/status/in%20progress":        `"id":"3"`,
		"/issue/PROJ-1?fields=created": `"created":"2026-09-01T09:12:44.513-0700"`,
		"/issue/PROJ-1?fields=-status": `"summary":"issue 1"`,
		"/issue/PROJ-1?properties=a,b": `"properties":{}`,
		"/issue/PROJ-2/properties":     `"keys":[]`,
		"/search/jql?jql=key%3DPROJ-1&fields=summary&fields=labels": `"labels":[]`,
	} {
		if text := status(t, w, http.MethodGet, api+path, "", http.StatusOK); !strings.Contains(text, want) {
			t.Errorf("%s: no %s in %s", path, want, text)
		}
	}
	text := status(t, w, http.MethodPost, api+"/search/approximate-count", `{"jql":"project = PROJ"}`, http.StatusOK)
	if strings.TrimSpace(text) != `{"count":2}` {
		t.Errorf("count %s", text)
	}
	status(t, w, http.MethodGet, api+"/status/99", "", http.StatusNotFound)
	status(t, w, http.MethodPost, api+"/issue/PROJ-1/comment", `{"body":{"type":"doc","version":1,"content":[]}}`, http.StatusCreated)
	status(t, w, http.MethodPost, api+"/issue/PROJ-1/comment", `{"body":"text"}`, http.StatusBadRequest)
}

func TestAnExpandedChangelogIsNewestFirstAndCut(t *testing.T) {
	t.Parallel()
	w := still(t)
	key := issues(w, 1)[0]
	for i := range 50 {
		w.Jira.Edit(key, simtest.Alice, "summary", "", fmt.Sprint("s", i))
		w.Advance(time.Second)
	}
	for _, text := range []string{
		status(t, w, http.MethodGet, api+"/issue/"+key+"?expand=names,changelog", "", http.StatusOK),
		status(t, w, http.MethodPost, api+"/search/jql", `{"jql":"project = PROJ","expand":"changelog"}`, http.StatusOK),
		status(t, w, http.MethodPost, api+"/issue/bulkfetch", `{"issueIdsOrKeys":["PROJ-1"],"expand":["changelog"]}`, http.StatusOK),
	} {
		if strings.Count(text, `"fieldtype"`) != 40 || !strings.Contains(text, `"total":50`) || strings.Index(text, `"s49"`) > strings.Index(text, `"s48"`) {
			t.Errorf("changelog %s", text)
		}
	}
}

func TestOfManyWritersOfOnePropertyOneIsToldThatItCreatedIt(t *testing.T) {
	t.Parallel()
	w := still(t)
	key := issues(w, 1)[0]
	var created atomic.Int32
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			res, _ := w.Do(t, http.MethodPut, api+"/issue/"+key+"/properties/lock", `{"id":"x"}`)
			if res.StatusCode == http.StatusCreated {
				created.Add(1)
			}
			w.Jira.Comment(key, simtest.Alice, "meanwhile")
			search(t, w, "project = PROJ", `,"properties":["lock"]`)
		})
	}
	group.Wait()
	if created.Load() != 1 {
		t.Errorf("%d writers created it", created.Load())
	}
}

func TestABrokenIssueShowsWhatTheTestSays(t *testing.T) {
	t.Parallel()
	w := still(t)
	key := issues(w, 1)[0]
	w.Jira.BreakIssue(key, func(fields map[string]any) { delete(fields, "updated") })
	if fields := search(t, w, "key = "+key, "").Issues[0].Fields; len(fields) != 1 {
		t.Errorf("fields %v", fields)
	}
}

func TestAMovedIssueAnswersToBothKeys(t *testing.T) {
	t.Parallel()
	w := still(t)
	key := issues(w, 1)[0]
	moved := w.Jira.MoveIssue(key, simtest.Bob, "NEW")
	if a, b := idOf(t, w, key), idOf(t, w, moved); a != b || moved != "NEW-1" {
		t.Errorf("%s is %s, %s is %s", key, a, moved, b)
	}
}

func TestTheWorldsClockIsTheBubbles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		w.Net.Latency = func(*http.Request) time.Duration { return time.Second }
		begin := time.Now()
		res, _ := w.Do(t, http.MethodGet, api+"/myself", "")
		if took := time.Since(begin); took != time.Second {
			t.Errorf("took %v", took)
		}
		if want := begin.Add(time.Second / 2).UTC().Format(http.TimeFormat); res.Header.Get("Date") != want {
			t.Errorf("date %s, want %s", res.Header.Get("Date"), want)
		}
	})
}
