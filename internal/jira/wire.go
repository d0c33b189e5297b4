package jira

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// user is a Jira account. AccountID identifies it: the account id of Cloud, the
// user name of Data Center, which has no account ids.
type user struct{ AccountID, AccountType, DisplayName string }

// UnmarshalJSON reads both flavours' form; members of the wrong type count as
// absent.
func (u *user) UnmarshalJSON(raw []byte) error {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(raw, &m); err != nil {
		return err
	}
	text := func(name string) string {
		var s string
		_ = json.Unmarshal(m[name], &s) // another type is no text
		return s
	}
	*u = user{AccountID: text("accountId"), AccountType: text("accountType"), DisplayName: text("displayName")}
	if u.AccountID == "" {
		u.AccountID = text("name")
	}
	return nil
}

// issueRow is one issue as a search shows it. Only ID is certain.
type issueRow struct {
	ID, Key          string
	Created, Updated time.Time // zero where missing or unreadable
	Reporter         *user
	Creator          *user
	Labels           []string
	Status           status
	Project          string // key
	Properties       map[string]json.RawMessage
	Notes            []string
}

type status struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	Category struct {
		Key string `json:"key"`
	} `json:"statusCategory"`
}

// decodeRow reads one issue of a page. Members that cannot be understood are
// noted and treated as absent; only a row without a usable id is an error.
func decodeRow(raw json.RawMessage) (issueRow, error) {
	var wire struct {
		ID         string                     `json:"id"`
		Key        string                     `json:"key"`
		Fields     map[string]json.RawMessage `json:"fields"`
		Properties json.RawMessage            `json:"properties"`
	}
	if err := json.Unmarshal(raw, &wire); err != nil {
		var id struct {
			Key json.RawMessage `json:"key"`
		}
		_ = json.Unmarshal(raw, &id)
		return issueRow{}, fmt.Errorf("an issue of unknown shape (key %s) is left out: %w", quoted(string(id.Key)), err)
	}
	if n, err := strconv.ParseInt(wire.ID, 10, 64); err != nil || n < 1 {
		return issueRow{}, fmt.Errorf("an issue whose id %s is no number (key %s) is left out", quoted(wire.ID), quoted(wire.Key))
	}
	r := issueRow{ID: wire.ID, Key: wire.Key, Properties: members(wire.Properties)}
	unknown := func(name string) {
		r.Notes = append(r.Notes, "the field "+name+" has an unknown shape and counts as absent")
	}
	account := func(name string) *user {
		raw := wire.Fields[name]
		u := decodeUser(raw)
		if u == nil && present(raw) {
			unknown(name)
		}
		return u
	}
	stamp := func(name string) time.Time {
		at, err := parseTime(wire.Fields[name])
		if err != nil {
			r.Notes = append(r.Notes, "the field "+name+" cannot be read: "+err.Error())
		}
		return at
	}
	r.Created, r.Updated = stamp("created"), stamp("updated")
	r.Reporter, r.Creator = account("reporter"), account("creator")
	r.Labels = member[[]string](wire.Fields, "labels", unknown)
	r.Status = member[status](wire.Fields, "status", unknown)
	r.Project = member[struct {
		Key string `json:"key"`
	}](wire.Fields, "project", unknown).Key
	if r.Project == "" {
		r.Project, _, _ = strings.Cut(r.Key, "-")
	}
	return r, nil
}

// member reads one field; unknown is told when it has another shape, and nothing
// of it is kept then.
func member[T any](fields map[string]json.RawMessage, name string, unknown func(string)) T {
	var v, none T
	if raw := fields[name]; present(raw) && json.Unmarshal(raw, &v) != nil {
		unknown(name)
		return none
	}
	return v
}

// jiraTime is how Jira writes times: the site's zone, offset without a colon.
const jiraTime = "2006-01-02T15:04:05.999999999-0700"

