package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/fullsend/poll-action/internal/dispatch"
	"github.com/fullsend/poll-action/internal/github"
	"github.com/fullsend/poll-action/internal/jira"
	"github.com/fullsend/poll-action/internal/lease"
)

// lockRegister holds locks.
type lockRegister interface {
	// Get returns the stored value, or [lease.ErrAbsent].
	Get(ctx context.Context, item string) ([]byte, error)
	// Delete removes the value; one that is already gone is no error.
	Delete(ctx context.Context, item string) error
}

// lockRuns are the runs that work under locks.
type lockRuns interface {
	// GetRun returns a run; found is false where there is none.
	GetRun(ctx context.Context, id int64) (run github.Run, found bool, err error)
	// CancelRun asks for a run's end; one that has ended is no error, one that
	// does not exist is [github.ErrNoRun].
	CancelRun(ctx context.Context, id int64, force bool) error
	// RunsByLock returns the runs that were started between two times and have the
	// lock's id in their names.
	RunsByLock(ctx context.Context, lockID string, since, until time.Time) ([]github.Run, error)
	// Owns reports whether a run is one of the agents' workflow; one that does not
	// exist is not, and one that cannot be seen is an error.
	Owns(ctx context.Context, id int64) (bool, error)
}

// lockJournal says which events were dispatched to which run.
type lockJournal interface {
	// Revoke puts the events of runs into retry, or marks them as dropped, and
	// returns their dispatch keys.
	Revoke(ctx context.Context, item string, runs []int64, drop bool) ([]string, error)
}

const (
	// stopTime is how long a run may take to end after it was asked, askEvery how
	// often it is looked at meanwhile.
	stopTime = time.Minute
	askEvery = 2 * time.Second
	// settleTime is how long after a lock's last write its poller may still be
	// placing orders and writing the journal.
	settleTime = 30 * time.Second
	// maxRounds bounds how often further runs under the same lock are cancelled,
	// maxPasses how often the lock is looked at.
	maxRounds, maxPasses = 3, 12
	// searchBefore and searchAfter are how far around a lock's time the runs are
	// looked for that it does not name.
	searchBefore, searchAfter = 10 * time.Minute, 2 * time.Hour
)

// canceller cancels what works on one work item: it cancels the runs under the
// lock and waits for their end, takes back what the journal says of them, and
// deletes the lock if it is still the same. The checkpoint is none of its
// business.
type canceller struct {
	locks   lockRegister
	output  lockRuns
	journal lockJournal
	// key names the work item, workflow the file whose runs may be cancelled.
	key, workflow       string
	force, drop, dryRun bool
	// serverNow is the clock of the lock register.
	serverNow func() time.Time
	// tell is told what became of each run, a line at a time.
	tell func(line string)

	remarks []string
	// stored is the lock as it was read last.
	stored  []byte
	lockID  string
	runs    []*ending
	keys    []string
	visible bool
	// last says how it ended where that is no error.
	last string
}

// ending is what became of one run.
type ending struct {
	id  int64
	run github.Run
	// gone: there is no such run any more.
	gone bool
	// became says it in the rest of a sentence.
	became string
}

func (e *ending) over() bool      { return e.gone || e.run.Completed }
func (e *ending) succeeded() bool { return !e.gone && e.run.Completed && e.run.Conclusion == "success" }

func failed(format string, args ...any) error {
	return &exitError{code: ExitFailed, err: fmt.Errorf(format, args...)}
}

func lost(format string, args ...any) error {
	return &exitError{code: ExitLost, err: fmt.Errorf(format, args...)}
}

// cancel does it, beginning with the lock as it was read; nil is none.
func (c *canceller) cancel(ctx context.Context, raw []byte) error {
	held, err := c.understand(ctx, raw)
	if err != nil || c.last != "" {
		return err
	}
	rounds, searched := 0, false
	for range maxPasses {
		if named := c.unseen(held.Runs); len(named) > 0 {
			if rounds++; rounds > maxRounds {
				break
			}
			if err := c.stop(ctx, held, named); err != nil {
				return err
			}
		}
		if age := c.serverNow().Sub(held.TS); age < settleTime && age > -lease.MaxSkew && !c.dryRun {
			if err := pause(ctx, min(settleTime-age, settleTime)); err != nil {
				return c.interrupted(err)
			}
			if held, err = c.again(ctx); err != nil {
				return c.finish(ctx, err)
			}
			continue
		}
		if len(c.runs) == 0 && !searched {
			searched = true
			if err := c.search(ctx, held); err != nil {
				return err
			}
			if c.done() {
				c.last = fmt.Sprintf("the lock of %s is left to the next poll cycle, which writes down what was done: it keeps nobody out any more", c.key)
				return nil
			}
		}
		if c.dryRun {
			c.last = fmt.Sprintf("dry run: the lock of %s would be deleted; nothing was changed", c.key)
			return nil
		}
		if err := c.revoke(ctx); err != nil {
			return err
		}
		now, err := c.again(ctx)
		if err == nil && (len(c.unseen(now.Runs)) > 0 || !now.TS.Equal(held.TS)) {
			held = now
			continue
		}
		return c.finish(ctx, err)
	}
	return failed("runs keep appearing under the lock of %s; the lock stays; cancel again, or stop the pollers first", c.key)
}

