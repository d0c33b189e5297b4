package sim

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// usualBulkDelay is the delay of a task where nothing else is given.
const usualBulkDelay = 300 * time.Millisecond

// task is a bulk property operation on its way. It has its effect when it is
// due, at the next look at the site; until then it is enqueued for half of its
// time and runs for the other half.
type task struct {
	id             int64
	submitted, due time.Time
	// eligible tests an issue, effect changes its state.
	eligible func(*issue) bool
	effect   func(state) state
	// chosen are the issues that were eligible at submission.
	chosen []*issue
	fails  bool
	done   bool
}

// bulkFilter is the filter of a bulk property operation.
type bulkFilter struct {
	IDs     []int64         `json:"entityIds"`
	Current json.RawMessage `json:"currentValue"`
	Has     *bool           `json:"hasProperty"`
}

// matches tests the criteria on the value of an issue; all of those that are
// given must hold.
func (f bulkFilter) matches(raw json.RawMessage, found bool) bool {
	if f.Has != nil && *f.Has != found {
		return false
	}
	return !f.compares() || found && sameJSON(f.Current, raw)
}

// compares reports whether a value is compared with; null counts as not given.
func (f bulkFilter) compares() bool {
	return len(f.Current) > 0 && !bytes.Equal(f.Current, []byte("null"))
}

func sameJSON(a, b []byte) bool {
	x, errx := canonicalJSON(a)
	y, erry := canonicalJSON(b)
	return errx == nil && erry == nil && bytes.Equal(x, y)
}

// canonicalJSON writes a document without blanks and with sorted names.
func canonicalJSON(raw []byte) ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

func (j *Jira) bulkPutProperty(r *http.Request) answer {
	var req struct {
		Value      json.RawMessage `json:"value"`
		Expression *string         `json:"expression"`
		Filter     bulkFilter      `json:"filter"`
	}
	key := r.PathValue("key")
	switch {
	case !decode(r, &req):
		return refuse(http.StatusBadRequest, badPayload)
	case len(key) > maxPropertyKey:
		return refuse(http.StatusBadRequest, "The property key must not be longer than 255 characters.")
	case req.Expression != nil:
		return refuse(http.StatusBadRequest, "sim: expressions are not evaluated")
	case len(req.Value) == 0:
		return refuse(http.StatusBadRequest, "The property value must be a non-empty, valid JSON document.")
	case len(req.Value) > maxPropertyValue:
		return refuse(http.StatusBadRequest, "The property value must not be longer than 32768 bytes.")
	case req.Filter.compares() && req.Filter.Has != nil && !*req.Filter.Has:
		return refuse(http.StatusBadRequest, "hasProperty must not be false where currentValue is given.")
	}
	return j.submit(key, req.Filter, req.Value)
}

func (j *Jira) bulkDeleteProperty(r *http.Request) answer {
	var req struct {
		IDs     []int64         `json:"entityIds"`
		Current json.RawMessage `json:"currentValue"`
	}
	key := r.PathValue("key")
	if !decode(r, &req) {
		return refuse(http.StatusBadRequest, badPayload)
	}
	has := true
	return j.submit(key, bulkFilter{IDs: req.IDs, Current: req.Current, Has: &has}, nil)
}

// submit enqueues a bulk operation; nil deletes. A filter that names no issue
// leaves no issue out.
func (j *Jira) submit(key string, f bulkFilter, value []byte) answer {
	if len(f.IDs) == 0 {
		j.unbounded = append(j.unbounded, key)
	}
	delay := usualBulkDelay
	if j.switches.BulkDelay != nil {
		delay = j.switches.BulkDelay(len(j.tasks) + 1)
	}
	criteria := !j.switches.BulkIgnoresCriteria
	t := &task{
		id: j.nextID(), submitted: j.now(), due: j.now().Add(delay), fails: j.switches.BulkFails,
		eligible: func(is *issue) bool {
			raw, found := is.cur.props[key]
			named := len(f.IDs) == 0 || slices.Contains(f.IDs, is.id)
			return named && !is.deleted && !is.readOnly && (!criteria || f.matches(raw, found))
		},
		effect: func(st state) state { return j.touched(withProp(st, key, value)) },
	}
	if j.switches.BulkNotAtomic {
		t.chosen = j.eligible(t)
		t.eligible = func(is *issue) bool { return slices.Contains(t.chosen, is) }
	}
	j.tasks = append(j.tasks, t)
	return answer{http.StatusSeeOther, location(j.taskURL(t))}
}

func (j *Jira) taskURL(t *task) string { return j.api() + "/task/" + strconv.FormatInt(t.id, 10) }

// eligible returns the issues that a task would change now.
func (j *Jira) eligible(t *task) []*issue {
	var all []*issue
	for _, id := range slices.Sorted(maps.Keys(j.issues)) {
		if is := j.issues[id]; t.eligible(is) {
			all = append(all, is)
		}
	}
	return all
}

// settle lets every task that is due have its effect: test and write in one, in
// the order in which they are due.
func (j *Jira) settle() {
	now := j.now()
	var due []*task
	for _, t := range j.tasks {
		if !t.done && !t.due.After(now) {
			due = append(due, t)
		}
	}
	slices.SortStableFunc(due, func(a, b *task) int { return cmp.Compare(a.due.UnixNano(), b.due.UnixNano()) })
	for _, t := range due {
		t.done = true
		if t.fails {
			continue
		}
		for _, is := range j.eligible(t) {
			j.commitAt(is, t.effect(is.cur), t.due)
			j.writes++
		}
	}
}

func (j *Jira) getTask(r *http.Request) answer {
	at := slices.IndexFunc(j.tasks, func(t *task) bool { return strconv.FormatInt(t.id, 10) == r.PathValue("task") })
	if at < 0 {
		return refuse(http.StatusNotFound, "The task does not exist.")
	}
	t, now := j.tasks[at], j.now()
	started := t.submitted.Add(t.due.Sub(t.submitted) / 2)
	out := map[string]any{
		"self": j.taskURL(t), "id": strconv.FormatInt(t.id, 10), "description": "Bulk issue property operation",
		"status": "ENQUEUED", "progress": 0, "submitted": t.submitted.UnixMilli(), "submittedBy": firstUserKey,
		"elapsedRuntime": 0, "lastUpdate": t.submitted.UnixMilli(),
	}
	if !started.After(now) {
		out["status"], out["started"], out["lastUpdate"] = "RUNNING", started.UnixMilli(), started.UnixMilli()
		out["elapsedRuntime"] = now.Sub(started).Milliseconds()
	}
	if t.done {
		out["status"], out["progress"] = "COMPLETE", 100
		if t.fails {
			out["status"], out["progress"] = "FAILED", 0
			out["message"] = "The operation failed; nothing was changed."
		}
		out["finished"], out["lastUpdate"] = t.due.UnixMilli(), t.due.UnixMilli()
		out["elapsedRuntime"] = t.due.Sub(started).Milliseconds()
	}
	return ok(out)
}

// UnboundedBulk returns the keys of the bulk property operations that named no
// issue, and so were meant for every issue of the site.
func (j *Jira) UnboundedBulk() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.unbounded)
}

// BulkTasks counts the bulk property operations that were asked for.
func (j *Jira) BulkTasks() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.tasks)
}
