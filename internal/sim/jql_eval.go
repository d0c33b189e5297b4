package sim

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// jqlFields maps the names of searchable fields to their first name.
func jqlField(name string) (string, bool) {
	switch name {
	case "key", "issuekey", "issue", "id":
		return "key", true
	case "updated", "updateddate":
		return "updated", true
	case "created", "createddate":
		return "created", true
	case "issuetype", "type":
		return "issuetype", true
	case "project", "labels", "status", "statuscategory", "reporter", "creator", "summary", "priority", "assignee":
		return name, true
	}
	return "", false
}

// check refuses what the site cannot evaluate: unknown fields, operators that
// a field does not have, values that name nothing.
func (j *Jira) checkJQL(q query) error {
	for _, o := range q.order {
		if _, ok := jqlField(o.field); !ok {
			return &jqlError{fmt.Sprintf("Not able to sort using field '%s'.", o.field)}
		}
	}
	switch {
	case q.where == nil && j.dc:
		return nil
	case q.where == nil:
		return &jqlError{"Unbounded JQL queries are not allowed here. Please add a search restriction to your query."}
	}
	return j.checkNode(q.where)
}

func (j *Jira) checkNode(n jqlNode) error {
	switch n := n.(type) {
	case jqlAnd:
		return j.checkAll(n)
	case jqlOr:
		return j.checkAll(n)
	case jqlNot:
		return j.checkNode(n.node)
	case clause:
		return j.checkClause(n)
	}
	return nil
}

func (j *Jira) checkAll(nodes []jqlNode) error {
	for _, n := range nodes {
		if err := j.checkNode(n); err != nil {
			return err
		}
	}
	return nil
}

func (j *Jira) checkClause(c clause) error {
	field, ok := jqlField(c.field)
	if !ok {
		return &jqlError{fmt.Sprintf("Field '%s' does not exist or you do not have permission to view it.", c.field)}
	}
	dates := field == "updated" || field == "created"
	switch c.op {
	case "<", "<=", ">", ">=":
		ok = dates
	case "~", "!~":
		ok = field == "summary"
	case "=", "!=", "in", "not in":
		ok = field != "summary"
	}
	if !ok {
		return &jqlError{fmt.Sprintf("The operator '%s' is not supported by the '%s' field.", c.op, c.field)}
	}
	for _, v := range c.values {
		if err := j.checkValue(field, c.field, v); err != nil {
			return err
		}
	}
	return nil
}

func (j *Jira) checkValue(field, written string, v operand) error {
	missing := &jqlError{fmt.Sprintf("The value '%s' does not exist for the field '%s'.", v.text, written)}
	switch field {
	case "updated", "created":
		if _, err := j.jqlDate(v); err != nil {
			return &jqlError{fmt.Sprintf("Date value '%s' for field '%s' is invalid. Valid formats include: 'yyyy/MM/dd HH:mm', 'yyyy-MM-dd HH:mm', 'yyyy/MM/dd', 'yyyy-MM-dd', or a period format e.g. '-5d', '4w 2d'.", v.text, written)}
		}
	case "project":
		if j.projectOf(v.text) == nil {
			return missing
		}
	case "status":
		if statusByName(v.text).Category == "undefined" && !slices.ContainsFunc(Statuses(), func(s Status) bool { return s.ID == v.text }) {
			return missing
		}
	case "statuscategory":
		if !slices.ContainsFunc(Statuses(), func(s Status) bool { return inCategory(s, v.text) }) {
			return missing
		}
	case "key":
		if j.find(v.text) == nil {
			return &jqlError{fmt.Sprintf("An issue with key '%s' does not exist for field '%s'.", v.text, written)}
		}
	}
	return nil
}

func inCategory(s Status, value string) bool {
	return strings.EqualFold(s.Category, value) || strings.EqualFold(categoryName(s.Category), value) ||
		strconv.Itoa(categoryID(s.Category)) == value
}

func (j *Jira) projectOf(value string) *project {
	for _, p := range j.projects {
		if strings.EqualFold(p.key, value) || p.id == value {
			return p
		}
	}
	return nil
}

// matches evaluates n, or its negation, on an issue in a state. A negation is
// pushed down to the clauses, as Jira does: an empty field matches neither
// "labels = x" nor "NOT labels = x".
func (j *Jira) matches(n jqlNode, negate bool, is *issue, st state) bool {
	holds := func(n jqlNode) bool { return j.matches(n, negate, is, st) }
	switch n := n.(type) {
	case jqlAnd:
		if negate {
			return slices.ContainsFunc(n, holds)
		}
		return !slices.ContainsFunc(n, func(n jqlNode) bool { return !holds(n) })
	case jqlOr:
		if negate {
			return !slices.ContainsFunc(n, func(n jqlNode) bool { return !holds(n) })
		}
		return slices.ContainsFunc(n, holds)
	case jqlNot:
		return j.matches(n.node, !negate, is, st)
	case clause:
		if negate {
			n.op = inverse(n.op)
		}
		return j.clauseMatches(n, is, st)
	}
	return false
}

func inverse(op string) string {
	pairs := []string{"=", "!=", "<", ">=", ">", "<=", "~", "!~", "in", "not in", "is", "is not"}
	i := slices.Index(pairs, op)
	return pairs[i^1]
}

