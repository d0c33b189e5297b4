package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/time/rate"

	"github.com/fullsend/poll-action/internal/config"
	"github.com/fullsend/poll-action/internal/dispatch"
	"github.com/fullsend/poll-action/internal/github"
	"github.com/fullsend/poll-action/internal/lease"
)

// beat is how often a lock is refreshed, and the age at which pollers take it to
// be abandoned.
type beat struct{ interval, threshold time.Duration }

func (b *beat) flags(f *pflag.FlagSet) {
	f.DurationVar(&b.interval, "refresh-interval", 0, "time between two refreshes (default: lock.refresh_interval of the configuration where there is one, else 300s)")
	f.DurationVar(&b.threshold, "stale-threshold", 0, "age at which pollers take the lock to be abandoned (default: lock.stale_threshold of the configuration where there is one, else 900s)")
}

// complete fills in what no flag gave, and refuses what cannot work.
func (b *beat) complete(set config.Lock) error {
	if b.interval == 0 {
		b.interval = set.RefreshInterval
	}
	if b.threshold == 0 {
		b.threshold = set.StaleThreshold
	}
	switch {
	case b.interval < time.Second:
		return fmt.Errorf("the refresh interval %s is too short; at least 1s", b.interval)
	case b.interval > b.threshold/2:
		return fmt.Errorf("the refresh interval %s is more than half of the stale threshold %s: one failed refresh would lose the lock; shorten --refresh-interval or lengthen --stale-threshold", b.interval, b.threshold)
	}
	return nil
}

// lockSettings are those of the configuration's first jira-poll driver where there
// is a configuration that can be read, else the defaults. A run's first step comes
// before any checkout.
func (a *app) lockSettings() config.Lock {
	raw, err := os.ReadFile(a.configPath())
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			a.warn("the lock's settings are the defaults, since the configuration cannot be read: " + err.Error())
		}
		return config.Defaults().Lock
	}
	cfg, ps := a.parse(a.configPath(), raw, true)
	if len(ps) > 0 {
		a.warn("the lock's settings are the defaults, since the configuration is wrong: " + ps[0].String())
		return config.Defaults().Lock
	}
	for _, d := range cfg.Poll.InputDrivers {
		if d.Type == config.JiraPoll {
			return d.Lock
		}
	}
	return config.Defaults().Lock
}

// keepalive makes what keeps the lock alive.
func (a *app) keepalive(h *hold, b beat) *lease.Keepalive {
	return &lease.Keepalive{
		Keeper: h.keeper, Item: h.WorkItemKey, ID: h.LockID, Run: h.run,
		Interval: b.interval, Threshold: b.threshold, Now: a.Now,
		Note: func(what string) { a.log.Warn("lock", "key", h.WorkItemKey, "note", what) },
	}
}

// The values of --until.
const (
	untilJobs   = "jobs"
	untilSignal = "signal"
)

type keepaliveOptions struct {
	beat
	until string
}

