package poll

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"
)

// ItemStatus says what became of a work item in a cycle.
type ItemStatus string

// The ends of a work item in one cycle.
const (
	// ItemDispatched: at least one run was started.
	ItemDispatched ItemStatus = "dispatched"
	// ItemAdopted: runs were found that an earlier poller had started and not
	// written down.
	ItemAdopted ItemStatus = "adopted"
	// ItemNothing: inspected, nothing to dispatch.
	ItemNothing ItemStatus = "nothing"
	// ItemContended: somebody else holds the lock.
	ItemContended ItemStatus = "contended"
	// ItemWaiting: something to dispatch, left for a later cycle.
	ItemWaiting ItemStatus = "waiting"
	// ItemFailed: something failed and will be tried again.
	ItemFailed ItemStatus = "failed"
	// ItemWould: a dry run; it would have been dispatched.
	ItemWould ItemStatus = "would-dispatch"
	// ItemSeeded: a baseline gave it a checkpoint.
	ItemSeeded ItemStatus = "seeded"
)

// Run is one order's end in the report.
type Run struct {
	Agent  string `json:"agent"`
	Key    string `json:"key"`
	Status string `json:"status"`
	RunID  int64  `json:"run_id,omitempty"`
	RunURL string `json:"run_url,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// Row is one work item in the report.
type Row struct {
	Key     string     `json:"key"`
	URL     string     `json:"url"`
	Status  ItemStatus `json:"status"`
	Reason  string     `json:"reason,omitempty"`
	Events  int        `json:"events"`
	Runs    []Run      `json:"runs,omitempty"`
	Skipped []Skipped  `json:"skipped,omitempty"`
	Notes   []string   `json:"notes,omitempty"`
}

// Report is everything that one cycle says; the log record, the step summary,
// the action's outputs and the exit code are made from it (contract, section 7).
type Report struct {
	Driver         string `json:"driver"`
	CycleID        string `json:"cycle_id"`
	Mode           string `json:"mode"`
	Candidates     int    `json:"candidates_scanned"`
	Pending        int    `json:"candidates_pending"`
	Held           int    `json:"candidates_held"`
	Locked         int    `json:"locks_acquired"`
	Contended      int    `json:"locks_contended"`
	Released       int    `json:"locks_released"`
	Events         int    `json:"events_emitted"`
	Dispatched     int    `json:"dispatches_scheduled"`
	Failed         int    `json:"dispatches_failed"`
	Duplicates     int    `json:"dispatches_duplicate"`
	Adopted        int    `json:"dispatches_adopted"`
	Refused        int    `json:"dispatches_refused"`
	Seeded         int    `json:"items_seeded,omitempty"`
	Requests       int64  `json:"requests"`
	RateLimitWaits int64  `json:"rate_limit_waits"`
	// RateLimits counts the waits by the limit that was waited for.
	RateLimits map[string]int64 `json:"rate_limits,omitempty"`
	DurationMS int64            `json:"duration_ms"`
	// Items has a row for every item that was looked at, by key.
	Items []Row `json:"items"`
	// Errors are failures that are not one item's; Notes are warnings.
	Errors []string `json:"errors,omitempty"`
	Notes  []string `json:"notes,omitempty"`
	// Interrupted says that the context ended before the cycle did.
	Interrupted bool `json:"interrupted,omitempty"`
}

// OK reports whether nothing failed.
func (r *Report) OK() bool {
	return len(r.Errors) == 0 && r.Failed == 0 && !slices.ContainsFunc(r.Items, func(w Row) bool { return w.Status == ItemFailed })
}

// LogValue makes the report one structured record with the counters of the
// contract; items and texts are left to the summary.
func (r *Report) LogValue() slog.Value {
	limits := make([]any, 0, len(r.RateLimits))
	for _, reason := range slices.Sorted(maps.Keys(r.RateLimits)) {
		limits = append(limits, slog.Int64(reason, r.RateLimits[reason]))
	}
	return slog.GroupValue(
		slog.String("driver", r.Driver),
		slog.String("cycle_id", r.CycleID),
		slog.String("mode", r.Mode),
		slog.Int("candidates_scanned", r.Candidates),
		slog.Int("candidates_pending", r.Pending),
		slog.Int("candidates_held", r.Held),
		slog.Int("locks_acquired", r.Locked),
		slog.Int("locks_contended", r.Contended),
		slog.Int("locks_released", r.Released),
		slog.Int("events_emitted", r.Events),
		slog.Int("dispatches_scheduled", r.Dispatched),
		slog.Int("dispatches_failed", r.Failed),
		slog.Int("dispatches_duplicate", r.Duplicates),
		slog.Int("dispatches_adopted", r.Adopted),
		slog.Int("dispatches_refused", r.Refused),
		slog.Int64("requests", r.Requests),
		slog.Int64("rate_limit_waits", r.RateLimitWaits),
		slog.Group("rate_limits", limits...),
		slog.Int64("duration_ms", r.DurationMS),
	)
}

func (r *Report) finish(start, end time.Time) {
	r.DurationMS = end.Sub(start).Milliseconds()
	slices.SortFunc(r.Items, func(a, b Row) int { return cmp.Or(compareKeys(a.Key, b.Key), cmp.Compare(a.URL, b.URL)) })
	slices.Sort(r.Notes)
	slices.Sort(r.Errors)
}

// compareKeys orders PROJ-9 before PROJ-10.
func compareKeys(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}

func (r *Report) errorf(format string, args ...any) {
	r.Errors = append(r.Errors, fmt.Sprintf(format, args...))
}
