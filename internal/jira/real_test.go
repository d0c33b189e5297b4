package jira

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// realData returns the files of one kind of the shared real data, by name.
func realData(tb testing.TB, kind string) map[string][]byte {
	tb.Helper()
	names, err := filepath.Glob("../../../shared/realdata/" + kind)
	if err != nil {
		tb.Fatal(err)
	}
	if len(names) == 0 {
		tb.Skip("the shared real data is not here")
	}
	files := map[string][]byte{}
	for _, n := range names {
		if files[strings.TrimSuffix(filepath.Base(n), ".json")], err = os.ReadFile(n); err != nil {
			tb.Fatal(err)
		}
	}
	return files
}

func TestEveryRealDocumentIsReadAsText(t *testing.T) {
	t.Parallel()
	// What must stand in the text of some of them.
	parts := map[string]string{
		"atlaskit-codeBlock-with-multiple-text": "", "rgonek-mention-no-id": "@User Name", "atlaskit-decision-with-mention": "@",
		"atlaskit-card-xss": "http", "atlaskit-mention-without-attrs": "@unknown",
	}
	empty := map[string]bool{"rgonek-empty-document": true, "rgonek-media-unknown-type": true}
	for name, raw := range realData(t, "adf/*.json") {
		b := readBody(raw)
		if !utf8.ValidString(b.Text) || (strings.TrimSpace(b.Text) == "") != empty[name] {
			t.Errorf("%s is read as %.100q", name, b.Text)
		}
		if b.Lead != "" && !strings.HasPrefix(b.Text, b.Lead) {
			t.Errorf("%s begins with %.50q, its text with %.50q", name, b.Lead, b.Text)
		}
		if !strings.Contains(b.Text, parts[name]) {
			t.Errorf("%s has no %q in %q", name, parts[name], b.Text)
		}
		if strings.Contains(b.Text, "<nil>") || strings.Contains(b.Text, "null") {
			t.Errorf("%s: %.200q", name, b.Text)
		}
	}
}

// histories digs the entries out of every form that a changelog comes in.
func histories(tb testing.TB, raw []byte) (entries []json.RawMessage) {
	tb.Helper()
	var doc struct {
		Values []json.RawMessage `json:"values"`
		Logs   []struct {
			Histories []json.RawMessage `json:"changeHistories"`
		} `json:"issueChangeLogs"`
		Changelog struct {
			Histories []json.RawMessage `json:"histories"`
		} `json:"changelog"`
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		tb.Fatal(err)
	}
	entries = append(doc.Values, doc.Changelog.Histories...)
	for _, l := range doc.Logs {
		entries = append(entries, l.Histories...)
	}
	return entries
}

func TestEveryRealChangelogEntryIsRead(t *testing.T) {
	t.Parallel()
	all := 0
	for _, kind := range []string{"jira/changelog/*.json", "jira/issue/*.json"} {
		for name, raw := range realData(t, kind) {
			for i, r := range histories(t, raw) {
				all++
				h, ok := decodeHistory(r)
				if !ok || h.Created.Year() < 2005 || h.Created.Year() > 2030 || h.Seq < 1 || len(h.Items) == 0 {
					t.Errorf("%s: entry %d is read as %+v (%v)", name, i, h, ok)
				}
			}
		}
	}
	if all < 120 {
		t.Errorf("only %d entries were found", all)
	}
}

func TestEveryRealCommentIsRead(t *testing.T) {
	t.Parallel()
	for name, raw := range realData(t, "jira/comment/*.json") {
		var page struct {
			Comments []json.RawMessage `json:"comments"`
		}
		if err := json.Unmarshal(raw, &page); err != nil {
			t.Fatal(err)
		}
		if page.Comments == nil {
			page.Comments = []json.RawMessage{raw} // a single one
		}
		for i, r := range page.Comments {
			c, ok := decodeComment(r)
			if !ok || c.Created.IsZero() || c.Updated.Before(c.Created) || readBody(c.Body).Text == "" {
				t.Errorf("%s: comment %d is read as %+v (%v)", name, i, c, ok)
			}
			if strings.Contains(name, "visibility") && !c.Restricted {
				t.Errorf("%s is not restricted", name)
			}
		}
	}
}

func TestEveryRealIssueIsARowOrSaysWhyNot(t *testing.T) {
	t.Parallel()
	refused := map[string]bool{"jira-cli-search-jql": true} // no id
	for _, kind := range []string{"jira/issue/*.json", "jira/search/*.json"} {
		for name, raw := range realData(t, kind) {
			var page struct {
				Issues []json.RawMessage `json:"issues"`
			}
			if err := json.Unmarshal(raw, &page); err != nil {
				t.Fatal(err)
			}
			if page.Issues == nil {
				page.Issues = []json.RawMessage{raw}
			}
			for _, r := range page.Issues {
				row, err := decodeRow(r)
				if (err != nil) != refused[name] {
					t.Errorf("%s: %v", name, err)
				}
				if err == nil && (row.ID == "" || row.Key == "" || row.Project == "") {
					t.Errorf("%s is read as %+v", name, row)
				}
			}
		}
	}
}

