package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/fullsend/poll-action/internal/lease"
)

// lockRefresh is a run's first step: it takes the lock over or ends the run.
func (a *app) lockRefresh(ctx context.Context) error {
	looking, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	h, err := a.hold(looking)
	if err != nil {
		return err
	}
	if _, err := h.keeper.Refresh(looking, h.WorkItemKey, h.LockID, h.run); err != nil {
		return a.aborted(ctx, h, err)
	}
	errs := []error{a.lockHeld(ctx, h.handed)}
	for _, v := range h.variables() {
		errs = append(errs, a.runner.Env(v[0], v[1]))
	}
	for _, v := range h.saved() {
		errs = append(errs, a.runner.State(v[0], v[1]))
	}
	if err := errors.Join(errs...); err != nil {
		return &exitError{code: ExitFailed, err: err}
	}
	return nil
}

// The names of what a step that holds a lock saves for its post part.
const (
	savedID       = "lock-id"
	savedItem     = "lock-item"
	savedDriver   = "lock-driver"
	savedProperty = "lock-property"
	savedRun      = "run-id"
)

func (h *hold) saved() [][2]string {
	return [][2]string{
		{savedItem, h.WorkItemKey},
		{savedDriver, h.LockDriver},
		{savedProperty, h.LockProperty},
		{savedRun, strconv.FormatInt(h.run.ID, 10)},
		{savedID, h.LockID},
	}
}

// aborted ends a run that may not work: the error of its keeper says why.
func (a *app) aborted(ctx context.Context, h *hold, err error) error {
	status, clause := h.fate(err)
	if status == "" {
		return h.unconfirmed(err)
	}
	return a.lockGone(status, h.handed, fmt.Errorf("%s; this run must not work; %s", clause, a.giveBack(ctx, h)))
}

// lockVerify only looks.
func (a *app) lockVerify(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	h, err := a.hold(ctx)
	if err != nil {
		return err
	}
	if _, err := h.keeper.Verify(ctx, h.WorkItemKey, h.LockID); err != nil {
		status, clause := h.fate(err)
		if status == "" {
			return h.unconfirmed(err)
		}
		return a.lockGone(status, h.handed, fmt.Errorf("%s; this run must not work on; lock-refresh as the job's first step gives an event back whose run may not start", clause))
	}
	if err := a.lockHeld(ctx, h.handed); err != nil {
		return &exitError{code: ExitFailed, err: err}
	}
	return nil
}

// lockRelease ends the run's part in the lock.
func (a *app) lockRelease(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	handed, err := a.handover()
	if err != nil {
		return err
	}
	if handed.LockID == "" {
		a.log.InfoContext(ctx, "lock", "note", "no lock was handed to this run; nothing is released")
		return nil
	}
	h, err := a.reach(ctx, handed)
	if err != nil {
		return err
	}
	if err := a.release(ctx, h); err != nil {
		return &exitError{code: ExitFailed, err: err}
	}
	return nil
}

// release journals the run's event, which the poller that started it may not have
// lived to do, and takes the run out of the lock. What is not this run's is left
// alone.
func (a *app) release(ctx context.Context, h *hold) error {
	_, err := h.keeper.Verify(ctx, h.WorkItemKey, h.LockID)
	if status, clause := h.fate(err); status != "" {
		a.log.InfoContext(ctx, "lock", "status", status, "key", h.WorkItemKey, "note", clause+"; nothing is released")
		return nil
	}
	if err == nil && h.DispatchKey != "" && h.run.ID > 0 {
		err = h.journalled(ctx)
	}
	if err != nil {
		return h.notReleased(err)
	}
	return a.leave(ctx, h)
}

// leave takes the run out of the lock.
func (a *app) leave(ctx context.Context, h *hold) error {
	end, err := h.keeper.Release(ctx, h.WorkItemKey, h.LockID, h.run)
	note := ""
	switch {
	case err != nil:
		return h.notReleased(err)
	case end == lease.Deleted:
		note = "released"
	case end == lease.NotHeld:
		note = "somebody else has taken it away; nothing is released"
	case h.run.ID <= 0:
		return fmt.Errorf("the lock of %s is not released: it names runs, and this process does not know which of them it is; set GITHUB_RUN_ID", h.WorkItemKey)
	default:
		note = "this run is out of it; others still work under it"
	}
	a.log.InfoContext(ctx, "lock", "key", h.WorkItemKey, "lock_id", h.LockID, "note", note)
	return nil
}

func (h *hold) journalled(ctx context.Context) error {
	if err := h.state.Ran(ctx, h.WorkItemKey, h.DispatchKey, time.Time{}, h.run.ID); err != nil {
		return fmt.Errorf("write down what it has worked on: %w", err)
	}
	return nil
}

func (h *hold) notReleased(err error) error {
	return fmt.Errorf("the lock of %s could not be released: %w; the next poll cycle frees it when it sees that the run has ended", h.WorkItemKey, err)
}
