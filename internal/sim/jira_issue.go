package sim

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

const (
	maxBulkIssues     = 100
	maxBulkChangelogs = 1000
	maxBulkHistories  = 10000
	maxBulkFields     = 10
	maxPropertyKey    = 255
	maxPropertyValue  = 32768
	maxListPage       = 100
)

// visible resolves the issue that a path names; nil means 404.
func (j *Jira) visible(idOrKey string) *issue {
	is := j.find(idOrKey)
	if is == nil || is.deleted {
		return nil
	}
	return is
}

func (j *Jira) getIssue(r *http.Request) answer {
	is := j.visible(r.PathValue("issue"))
	if is == nil {
		return noIssue()
	}
	v := r.URL.Query()
	sh := shape{
		fields: list(v["fields"]), properties: list(v["properties"]),
		changelog: slices.Contains(list(v["expand"]), "changelog"),
	}
	if len(sh.properties) > maxProperties {
		return refuse(http.StatusBadRequest, "At most 5 properties can be requested.")
	}
	if len(sh.fields) == 0 {
		sh.fields = []string{"*all"}
	}
	out := j.showIssue(is, is.cur, sh)
	out["key"], out["self"] = is.key, j.api()+"/issue/"+strconv.FormatInt(is.id, 10)
	if out["fields"] == nil {
		out["fields"] = map[string]any{}
	}
	return ok(out)
}

func (j *Jira) bulkFetch(r *http.Request) answer {
	var req struct {
		Issues       []string `json:"issueIdsOrKeys"`
		Fields       []string `json:"fields"`
		Properties   []string `json:"properties"`
		Expand       []string `json:"expand"`
		FieldsByKeys bool     `json:"fieldsByKeys"`
	}
	if !decode(r, &req) {
		return refuse(http.StatusBadRequest, badPayload)
	}
	switch {
	case len(req.Issues) == 0:
		return refuse(http.StatusBadRequest, "No issue IDs or keys were provided.")
	case len(req.Issues) > maxBulkIssues:
		return refuse(http.StatusBadRequest, "More than 100 issues were requested.")
	case len(req.Properties) > maxProperties:
		return refuse(http.StatusBadRequest, "At most 5 properties can be requested.")
	}
	sh := shape{fields: req.Fields, properties: req.Properties, changelog: slices.Contains(req.Expand, "changelog")}
	if len(sh.fields) == 0 {
		sh.fields = []string{"*navigable"}
	}
	issues := []any{}
	if !anonymous(r) {
		for _, is := range j.bulk(bulkFetchPath, req.Issues) {
			out := j.showIssue(is, is.cur, sh)
			out["key"] = is.key
			issues = append(issues, out)
		}
	}
	return ok(map[string]any{"issues": issues, "issueErrors": []any{}})
}

const (
	bulkFetchPath      = "/issue/bulkfetch"
	bulkChangelogsPath = "/changelog/bulkfetch"
)

// bulk returns the named issues that a bulk operation answers for.
func (j *Jira) bulk(path string, idsOrKeys []string) []*issue {
	issues := j.resolve(idsOrKeys)
	if leavesOut := j.switches.BulkLeavesOut; leavesOut != nil {
		issues = slices.DeleteFunc(issues, func(is *issue) bool { return leavesOut(path, is.key) })
	}
	return issues
}

// resolve returns the visible ones of the named issues, each once, by id.
func (j *Jira) resolve(idsOrKeys []string) []*issue {
	found := map[int64]*issue{}
	for _, name := range idsOrKeys {
		if is := j.visible(name); is != nil {
			found[is.id] = is
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b *issue) int { return cmp.Compare(a.id, b.id) })
}