func (j *Jira) clauseMatches(c clause, is *issue, st state) bool {
	field, _ := jqlField(c.field)
	if field == "updated" || field == "created" {
		return j.dateMatches(c, field, st)
	}
	have := fieldValues(field, is, st)
	switch c.op {
	case "is":
		return len(have) == 0
	case "is not":
		return len(have) > 0
	}
	if len(have) == 0 {
		return false
	}
	found := slices.ContainsFunc(c.values, func(v operand) bool {
		want := v.text
		if want == "currentUser()" {
			want = j.self
		}
		return slices.ContainsFunc(have, func(h string) bool {
			if field == "summary" {
				return strings.Contains(strings.ToLower(h), strings.ToLower(want))
			}
			return strings.EqualFold(h, want)
		})
	})
	return found == (c.op == "=" || c.op == "in" || c.op == "~")
}

// fieldValues lists the texts by any of which a field's value can be named.
func fieldValues(field string, is *issue, st state) []string {
	one := func(s string) []string {
		if s == "" {
			return nil
		}
		return []string{s}
	}
	switch field {
	case "project":
		return []string{is.project.key, is.project.id}
	case "key":
		return []string{is.key, strconv.FormatInt(is.id, 10)}
	case "labels":
		return st.labels
	case "status":
		return []string{st.status, statusID(st.status)}
	case "statuscategory":
		key := statusByName(st.status).Category
		return []string{key, categoryName(key), strconv.Itoa(categoryID(key))}
	case "reporter":
		return one(st.reporter)
	case "creator":
		return one(st.creator)
	case "summary":
		return one(st.summary)
	case "priority":
		return one(priorityName)
	case "issuetype":
		return one(issueType)
	}
	return nil
}

func (j *Jira) dateMatches(c clause, field string, st state) bool {
	have := st.updated
	if field == "created" {
		have = st.created
	}
	holds := func(v operand) bool {
		want, err := j.jqlDate(v)
		if err != nil {
			return false
		}
		d := have.Compare(want)
		switch c.op {
		case "<":
			return d < 0
		case "<=":
			return d <= 0
		case ">":
			return d > 0
		case ">=":
			return d >= 0
		}
		return d == 0
	}
	switch c.op {
	case "is":
		return false
	case "is not":
		return true
	case "!=", "not in":
		return !slices.ContainsFunc(c.values, holds)
	}
	return slices.ContainsFunc(c.values, holds)
}

// jqlDate reads a date operand: a number of milliseconds since the epoch
// without quotation marks is exact; text is read in the caller's zone, at the
// grain of a minute; "-5m" counts from now.
func (j *Jira) jqlDate(v operand) (time.Time, error) {
	if v.text == "now()" {
		return j.now(), nil
	}
	if !v.quoted {
		if ms, err := strconv.ParseInt(v.text, 10, 64); err == nil && ms >= 0 {
			return time.UnixMilli(ms), nil
		}
	}
	for _, layout := range []string{"2006-01-02 15:04", "2006/01/02 15:04", "2006-01-02", "2006/01/02"} {
		if t, err := time.ParseInLocation(layout, v.text, j.user); err == nil {
			return t, nil
		}
	}
	d, err := jqlPeriod(v.text)
	if err != nil {
		return time.Time{}, err
	}
	return j.now().Add(d).Truncate(time.Minute), nil
}

// jqlPeriod reads "-5m", "4w 2d", "-90": minutes are the default unit.
func jqlPeriod(text string) (time.Duration, error) {
	rest, negative := strings.CutPrefix(strings.TrimSpace(text), "-")
	var sum time.Duration
	fields := strings.Fields(rest)
	for _, f := range fields {
		unit := time.Minute
		switch f[len(f)-1] {
		case 'w':
			unit = 7 * 24 * time.Hour
		case 'd':
			unit = 24 * time.Hour
		case 'h':
			unit = time.Hour
		}
		n, err := strconv.Atoi(strings.TrimRight(f, "wdhm"))
		if err != nil || n < 0 || n > 1_000_000 {
			return 0, fmt.Errorf("sim: %q is no period", text)
		}
		sum += time.Duration(n) * unit
	}
	if len(fields) == 0 {
		return 0, fmt.Errorf("sim: %q is no period", text)
	}
	if negative {
		sum = -sum
	}
	return sum, nil
}

// sortKey is one ORDER BY column of one row, as a page token keeps it.
type sortKey struct {
	S string `json:"s,omitempty"`
	N int64  `json:"n,omitempty"`
}

// sortKeys are a row's values in the order of the query, its id last.
func sortKeys(order []orderBy, is *issue, st state) []sortKey {
	keys := make([]sortKey, 0, len(order)+1)
	for _, o := range order {
		field, _ := jqlField(o.field)
		switch field {
		case "updated":
			keys = append(keys, sortKey{N: st.updated.UnixMilli()})
		case "created":
			keys = append(keys, sortKey{N: st.created.UnixMilli()})
		case "key":
			project, number, _ := strings.Cut(is.key, "-")
			n, _ := strconv.ParseInt(number, 10, 64)
			if o.field == "id" {
				project, n = "", is.id
			}
			keys = append(keys, sortKey{S: project, N: n})
		case "priority":
			keys = append(keys, sortKey{})
		default:
			keys = append(keys, sortKey{S: strings.ToLower(strings.Join(fieldValues(field, is, st), " "))})
		}
	}
	return append(keys, sortKey{N: is.id})
}

func compareKeys(order []orderBy, a, b []sortKey) int {
	for i := range min(len(a), len(b)) {
		c := cmp.Or(cmp.Compare(a[i].S, b[i].S), cmp.Compare(a[i].N, b[i].N))
		if c == 0 {
			continue
		}
		if i < len(order) && order[i].desc {
			return -c
		}
		return c
	}
	return cmp.Compare(len(a), len(b))
}
