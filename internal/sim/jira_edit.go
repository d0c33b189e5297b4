package sim

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Issue names an issue.
type Issue struct{ ID, Key string }

// IssueSpec describes an issue to create.
type IssueSpec struct {
	Project, Summary string
	// Reporter and Creator are account ids; no Creator means the reporter.
	Reporter, Creator string
	Labels            []string
	// Description is an ADF document or nil; Data Center shows it as wiki
	// markup. A string is kept as it is.
	Description any
	// Status is the first status, "To Do" if empty.
	Status string
}

// CreateIssue adds an issue, created and updated now. Its project is added if
// the site does not have it.
func (j *Jira) CreateIssue(spec IssueSpec) Issue {
	j.mu.Lock()
	p := j.projects[spec.Project]
	j.mu.Unlock()
	if p == nil {
		j.AddProject(spec.Project)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	p = j.projects[spec.Project]
	p.next++
	is := &issue{id: j.nextID(), key: fmt.Sprintf("%s-%d", p.key, p.next), project: p}
	st := state{
		summary: spec.Summary, description: j.markup(spec.Description),
		created: j.clock(), updated: j.clock(),
		reporter: j.AccountName(spec.Reporter), creator: j.AccountName(spec.Creator),
		labels: slices.Clone(spec.Labels), status: spec.Status,
	}
	if st.creator == "" {
		st.creator = st.reporter
	}
	if st.status == "" {
		st.status = "To Do"
	}
	j.issues[is.id], j.byKey[is.key] = is, is
	j.commit(is, st)
	return Issue{ID: strconv.FormatInt(is.id, 10), Key: is.key}
}

// Comment adds a comment of one paragraph and returns its id. On Data Center
// the text is the body, as wiki markup.
func (j *Jira) Comment(key, author, text string) string {
	return j.CommentADF(key, author, j.plain(text), nil, nil)
}

// plain is the body of one paragraph.
func (j *Jira) plain(text string) any {
	if j.dc {
		return text
	}
	return Paragraph(text)
}

// Paragraph is the ADF document of one paragraph of plain text.
func Paragraph(text string) map[string]any {
	content := []any{}
	if text != "" {
		content = append(content, map[string]any{"type": "text", "text": text})
	}
	return map[string]any{
		"type": "doc", "version": 1,
		"content": []any{map[string]any{"type": "paragraph", "content": content}},
	}
}

// CommentADF adds a comment and returns its id. Visibility, if not nil, is
// shown as the comment's visibility; public, if not nil, as jsdPublic. On Data
// Center the document is turned into wiki markup, and what is not public has
// the property sd.public.comment instead.
func (j *Jira) CommentADF(key, author string, body, visibility any, public *bool) string {
	id, author := "", j.AccountName(author)
	j.edit(key, func(is *issue, st state) state {
		c := &comment{
			id: j.nextID(), author: author, editor: author, created: st.updated, updated: st.updated,
			body: j.markup(body), visibility: visibility, public: public,
		}
		is.comments = append(is.comments, c)
		id = strconv.FormatInt(c.id, 10)
		return st
	})
	return id
}

// EditComment replaces a comment's text.
func (j *Jira) EditComment(key, commentID, editor, text string) {
	j.edit(key, func(is *issue, st state) state {
		for _, c := range is.comments {
			if strconv.FormatInt(c.id, 10) == commentID {
				c.body, c.editor, c.updated = j.plain(text), j.AccountName(editor), st.updated
			}
		}
		return st
	})
}

// DeleteComment removes a comment. No changelog entry tells of it on Cloud; on
// Data Center one of the field "Comment" has the old text.
func (j *Jira) DeleteComment(key, id string) {
	j.edit(key, func(is *issue, st state) state {
		is.comments = slices.DeleteFunc(is.comments, func(c *comment) bool {
			gone := strconv.FormatInt(c.id, 10) == id
			if text, isText := c.body.(string); gone && j.dc && isText {
				j.record(is, c.author, st.updated, j.item("Comment", nil, text, nil, ""))
			}
			return gone
		})
		return st
	})
}

// SetLabels replaces the set of labels and writes one changelog entry.
func (j *Jira) SetLabels(key, author string, labels ...string) {
	j.edit(key, func(is *issue, st state) state {
		j.record(is, author, st.updated, j.item("labels", nil, strings.Join(st.labels, " "), nil, strings.Join(labels, " ")))
		st.labels = slices.Clone(labels)
		return st
	})
}

// Transition moves an issue to one of the site's statuses ([Statuses]).
func (j *Jira) Transition(key, author, status string) {
	j.edit(key, func(is *issue, st state) state {
		j.record(is, author, st.updated, j.item("status", statusID(st.status), st.status, statusID(status), status))
		st.status = status
		return st
	})
}

// Edit changes a field. "summary" changes the issue's summary; any other name
// is kept and shown as a text.
func (j *Jira) Edit(key, author, field, from, to string) {
	j.edit(key, func(is *issue, st state) state {
		j.record(is, author, st.updated, j.item(field, nil, from, nil, to))
		switch field {
		case "summary":
			st.summary = to
		case "description":
			st.description = j.plain(to)
		default:
			st.extra = maps.Clone(st.extra)
			if st.extra == nil {
				st.extra = map[string]string{}
			}
			st.extra[field] = to
		}
		return st
	})
}

// Touch moves the updated time without anything that tells why, as worklogs,
// attachments and links do.
func (j *Jira) Touch(key string) {
	j.edit(key, func(_ *issue, st state) state { return st })
}

// AddHistory appends a changelog entry as it is, however broken. An id is
// added if it has none; a readable "created" decides its place in the order.
// On Data Center an author with an accountId is shown as that site shows users.
func (j *Jira) AddHistory(key string, raw map[string]any) {
	j.edit(key, func(is *issue, st state) state {
		h := &change{id: j.nextID(), at: st.updated, raw: maps.Clone(raw), planted: true}
		if _, ok := h.raw["id"]; !ok {
			h.raw["id"] = strconv.FormatInt(h.id, 10)
		}
		if author, ok := raw["author"].(map[string]any); ok && j.dc {
			if account, ok := author["accountId"].(string); ok {
				h.raw["author"] = j.userDetails(j.AccountName(account))
			}
		}
		if text, ok := raw["created"].(string); ok {
			if at, err := time.Parse(jiraTime, text); err == nil {
				h.at = at
			}
		}
		is.history = append(is.history, h)
		return st
	})
}

// BreakIssue lets mutate change the fields of every answer that shows the
// issue; nil repairs it.
func (j *Jira) BreakIssue(key string, mutate func(fields map[string]any)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if is := j.find(key); is != nil {
		is.mutate = mutate
	}
}

// MoveIssue gives an issue a key in another project; the old key still leads
// to it.
func (j *Jira) MoveIssue(key, author, to string) string {
	j.mu.Lock()
	if j.projects[to] == nil {
		j.mu.Unlock()
		j.AddProject(to)
		j.mu.Lock()
	}
	j.mu.Unlock()
	moved := key
	j.edit(key, func(is *issue, st state) state {
		p := j.projects[to]
		p.next++
		moved = fmt.Sprintf("%s-%d", p.key, p.next)
		j.record(is, author, st.updated,
			j.item("project", is.project.id, is.project.key, p.id, p.key), j.item("Key", nil, is.key, nil, moved))
		is.key, is.project = moved, p
		j.byKey[moved] = is
		return st
	})
	return moved
}

// DeleteIssue removes an issue; a lagging index shows it for a while.
func (j *Jira) DeleteIssue(key string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.settle()
	is := j.find(key)
	if is == nil {
		return
	}
	is.deleted = true
	j.commit(is, is.cur)
}

// SetReadOnly takes Edit Issues on one issue from the product's account.
func (j *Jira) SetReadOnly(key string, readOnly bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if is := j.find(key); is != nil {
		is.readOnly = readOnly
	}
}

// SetProperty writes an entity property as somebody else would; the bytes are
// kept as they are and should be JSON.
func (j *Jira) SetProperty(key, prop string, raw []byte) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.settle()
	if is := j.find(key); is != nil {
		j.commit(is, j.touched(withProp(is.cur, prop, raw)))
	}
}

