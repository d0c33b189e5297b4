package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/fullsend/poll-action/internal/actions"
)

// cancelled says how a cancel ended: a last line, in Actions also a notice and a
// step summary. An error is said by [app.exit].
func (a *app) cancelled(ctx context.Context, c *canceller, err error) error {
	status := "done"
	if err != nil {
		status = "failed"
	}
	ids := make([]int64, len(c.runs))
	for i, e := range c.runs {
		ids[i] = e.id
	}
	a.log.InfoContext(ctx, "cancel", "key", c.key, "status", status, "lock_id", c.lockID, "runs", ids, "dispatch_keys", c.keys, "drop", c.drop, "dry_run", c.dryRun)
	if err == nil {
		say(a.Stdout, "%s", c.last)
		a.runner.Notice(c.last)
	}
	if serr := a.runner.Summary(c.markdown(err)); serr != nil {
		return errors.Join(err, &exitError{code: ExitFailed, err: serr})
	}
	return err
}

// markdown makes the step summary.
func (c *canceller) markdown(err error) string {
	var b strings.Builder
	b.WriteString("### Fullsend Poll: cancel " + actions.EscapeMarkdown(c.key) + "\n\n")
	for _, remark := range c.remarks {
		b.WriteString("- " + actions.EscapeMarkdown(remark) + "\n")
	}
	for _, e := range c.runs {
		fmt.Fprintf(&b, "- %s %s\n", link(fmt.Sprintf("run %d", e.id), e.run.URL), actions.EscapeMarkdown(e.became))
	}
	if err != nil {
		b.WriteString("\n❌ " + actions.EscapeMarkdown(err.Error()) + "\n")
	} else {
		b.WriteString("\n" + actions.EscapeMarkdown(c.last) + "\n")
	}
	return b.String()
}
