package jira

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/fullsend/poll-action/internal/event"
)

// labelChanges returns what one changelog item did to the labels, by name. The
// item holds both whole sets, separated by blanks.
func labelChanges(ch change) []event.Label {
	before, after := labelSet(ch.FromString), labelSet(ch.ToString)
	var changes []event.Label
	for _, l := range before {
		if !slices.Contains(after, l) {
			changes = append(changes, event.Label{Name: l, Action: event.LabelRemoved})
		}
	}
	for _, l := range after {
		if !slices.Contains(before, l) {
			changes = append(changes, event.Label{Name: l, Action: event.LabelAdded})
		}
	}
	slices.SortFunc(changes, func(a, b event.Label) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Action, b.Action))
	})
	return changes
}

// labelSet returns the distinct labels of a blank-separated list, sorted; labels
// longer than the event schema allows are cut.
func labelSet(s string) []string {
	set := strings.Fields(s)
	for i, l := range set {
		set[i] = event.Truncate(l, 255)
	}
	slices.Sort(set)
	return slices.Compact(set)
}

// labelHistory tells the labels at any time of the changelog's span.
type labelHistory struct {
	changes []labelChange // oldest first
	current []string
}

type labelChange struct {
	at            time.Time
	seq           int64
	before, after []string
}

func newLabelHistory(current []string, entries []history) labelHistory {
	h := labelHistory{current: labelSet(strings.Join(current, " "))}
	for _, e := range entries {
		for _, ch := range e.Items {
			if ch.Field == "labels" {
				h.changes = append(h.changes, labelChange{at: e.Created, seq: e.Seq, before: labelSet(ch.FromString), after: labelSet(ch.ToString)})
			}
		}
	}
	slices.SortFunc(h.changes, func(a, b labelChange) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.seq, b.seq)) })
	return h
}

// at returns the labels right after an occurrence at the given time; seq orders
// changelog entries of the same time. It is never nil.
func (h labelHistory) at(at time.Time, seq int64, rawType string) []string {
	labels := h.current
	for i := len(h.changes) - 1; i >= 0; i-- {
		c := h.changes[i]
		later := c.at.After(at) || c.at.Equal(at) && rawType == "changelog" && c.seq > seq
		if !later {
			return nonNil(c.after)
		}
		labels = c.before
	}
	return nonNil(labels)
}

func nonNil(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}
