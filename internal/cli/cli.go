// Package cli is the composition root: it turns flags, action inputs,
// environment and files into one validated options value, wires the drivers, and
// turns what happened into logs, outputs and an exit code. Only this package and
// main touch the process.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fullsend/poll-action/internal/actions"
)

// The exit codes (contract, section 1).
const (
	ExitOK          = 0
	ExitFailed      = 1
	ExitUsage       = 2
	ExitLost        = 3
	ExitInterrupted = 130
	ExitTerminated  = 143
)

// Process is everything that the program gets from outside.
type Process struct {
	// Name is how the program was called; [PostName] chooses the post part of an
	// action's step. Args are the arguments without it.
	Name   string
	Args   []string
	Getenv func(string) string
	// Environ is what a command that the program starts inherits, and Stdin what
	// it reads; nil means nothing.
	Environ        func() []string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Signals delivers the given signals until stop is called; nil means the
	// process's own.
	Signals func(sigs ...os.Signal) (c <-chan os.Signal, stop func())
	// Transport carries all requests; nil means the real network.
	Transport http.RoundTripper
	Now       func() time.Time
	// Rand returns a number in [0, 1).
	Rand func() float64
}

// Main runs the program on the real process and returns its exit code.
func Main() int {
	ctx, stop := signalContext(context.Background())
	defer stop()
	return Run(ctx, Process{
		Name: os.Args[0], Args: os.Args[1:], Getenv: os.Getenv, Environ: os.Environ,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Now: time.Now, Rand: rand.Float64,
	})
}

// Run runs the program on p and returns its exit code.
func Run(ctx context.Context, p Process) int {
	a := &app{Process: p}
	a.speak(p.Stdout)
	err := a.execute(ctx)
	code := a.exit(ctx, err)
	a.runner.Flush()
	return code
}

func (a *app) execute(ctx context.Context) error {
	if filepath.Base(a.Name) == PostName {
		return a.post(ctx)
	}
	root := a.root() //nolint:contextcheck // the commands get ctx from ExecuteContext
	root.SetArgs(a.Args)
	root.SetOut(a.Stdout)
	root.SetErr(a.Stderr)
	return root.ExecuteContext(ctx)
}

// speak makes out the way to the runner; where there is none, the log goes to
// standard error.
func (a *app) speak(out io.Writer) {
	a.runner = actions.New(out, a.Getenv)
	log := a.runner
	if !a.runner.Active() {
		log = actions.New(a.Stderr, a.Getenv)
	}
	runner := a.runner
	a.mask = func(secrets ...string) {
		runner.Mask(secrets...)
		if log != runner {
			log.Mask(secrets...)
		}
	}
	a.log = slog.New(log.Handler(a.Getenv("FULLSEND_POLL_LOG_FORMAT"), slog.LevelInfo))
}

// app is one run of the program.
type app struct {
	Process
	runner *actions.Runner
	log    *slog.Logger
	mask   func(secrets ...string)
	set    settings
	// warnings are what loading warned of, for the doctor.
	warnings []string
}

// exitError carries an exit code other than 2, which every other error means:
// the command line, the configuration or the environment is wrong.
type exitError struct {
	code int
	err  error // nil: everything was said already
	// final: the code stands, also where a signal has come.
	final bool
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// exit is the one place that decides the exit code.
func (a *app) exit(ctx context.Context, err error) int {
	code := ExitOK
	var ee *exitError
	switch {
	case errors.As(err, &ee):
		code = ee.code
		if ee.err != nil {
			a.complain(ee.err)
		}
	case err != nil:
		code = ExitUsage
		a.complain(err)
	}
	var sig signalError
	if code != ExitUsage && (ee == nil || !ee.final) && errors.As(context.Cause(ctx), &sig) {
		return sig.exitCode()
	}
	return code
}

// complain says an error once: as an annotation in Actions, else on stderr.
func (a *app) complain(err error) {
	var many problems
	if errors.As(err, &many) {
		for _, p := range many {
			a.say(p.String())
		}
		return
	}
	a.say(err.Error())
}

func (a *app) say(msg string) {
	if a.runner.Active() {
		a.runner.Error(msg)
		return
	}
	_, _ = fmt.Fprintf(a.Stderr, "fullsend-poll: %s\n", msg) // nowhere left to complain
}

// signalError is the cause of a context that a signal ended.
type signalError struct{ sig os.Signal }

func (e signalError) Error() string { return "received " + e.sig.String() }

func (e signalError) exitCode() int {
	if e.sig == syscall.SIGTERM {
		return ExitTerminated
	}
	return ExitInterrupted
}

// signalContext ends with the first SIGINT or SIGTERM; a second one ends the
// process as usual.
func signalContext(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case sig := <-ch:
			signal.Stop(ch)
			cancel(signalError{sig})
		case <-ctx.Done():
		}
	}()
	return ctx, func() { signal.Stop(ch); cancel(nil) }
}