func TestEveryRealErrorIsOneSentence(t *testing.T) {
	t.Parallel()
	files := realData(t, "jira/error/*")
	got := map[string]string{}
	for name, raw := range files {
		var code int
		if _, err := fmt.Sscanf(name, "%d-", &code); err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://acme.atlassian.net/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		text := statusError(reply(req, code, string(raw)), "GET", "/p").Error()
		if strings.ContainsAny(text, "\r\n") || len(text) > 4000 || !strings.Contains(text, fmt.Sprintf("jira answered %d to GET /p", code)) {
			t.Errorf("%s: %.300q", name, text)
		}
		got[name] = text
	}
	for name, part := range map[string]string{"400-next-page-token": "Invalid format of nextPageToken", "400-jql-paren": "JQL", "400-field-required": "required", "401-login-failed": "JIRA_TOKEN"} {
		if !strings.Contains(got[name], part) {
			t.Errorf("%s has no %q: %s", name, part, got[name])
		}
	}
}

func TestRealRolesStatusesAndAccountsAreRead(t *testing.T) {
	t.Parallel()
	files := map[string][]byte{}
	for _, kind := range []string{"jira/role/*.json", "jira/meta/*.json", "jira/user/*.json"} {
		for name, raw := range realData(t, kind) {
			files[name] = raw
		}
	}
	bubble(t, func(s *stage) {
		t := s.t
		s.process()
		serve := func(name string) {
			s.answer = func(req *http.Request, _ []byte) *http.Response {
				return reply(req, 200, string(files[name]))
			}
		}
		serve("go-atlassian-project-roles")
		roles, err := s.client.projectRoles(t.Context(), "P")
		if err != nil || len(roles) == 0 {
			t.Errorf("roles %v, err %v", roles, err)
		}
		for name, id := range roles {
			if strings.Trim(id, "0123456789") != "" || id == "" {
				t.Errorf("role %s has the id %q", name, id)
			}
		}
		serve("openapi-role-actors")
		m, err := s.client.roleMembers(t.Context(), "P", "1")
		if err != nil || len(m.users) != 1 || len(m.groups) != 1 {
			t.Errorf("members %v, err %v", m, err)
		}
		serve("devlake-statuses")
		byID, err := s.client.statuses(t.Context())
		if err != nil || len(byID) < 6 {
			t.Errorf("%d statuses, err %v", len(byID), err)
		}
		kinds := map[string]bool{}
		for _, c := range byID {
			kinds[c] = true
		}
		s.equal(map[string]bool{"new": true, "indeterminate": true, "done": true}, kinds, "categories")
		for name, bot := range map[string]bool{"devlake-user-1": false, "devlake-user-2": true} {
			u := decodeUser(files[name])
			if u == nil || isBot(u) != bot {
				t.Errorf("%s is read as %+v", name, u)
			}
		}
		serve("openapi-myself")
		if id, err := s.client.Self(t.Context()); err != nil || id == "" {
			t.Errorf("account %q, err %v", id, err)
		}
	})
}

func TestTimesAreReadInEveryForm(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]int64{
		`"2026-09-01T09:12:44.513+0200"`:        1788246764513,
		`"2026-09-01T07:12:44.513Z"`:            1788246764513,
		`"2026-09-01T09:12:44.513+02:00"`:       1788246764513,
		`"2024-11-29T10:44:51.887-0800"`:        1732905891887,
		`"2026-09-01T07:12:44+0000"`:            1788246764000,
		`1788246764`:                            1788246764000,
		`1788246764513`:                         1788246764513,
		`1.788246764513e12`:                     1788246764513,
		`1492070429`:                            1492070429000,
		`0`:                                     0,
		`"yesterday"`:                           -1,
		`""`:                                    -1,
		`null`:                                  -1,
		``:                                      -1,
		`true`:                                  -1,
		`{}`:                                    -1,
		`-5`:                                    -1,
		`1e300`:                                 -1,
		`99999999999999999`:                     -1,
		`"1788246764513"`:                       -1,
		`"2026-09-01T09:12:44.513 +0200"`:       -1,
		`"` + strings.Repeat("9", 100000) + `"`: -1,
	} {
		at, err := parseTime([]byte(in))
		if (err != nil) != (want < 0) || err == nil && at.UnixMilli() != want {
			t.Errorf("%.60s is read as %v (%v)", in, at.UTC(), err)
		}
		if err != nil && len(err.Error()) > 2*maxMessage {
			t.Errorf("%.60s: an error of %d bytes", in, len(err.Error()))
		}
	}
}

func TestACommentIsEditedWhenItsTimesDiffer(t *testing.T) {
	t.Parallel()
	created := time.Date(2026, 9, 1, 0, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		updated any
		edited  bool
	}{
		"at once":       {stamp(created), false},
		"later":         {stamp(created.Add(time.Millisecond)), true},
		"before it was": {stamp(created.Add(-time.Hour)), false},
		"never":         {nil, false},
		"unreadable":    {"soon", false},
	} {
		c, ok := decodeComment(raw(t, map[string]any{"id": 5, "created": stamp(created), "updated": tt.updated, "visibility": nil}))
		if !ok || c.edited() != tt.edited || c.Restricted || c.ID != "5" {
			t.Errorf("%s: %+v (%v)", name, c, ok)
		}
	}
}

func TestLabelsOfAnEntryAreSets(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 300)
	got := labelChanges(change{FromString: " b  a a\tb ", ToString: "c " + long + " b\n"})
	var all []string
	for _, l := range got {
		all = append(all, fmt.Sprintf("%.3s %d %s", l.Name, len([]rune(l.Name)), l.Action))
	}
	if diff := cmp.Diff([]string{"a 1 removed", "c 1 added", "ééé 255 added"}, all); diff != "" {
		t.Error(diff)
	}
}
