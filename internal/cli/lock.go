package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/fullsend/poll-action/internal/config"
	"github.com/fullsend/poll-action/internal/jira"
	"github.com/fullsend/poll-action/internal/lease"
)

// lockTimeout bounds one look at the lock.
const lockTimeout = 2 * time.Minute

func (a *app) lockCommand() *cobra.Command {
	lock := &cobra.Command{Use: "lock", Short: "The runner's side of a work item's lock", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	verb := func(use, short string, run func(context.Context) error) *cobra.Command {
		return &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context()) }}
	}
	lock.AddCommand(
		verb("refresh", "Verify the lock and mark it as running; export it to later steps", a.lockRefresh),
		verb("verify", "Verify the lock; write nothing", a.lockVerify),
		verb("release", "Take this run out of the lock; with its last run the lock goes", a.lockRelease),
		a.lockExecCommand(),
		a.lockKeepaliveCommand(),
	)
	return lock
}

// handed is what a dispatch hands to its run (contract, section 6).
type handed struct {
	WorkItemURL, WorkItemSource, WorkItemKey string
	LockID, LockDriver, LockProperty         string
	Agent                                    string
	// DispatchKey is what the journal calls the event by; empty when it is not
	// known.
	DispatchKey string
}

// variables returns the six variables in the contract's order.
func (h handed) variables() [][2]string {
	return [][2]string{
		{"FULLSEND_WORK_ITEM_URL", h.WorkItemURL},
		{"FULLSEND_WORK_ITEM_SOURCE", h.WorkItemSource},
		{"FULLSEND_WORK_ITEM_KEY", h.WorkItemKey},
		{"FULLSEND_POLL_LOCK_ID", h.LockID},
		{"FULLSEND_POLL_LOCK_DRIVER", h.LockDriver},
		{"FULLSEND_POLL_LOCK_PROPERTY", h.LockProperty},
	}
}

// handover reads what was handed over: from the environment, else from the
// inputs of the event that started the run, as they are or as the one JSON
// object of a workflow with the single input "fullsend".
func (a *app) handover() (handed, error) {
	inputs, err := a.dispatchInputs()
	if err != nil {
		return handed{}, err
	}
	get := func(env, input string) string { return first(a.Getenv(env), inputs[input]) }
	h := handed{
		WorkItemURL:    get("FULLSEND_WORK_ITEM_URL", "work_item_url"),
		WorkItemSource: get("FULLSEND_WORK_ITEM_SOURCE", "work_item_source"),
		WorkItemKey:    get("FULLSEND_WORK_ITEM_KEY", "work_item_key"),
		LockID:         get("FULLSEND_POLL_LOCK_ID", "poll_lock_id"),
		LockDriver:     get("FULLSEND_POLL_LOCK_DRIVER", "poll_lock_driver"),
		LockProperty:   get("FULLSEND_POLL_LOCK_PROPERTY", "poll_lock_property"),
	}
	h.event(inputs)
	return h, nil
}

// dispatchInputs returns the inputs of the event that started the run; outside a
// workflow run there are none.
func (a *app) dispatchInputs() (map[string]string, error) {
	if a.Getenv("GITHUB_EVENT_PATH") == "" {
		return map[string]string{}, nil
	}
	ev, err := a.runner.Event()
	if err != nil {
		return nil, err
	}
	one := ev.Inputs["fullsend"]
	if one == "" {
		return ev.Inputs, nil
	}
	var all map[string]string
	if err := json.Unmarshal([]byte(one), &all); err != nil {
		return nil, fmt.Errorf("the input fullsend is no JSON object of texts: %w", err)
	}
	return all, nil
}

// event completes what only the event knows, where it is the one that handed this
// lock over.
func (h *handed) event(inputs map[string]string) {
	if h.LockID != "" && inputs["poll_lock_id"] == h.LockID {
		h.Agent, h.DispatchKey = inputs["agent"], inputs["dispatch_key"]
	}
}

