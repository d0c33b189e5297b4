package sim

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	defaultPage   = 50
	maxFieldPage  = 100
	maxIDPage     = 5000
	maxProperties = 5
	maxReconcile  = 50
	tokenLife     = 7 * 24 * time.Hour
)

// searchRequest is a search in both of its forms, query string and body.
type searchRequest struct {
	JQL             string   `json:"jql"`
	NextPageToken   string   `json:"nextPageToken"`
	MaxResults      *int     `json:"maxResults"`
	Fields          []string `json:"fields"`
	Expand          string   `json:"expand"`
	Properties      []string `json:"properties"`
	FieldsByKeys    bool     `json:"fieldsByKeys"`
	ReconcileIssues []int64  `json:"reconcileIssues"`
}

// row is a hit: an issue in the state that the index has.
type row struct {
	is   *issue
	st   state
	keys []sortKey
}

// pageToken is the place after a row of a search.
type pageToken struct {
	Query string    `json:"q"`
	At    int64     `json:"t"`
	After []sortKey `json:"a"`
}

func (j *Jira) searchGet(r *http.Request) answer {
	v := r.URL.Query()
	req := searchRequest{
		JQL: v.Get("jql"), NextPageToken: v.Get("nextPageToken"), Expand: v.Get("expand"),
		Fields: list(v["fields"]), Properties: list(v["properties"]),
	}
	if s := v.Get("maxResults"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			return refuse(http.StatusBadRequest, "maxResults is no number")
		}
		req.MaxResults = &n
	}
	for _, s := range list(v["reconcileIssues"]) {
		id, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return refuse(http.StatusBadRequest, "reconcileIssues takes issue ids")
		}
		req.ReconcileIssues = append(req.ReconcileIssues, id)
	}
	return j.search(r, req)
}

func (j *Jira) searchPost(r *http.Request) answer {
	var req searchRequest
	if !decode(r, &req) {
		return refuse(http.StatusBadRequest, badPayload)
	}
	return j.search(r, req)
}

func (j *Jira) search(r *http.Request, req searchRequest) answer {
	q, err := parseJQL(req.JQL)
	if err == nil {
		err = j.checkJQL(q)
	}
	switch {
	case err != nil:
		return refuse(http.StatusBadRequest, err.Error())
	case len(req.Properties) > maxProperties:
		return refuse(http.StatusBadRequest, "At most 5 properties can be requested.")
	case len(req.ReconcileIssues) > maxReconcile:
		return refuse(http.StatusBadRequest, "At most 50 issues can be reconciled.")
	case req.MaxResults != nil && *req.MaxResults < 0:
		return refuse(http.StatusBadRequest, "maxResults must not be negative.")
	}
	digest := sha256.Sum256([]byte(req.JQL))
	fingerprint := hex.EncodeToString(digest[:8])
	var after []sortKey
	if req.NextPageToken != "" {
		token, ok := readToken(req.NextPageToken)
		if !ok || token.Query != fingerprint || j.now().Sub(time.UnixMilli(token.At)) > tokenLife {
			return refuse(http.StatusBadRequest, "Invalid format of nextPageToken")
		}
		after = token.After
	}
	if anonymous(r) {
		return ok(map[string]any{"issues": []any{}, "isLast": true})
	}

	rows := j.rows(q, req.ReconcileIssues)
	if after != nil {
		rows = slices.DeleteFunc(rows, func(w row) bool { return compareKeys(q.order, w.keys, after) <= 0 })
	}
	sh := shape{
		fields: req.Fields, properties: req.Properties,
		changelog: slices.Contains(list([]string{req.Expand}), "changelog"),
	}
	if len(sh.fields) == 0 {
		sh.fields = []string{"id"}
	}
	size := j.pageSize(req.MaxResults, sh)
	last := len(rows) <= size
	rows = rows[:min(size, len(rows))]
	issues := make([]any, 0, len(rows))
	for _, w := range rows {
		issues = append(issues, j.showIssue(w.is, w.st, sh))
	}
	out := map[string]any{"issues": issues, "isLast": last}
	if !last {
		out["nextPageToken"] = writeToken(pageToken{
			Query: fingerprint, At: j.now().UnixMilli(), After: rows[len(rows)-1].keys,
		})
	} else if j.switches.NullLastToken {
		out["nextPageToken"] = nil
	}
	return ok(out)
}

// pageSize is what the server makes of maxResults.
func (j *Jira) pageSize(asked *int, sh shape) int {
	size := defaultPage
	if asked != nil && *asked > 0 {
		size = *asked
	}
	if sh.only("id", "key") && len(sh.properties) == 0 && !sh.changelog {
		size = min(size, maxIDPage)
	} else {
		size = min(size, maxFieldPage)
	}
	if j.switches.MaxPage > 0 {
		size = min(size, j.switches.MaxPage)
	}
	return size
}

// rows are a query's hits in order. Reconciled issues are seen as they are
// now, all others as the index has them.
func (j *Jira) rows(q query, reconciled []int64) []row {
	var rows []row
	for id, is := range j.issues {
		lag := j.switches.IndexLag
		if slices.Contains(reconciled, id) {
			lag = 0
		}
		st, ok := j.indexed(is, lag)
		if ok && (q.where == nil || j.matches(q.where, false, is, st)) {
			rows = append(rows, row{is, st, sortKeys(q.order, is, st)})
		}
	}
	slices.SortFunc(rows, func(a, b row) int { return compareKeys(q.order, a.keys, b.keys) })
	return rows
}

func (j *Jira) approximateCount(r *http.Request) answer {
	var req struct {
		JQL string `json:"jql"`
	}
	if !decode(r, &req) {
		return refuse(http.StatusBadRequest, badPayload)
	}
	q, err := parseJQL(req.JQL)
	if err == nil {
		err = j.checkJQL(q)
	}
	if err != nil {
		return refuse(http.StatusBadRequest, err.Error())
	}
	count := 0
	if !anonymous(r) {
		count = len(j.rows(q, nil))
	}
	return ok(map[string]any{"count": count})
}

func writeToken(t pageToken) string {
	raw, err := json.Marshal(t)
	if err != nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(raw)
}

func readToken(s string) (pageToken, bool) {
	var t pageToken
	raw, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || json.Unmarshal(raw, &t) != nil {
		return pageToken{}, false
	}
	return t, len(t.After) > 0
}

// list reads a list parameter: repeated, or separated by commas, or both.
func list(values []string) []string {
	var out []string
	for _, v := range values {
		for s := range strings.SplitSeq(v, ",") {
			if s = strings.TrimSpace(s); s != "" {
				out = append(out, s)
			}
		}
	}
	return out
}
