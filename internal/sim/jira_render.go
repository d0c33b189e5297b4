package sim

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Status is one of the site's statuses; Category is its category's key.
type Status struct{ ID, Name, Category string }

// Statuses returns the site's statuses.
func Statuses() []Status {
	return []Status{
		{"10000", "To Do", "new"},
		{"3", "In Progress", "indeterminate"},
		{"10001", "Done", "done"},
		{"6", "Closed", "done"},
		{"10002", "Backlog", "new"},
	}
}

func statusByName(name string) Status {
	for _, s := range Statuses() {
		if strings.EqualFold(s.Name, name) {
			return s
		}
	}
	return Status{ID: "10099", Name: name, Category: "undefined"}
}

func statusID(name string) string { return statusByName(name).ID }

// categoryName is the display name of a status category.
func categoryName(key string) string {
	switch key {
	case "new":
		return "To Do"
	case "indeterminate":
		return "In Progress"
	case "done":
		return "Done"
	}
	return "No Category"
}

func categoryID(key string) int {
	switch key {
	case "new":
		return 2
	case "indeterminate":
		return 4
	case "done":
		return 3
	}
	return 1
}

func (j *Jira) showStatus(s Status) map[string]any {
	id := strconv.Itoa(categoryID(s.Category))
	return map[string]any{
		"self": j.api() + "/status/" + s.ID, "id": s.ID, "name": s.Name,
		"description": "", "iconUrl": j.base + "/",
		"statusCategory": map[string]any{
			"self": j.api() + "/statuscategory/" + id, "id": categoryID(s.Category),
			"key": s.Category, "name": categoryName(s.Category), "colorName": "blue-gray",
		},
	}
}

// userDetails shows an account the way issues, comments and histories do; an
// unknown account is shown as a deleted one.
func (j *Jira) userDetails(account string) map[string]any {
	if j.dc {
		return j.dcUserDetails(account)
	}
	u, ok := j.users[account]
	if !ok {
		u = User{AccountID: account, DisplayName: "Former user", Type: "atlassian"}
	}
	return map[string]any{
		"self":      j.api() + "/user?accountId=" + account,
		"accountId": account, "accountType": u.Type, "displayName": u.DisplayName, "active": ok,
	}
}

// nullableUser is userDetails, or null for no account.
func (j *Jira) nullableUser(account string) any {
	if account == "" {
		return nil
	}
	return j.userDetails(account)
}

// allFields shows every field of an issue in the given state.
func (j *Jira) allFields(is *issue, st state) map[string]any {
	labels := st.labels
	if labels == nil {
		labels = []string{}
	}
	fields := map[string]any{
		"summary":     st.summary,
		"description": st.description,
		"created":     j.stamp(st.created),
		"updated":     j.stamp(st.updated),
		"reporter":    j.nullableUser(st.reporter),
		"creator":     j.nullableUser(st.creator),
		"assignee":    nil,
		"labels":      labels,
		"status":      j.showStatus(statusByName(st.status)),
		"priority":    map[string]any{"id": "3", "name": priorityName},
		"project": map[string]any{
			"self": j.api() + "/project/" + is.project.id,
			"id":   is.project.id, "key": is.project.key, "name": is.project.key,
		},
		"issuetype": map[string]any{"id": "10001", "name": issueType, "subtask": false},
	}
	for k, v := range st.extra {
		fields[k] = v
	}
	if is.mutate != nil {
		j.planted = true
		is.mutate(fields)
	}
	return fields
}

const (
	priorityName = "Medium"
	issueType    = "Task"
)

// shape says which parts of an issue an answer carries.
type shape struct {
	fields, properties []string
	changelog          bool
}

// maxExpanded is where Cloud cuts the expanded changelog of an issue.
const maxExpanded = 40

// only reports whether nothing but the named parts was asked for.
func (s shape) only(names ...string) bool {
	for _, f := range s.fields {
		if !slices.Contains(names, f) {
			return false
		}
	}
	return true
}

// showIssue shows an issue in a state, cut to a shape.
func (j *Jira) showIssue(is *issue, st state, sh shape) map[string]any {
	id := strconv.FormatInt(is.id, 10)
	out := map[string]any{"id": id}
	if j.dc || !sh.only("id") {
		out["key"] = is.key
		out["self"] = j.api() + "/issue/" + id
	}
	if j.dc || !sh.only("id", "key") {
		out["expand"] = "renderedFields,names,schema,operations,editmeta,changelog,versionedRepresentations"
		out["fields"] = pick(j.allFields(is, st), sh.fields)
	}
	if sh.changelog {
		histories := []any{}
		for _, h := range is.sortedHistory() {
			histories = append(histories, j.showHistory(h))
		}
		if !j.dc || j.switches.HistoriesNewestFirst {
			slices.Reverse(histories)
		}
		if !j.dc {
			histories = histories[:min(len(histories), maxExpanded)]
		}
		out["changelog"] = map[string]any{
			"startAt": 0, "maxResults": len(histories), "total": len(is.history), "histories": histories,
		}
	}
	if len(sh.properties) > 0 {
		props := map[string]json.RawMessage{}
		for _, k := range sh.properties {
			if raw, ok := st.props[k]; ok {
				props[k] = raw
			}
		}
		out["properties"] = props
	}
	return out
}

// pick selects fields: *all and *navigable are everything, -x leaves x out.
func pick(all map[string]any, names []string) map[string]any {
	out := map[string]any{}
	onlyMinus := len(names) > 0
	for _, n := range names {
		onlyMinus = onlyMinus && strings.HasPrefix(n, "-")
	}
	if onlyMinus || slices.Contains(names, "*all") || slices.Contains(names, "*navigable") {
		maps.Copy(out, all)
	}
	for _, n := range names {
		if v, ok := all[n]; ok {
			out[n] = v
		}
	}
	for _, n := range names {
		if rest, ok := strings.CutPrefix(n, "-"); ok {
			delete(out, rest)
		}
	}
	return out
}

func (j *Jira) showHistory(h *change) map[string]any {
	j.planted = j.planted || h.planted
	return h.raw
}

func (j *Jira) showComment(is *issue, c *comment) map[string]any {
	id := strconv.FormatInt(c.id, 10)
	out := map[string]any{
		"self": j.api() + "/issue/" + strconv.FormatInt(is.id, 10) + "/comment/" + id,
		"id":   id, "body": c.body,
		"created": j.stamp(c.created), "updated": j.stamp(c.updated),
	}
	if !j.dc {
		out["jsdPublic"] = c.public == nil || *c.public
	}
	if c.author != "" {
		out["author"] = j.userDetails(c.author)
	}
	if c.editor != "" {
		out["updateAuthor"] = j.userDetails(c.editor)
	}
	if c.visibility != nil {
		out["visibility"] = c.visibility
	}
	return out
}
