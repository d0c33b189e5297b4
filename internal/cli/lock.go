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
	lock.AddCommand(
		&cobra.Command{
			Use: "refresh", Short: "Verify the lock and mark it as running; export it to later steps", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return a.lock(cmd.Context(), true) },
		},
		&cobra.Command{
			Use: "verify", Short: "Verify the lock; write nothing", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return a.lock(cmd.Context(), false) },
		},
	)
	return lock
}

// handed is what a dispatch hands to its run (contract, section 6).
type handed struct {
	WorkItemURL, WorkItemSource, WorkItemKey string
	LockID, LockDriver, LockProperty         string
	Agent                                    string
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
	inputs := map[string]string{}
	if a.Getenv("GITHUB_EVENT_PATH") != "" {
		ev, err := a.runner.Event()
		if err != nil {
			return handed{}, err
		}
		inputs = ev.Inputs
		if one := inputs["fullsend"]; one != "" {
			var all map[string]string
			if err := json.Unmarshal([]byte(one), &all); err != nil {
				return handed{}, fmt.Errorf("the input fullsend is no JSON object of texts: %w", err)
			}
			inputs = all
		}
	}
	get := func(env, input string) string { return first(a.Getenv(env), inputs[input]) }
	return handed{
		WorkItemURL:    get("FULLSEND_WORK_ITEM_URL", "work_item_url"),
		WorkItemSource: get("FULLSEND_WORK_ITEM_SOURCE", "work_item_source"),
		WorkItemKey:    get("FULLSEND_WORK_ITEM_KEY", "work_item_key"),
		LockID:         get("FULLSEND_POLL_LOCK_ID", "poll_lock_id"),
		LockDriver:     get("FULLSEND_POLL_LOCK_DRIVER", "poll_lock_driver"),
		LockProperty:   get("FULLSEND_POLL_LOCK_PROPERTY", "poll_lock_property"),
		Agent:          inputs["agent"],
	}, nil
}

var (
	issueKey     = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]+-[0-9]+$`)
	lockProperty = regexp.MustCompile(`^fullsend\.poll\.[^.\s]+\.[^.\s]+\.lock$`)
)

// check refuses a handover that cannot be genuine before anything is asked.
func (h handed) check(repo string) error {
	switch {
	case h.LockDriver != jira.DriverType:
		return fmt.Errorf("the lock's driver %q is not part of this version; only %s is", h.LockDriver, jira.DriverType)
	case !issueKey.MatchString(h.WorkItemKey):
		return fmt.Errorf("the work item's key %q is no Jira issue key", h.WorkItemKey)
	case !lockProperty.MatchString(h.LockProperty):
		return fmt.Errorf("the lock's property %q is none of this program's", h.LockProperty)
	}
	props, err := jira.PropertiesFor(repo)
	if err != nil {
		return err
	}
	if props.Lock != h.LockProperty {
		return fmt.Errorf("the lock's property %q belongs to another repository than %s", h.LockProperty, repo)
	}
	return nil
}

func (a *app) lock(ctx context.Context, refresh bool) error {
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	h, err := a.handover()
	if err != nil {
		return err
	}
	if h.LockID == "" {
		return a.lockGone("missing", h, errors.New("no lock was handed to this run (poll_lock_id is empty): it was not started by the poller; start it by a change in the work item, or leave the lock step out for manual runs"))
	}
	repo, err := a.repo()
	if err != nil {
		return err
	}
	if err := h.check(repo); err != nil {
		return err
	}
	conn, flavour, err := a.connection()
	if err != nil {
		return err
	}
	client, err := a.jiraClient(conn, flavour)
	if err != nil {
		return err
	}
	if err := client.Resolve(ctx); err != nil {
		return &exitError{code: ExitFailed, err: err}
	}
	state := jira.NewState(client, jira.Properties{Lock: h.LockProperty}).Signed(a.signing(repo, false))
	keeper := &lease.Keeper{Register: state, ServerNow: client.ServerNow}
	if refresh {
		_, err = keeper.Refresh(ctx, h.WorkItemKey, h.LockID, a.ownRun(h.Agent, repo))
	} else {
		_, err = keeper.Verify(ctx, h.WorkItemKey, h.LockID)
	}
	switch {
	case errors.Is(err, lease.ErrMissing):
		return a.lockGone("missing", h, fmt.Errorf("the lock of %s is gone: it was released, cancelled or taken back; this run must not work, the next poll cycle starts another where one is due", h.WorkItemKey))
	case errors.Is(err, lease.ErrLost):
		return a.lockGone("lost", h, fmt.Errorf("the lock of %s is not this run's: %w; this run must not work, the holder does", h.WorkItemKey, err))
	case err != nil:
		return &exitError{code: ExitFailed, err: fmt.Errorf("the lock of %s cannot be confirmed: %w", h.WorkItemKey, err)}
	}
	a.log.InfoContext(ctx, "lock", "status", "held", "key", h.WorkItemKey, "lock_id", h.LockID)
	errs := []error{a.runner.Output("lock-status", "held"), a.runner.Output("lock-id", h.LockID)}
	if refresh {
		for _, v := range h.variables() {
			errs = append(errs, a.runner.Env(v[0], v[1]))
		}
		errs = append(errs, a.runner.State("lock-id", h.LockID))
	}
	if err := errors.Join(errs...); err != nil {
		return &exitError{code: ExitFailed, err: err}
	}
	return nil
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
