package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fullsend/poll-action/internal/jira"
	"github.com/fullsend/poll-action/internal/lease"
)

// cancelOptions are the cancel verb's own flags.
type cancelOptions struct {
	issue       string
	force, drop bool
}

func (a *app) cancelCommand() *cobra.Command {
	var o cancelOptions
	cmd := &cobra.Command{
		Use:   "cancel",
		Short: "Cancel the runs of one issue and delete its lock; its event is dispatched again, unless --drop",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return a.cancel(cmd.Context(), o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.issue, "issue", "", "the issue's key, for example PROJ-123")
	f.BoolVar(&o.force, "force", false, "stop a run by force when it does not stop within a minute")
	f.BoolVar(&o.drop, "drop", false, "do not dispatch the cancelled event again")
	return cmd
}

// cancelTime bounds a cancel as a whole.
const cancelTime = 5 * time.Minute

func (a *app) cancel(ctx context.Context, o cancelOptions) error {
	key := strings.ToUpper(strings.TrimSpace(o.issue))
	switch {
	case key == "":
		return errors.New("--issue is missing; give the key of the issue whose runs are to be cancelled, for example PROJ-123 (in Actions: the input cancel)")
	case !issueKey.MatchString(key):
		return fmt.Errorf("--issue %q is no Jira issue key; give one like PROJ-123", o.issue)
	}
	// Harnesses are not loaded: one that is broken must not keep a run from being
	// cancelled.
	raw, err := os.ReadFile(a.configPath())
	if err != nil {
		return a.unreadable(err)
	}
	cfg, ps := a.parse(a.configPath(), raw, false)
	if cfg == nil {
		return ps.err()
	}
	l := &loaded{cfg: cfg}
	drivers, more := a.wire(l)
	if ps = append(ps, more...); len(ps) > 0 {
		return ps.err()
	}
	ctx, stop := context.WithTimeout(ctx, cancelTime)
	defer stop()
	d, lock, err := find(ctx, drivers, key)
	if err != nil {
		return err
	}
	c := &canceller{
		locks: d.state, output: d.out, journal: d.state, key: key, workflow: cfg.Poll.GHADispatch.Workflow,
		force: o.force, drop: o.drop, dryRun: a.set.dryRun,
		serverNow: d.client.ServerNow, tell: func(line string) { say(a.Stdout, "%s", line) },
	}
	err = c.cancel(ctx, lock)
	return a.cancelled(ctx, c, err)
}

// find returns the first driver whose site knows the issue, with the lock that
// was read for that; nil is an issue without one.
func find(ctx context.Context, drivers []*driver, key string) (*driver, []byte, error) {
	var sites []string
	for _, d := range drivers {
		if err := d.client.Resolve(ctx); err != nil {
			return nil, nil, failed("the site of driver %s cannot be asked for %s: %w", d.conf.Name, key, err)
		}
		lock, err := d.state.Get(ctx, key)
		var status *jira.StatusError
		switch {
		case err == nil, errors.Is(err, lease.ErrAbsent):
			return d, lock, nil
		case errors.As(err, &status) && status.Status == http.StatusNotFound:
			sites = append(sites, d.client.Base())
		default:
			return nil, nil, failed("the lock of %s cannot be read: %w; nothing was touched", key, err)
		}
	}
	return nil, nil, fmt.Errorf("the issue %s does not exist at %s, or the Jira account may not see it; check the key and --input-driver", key, strings.Join(slices.Compact(sites), ", "))
}
