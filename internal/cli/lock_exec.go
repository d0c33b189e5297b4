package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/fullsend/poll-action/internal/lease"
)

const (
	// defaultGrace is what a command gets between SIGTERM and SIGKILL.
	defaultGrace = 10 * time.Second
	// pipeDelay is how long output is still read after the command's end where
	// something that it left behind holds the other end of a pipe.
	pipeDelay = 2 * time.Second
	// As shells say it: found but not to be started, and not found.
	exitNotExecutable, exitNotFound = 126, 127
)

type execOptions struct {
	beat
	grace      time.Duration
	graceGiven bool
}

func (a *app) lockExecCommand() *cobra.Command {
	var o execOptions
	cmd := &cobra.Command{
		Use:   "exec [flags] -- CMD [ARG…]",
		Short: "Run a command under the lock: refresh while it runs, stop it when the lock is lost, release at its end",
		Long: `Verify and refresh the lock, run CMD, refresh on a timer while it runs, and release
at its end. CMD gets standard input, output and error as they are, a process group
of its own, to which SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are passed
on, and the FULLSEND_WORK_ITEM_* and FULLSEND_POLL_LOCK_* variables. It inherits the
whole environment of this process: a JIRA_TOKEN or FULLSEND_DISPATCH_SECRET in there
is CMD's to read, so give those to this process only where CMD may have them.
Everything that this command says itself goes to standard error.

When the lock is lost, or cannot be confirmed before others take it to be abandoned,
CMD is stopped (SIGTERM, after --grace SIGKILL) and its event is given back. The exit
code is CMD's own, 128+n where signal n ended it, 127 or 126 where it was not found
or cannot be started, and 3 where the lock is not this run's (CMD's own 3 is told
from it in the log).`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("there is no command to run; write lock exec -- CMD ARG…")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.graceGiven = cmd.Flags().Changed("grace")
			return a.lockExec(cmd.Context(), o, args)
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // from CMD on everything is CMD's
	o.flags(f)
	f.DurationVar(&o.grace, "grace", 0, "time between SIGTERM and SIGKILL for a command that is stopped (default: 10s, at most a quarter of the stale threshold)")
	return cmd
}

func (a *app) lockExec(ctx context.Context, o execOptions, args []string) error {
	a.speak(a.Stderr) // standard output is the command's
	if err := o.complete(a.lockSettings()); err != nil {
		return err
	}
	if !o.graceGiven {
		o.grace = min(defaultGrace, o.threshold/4)
	}
	if o.grace < 0 || o.grace > o.threshold/2 {
		return fmt.Errorf("--grace %s is not between 0s and half of the stale threshold %s: a command that is stopped must be gone before others take the lock", o.grace, o.threshold)
	}
	looking, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	h, err := a.hold(looking)
	if err != nil {
		return err
	}
	subscribe := a.Signals
	if subscribe == nil {
		subscribe = ownSignals
	}
	signals, stop := subscribe(forwarded()...)
	defer stop()
	// A signal before the command has started ends this process, one after that is
	// the command's to answer.
	keeping, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	child := a.child(keeping, h, args)
	child.detach = context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })
	code, err := a.keepalive(h, o.beat).Exec(keeping, child, signals, o.grace)
	after, cancel := a.afterwards(ctx)
	defer cancel()
	return a.executed(after, h, child, code, err)
}

// afterwards is what is left of a command's time when it has ended: a runner that
// has sent a signal does not wait for long.
func (a *app) afterwards(ctx context.Context) (context.Context, context.CancelFunc) {
	left := lockTimeout + pollerWait
	if ctx.Err() != nil {
		left = cleanUp
	}
	return context.WithTimeout(context.WithoutCancel(ctx), left)
}

