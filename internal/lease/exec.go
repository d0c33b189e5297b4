package lease

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// Child is a process group.
type Child interface {
	// Start starts it.
	Start() error
	// Signal sends a signal to the whole group.
	Signal(sig os.Signal) error
	// Kill ends the whole group at once.
	Kill() error
	// Wait returns the exit code, 128 + n when signal n ended the child. It is
	// called once, after Start.
	Wait() (code int, err error)
}

// ErrNotStarted says that the child could not be started; the reason is wrapped
// with it.
var ErrNotStarted = errors.New("the command could not be started")

// maxSlack is how much sooner than the lock would be stale a child is gone that
// had to be stopped: the clocks of those who judge the lock differ a little.
const maxSlack = 5 * time.Second

// Exec verifies and refreshes the lock once, starts child and keeps the lock
// while it runs; signals are forwarded. When that refresh fails nothing is
// started and its error returned, with code -1. When the lock is lost, gone or
// unconfirmed while child runs, or ctx ends, child is stopped: it gets SIGTERM,
// and is killed after grace; a child that had to be stopped is gone before the
// lock would be stale. The code is child's; err then matches [ErrLost],
// [ErrMissing] or [ErrUnconfirmed], or is ctx's, and is nil when child ended by
// itself. After child's end the lock is refreshed no more, and no request is under
// way when Exec returns. It does not release the lock.
func (k *Keepalive) Exec(ctx context.Context, child Child, signals <-chan os.Signal, grace time.Duration) (code int, err error) {
	margin := grace + min(maxSlack, k.Threshold/10)
	if margin >= k.Threshold {
		return -1, fmt.Errorf("a grace time of %s is too long for a lock that is stale after %s: shorten it", grace, k.Threshold)
	}
	asked := k.Now()
	if err := k.refresh(ctx, k.Threshold-margin); err != nil {
		return -1, err
	}
	if err := child.Start(); err != nil {
		return -1, fmt.Errorf("%w: %w", ErrNotStarted, err)
	}
	w := &watch{child: child, grace: grace, ended: make(chan struct{}), kept: make(chan struct{})}
	// an end of ctx stops the child; until that is gone the lock is still needed
	keeping, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	go func() {
		defer close(w.kept)
		w.lost = k.Keep(keeping, asked, margin)
	}()
	var waited error
	go func() {
		defer close(w.ended)
		code, waited = child.Wait()
		stop()
	}()
	err = w.attend(ctx, signals)
	<-w.kept
	return code, errors.Join(err, waited)
}

// watch attends to a child that runs.
type watch struct {
	child Child
	grace time.Duration
	// ended is closed when the child has ended, kept when the lock is kept no
	// longer; lost then says why.
	ended, kept chan struct{}
	lost        error

	overdue <-chan time.Time // set once the child was told to stop
}

// attend returns when the child has ended: nil when it did so by itself, else why
// it was stopped.
func (w *watch) attend(ctx context.Context, signals <-chan os.Signal) error {
	var why error
	kept, over := w.kept, ctx.Done()
	for {
		select {
		case <-w.ended:
			if why != nil {
				_ = w.child.Kill() // what is left of the group
			}
			return why
		case <-kept:
			kept = nil
			if w.lost != nil && w.stop() {
				why = w.lost // worse than an end of ctx
			}
		case <-over:
			over = nil
			if w.stop() && why == nil {
				why = ctx.Err()
			}
		case sig, open := <-signals:
			if !open {
				signals = nil
			} else if !w.gone() {
				_ = w.child.Signal(sig)
			}
		case <-w.overdue:
			_ = w.child.Kill()
		}
	}
}

// stop tells the child to stop, once; false means that it has ended before.
func (w *watch) stop() bool {
	if w.gone() {
		return false
	}
	if w.overdue != nil {
		return true
	}
	wait := w.grace
	if w.child.Signal(syscall.SIGTERM) != nil {
		wait = 0
	}
	w.overdue = time.NewTimer(wait).C
	return true
}

func (w *watch) gone() bool {
	select {
	case <-w.ended:
		return true
	default:
		return false
	}
}