// parseTime reads a time in any of the forms that Jira uses: its own layout,
// RFC 3339, or a number of seconds or milliseconds since 1970.
func parseTime(raw json.RawMessage) (time.Time, error) {
	if !present(raw) {
		return time.Time{}, errors.New("no time")
	}
	var s string
	if json.Unmarshal(raw, &s) == nil {
		for _, layout := range []string{jiraTime, time.RFC3339Nano} {
			if at, err := time.Parse(layout, s); err == nil {
				return at, nil
			}
		}
		return time.Time{}, fmt.Errorf("%s is no time", quoted(s))
	}
	var n json.Number
	if json.Unmarshal(raw, &n) != nil {
		return time.Time{}, fmt.Errorf("%s is no time", quoted(string(raw)))
	}
	ms, err := n.Int64()
	if err != nil {
		f, ferr := n.Float64() // 1.7873e12 is a whole number too
		if ferr != nil || f < 0 || f > maxUnixMilli {
			return time.Time{}, fmt.Errorf("%s is no time", quoted(n.String()))
		}
		ms = int64(f)
	}
	const secondsUntil = 100_000_000_000 // as seconds the year 5138, as milliseconds 1973
	if ms >= 0 && ms < secondsUntil {
		ms *= 1000
	}
	if ms < 0 || ms > maxUnixMilli {
		return time.Time{}, fmt.Errorf("%s is no time", quoted(n.String()))
	}
	return time.UnixMilli(ms), nil
}

// history is one changelog entry.
type history struct {
	ID      string
	Seq     int64
	Author  *user
	Created time.Time
	Items   []change
}

// change is one field's change. From and To are ids, the strings names.
type change struct {
	Field, From, To, FromString, ToString string
}

// decodeHistory reads one changelog entry; ok is false for one that cannot be
// placed in time or has no id.
func decodeHistory(raw json.RawMessage) (h history, ok bool) {
	var wire struct {
		ID      json.RawMessage   `json:"id"`
		Author  json.RawMessage   `json:"author"`
		Created json.RawMessage   `json:"created"`
		Items   []json.RawMessage `json:"items"`
	}
	if json.Unmarshal(raw, &wire) != nil {
		return h, false
	}
	h.ID = scalar(wire.ID)
	seq, err := strconv.ParseInt(h.ID, 10, 64)
	if err != nil {
		return h, false
	}
	h.Seq = seq
	if h.Created, err = parseTime(wire.Created); err != nil {
		return h, false
	}
	h.Author = decodeUser(wire.Author)
	for _, item := range wire.Items {
		m := members(item)
		c := change{
			Field: scalar(m["fieldId"]), From: scalar(m["from"]), To: scalar(m["to"]),
			FromString: scalar(m["fromString"]), ToString: scalar(m["toString"]),
		}
		if c.Field == "" {
			c.Field = scalar(m["field"])
		}
		c.Field = strings.ToLower(c.Field)
		if c.Field != "" {
			h.Items = append(h.Items, c)
		}
	}
	return h, true
}

// comment is one comment of an issue.
type comment struct {
	ID           string
	Seq          int64
	Author       *user
	UpdateAuthor *user
	Created      time.Time
	Updated      time.Time
	Body         json.RawMessage
	Restricted   bool
}

// decodeComment reads one comment; ok is false for one that cannot be placed in
// time or has no id.
func decodeComment(raw json.RawMessage) (c comment, ok bool) {
	m := members(raw)
	c.ID = scalar(m["id"])
	seq, err := strconv.ParseInt(c.ID, 10, 64)
	if err != nil {
		return c, false
	}
	c.Seq = seq
	if c.Created, err = parseTime(m["created"]); err != nil {
		return c, false
	}
	if c.Updated, err = parseTime(m["updated"]); err != nil || c.Updated.Before(c.Created) {
		c.Updated = c.Created
	}
	c.Author, c.UpdateAuthor = decodeUser(m["author"]), decodeUser(m["updateAuthor"])
	c.Body = m["body"]
	c.Restricted = present(m["visibility"]) || string(m["jsdPublic"]) == "false" || internal(m["properties"])
	return c, true
}

// internal reports whether a comment's properties, as Data Center lists them, say
// that customers of a service desk may not see it.
func internal(properties json.RawMessage) bool {
	var list []struct {
		Key   string          `json:"key"`
		Value json.RawMessage `json:"value"`
	}
	_ = json.Unmarshal(properties, &list) // another shape tells nothing
	for _, p := range list {
		if p.Key == "sd.public.comment" && string(members(p.Value)["internal"]) != "false" {
			return true
		}
	}
	return false
}

// edited reports whether the comment was changed after it was written.
func (c comment) edited() bool { return c.Updated.After(c.Created) }

func decodeUser(raw json.RawMessage) *user {
	var u *user
	if json.Unmarshal(raw, &u) != nil || u == nil || u.AccountID == "" {
		return nil
	}
	return u
}

// scalar returns a text or a number as text, anything else as empty.
func scalar(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var n json.Number
	if json.Unmarshal(raw, &n) == nil {
		return n.String()
	}
	return ""
}
