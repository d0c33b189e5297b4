package sim_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fullsend/poll-action/internal/sim"
	"github.com/fullsend/poll-action/internal/sim/simtest"
)

const bulkProp = "bulk.test"

// bulkTask sends a bulk property operation and returns the address of its task.
func bulkTask(t *testing.T, w *simtest.World, method, body string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, api+"/issue/properties/"+bulkProp, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth(simtest.JiraEmail, simtest.JiraToken)
	req.Header.Set("Content-Type", "application/json")
	res, err := w.Net.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	if err := res.Body.Close(); err != nil {
		t.Fatal(err)
	}
	to := res.Header.Get("Location")
	if res.StatusCode != http.StatusSeeOther || !strings.HasPrefix(to, api+"/task/") {
		t.Fatalf("%s: %d to %q", body, res.StatusCode, to)
	}
	return to
}

// taskStatus is what a task says of itself.
func taskStatus(t *testing.T, w *simtest.World, task string) string {
	t.Helper()
	return parse[struct {
		Status string `json:"status"`
	}](t, status(t, w, http.MethodGet, task, "", http.StatusOK)).Status
}

// bulkWorld has three issues: one without the property, one with 1, one with a
// document.
func bulkWorld(t *testing.T) (*simtest.World, []sim.Issue) {
	t.Helper()
	w := still(t)
	var issues []sim.Issue
	for range 3 {
		issues = append(issues, w.Jira.CreateIssue(sim.IssueSpec{Project: simtest.Project, Reporter: simtest.Alice}))
	}
	w.Jira.SetProperty(issues[1].Key, bulkProp, []byte(`1`))
	w.Jira.SetProperty(issues[2].Key, bulkProp, []byte(`{"a": "é", "b": [1, {"c": null}]}`))
	return w, issues
}

// props are the values of the property, "-" for none.
func props(w *simtest.World, issues []sim.Issue) []string {
	var all []string
	for _, i := range issues {
		raw, found := w.Jira.Property(i.Key, bulkProp)
		if !found {
			raw = []byte("-")
		}
		all = append(all, string(raw))
	}
	return all
}

const bulkDoc = `{"a": "é", "b": [1, {"c": null}]}`

func TestABulkOperationChangesWhatItsFilterSays(t *testing.T) {
	t.Parallel()
	put, del := http.MethodPut, http.MethodDelete
	for name, tc := range map[string]struct {
		method, body string
		want         []string
	}{
		"only where there is nothing":    {put, `{"value":7,"filter":{"entityIds":[A,B,C],"hasProperty":false}}`, []string{"7", "1", bulkDoc}},
		"only where there is something":  {put, `{"value":7,"filter":{"entityIds":[A,B],"hasProperty":true}}`, []string{"-", "7", bulkDoc}},
		"only in the place of a value":   {put, `{"value":7,"filter":{"entityIds":[A,B,C],"currentValue":1}}`, []string{"-", "7", bulkDoc}},
		"whatever the order of members":  {put, `{"value":7,"filter":{"entityIds":[A,B,C],"currentValue":{"b":[1,{"c":null}],"a":"\u00e9"}}}`, []string{"-", "1", "7"}},
		"no other document":              {put, `{"value":7,"filter":{"entityIds":[A,B,C],"currentValue":{"b":[{"c":null},1],"a":"é"}}}`, []string{"-", "1", bulkDoc}},
		"all criteria together":          {put, `{"value":7,"filter":{"entityIds":[A,C],"currentValue":1,"hasProperty":true}}`, []string{"-", "1", bulkDoc}},
		"null is no criterion":           {put, `{"value":7,"filter":{"entityIds":[C],"currentValue":null}}`, []string{"-", "1", "7"}},
		"an issue that is not there":     {put, `{"value":7,"filter":{"entityIds":[99999]}}`, []string{"-", "1", bulkDoc}},
		"every issue without a filter":   {put, `{"value":7}`, []string{"7", "7", "7"}},
		"every issue without an issue":   {put, `{"value":7,"filter":{"entityIds":[],"hasProperty":false}}`, []string{"7", "1", bulkDoc}},
		"deleted where the value is one": {del, `{"entityIds":[A,B,C],"currentValue":1}`, []string{"-", "-", bulkDoc}},
		"deleted whatever the value is":  {del, `{"entityIds":[A,C]}`, []string{"-", "1", "-"}},
		"deleted everywhere":             {del, `{}`, []string{"-", "-", "-"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, issues := bulkWorld(t)
			before := props(w, issues)
			body := strings.NewReplacer("A", issues[0].ID, "B", issues[1].ID, "C", issues[2].ID).Replace(tc.body)
			task := bulkTask(t, w, tc.method, body)
			if diff := cmp.Diff(before, props(w, issues)); diff != "" || taskStatus(t, w, task) != "ENQUEUED" {
				t.Errorf("it has its effect at once (-before +now):\n%s", diff)
			}
			w.Advance(200 * time.Millisecond)
			if got := taskStatus(t, w, task); got != "RUNNING" {
				t.Errorf("half-way it is %s", got)
			}
			w.Advance(100 * time.Millisecond)
			if diff := cmp.Diff(tc.want, props(w, issues)); diff != "" || taskStatus(t, w, task) != "COMPLETE" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			unbounded := !strings.Contains(tc.body, `"entityIds":[`) || strings.Contains(tc.body, `[]`)
			if got := len(w.Jira.UnboundedBulk()) > 0; got != unbounded || w.Jira.BulkTasks() != 1 {
				t.Errorf("it counts as meant for every issue: %t", got)
			}
		})
	}
}

