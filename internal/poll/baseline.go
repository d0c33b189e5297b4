package poll

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// Baseline gives a checkpoint to everything that the input's queries find and
// that has none yet, and dispatches nothing: the first deployment on a backlog.
// A checkpoint that is already there is kept, so that a second baseline loses
// nothing.
func (c *Cycle) Baseline(ctx context.Context) *Report {
	start := c.o.Now()
	r := &run{Cycle: c, rep: &Report{Driver: c.o.Driver, CycleID: c.o.NewID(), Mode: "baseline", Items: []Row{}}}
	defer func() {
		r.rep.Interrupted = ctx.Err() != nil
		r.rep.finish(start, c.o.Now())
	}()
	b, ok := c.o.Input.(Baseliner)
	if !ok {
		r.rep.errorf("the input driver %s has no baseline", c.o.Input.Name())
		return r.rep
	}
	seeds, err := b.Baseline(ctx)
	r.rep.Candidates = len(seeds)
	if err != nil {
		r.rep.errorf("discover: %v", err)
		return r.rep
	}
	var g errgroup.Group
	g.SetLimit(c.o.Parallel)
	for _, s := range seeds {
		if s.Checkpoint.IsZero() {
			continue
		}
		r.add(func(rep *Report) { rep.Pending++ })
		g.Go(func() error { r.seed(ctx, s); return nil })
	}
	_ = g.Wait()
	return r.rep
}

func (r *run) seed(ctx context.Context, s Seed) {
	row := Row{Key: s.Ref.Key, URL: s.Ref.URL, Status: ItemSeeded}
	switch {
	case r.halted(ctx):
		row.Status, row.Reason = ItemWaiting, "interrupted"
	case r.o.DryRun:
		row.Reason = "dry run: nothing was written"
	default:
		if err := r.o.Checkpoints.Advance(ctx, s.Ref, s.Checkpoint); err != nil {
			row.Status, row.Reason = ItemFailed, oneLine(err)
		}
	}
	r.add(func(rep *Report) {
		if row.Status == ItemSeeded && !r.o.DryRun {
			rep.Seeded++
		}
		rep.Items = append(rep.Items, row)
	})
}