func (j *Jira) bulkChangelogs(r *http.Request) answer {
	var req struct {
		Issues     []string `json:"issueIdsOrKeys"`
		FieldIDs   []string `json:"fieldIds"`
		MaxResults *int     `json:"maxResults"`
		Token      string   `json:"nextPageToken"`
	}
	if !decode(r, &req) {
		return refuse(http.StatusBadRequest, badPayload)
	}
	size := maxBulkChangelogs
	if req.MaxResults != nil {
		size = *req.MaxResults
	}
	switch {
	case len(req.Issues) == 0 || len(req.Issues) > maxBulkChangelogs:
		return refuse(http.StatusBadRequest, "issueIdsOrKeys takes 1 to 1000 issues.")
	case len(req.FieldIDs) > maxBulkFields:
		return refuse(http.StatusBadRequest, "fieldIds takes at most 10 fields.")
	case size < 1 || size > maxBulkHistories:
		return refuse(http.StatusBadRequest, "maxResults takes 1 to 10000.")
	}
	start := 0
	if req.Token != "" {
		raw, err := base64.RawURLEncoding.DecodeString(req.Token)
		text, isToken := strings.CutPrefix(string(raw), "changelog:")
		n, nerr := strconv.Atoi(text)
		if err != nil || nerr != nil || !isToken || n < 1 {
			return refuse(http.StatusBadRequest, "Invalid format of nextPageToken")
		}
		start = n
	}
	type entry struct {
		is *issue
		h  *change
	}
	var all []entry
	issues := j.bulk(bulkChangelogsPath, req.Issues)
	for _, is := range issues {
		for _, h := range is.history {
			if touches(h.raw, req.FieldIDs) {
				all = append(all, entry{is, h})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b entry) int {
		return cmp.Or(a.h.at.Compare(b.h.at), cmp.Compare(a.is.id, b.is.id), cmp.Compare(a.h.id, b.h.id))
	})
	end := min(start+size, len(all))
	page := all[min(start, end):end]

	var order []int64
	byIssue := map[int64][]any{}
	for _, e := range page {
		if _, seen := byIssue[e.is.id]; !seen {
			order = append(order, e.is.id)
		}
		byIssue[e.is.id] = append(byIssue[e.is.id], j.bulkHistory(e.h))
	}
	if start == 0 && !j.switches.OmitEmptyChangelogs {
		for _, is := range issues {
			if !slices.ContainsFunc(all, func(e entry) bool { return e.is == is }) {
				order = append(order, is.id)
				byIssue[is.id] = []any{}
			}
		}
	}
	logs := make([]any, 0, len(order))
	for _, id := range order {
		logs = append(logs, map[string]any{"issueId": strconv.FormatInt(id, 10), "changeHistories": byIssue[id]})
	}
	out := map[string]any{"issueChangeLogs": logs}
	if end < len(all) {
		out["nextPageToken"] = base64.RawURLEncoding.EncodeToString([]byte("changelog:" + strconv.Itoa(end)))
	}
	return ok(out)
}

// bulkHistory is an entry with its time in the switch's unit.
func (j *Jira) bulkHistory(h *change) map[string]any {
	if _, has := h.raw["created"].(string); !has || j.switches.Epoch == EpochNone {
		return j.showHistory(h)
	}
	raw := maps.Clone(j.showHistory(h))
	raw["created"] = h.at.UnixMilli()
	if j.switches.Epoch == EpochSeconds {
		raw["created"] = h.at.Unix()
	}
	return raw
}

// touches reports whether an entry changes one of the fields; none means any.
func touches(raw map[string]any, fields []string) bool {
	if len(fields) == 0 {
		return true
	}
	touched := func(it map[string]any) bool {
		id, _ := it["fieldId"].(string)
		return slices.Contains(fields, id)
	}
	switch items := raw["items"].(type) {
	case []map[string]any:
		return slices.ContainsFunc(items, touched)
	case []any:
		return slices.ContainsFunc(items, func(it any) bool {
			fields, _ := it.(map[string]any)
			return touched(fields)
		})
	}
	return false
}

// window reads startAt and maxResults (at most 100, which is also the default).
func window(v url.Values) (start, size int, problem string) {
	size = maxListPage
	for name, into := range map[string]*int{"startAt": &start, "maxResults": &size} {
		s := v.Get(name)
		if s == "" {
			continue
		}
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 {
			return 0, 0, name + " is no number of at least 0"
		}
		*into = n
	}
	return start, min(size, maxListPage), ""
}

func (j *Jira) getChangelog(r *http.Request) answer {
	is := j.visible(r.PathValue("issue"))
	if is == nil {
		return noIssue()
	}
	start, size, problem := window(r.URL.Query())
	if problem != "" {
		return refuse(http.StatusBadRequest, problem)
	}
	history := is.sortedHistory()
	total := len(history)
	first, end := min(start, total), min(start+size, total)
	values := make([]any, 0, end-first)
	for _, h := range history[first:end] {
		values = append(values, j.showHistory(h))
	}
	self := j.api() + "/issue/" + strconv.FormatInt(is.id, 10) + "/changelog?maxResults=" + strconv.Itoa(size) + "&startAt="
	out := map[string]any{
		"self": self + strconv.Itoa(start), "startAt": start, "maxResults": size,
		"total": total, "isLast": end >= total, "values": values,
	}
	if end < total {
		out["nextPage"] = self + strconv.Itoa(end)
	}
	return ok(out)
}

// sortedHistory is the changelog, oldest first.
func (is *issue) sortedHistory() []*change {
	return slices.SortedStableFunc(slices.Values(is.history), func(a, b *change) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.id, b.id))
	})
}