// understand reads a stored lock. What is none of ours is left; what nobody can
// read is deleted.
func (c *canceller) understand(ctx context.Context, raw []byte) (lease.Lock, error) {
	if raw == nil {
		c.last = c.key + " has no lock: there is nothing to cancel"
		return lease.Lock{}, nil
	}
	if jira.Rejected(raw) {
		return lease.Lock{}, lost("the lock of %s is not trusted, its signature is missing or wrong; nothing was touched, and the next poll cycle overwrites it; if it is genuine, pass the %s that it was signed with", c.key, secretName)
	}
	held, err := lease.Decode(raw)
	switch {
	case err != nil && c.dryRun:
		c.last = fmt.Sprintf("dry run: the lock of %s cannot be understood (%v) and would be deleted; nothing was changed", c.key, err)
	case err != nil:
		if err := c.remove(ctx, raw); err != nil {
			return held, failed("the lock of %s cannot be understood, and it cannot be deleted: %w", c.key, err)
		}
		c.last = fmt.Sprintf("the lock of %s could not be understood (%v) and is deleted; runs that may have worked under it are not known", c.key, err)
	case held.Driver != "" && held.Driver != jira.DriverType:
		return held, lost("the lock of %s is one of the driver %q, not of %s; nothing was touched; cancel with the program that took it", c.key, held.Driver, jira.DriverType)
	}
	c.lockID = held.ID
	return held, nil
}

// unseen are the runs that were not dealt with yet.
func (c *canceller) unseen(runs []lease.Run) []int64 {
	var ids []int64
	for _, r := range runs {
		if !slices.ContainsFunc(c.runs, func(e *ending) bool { return e.id == r.ID }) {
			ids = append(ids, r.ID)
		}
	}
	return ids
}

// again reads the lock once more. The error matches [lease.ErrMissing] when it is
// gone and [lease.ErrLost] when it is somebody else's.
func (c *canceller) again(ctx context.Context) (lease.Lock, error) {
	raw, err := c.locks.Get(ctx, c.key)
	if errors.Is(err, lease.ErrAbsent) {
		return lease.Lock{}, lease.ErrMissing
	}
	if err != nil {
		return lease.Lock{}, err
	}
	c.stored = raw
	now, err := lease.Decode(raw)
	switch {
	case err != nil:
		return now, fmt.Errorf("%w: somebody overwrote it", lease.ErrLost)
	case now.ID != c.lockID:
		return now, fmt.Errorf("%w: %q holds it now", lease.ErrLost, now.ID)
	}
	return now, nil
}

// search looks for the runs of a lock that names none: its poller died, or did
// not learn what it had started.
func (c *canceller) search(ctx context.Context, held lease.Lock) error {
	found, err := c.output.RunsByLock(ctx, held.ID, held.TS.Add(-searchBefore), held.TS.Add(searchAfter))
	if err != nil {
		return failed("whether a run was started under the lock of %s cannot be found out: %w; the lock stays", c.key, err)
	}
	var ids []int64
	for _, r := range found {
		ids = append(ids, r.ID)
	}
	if len(ids) == 0 {
		c.say("the lock names no run, and none was found by its id")
		return nil
	}
	c.say(fmt.Sprintf("the lock names no run; %d found by its id", len(ids)))
	return c.stop(ctx, held, ids)
}

// done reports whether there were runs, and all of them succeeded. The journal may
// not know of runs that their lock does not name; then the lock is the only evidence
// of their work.
func (c *canceller) done() bool {
	return len(c.runs) > 0 && !slices.ContainsFunc(c.runs, func(e *ending) bool { return !e.succeeded() })
}

