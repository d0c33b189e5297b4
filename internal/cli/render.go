package cli

import (
	"fmt"
	"strings"

	"github.com/fullsend/poll-action/internal/actions"
	"github.com/fullsend/poll-action/internal/poll"
)

// report logs a cycle: one record per work item that is worth one, warnings and
// errors, and last the cycle's own record (contract, section 7).
func (a *app) report(res result) {
	for _, r := range res.Drivers {
		for _, w := range r.Items {
			a.reportItem(w, r.Mode)
		}
		for _, n := range r.Notes {
			a.log.Warn("note", "driver", r.Driver, "note", n)
			a.runner.Warning(r.Driver + ": " + n)
		}
		for _, e := range r.Errors {
			a.log.Error("error", "driver", r.Driver, "err", e)
			a.runner.Error(r.Driver + ": " + e)
		}
		a.log.Info("cycle", "cycle", r)
	}
}

func (a *app) reportItem(w poll.Row, mode string) {
	for _, n := range w.Notes {
		a.log.Warn("work item", "key", w.Key, "note", n)
		a.runner.Warning(w.Key + ": " + n)
	}
	for _, s := range w.Skipped {
		a.log.Warn("skipped", "key", w.Key, "occurrence", s.Key, "at", s.At, "why", s.Why)
	}
	if n := len(w.Skipped); n > 0 {
		a.runner.Warning(fmt.Sprintf("%s: %d occurrences were reported and not dispatched, for example %q: %s", w.Key, n, w.Skipped[0].Key, w.Skipped[0].Why))
	}
	for _, run := range w.Runs {
		a.log.Info("order", "key", w.Key, "agent", run.Agent, "dispatch_key", run.Key, "status", run.Status, "run_id", run.RunID, "run_url", run.RunURL, "reason", run.Reason)
	}
	switch {
	case w.Status == poll.ItemFailed:
		a.log.Error("work item", "key", w.Key, "status", w.Status, "reason", w.Reason)
		a.runner.Error(w.Key + ": " + w.Reason)
	case w.Status != poll.ItemNothing || mode == "dry-run":
		a.log.Info("work item", "key", w.Key, "status", w.Status, "events", w.Events, "reason", w.Reason)
	}
}

// maxRows bounds the table of the step summary.
const maxRows = 500

// markdown makes the step summary: counters, and one row per work item with a
// link to its runs.
func markdown(res result) string {
	var b strings.Builder
	for _, r := range res.Drivers {
		fmt.Fprintf(&b, "### Fullsend Poll: %s (%s)\n\n", actions.EscapeMarkdown(r.Driver), r.Mode)
		fmt.Fprintf(&b, "%d candidates, %d locked, %d contended, %d events, **%d dispatched**, %d failed, %d requests, %d ms\n\n",
			r.Candidates, r.Locked, r.Contended, r.Events, r.Dispatched, r.Failed, r.Requests, r.DurationMS)
		for _, e := range r.Errors {
			fmt.Fprintf(&b, "- ❌ %s\n", actions.EscapeMarkdown(e))
		}
		for _, n := range r.Notes {
			fmt.Fprintf(&b, "- ⚠️ %s\n", actions.EscapeMarkdown(n))
		}
		if len(r.Items) == 0 {
			continue
		}
		b.WriteString("\n| Work item | Status | Runs | Remarks |\n|---|---|---|---|\n")
		for i, w := range r.Items {
			if i == maxRows {
				fmt.Fprintf(&b, "\n%d more work items are in the log.\n", len(r.Items)-maxRows)
				break
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", link(w.Key, w.URL), w.Status, runs(w.Runs), remarks(w))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// link makes a Markdown link of an address that was made by us from a
// configured one, and plain text of anything odd.
func link(text, address string) string {
	text = actions.EscapeMarkdown(text)
	if address == "" || strings.ContainsAny(address, " ()<>\"'`|\\\n\r\t[]") {
		return text
	}
	return "[" + text + "](" + address + ")"
}

func runs(rs []poll.Run) string {
	parts := make([]string, 0, len(rs))
	for _, r := range rs {
		text := fmt.Sprintf("%s: %s", actions.EscapeMarkdown(first(r.Agent, r.Key)), r.Status)
		if r.RunID > 0 {
			text += " " + link(fmt.Sprintf("run %d", r.RunID), r.RunURL)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "<br>")
}

func remarks(w poll.Row) string {
	parts := make([]string, 0, len(w.Notes)+2)
	if w.Reason != "" {
		parts = append(parts, w.Reason)
	}
	for _, r := range w.Runs {
		if r.Reason != "" {
			parts = append(parts, first(r.Agent, r.Key)+": "+r.Reason)
		}
	}
	parts = append(parts, w.Notes...)
	if n := len(w.Skipped); n > 0 {
		parts = append(parts, fmt.Sprintf("%d occurrences reported, not dispatched", n))
	}
	for i, p := range parts {
		parts[i] = actions.EscapeMarkdown(p)
	}
	return strings.Join(parts, "<br>")
}

// oneLine folds text into one line.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