// Property reads an entity property as it is now.
func (j *Jira) Property(key, prop string) ([]byte, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.settle()
	is := j.find(key)
	if is == nil {
		return nil, false
	}
	raw, ok := is.cur.props[prop]
	return slices.Clone(raw), ok
}

// Properties returns the keys of an issue's properties, sorted.
func (j *Jira) Properties(key string) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.settle()
	is := j.find(key)
	if is == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(is.cur.props))
}

// DeleteProperty removes an entity property as somebody else would.
func (j *Jira) DeleteProperty(key, prop string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.settle()
	if is := j.find(key); is != nil {
		j.commit(is, j.touched(withProp(is.cur, prop, nil)))
	}
}

// PropertyWrites counts the property writes and deletes that requests made.
func (j *Jira) PropertyWrites() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.settle()
	return j.writes
}

// Updated returns an issue's updated time, zero for an unknown issue.
func (j *Jira) Updated(key string) time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.settle()
	if is := j.find(key); is != nil {
		return is.cur.updated
	}
	return time.Time{}
}

// touched moves updated if property writes do that here.
func (j *Jira) touched(st state) state {
	if j.switches.BumpUpdatedOnPropertyWrite {
		st.updated = j.clock()
	}
	return st
}

// edit applies a change to a known issue, with updated already moved to now.
func (j *Jira) edit(key string, change func(*issue, state) state) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.settle()
	is := j.find(key)
	if is == nil || is.deleted {
		return
	}
	st := is.cur
	if now := j.clock(); now.After(st.updated) {
		st.updated = now
	}
	j.commit(is, change(is, st))
}

func (j *Jira) record(is *issue, author string, at time.Time, items ...map[string]any) {
	id := j.nextID()
	raw := map[string]any{"id": strconv.FormatInt(id, 10), "created": j.stamp(at), "items": items}
	if author != "" {
		raw["author"] = j.userDetails(j.AccountName(author))
	}
	is.history = append(is.history, &change{id: id, at: at, raw: raw})
}

// item is one changed field; ids are nil or texts. Data Center has no fieldId.
func (j *Jira) item(field string, from any, fromString string, to any, toString string) map[string]any {
	it := map[string]any{
		"field": field, "fieldtype": "jira",
		"from": from, "fromString": fromString, "to": to, "toString": toString,
	}
	if !j.dc {
		it["fieldId"] = field
	}
	return it
}