// stop cancels those of the runs that have not ended and waits for their end.
func (c *canceller) stop(ctx context.Context, held lease.Lock, ids []int64) error {
	var all, alive []*ending
	for _, id := range ids {
		run, found, err := c.output.GetRun(ctx, id)
		if err != nil {
			return failed("run %d of %s cannot be looked at: %w; nothing more was cancelled, and the lock stays", id, c.key, err)
		}
		e := &ending{id: id, run: run, gone: !found}
		all = append(all, e)
		if !e.over() {
			alive = append(alive, e)
		}
	}
	if err := c.plausible(ctx, held, all); err != nil {
		return err
	}
	c.runs = append(c.runs, all...)
	for _, e := range all {
		switch {
		case e.gone:
			c.report(e, "does not exist any more")
		case e.run.Completed:
			c.report(e, "had ended before (%q)", e.run.Conclusion)
		case c.dryRun:
			c.report(e, "would be cancelled")
		}
	}
	if c.dryRun {
		return nil
	}
	if err := c.end(ctx, alive, false); err != nil {
		return err
	}
	if c.force {
		if err := c.end(ctx, stillAlive(alive), true); err != nil {
			return err
		}
	}
	return c.stopped(alive)
}

// stopped says what became of the runs that were cancelled.
func (c *canceller) stopped(runs []*ending) error {
	var left *ending
	for _, e := range runs {
		switch {
		case e.gone:
			c.report(e, "does not exist any more")
		case e.run.Completed && e.run.Conclusion == "cancelled":
			c.report(e, "is cancelled")
		case e.run.Completed:
			c.report(e, "ended by itself (%q)", e.run.Conclusion)
		default:
			c.report(e, "is still running")
			left = e
		}
	}
	switch {
	case left == nil:
		return nil
	case c.force:
		return failed("run %d of %s is still running %s after it was to stop by force; the lock stays; look at the run, and cancel again when it has ended", left.id, c.key, stopTime)
	}
	return failed("run %d of %s is still running %s after it was asked to stop; the lock stays; cancel again later, or with --force", left.id, c.key, stopTime)
}

// plausible holds the runs against what can be known of them: the lock may have
// been written by anybody who may edit the work item. A run that GitHub does not
// show is gone only where others could be seen, and only runs of the agents'
// workflow are ever cancelled.
func (c *canceller) plausible(ctx context.Context, held lease.Lock, runs []*ending) error {
	for _, e := range runs {
		switch {
		case e.gone && !c.visible:
			if _, err := c.output.Owns(ctx, e.id); err != nil {
				return failed("whether run %d of %s is gone or hidden cannot be told: %w; nothing more was cancelled, and the lock stays", e.id, c.key, err)
			}
			c.visible = true
		case !e.over():
			ours, err := c.ours(ctx, held, e.run)
			if err != nil {
				return failed("whose run %d of %s is cannot be found out: %w; nothing more was cancelled, and the lock stays", e.id, c.key, err)
			}
			if !ours {
				return lost("run %d, which the lock of %s names, is none of the workflow %s: it was not cancelled, and the lock stays; "+
					"look at it, cancel it yourself if it belongs to the issue (gh run cancel %d), and cancel again", e.id, c.key, c.workflow, e.id)
			}
		}
	}
	return nil
}

// ours reports whether a run is one of the agents' workflow. A name with the
// lock's id, which nobody can guess, says so; else GitHub is asked.
func (c *canceller) ours(ctx context.Context, held lease.Lock, run github.Run) (bool, error) {
	if uuid.Validate(held.ID) == nil && strings.Contains(run.Title, held.ID) {
		return true, nil
	}
	return c.output.Owns(ctx, run.ID)
}

// end asks for the end of runs and waits for it, as long as that may take.
func (c *canceller) end(ctx context.Context, runs []*ending, force bool) error {
	if len(runs) == 0 {
		return nil
	}
	for _, e := range runs {
		err := c.output.CancelRun(ctx, e.id, force)
		switch {
		case errors.Is(err, github.ErrNoRun):
			e.gone = true
		case err != nil:
			return failed("run %d of %s cannot be cancelled: %w; the lock stays", e.id, c.key, err)
		}
	}
	var unanswered error
	for waited := time.Duration(0); ; waited += askEvery {
		unanswered = nil
		for _, e := range stillAlive(runs) {
			run, found, err := c.output.GetRun(ctx, e.id)
			switch {
			case err != nil && ctx.Err() != nil:
				return c.interrupted(ctx.Err())
			case err != nil && dispatch.ClassOf(err) == dispatch.Fatal:
				return failed("whether run %d of %s has ended cannot be found out: %w; the lock stays", e.id, c.key, err)
			case err != nil:
				unanswered = failed("whether run %d of %s has ended cannot be found out: %w; the lock stays; cancel again", e.id, c.key, err)
			default:
				e.run, e.gone = run, !found
			}
		}
		if len(stillAlive(runs)) == 0 || waited >= stopTime {
			return unanswered
		}
		if err := pause(ctx, askEvery); err != nil {
			return c.interrupted(err)
		}
	}
}