func (j *Jira) getComments(r *http.Request) answer {
	is := j.visible(r.PathValue("issue"))
	if is == nil {
		return noIssue()
	}
	v := r.URL.Query()
	start, size, problem := window(v)
	if problem != "" {
		return refuse(http.StatusBadRequest, problem)
	}
	comments := slices.Clone(is.comments)
	slices.SortStableFunc(comments, func(a, b *comment) int {
		return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.id, b.id))
	})
	switch v.Get("orderBy") {
	case "", "created", "+created", " created": // an unescaped plus arrives as a blank
	case "-created":
		slices.Reverse(comments)
	default:
		return refuse(http.StatusBadRequest, "orderBy takes created, -created or +created.")
	}
	if j.dc { // all of them, or as many as were asked for
		size = dcComments
		if n, err := strconv.Atoi(v.Get("maxResults")); err == nil {
			size = min(n, dcComments)
		}
	}
	first, end := min(start, len(comments)), min(start+size, len(comments))
	shown := make([]any, 0, end-first)
	for _, c := range comments[first:end] {
		out := j.showComment(is, c)
		if j.dc && c.public != nil && slices.Contains(list(v["expand"]), "properties") {
			out["properties"] = []any{map[string]any{
				"key": "sd.public.comment", "value": map[string]any{"internal": !*c.public},
			}}
		}
		shown = append(shown, out)
	}
	return ok(map[string]any{"startAt": start, "maxResults": size, "total": len(comments), "comments": shown})
}

func (j *Jira) postComment(r *http.Request) answer {
	is := j.visible(r.PathValue("issue"))
	if is == nil {
		return noIssue()
	}
	var req struct {
		Body       any   `json:"body"`
		Visibility any   `json:"visibility"`
		Properties []any `json:"properties"`
		JSDPublic  *bool `json:"jsdPublic"`
	}
	if !decode(r, &req) || j.dc && req.JSDPublic != nil {
		return refuse(http.StatusBadRequest, badPayload)
	}
	doc, _ := req.Body.(map[string]any)
	text, isText := req.Body.(string)
	if valid := doc["type"] == "doc"; !j.dc && !valid || j.dc && (!isText || strings.TrimSpace(text) == "") {
		return refuse(http.StatusBadRequest, "Comment body is not valid!")
	}
	now := j.clock()
	c := &comment{
		id: j.nextID(), author: j.self, editor: j.self, created: now, updated: now,
		body: req.Body, visibility: req.Visibility, public: req.JSDPublic,
	}
	is.comments = append(is.comments, c)
	st := is.cur
	st.updated = now
	j.commit(is, st)
	return answer{http.StatusCreated, j.showComment(is, c)}
}

func (j *Jira) getProperties(r *http.Request) answer {
	is := j.visible(r.PathValue("issue"))
	if is == nil {
		return noIssue()
	}
	keys := []any{}
	for _, k := range slices.Sorted(maps.Keys(is.cur.props)) {
		keys = append(keys, map[string]any{
			"key": k, "self": j.api() + "/issue/" + strconv.FormatInt(is.id, 10) + "/properties/" + url.PathEscape(k),
		})
	}
	return ok(map[string]any{"keys": keys})
}

func (j *Jira) getProperty(r *http.Request) answer {
	is := j.visible(r.PathValue("issue"))
	if is == nil {
		return noIssue()
	}
	key := r.PathValue("key")
	raw, found := is.cur.props[key]
	if !found {
		return refuse(http.StatusNotFound, "The property with key '"+key+"' does not exist.")
	}
	return ok(map[string]any{"key": key, "value": raw})
}

func (j *Jira) putProperty(r *http.Request) answer {
	is := j.visible(r.PathValue("issue"))
	if is == nil {
		return noIssue()
	}
	key := r.PathValue("key")
	raw, err := io.ReadAll(r.Body)
	switch {
	case err != nil:
		return refuse(http.StatusBadRequest, "The request body cannot be read.")
	case is.readOnly:
		return refuse(http.StatusForbidden, "You do not have permission to edit issues in this project.")
	case len(key) > maxPropertyKey:
		return refuse(http.StatusBadRequest, "The property key must not be longer than 255 characters.")
	case len(raw) > maxPropertyValue:
		return refuse(http.StatusBadRequest, "The property value must not be longer than 32768 bytes.")
	case !json.Valid(raw):
		return refuse(http.StatusBadRequest, "The property value must be a non-empty, valid JSON document.")
	case j.dc && !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")):
		return refuse(http.StatusBadRequest, "The property value must be a JSON object.")
	}
	_, replaced := is.cur.props[key]
	j.commit(is, j.touched(withProp(is.cur, key, raw)))
	j.writes++
	if replaced {
		return answer{status: http.StatusOK}
	}
	return answer{status: http.StatusCreated}
}

func (j *Jira) deleteProperty(r *http.Request) answer {
	is := j.visible(r.PathValue("issue"))
	if is == nil {
		return noIssue()
	}
	key := r.PathValue("key")
	if _, found := is.cur.props[key]; !found || is.readOnly {
		return refuse(http.StatusNotFound, "The property with key '"+key+"' does not exist.")
	}
	j.commit(is, j.touched(withProp(is.cur, key, nil)))
	j.writes++
	return answer{status: http.StatusNoContent}
}