// executed ends the run's part in the lock and translates how the command ended.
func (a *app) executed(ctx context.Context, h *hold, child *child, code int, err error) error {
	status, clause := h.fate(err)
	stopped := "; this run must not work; "
	if child.started {
		stopped = "; the command was stopped; "
	}
	switch {
	case status != "":
		e := a.lockGone(status, h.handed, fmt.Errorf("%s%s%s", clause, stopped, a.giveBack(ctx, h)))
		return final(ExitLost, e)
	case errors.Is(err, lease.ErrUnconfirmed):
		what := fmt.Errorf("the lock of %s could not be refreshed before others take it to be abandoned (%w)%s%s", h.WorkItemKey, err, stopped, a.giveBackHeld(ctx, h))
		return final(ExitLost, a.lockGone(statusLost, h.handed, what))
	case !child.started && errors.Is(err, context.Canceled):
		return &exitError{code: ExitFailed} // by a signal, before anything was started
	case errors.Is(err, lease.ErrNotStarted):
		code = exitNotExecutable
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			code = exitNotFound
		}
		a.complain(fmt.Errorf("%q: %w", child.cmd.Args[0], err))
	case !child.started:
		return h.unconfirmed(err)
	case err != nil:
		a.complain(fmt.Errorf("the command's end: %w", err))
	}
	if child.started {
		a.log.InfoContext(ctx, "lock exec", "key", h.WorkItemKey, "note", "the command has ended; the exit code is its own", "exit_code", code)
	}
	if err := a.release(ctx, h); err != nil {
		a.warn(err.Error())
	}
	return final(code, nil)
}

// giveBackHeld gives the event back under this run's own lock, as far as that is
// still there, and takes the run out of it.
func (a *app) giveBackHeld(ctx context.Context, h *hold) string {
	if _, err := h.keeper.Verify(ctx, h.WorkItemKey, h.LockID); err != nil {
		return a.giveBack(ctx, h)
	}
	if h.DispatchKey == "" || h.run.ID <= 0 {
		return unknownEvent
	}
	what := fateOf(h.state.GiveBack(ctx, h.WorkItemKey, h.DispatchKey, time.Time{}, h.run.ID))
	if err := a.leave(ctx, h); err != nil {
		a.warn(err.Error())
	}
	return what
}

// final is an exit code that a signal does not change.
func final(code int, err error) error { return &exitError{code: code, err: err, final: true} }

func ownSignals(sigs ...os.Signal) (<-chan os.Signal, func()) {
	c := make(chan os.Signal, 16)
	signal.Notify(c, sigs...)
	return c, func() { signal.Stop(c) }
}

// child is a command in a process group of its own.
type child struct {
	cmd     *exec.Cmd
	started bool
	// detach takes the start away from the context; false means that it has ended.
	detach func() bool
	ended  chan struct{}
}

var _ lease.Child = (*child)(nil)

func (a *app) child(ctx context.Context, h *hold, args []string) *child {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), args[0], args[1:]...) //nolint:gosec // running what is asked for is the purpose
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = a.Stdin, a.Stdout, a.Stderr, pipeDelay
	cmd.Env = []string{}
	if a.Environ != nil {
		cmd.Env = append(cmd.Env, a.Environ()...)
	}
	for _, v := range h.variables() {
		cmd.Env = append(cmd.Env, v[0]+"="+v[1])
	}
	inGroup(cmd)
	return &child{cmd: cmd, ended: make(chan struct{})}
}

// Start implements [lease.Child]. The thread that starts the command stays until
// its end: with it, as with this process, the command dies (Linux).
func (c *child) Start() error {
	if !c.detach() {
		return context.Canceled
	}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.cmd.Start()
		started <- err
		if err == nil {
			<-c.ended
		}
	}()
	err := <-started
	c.started = err == nil
	return err
}

// Signal implements [lease.Child].
func (c *child) Signal(sig os.Signal) error { return signalGroup(c.cmd.Process, sig) }

// Kill implements [lease.Child].
func (c *child) Kill() error { return signalGroup(c.cmd.Process, os.Kill) }

// Wait implements [lease.Child].
func (c *child) Wait() (int, error) {
	defer close(c.ended)
	err := c.cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) || errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	return exitCode(c.cmd.ProcessState), err
}