func stillAlive(runs []*ending) []*ending {
	return slices.DeleteFunc(slices.Clone(runs), (*ending).over)
}

// revoke takes back what the journal says of the runs that did not succeed.
func (c *canceller) revoke(ctx context.Context) error {
	var ids []int64
	for _, e := range c.runs {
		if !e.succeeded() {
			ids = append(ids, e.id)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	keys, err := c.journal.Revoke(ctx, c.key, ids, c.drop)
	if err != nil {
		return failed("the runs of %s have ended, but its journal could not be changed: %w; the lock stays; cancel again when that is mended", c.key, err)
	}
	c.keys = append(c.keys, keys...)
	slices.Sort(c.keys)
	c.keys = slices.Compact(c.keys)
	return nil
}

// finish ends with the lock as it was read last: still the same (nil), gone, or
// somebody else's. Whatever it is, the journal knows of the cancelled runs.
func (c *canceller) finish(ctx context.Context, err error) error {
	switch {
	case err == nil:
		if err := c.remove(ctx, c.stored); err != nil {
			return failed("the runs of %s have ended, but the lock cannot be deleted: %w; %s", c.key, err, c.events())
		}
		c.last = fmt.Sprintf("the lock of %s is deleted; %s", c.key, c.events())
		return nil
	case !errors.Is(err, lease.ErrMissing) && !errors.Is(err, lease.ErrLost):
		return failed("the lock of %s cannot be read again: %w; it stays; cancel again", c.key, err)
	}
	if err := c.revoke(ctx); err != nil {
		return err
	}
	if errors.Is(err, lease.ErrMissing) {
		c.last = fmt.Sprintf("the lock of %s was released meanwhile; %s", c.key, c.events())
		return nil
	}
	return lost("the lock of %s changed hands meanwhile (%w) and was left alone; %s", c.key, err, c.events())
}

// remove deletes the lock and looks whether that has happened: of an issue that
// the account may not edit, Jira says that there was none.
func (c *canceller) remove(ctx context.Context, stored []byte) error {
	const cure = "the Jira account needs Browse Projects and Edit Issues on this issue"
	if err := c.locks.Delete(ctx, c.key); err != nil {
		return fmt.Errorf("%w; %s", err, cure)
	}
	now, err := c.locks.Get(ctx, c.key)
	switch {
	case errors.Is(err, lease.ErrAbsent):
		return nil
	case err != nil:
		return fmt.Errorf("whether it is gone cannot be read: %w", err)
	case bytes.Equal(now, stored):
		return fmt.Errorf("it is still there; %s", cure)
	}
	return nil // somebody else's already
}

// events says what becomes of the events of the runs.
func (c *canceller) events() string {
	quoted := make([]string, len(c.keys))
	for i, k := range c.keys {
		quoted[i] = fmt.Sprintf("%q", k)
	}
	list := strings.Join(quoted, ", ")
	switch {
	case len(c.keys) > 0 && c.drop:
		return "not dispatched again: " + list
	case len(c.keys) > 0:
		return "dispatched again by the next poll cycle: " + list
	case len(c.runs) == 0:
		return "no run of it is known"
	case c.done():
		return "its work was done, nothing is dispatched again"
	case c.drop:
		return "the journal has no event of its runs, so none could be dropped: what is still due is found by the next poll cycle"
	}
	return "the journal has no event of its runs: what is still due is found by the next poll cycle"
}

func (c *canceller) interrupted(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return failed("the runs of %s did not end within %s; the lock stays; cancel again", c.key, cancelTime)
	}
	return failed("the cancel of %s was interrupted; the lock stays; cancel again", c.key)
}

func (c *canceller) say(remark string) {
	c.remarks = append(c.remarks, remark)
	c.tell(remark)
}

// report tells what became of a run, with its address.
func (c *canceller) report(e *ending, became string, args ...any) {
	e.became = fmt.Sprintf(became, args...)
	line := fmt.Sprintf("run %d %s", e.id, e.became)
	if e.run.URL != "" {
		line += ": " + e.run.URL
	}
	c.tell(line)
}