func TestABulkOperationIsRefusedWhereItIsWrong(t *testing.T) {
	t.Parallel()
	w, issues := bulkWorld(t)
	before := props(w, issues)
	target := api + "/issue/properties/" + bulkProp
	for name, body := range map[string]string{
		"no document": `{`, "an unknown member": `{"value":1,"filters":{}}`, "no value": `{"filter":{"entityIds":[10001]}}`,
		"a value and nothing there": `{"value":1,"filter":{"entityIds":[10001],"currentValue":1,"hasProperty":false}}`,
		"an id that is a text":      `{"value":1,"filter":{"entityIds":["10001"]}}`,
		"a value that is too large": `{"value":"` + strings.Repeat("x", 32768) + `"}`,
		"an expression":             `{"expression":"1"}`,
	} {
		t.Log(name)
		status(t, w, http.MethodPut, target, body, http.StatusBadRequest)
	}
	status(t, w, http.MethodPut, api+"/issue/properties/"+strings.Repeat("k", 256), `{"value":1,"filter":{"entityIds":[1]}}`, http.StatusBadRequest)
	status(t, w, http.MethodDelete, target, `{"hasProperty":true}`, http.StatusBadRequest)
	status(t, w, http.MethodGet, api+"/task/1", "", http.StatusNotFound)
	w.Jira.Set(func(s *sim.JiraSwitches) { s.AuthMode = sim.AuthAnonymous200 })
	status(t, w, http.MethodPut, target, `{"value":1,"filter":{"entityIds":[1]}}`, http.StatusUnauthorized)
	status(t, w, http.MethodGet, api+"/task/1", "", http.StatusUnauthorized)
	w.Advance(time.Hour)
	if diff := cmp.Diff(before, props(w, issues)); diff != "" || w.Jira.BulkTasks() != 0 {
		t.Error(diff)
	}
}

func TestABulkOperationLeavesOutWhatTheAccountMayNotEdit(t *testing.T) {
	t.Parallel()
	w, issues := bulkWorld(t)
	w.Jira.SetReadOnly(issues[0].Key, true)
	w.Jira.DeleteIssue(issues[1].Key)
	bulkTask(t, w, http.MethodPut, fmt.Sprintf(`{"value":7,"filter":{"entityIds":[%s,%s,%s]}}`, issues[0].ID, issues[1].ID, issues[2].ID))
	w.Advance(time.Second)
	if diff := cmp.Diff([]string{"-", "1", "7"}, props(w, issues)); diff != "" {
		t.Error(diff)
	}
}

func TestBulkTasksRunInTheOrderOfTheirDelays(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		site func(*sim.JiraSwitches)
		want []string
	}{
		"each tests when it writes":   {func(*sim.JiraSwitches) {}, []string{`"second"`, `"second"`}},
		"a site that tests too early": {func(s *sim.JiraSwitches) { s.BulkNotAtomic = true }, []string{`"second"`, `"first"`}},
		"a site that does not test":   {func(s *sim.JiraSwitches) { s.BulkIgnoresCriteria = true }, []string{`"second"`, `"first"`}},
		"a site where they fail":      {func(s *sim.JiraSwitches) { s.BulkFails = true }, []string{"-", "-"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, issues := bulkWorld(t)
			w.Jira.Set(func(s *sim.JiraSwitches) {
				tc.site(s)
				s.BulkDelay = func(n int) time.Duration { return time.Duration(3-n) * time.Second }
			})
			var tasks, got []string
			for _, value := range []string{"first", "second"} {
				tasks = append(tasks, bulkTask(t, w, http.MethodPut, fmt.Sprintf(`{"value":%q,"filter":{"entityIds":[%s],"hasProperty":false}}`, value, issues[0].ID)))
			}
			for range 2 {
				w.Advance(time.Second)
				got = append(got, props(w, issues[:1])...)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
			want := "COMPLETE"
			if name == "a site where they fail" {
				want = "FAILED"
			}
			for _, task := range tasks {
				if got := taskStatus(t, w, task); got != want {
					t.Errorf("the task is %s", got)
				}
			}
		})
	}
}