func (a *app) lockKeepaliveCommand() *cobra.Command {
	var o keepaliveOptions
	cmd := &cobra.Command{
		Use:   "keepalive",
		Short: "Refresh the lock while other steps or jobs work",
		Long: `Refresh the lock while other steps or jobs work.

As a background step of the job that has refreshed the lock (FULLSEND_POLL_LOCK_ID
is set), it goes on until SIGINT or SIGTERM and leaves the release to the job's
end. As a job of its own, beside those that work, it looks at the run's other jobs
once a minute, ends when two looks have found all of them completed (a job that
needs another one appears only after that), and then releases the lock. That needs
a GitHub token with actions: read.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.lockKeepalive(cmd.Context(), o) },
	}
	o.flags(cmd.Flags())
	cmd.Flags().StringVar(&o.until, "until", "", "what ends it: jobs (the run's other jobs have ended) or signal (default: signal where FULLSEND_POLL_LOCK_ID is set, else jobs)")
	return cmd
}

func (a *app) lockKeepalive(ctx context.Context, o keepaliveOptions) error {
	if o.until == "" {
		o.until = untilJobs
		if a.Getenv("FULLSEND_POLL_LOCK_ID") != "" {
			o.until = untilSignal
		}
	}
	if o.until != untilJobs && o.until != untilSignal {
		return fmt.Errorf("--until %q is neither %s nor %s", o.until, untilJobs, untilSignal)
	}
	if err := o.complete(a.lockSettings()); err != nil {
		return err
	}
	var jobs *jobs
	if o.until == untilJobs {
		var err error
		if jobs, err = a.jobs(); err != nil {
			return err
		}
	}
	looking, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	h, err := a.hold(looking)
	if err != nil {
		return err
	}
	asked := a.Now()
	_, err = h.keeper.Refresh(looking, h.WorkItemKey, h.LockID, h.run)
	switch status, _ := h.fate(err); {
	case status != "" || ctx.Err() != nil:
	case err != nil: // it is tried again soon; what is known of the lock is how old it was
		a.log.WarnContext(ctx, "lock", "key", h.WorkItemKey, "note", "the first refresh failed and is tried again: "+err.Error())
		asked, err = time.Time{}, nil
	default:
		if err := a.lockHeld(ctx, h.handed); err != nil {
			return &exitError{code: ExitFailed, err: err}
		}
	}
	if jobs != nil {
		return a.beside(ctx, h, o.beat, jobs, asked, err)
	}
	if err == nil {
		err = a.keepalive(h, o.beat).Keep(ctx, asked, 0)
	}
	return a.kept(h, err)
}

// kept translates why a lock is kept no longer; nil is the end of the context.
func (a *app) kept(h *hold, err error) error {
	status, clause := h.fate(err)
	switch {
	case err == nil:
		return nil
	case status != "":
		return a.lockGone(status, h.handed, fmt.Errorf("%s; this run must not work on", clause))
	case errors.Is(err, lease.ErrUnconfirmed):
		return a.lockGone(statusLost, h.handed, fmt.Errorf("the lock of %s could not be refreshed before others take it to be abandoned (%w); this run must not work on", h.WorkItemKey, err))
	}
	return h.unconfirmed(err)
}

// beside keeps the lock until the run's other jobs have ended, then releases it.
// gone is why the first refresh found no lock of this run, if it did not.
func (a *app) beside(ctx context.Context, h *hold, b beat, jobs *jobs, asked time.Time, gone error) error {
	keeping, stop := context.WithCancel(ctx)
	defer stop()
	kept := make(chan error, 1)
	looks := make(chan error, 1)
	var watching sync.WaitGroup
	if gone != nil {
		kept <- gone
	} else {
		go func() { kept <- a.keepalive(h, b).Keep(keeping, asked, 0) }()
		watching.Go(func() { looks <- a.untilEnded(keeping, jobs) })
	}
	var ended error
	select {
	case ended = <-looks:
		stop()
		if err := <-kept; err != nil { // in this very moment; the jobs have ended all the same
			a.log.InfoContext(ctx, "lock", "key", h.WorkItemKey, "note", err.Error())
		}
	case gone = <-kept:
		stop()
		if status, _ := h.fate(gone); status == "" || ctx.Err() != nil {
			return a.kept(h, gone)
		}
		watching.Wait() // its place in the limit is the next look's
		// Whoever works in the run releases at its end: is this that end?
		all, err := jobs.ended(ctx)
		if err != nil || !all {
			return a.kept(h, gone)
		}
	}
	switch {
	case ctx.Err() != nil:
		return nil // the signal's exit code
	case ended != nil:
		return &exitError{code: ExitFailed, err: fmt.Errorf("the run's other jobs cannot be watched: %w; the lock of %s is kept alive no longer", ended, h.WorkItemKey)}
	}
	a.log.InfoContext(ctx, "lock", "key", h.WorkItemKey, "note", "the run's other jobs have ended")
	after, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	if err := a.release(after, h); err != nil {
		return &exitError{code: ExitFailed, err: err}
	}
	return nil
}

// untilEnded looks at the run's jobs until two looks in a row have found all
// others completed. An error is one that no further look can cure; nil is also the
// end of ctx.
func (a *app) untilEnded(ctx context.Context, jobs *jobs) error {
	for seen := 0; seen < 2; {
		all, err := jobs.ended(ctx)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the end of ctx is an ordinary one
		case errors.Is(err, github.ErrNoRun) || err != nil && dispatch.ClassOf(err) == dispatch.Fatal:
			return err
		case err != nil:
			a.log.WarnContext(ctx, "jobs", "note", "the run's jobs could not be listed, the next look is in a minute: "+err.Error())
		case all:
			seen++
		default:
			seen = 0
		}
	}
	return nil
}

// jobs looks at the jobs of this workflow run.
type jobs struct {
	github *github.Dispatcher
	run    int64
	// runner is the name of the machine that this job runs on.
	runner string
}

// jobs prepares the looks: at most one request a minute, retries and pages of long
// lists included, since all jobs of a repository share GitHub's limit.
func (a *app) jobs() (*jobs, error) {
	repo, err := a.repo()
	if err != nil {
		return nil, err
	}
	token := a.value("GITHUB_TOKEN")
	if token == "" {
		return nil, errors.New("no GitHub token to watch the run's other jobs with; give the input github-token (permissions: actions: read), --github-token or GITHUB_TOKEN, or --until signal")
	}
	a.hide("", token)
	run := a.ownRun("", repo)
	if run.ID <= 0 {
		return nil, errors.New("GITHUB_RUN_ID is not set, so that there are no jobs of a run to watch; use --until signal outside a workflow run")
	}
	out, _, err := a.dispatcher(config.GHA{Workflow: config.DefaultWorkflow}, repo, token, rate.NewLimiter(rate.Every(time.Minute), 1))
	if err != nil {
		return nil, err
	}
	return &jobs{github: out, run: run.ID, runner: a.Getenv("RUNNER_NAME")}, nil
}

// ended reports whether no job but this one, which is not completed itself, is at
// work. It waits until a look is due.
func (j *jobs) ended(ctx context.Context) (bool, error) {
	all, err := j.github.Jobs(ctx, j.run)
	if err != nil {
		return false, err
	}
	alive := slices.DeleteFunc(all, func(job github.Job) bool { return job.Completed })
	switch len(alive) {
	case 0:
		return true, nil
	case 1: // a workflow's own name for this job need not be the one in the list; the machine's is
		return j.runner == "" || alive[0].Runner == "" && alive[0].Status != "queued" || alive[0].Runner == j.runner, nil
	}
	return false, nil
}
