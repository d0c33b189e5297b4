package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/fullsend/poll-action/internal/jira"
	"github.com/fullsend/poll-action/internal/poll"
)

// pollOptions are the poll verb's own flags.
type pollOptions struct {
	baseline, watch bool
	interval        time.Duration
	result          string
}

// defaultInterval is --watch's default (ADR 63).
const defaultInterval = 60 * time.Second

func (a *app) pollCommand() *cobra.Command {
	var o pollOptions
	cmd := &cobra.Command{
		Use:   "poll",
		Short: "Run one poll cycle: discover, lock, detect, dispatch, advance",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return a.poll(cmd.Context(), o) },
	}
	f := cmd.Flags()
	f.BoolVar(&o.baseline, "baseline", false, "give everything that the queries find a checkpoint and dispatch nothing (first deployment on a backlog)")
	f.BoolVar(&o.watch, "watch", false, "run cycles until SIGINT or SIGTERM")
	f.DurationVar(&o.interval, "interval", defaultInterval, "time between the starts of two cycles with --watch")
	f.StringVar(&o.result, "result", "", "write the result as JSON to this file (- for standard output)")
	return cmd
}

func (a *app) poll(ctx context.Context, o pollOptions) error {
	switch {
	case o.baseline && o.watch:
		return errors.New("--baseline and --watch cannot be combined: a baseline is made once")
	case o.interval < time.Second:
		return fmt.Errorf("--interval %s is too short; at least 1s", o.interval)
	}
	drivers, err := a.prepare(ctx)
	if err != nil {
		return err
	}
	if !o.watch {
		return a.once(ctx, drivers, o)
	}
	poll.Watch(ctx, o.interval, watchJitter, func(ctx context.Context) bool {
		err := a.once(ctx, drivers, o)
		if err != nil {
			a.complain(err)
		}
		return err == nil
	})
	return nil
}

// watchJitter spreads the pauses of watchers that fail together, in percent.
const watchJitter = 10

// prepare loads, validates and wires everything; all problems come together.
func (a *app) prepare(ctx context.Context) ([]*driver, error) {
	l, ps := a.load(ctx, false)
	if l == nil {
		return nil, ps.err()
	}
	drivers, more := a.wire(l)
	if ps = append(ps, more...); len(ps) > 0 {
		return nil, append(ps, a.checkQueries(ctx, l.cfg)...).err()
	}
	for _, d := range drivers {
		if len(d.conf.Queries) == 0 {
			a.warn("driver " + d.conf.Name + " has no query: every issue that the account sees is polled; set poll.input_drivers[].queries")
		}
	}
	return drivers, nil
}

// once runs one cycle of every driver, side by side.
func (a *app) once(ctx context.Context, drivers []*driver, o pollOptions) error {
	reports, err := a.cycles(ctx, drivers, o.baseline)
	if err != nil {
		return err
	}
	res := summarize(reports)
	a.report(res)
	if err := a.publish(res, o); err != nil {
		return &exitError{code: ExitFailed, err: err}
	}
	if !res.OK {
		return &exitError{code: ExitFailed}
	}
	return nil
}

// cycles returns a report per driver. Nothing is touched before every driver has
// discovered: a query that Jira refuses is a configuration error.
func (a *app) cycles(ctx context.Context, drivers []*driver, baseline bool) ([]*poll.Report, error) {
	reports := make([]*poll.Report, len(drivers))
	started := make([]*poll.Started, len(drivers))
	each(drivers, func(i int, d *driver) {
		d.before = d.usage()
		if !baseline {
			started[i] = d.cycle.Begin(ctx)
		}
	})
	var ps problems
	for i, s := range started {
		if s != nil {
			ps = append(ps, a.refusals(drivers[i], s.Err())...)
		}
	}
	if len(ps) > 0 {
		return nil, ps.err()
	}
	each(drivers, func(i int, d *driver) {
		if baseline {
			reports[i] = d.cycle.Baseline(ctx)
		} else {
			reports[i] = started[i].Finish(ctx)
		}
		reports[i].Driver = d.conf.Name
		d.usage().since(d.before, reports[i])
	})
	return reports, nil
}

func each(drivers []*driver, f func(int, *driver)) {
	var g errgroup.Group
	for i, d := range drivers {
		g.Go(func() error { f(i, d); return nil })
	}
	_ = g.Wait()
}

// refusals finds the queries that Jira refused in a discovery's error.
func (a *app) refusals(d *driver, err error) problems {
	if err == nil {
		return nil
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		var ps problems
		for _, e := range many.Unwrap() {
			ps = append(ps, a.refusals(d, e)...)
		}
		return ps
	}
	var refused *jira.QueryError
	if errors.As(err, &refused) {
		return problems{a.queryProblem(d.conf, refused)}
	}
	return nil
}

// result is the document of --result and of the output "result".
type result struct {
	CycleID    string         `json:"cycle_id"`
	OK         bool           `json:"ok"`
	Candidates int            `json:"candidates"`
	Locked     int            `json:"locked"`
	Contended  int            `json:"contended"`
	Events     int            `json:"events"`
	Dispatched int            `json:"dispatched"`
	Failed     int            `json:"failed"`
	Drivers    []*poll.Report `json:"drivers"`
}

func summarize(reports []*poll.Report) result {
	res := result{OK: true, Drivers: reports}
	for _, r := range reports {
		res.CycleID = first(res.CycleID, r.CycleID)
		res.OK = res.OK && r.OK()
		res.Candidates += r.Candidates
		res.Locked += r.Locked
		res.Contended += r.Contended
		res.Events += r.Events
		res.Dispatched += r.Dispatched
		res.Failed += r.Failed
	}
	return res
}

// publish writes the result file and, in Actions, outputs and step summary.
func (a *app) publish(res result, o pollOptions) error {
	doc, err := json.Marshal(res)
	if err != nil {
		return fmt.Errorf("encode the result: %w", err)
	}
	var errs []error
	switch o.result {
	case "":
	case "-":
		_, err = fmt.Fprintf(a.Stdout, "%s\n", doc)
		errs = append(errs, err)
	default:
		errs = append(errs, os.WriteFile(o.result, append(slices.Clone(doc), '\n'), 0o644)) //nolint:gosec // holds no secret; other users' tools read it
	}
	if !o.watch {
		for _, out := range []struct{ name, value string }{
			{"cycle-id", res.CycleID},
			{"candidates", strconv.Itoa(res.Candidates)},
			{"locked", strconv.Itoa(res.Locked)},
			{"contended", strconv.Itoa(res.Contended)},
			{"events", strconv.Itoa(res.Events)},
			{"dispatched", strconv.Itoa(res.Dispatched)},
			{"failed", strconv.Itoa(res.Failed)},
			{"result", string(doc)},
		} {
			errs = append(errs, a.runner.Output(out.name, out.value))
		}
		errs = append(errs, a.runner.Summary(markdown(res)))
	}
	return errors.Join(errs...)
}
