package poll

import (
	"fmt"
	"strings"

	"github.com/fullsend/poll-action/internal/dispatch"
)

// maxReason bounds a reason in a row, in bytes.
const maxReason = 1000

// oneLine folds an error into one bounded line.
func oneLine(err error) string {
	s := strings.Join(strings.Fields(err.Error()), " ")
	if len(s) > maxReason {
		s = strings.ToValidUTF8(s[:maxReason], "") + "…"
	}
	return s
}

// why says in a few words why nothing of the view is left to dispatch.
func (v *view) why() string {
	var unauthorized, invalid, unmatched, done int
	for i, a := range v.judged {
		switch {
		case a.Verdict == dispatch.Invalid:
			invalid++
		case a.Verdict != dispatch.Accepted:
			unauthorized++
		case len(a.Orders()) == 0:
			unmatched++
		case len(v.orders[i]) == 0:
			done++
		}
	}
	var parts []string
	for _, p := range []struct {
		n    int
		text string
	}{
		{unmatched, "matched no trigger"},
		{unauthorized, "refused by the gate"},
		{invalid, "not a valid event"},
		{done, "already dispatched"},
	} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.text))
		}
	}
	if len(parts) == 0 {
		return "no event"
	}
	return strings.Join(parts, ", ")
}

// would makes the row of a dry run: every event with what each harness says.
func (v *view) would() Row {
	row := Row{Status: ItemNothing, Reason: v.why()}
	for i, a := range v.judged {
		open := map[string]bool{}
		for _, o := range v.orders[i] {
			open[o.Key] = true
			row.Status = ItemWould
			row.Reason = ""
		}
		if a.Verdict != dispatch.Accepted {
			row.Runs = append(row.Runs, Run{Key: a.Occurrence.Key, Status: string(a.Verdict), Reason: a.Reason})
			continue
		}
		for _, d := range a.Decisions {
			run := Run{Agent: d.Agent, Key: d.Agent + ":" + a.Occurrence.Key, Status: "no match", Reason: d.Reason}
			switch {
			case d.Matched && open[run.Key]:
				run.Status = string(ItemWould)
			case d.Matched:
				run.Status = string(dispatch.Duplicate)
			}
			row.Runs = append(row.Runs, run)
		}
	}
	return row
}