var (
	issueKey     = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]+-[0-9]+$`)
	lockProperty = regexp.MustCompile(`^fullsend\.poll\.[^.\s]+\.[^.\s]+\.lock$`)
)

// check refuses a handover that cannot be genuine before anything is asked, and
// returns the properties of its repository.
func (h handed) check(repo string) (jira.Properties, error) {
	var none jira.Properties
	switch {
	case h.LockDriver != jira.DriverType:
		return none, fmt.Errorf("the lock's driver %q is not part of this version; only %s is", h.LockDriver, jira.DriverType)
	case !issueKey.MatchString(h.WorkItemKey):
		return none, fmt.Errorf("the work item's key %q is no Jira issue key", h.WorkItemKey)
	case !lockProperty.MatchString(h.LockProperty):
		return none, fmt.Errorf("the lock's property %q is none of this program's", h.LockProperty)
	}
	props, err := jira.PropertiesFor(repo)
	if err == nil && props.Lock != h.LockProperty {
		err = fmt.Errorf("the lock's property %q belongs to another repository than %s", h.LockProperty, repo)
	}
	return props, err
}

// hold is a lock that was handed to this process, and the way to it.
type hold struct {
	handed
	client *jira.Client
	state  *jira.State
	keeper *lease.Keeper
	run    lease.Run
}

// hold reads and checks what was handed over.
func (a *app) hold(ctx context.Context) (*hold, error) {
	h, err := a.handover()
	if err != nil {
		return nil, err
	}
	if h.LockID == "" {
		return nil, a.lockGone(statusMissing, h, errors.New("no lock was handed to this run (poll_lock_id is empty): it was not started by the poller; start it by a change in the work item, or leave the lock step out for manual runs"))
	}
	return a.reach(ctx, h)
}

// reach checks a handover and connects to where its lock is.
func (a *app) reach(ctx context.Context, h handed) (*hold, error) {
	repo, err := a.repo()
	if err != nil {
		return nil, err
	}
	props, err := h.check(repo)
	if err != nil {
		return nil, err
	}
	conn, flavour, err := a.connection()
	if err != nil {
		return nil, err
	}
	client, err := a.jiraClient(conn, flavour)
	if err != nil {
		return nil, err
	}
	if err := client.Resolve(ctx); err != nil {
		return nil, &exitError{code: ExitFailed, err: err}
	}
	state := jira.NewState(client, props).Signed(a.signing(repo, false))
	return &hold{
		handed: h, client: client, state: state, run: a.ownRun(h.Agent, repo),
		keeper: &lease.Keeper{Register: state, ServerNow: client.ServerNow},
	}, nil
}

// The values of the output lock-status.
const (
	statusHeld    = "held"
	statusMissing = "missing"
	statusLost    = "lost"
)

// fate translates an error of a keeper: the status of a lock that is not this
// run's any more and a clause that says so, or an empty status.
func (h *hold) fate(err error) (status, clause string) {
	var held *lease.HeldError
	switch {
	case errors.Is(err, lease.ErrMissing):
		clause = fmt.Sprintf("the lock of %s is gone: it was released, cancelled or taken back", h.WorkItemKey)
		if err.Error() != lease.ErrMissing.Error() {
			clause += fmt.Sprintf(" (%v)", err)
		}
		return statusMissing, clause
	case errors.As(err, &held):
		return statusLost, fmt.Sprintf("the lock of %s is not this run's: %v", h.WorkItemKey, held)
	case errors.Is(err, lease.ErrLost):
		return statusLost, fmt.Sprintf("the lock of %s is not this run's: %v", h.WorkItemKey, err)
	}
	return "", ""
}

// unconfirmed is a lock of which nobody knows whether it is held.
func (h *hold) unconfirmed(err error) error {
	return &exitError{code: ExitFailed, err: fmt.Errorf("the lock of %s cannot be confirmed: %w", h.WorkItemKey, err)}
}

// lockHeld says so in outputs and log.
func (a *app) lockHeld(ctx context.Context, h handed) error {
	a.log.InfoContext(ctx, "lock", "status", statusHeld, "key", h.WorkItemKey, "lock_id", h.LockID)
	return errors.Join(a.runner.Output("lock-status", statusHeld), a.runner.Output("lock-id", h.LockID))
}

// lockGone ends with exit code 3 and says why in outputs and log.
func (a *app) lockGone(status string, h handed, cause error) error {
	return &exitError{code: ExitLost, err: errors.Join(cause, a.runner.Output("lock-status", status), a.runner.Output("lock-id", h.LockID))}
}

// connection returns how Jira is reached: from flags, inputs and environment,
// completed from the configuration where there is one.
func (a *app) connection() (c config.Connection, flavour string, err error) {
	c = config.Connection{BaseURL: a.value("JIRA_BASE_URL"), Email: a.value("JIRA_USER_EMAIL"), Token: a.value("JIRA_TOKEN")}
	if c.BaseURL == "" || c.Token == "" {
		raw, err := os.ReadFile(a.configPath())
		if err != nil {
			return c, "", errors.New("jira's address or token is not known; give the inputs jira-base-url, jira-user-email and jira-token (JIRA_BASE_URL, JIRA_USER_EMAIL, JIRA_TOKEN), or check out the configuration before this step")
		}
		cfg, ps := a.parse(a.configPath(), raw, false)
		if len(ps) > 0 {
			return c, "", ps.err()
		}
		for _, d := range cfg.Poll.InputDrivers {
			if d.Type == config.JiraPoll {
				c, flavour = d.Connection, d.Flavour
				break
			}
		}
	}
	a.hide(c.Email, c.Token)
	base, err := config.BaseURL(c.BaseURL)
	if err != nil {
		return c, "", fmt.Errorf("jira's address: %w", err)
	}
	c.BaseURL = base
	if c.Email == "" && isCloud(config.InputDriver{Connection: c, Flavour: flavour}) {
		return c, "", errors.New("there is a Jira token but no email: on Jira Cloud an API token belongs to an account; set jira-user-email (JIRA_USER_EMAIL)")
	}
	return c, flavour, nil
}

// ownRun is this workflow run; outside Actions it has no id.
func (a *app) ownRun(agent, repo string) lease.Run {
	id, err := strconv.ParseInt(a.Getenv("GITHUB_RUN_ID"), 10, 64)
	if err != nil || id <= 0 {
		return lease.Run{Agent: agent}
	}
	server := first(a.Getenv("GITHUB_SERVER_URL"), defaultServerURL)
	return lease.Run{Agent: agent, ID: id, URL: fmt.Sprintf("%s/%s/actions/runs/%d", server, repo, id)}
}
