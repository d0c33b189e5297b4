package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/google/uuid"
	"golang.org/x/time/rate"

	"github.com/fullsend/poll-action/internal/config"
	"github.com/fullsend/poll-action/internal/event"
	"github.com/fullsend/poll-action/internal/github"
	"github.com/fullsend/poll-action/internal/httpx"
	"github.com/fullsend/poll-action/internal/jira"
	"github.com/fullsend/poll-action/internal/lease"
	"github.com/fullsend/poll-action/internal/poll"
)

const (
	// jiraPace and jiraBurst pace all requests to Jira together to what its burst
	// limit allows for the writes of a single endpoint in a second.
	jiraPace, jiraBurst = 50, 50
	// cleanUp is how long a lock may take to be taken back or released after an
	// interruption; a runner kills the step some seconds after its signal.
	cleanUp = 4 * time.Second
)

// driver is one input driver with everything that a cycle of it needs.
type driver struct {
	conf   config.InputDriver
	input  *jira.Input
	state  *jira.State
	client *jira.Client
	out    *github.Dispatcher
	output *httpx.Transport
	cycle  *poll.Cycle
	before usage
}

// usage is what a driver's transports have done so far; limits are the waits by
// the limit that was waited for.
type usage struct {
	requests, waits int
	limits          map[string]int
}

func (d *driver) usage() usage {
	u := usage{limits: map[string]int{}}
	for _, s := range []httpx.Stats{d.client.Stats(), d.output.Stats()} {
		u.requests += s.Requests
		u.waits += s.RateLimitWaits
		for _, reason := range s.Reasons() {
			u.limits[reason] += s.Waits[reason].Count
		}
	}
	return u
}

// since writes into rep what was used since an earlier look.
func (u usage) since(before usage, rep *poll.Report) {
	rep.Requests = int64(u.requests - before.requests)
	rep.RateLimitWaits = int64(u.waits - before.waits)
	for reason, n := range u.limits {
		if n -= before.limits[reason]; n > 0 {
			if rep.RateLimits == nil {
				rep.RateLimits = map[string]int64{}
			}
			rep.RateLimits[reason] = int64(n)
		}
	}
}

// wire makes the drivers of a configuration.
func (a *app) wire(l *loaded) ([]*driver, problems) {
	var ps problems
	bad := func(line int, format string, args ...any) {
		ps = append(ps, problem{file: a.configPath(), line: line, text: fmt.Sprintf(format, args...)})
	}
	repo, err := a.repo()
	if err != nil {
		ps = append(ps, problem{text: err.Error()})
	}
	if l.cfg.Poll.OutputDriver = first(a.set.outputDriver, l.cfg.Poll.OutputDriver); l.cfg.Poll.OutputDriver != config.GHADispatch {
		bad(0, "the output driver %q is not part of this version; use %s", l.cfg.Poll.OutputDriver, config.GHADispatch)
	}
	token := a.value("GITHUB_TOKEN")
	if token == "" {
		ps = append(ps, problem{text: "no GitHub token; give the input github-token (permissions: actions: write, contents: read), --github-token or GITHUB_TOKEN"})
	}
	a.hide("", token)
	confs := a.selected(l.cfg)
	if len(confs) == 0 {
		bad(0, "no input driver; add one under poll.input_drivers, set JIRA_BASE_URL, or check --input-driver")
	}
	var drivers []*driver
	for _, conf := range confs {
		a.hide(conf.Connection.Email, conf.Connection.Token)
		switch {
		case conf.Type != config.JiraPoll:
			bad(conf.Line, "the input driver %q is not part of this version; use %s", conf.Type, config.JiraPoll)
		case conf.Connection.BaseURL == "" || conf.Connection.Token == "":
			bad(conf.Line, "driver %s has no complete connection; set base_url and token, or JIRA_BASE_URL, JIRA_USER_EMAIL and JIRA_TOKEN", conf.Name)
		case conf.Connection.Email == "" && isCloud(conf):
			bad(conf.Line, "driver %s has a token but no email: on Jira Cloud an API token belongs to an account; set email (JIRA_USER_EMAIL). Only Data Center takes a token alone", conf.Name)
		case conf.RefuseUnsigned && a.Getenv(secretName) == "":
			bad(conf.Line, "driver %s: state.accept_unsigned is false, but %s is not set: nothing could be signed or trusted; pass the secret to this step, or leave accept_unsigned out", conf.Name, secretName)
		case len(ps) == 0:
			d, err := a.driver(l, conf, repo, token)
			if err != nil {
				bad(conf.Line, "driver %s: %v", conf.Name, err)
				continue
			}
			drivers = append(drivers, d)
		}
	}
	return drivers, ps
}

// selected returns the configured input drivers that --input-driver leaves.
func (a *app) selected(cfg *config.Config) []config.InputDriver {
	if len(a.set.inputDrivers) == 0 {
		return cfg.Poll.InputDrivers
	}
	var confs []config.InputDriver
	for _, d := range cfg.Poll.InputDrivers {
		if slices.Contains(a.set.inputDrivers, d.Type) || slices.Contains(a.set.inputDrivers, d.Name) {
			confs = append(confs, d)
		}
	}
	return confs
}

// isCloud reports whether the site can only be Jira Cloud.
func isCloud(d config.InputDriver) bool {
	return d.Flavour == config.FlavourCloud || d.Flavour != config.FlavourDataCenter && jira.CloudAddress(d.Connection.BaseURL)
}

// authorization translates the configuration; GitHub is asked through out.
func authorization(c config.Authorization, out *github.Dispatcher) jira.Authorization {
	return jira.Authorization{
		Mode:      jira.Mode(c.Mode),
		RoleNames: map[event.Role][]string{event.RoleAdmin: c.AdminRoles, event.RoleWrite: c.WriteRoles},
		Allow:     c.Allow, GitHubUsers: c.GitHubUsers, GitHubRole: out.Role,
	}
}

// secretName names the key of every signature.
const secretName = "FULLSEND_DISPATCH_SECRET" //nolint:gosec // a name, no secret

func (a *app) signing(repo string, refuseUnsigned bool) jira.Signing {
	key := a.Getenv(secretName)
	a.hide("", key)
	return jira.Signing{Key: []byte(key), Repo: repo, AcceptUnsigned: !refuseUnsigned}
}

func (a *app) jiraClient(c config.Connection, flavour string) (*jira.Client, error) {
	return jira.NewClient(jira.ClientOptions{
		BaseURL: c.BaseURL, Email: c.Email, Token: c.Token, Flavour: jira.Flavour(flavour),
		HTTP: a.http(httpx.Options{Limiter: rate.NewLimiter(jiraPace, jiraBurst)}),
	})
}

// driver wires one jira-poll driver to gha-dispatch.
func (a *app) driver(l *loaded, conf config.InputDriver, repo, token string) (*driver, error) {
	client, err := a.jiraClient(conf.Connection, conf.Flavour)
	if err != nil {
		return nil, err
	}
	props, err := jira.PropertiesFor(repo)
	if err != nil {
		return nil, err
	}
	state := jira.NewState(client, props).Signed(a.signing(repo, conf.RefuseUnsigned))
	out, transport, err := a.dispatcher(l.cfg.Poll.GHADispatch, repo, token, nil)
	if err != nil {
		return nil, err
	}
	queries := make([]string, len(conf.Queries))
	for i, q := range conf.Queries {
		queries[i] = q.JQL
	}
	evidence := out.Evidence(a.Now)
	input := jira.NewInput(client, state, jira.InputOptions{
		Name: conf.Name, Repo: repo, Queries: queries, M: conf.Lock.M,
		ScanLimit: conf.ScanLimit, ScanWindow: conf.ScanWindow,
		FirstPollWindow: conf.FirstPollWindow, ReplayWindow: conf.ReplayWindow,
		MaxEvents:          conf.MaxEventsPerIssue,
		RestrictedComments: conf.RestrictedComments == config.RestrictedInclude,
		Judge:              &lease.Judge{Rules: rules(conf.Lock), Evidence: evidence, ServerNow: client.ServerNow}, IntN: a.intN,
		LockBound: conf.Lock.Guard + conf.Lock.JitterMin, Conditional: conf.Lock.Mode == config.ModeConditional, Bots: conf.Bots,
		Authorization: authorization(conf.Authorization, out),
	})
	cycle := poll.New(poll.Options{
		Driver: jira.DriverType, Property: props.Lock, Input: input, Checkpoints: state,
		Locker: lease.New(lease.Options{
			Register: state, Driver: jira.DriverType, Rules: rules(conf.Lock), Evidence: evidence,
			Guard: conf.Lock.Guard, JitterMin: conf.Lock.JitterMin, JitterMax: conf.Lock.JitterMax,
			Conditional: conf.Lock.Mode == config.ModeConditional,
			CleanUp:     cleanUp, Now: a.Now, ServerNow: client.ServerNow, Rand: a.Rand, NewID: uuid.NewString,
			Note: func(item, what string) { a.log.Warn("lock", "issue_id", item, "note", what) },
		}),
		Core: a.core(l), Output: out, KillSwitch: l.cfg.KillSwitch, DryRun: a.set.dryRun,
		N: conf.Lock.N, Grace: cleanUp, Now: a.Now, IntN: a.intN, NewID: uuid.NewString,
	})
	return &driver{conf: conf, input: input, state: state, client: client, out: out, output: transport, cycle: cycle}, nil
}

// rules translates how long locks keep others out.
func rules(c config.Lock) lease.Rules {
	return lease.Rules{StaleThreshold: c.StaleThreshold, PendingTTL: c.PendingTTL, MaxHold: c.MaxHold}
}

// dispatcher makes the gha-dispatch output with a transport of its own.
func (a *app) dispatcher(conf config.GHA, repo, token string, pace *rate.Limiter) (*github.Dispatcher, *httpx.Transport, error) {
	api := first(a.Getenv("GITHUB_API_URL"), defaultAPIURL)
	u, err := url.Parse(api)
	if err != nil || u.Host == "" || u.Scheme != "https" && !loopback(u.Hostname()) {
		return nil, nil, errors.New("GITHUB_API_URL is no usable https address")
	}
	t, err := httpx.New(a.http(httpx.Options{Origin: httpx.Origin(u), Secrets: []string{token}, Authorize: bearer(token), Limiter: pace}))
	if err != nil {
		return nil, nil, err
	}
	out, err := github.NewDispatcher(github.Options{
		APIURL: api, ServerURL: first(a.Getenv("GITHUB_SERVER_URL"), defaultServerURL), Repo: repo,
		Workflow: conf.Workflow, Ref: conf.Ref, HTTP: t, Log: a.log,
	})
	return out, t, err
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// intN returns a random number in [0, n).
func (a *app) intN(n int) int { return min(int(a.Rand()*float64(n)), n-1) }

// checkQueries asks Jira about every query of the drivers that can be reached,
// so that a query that Jira refuses is reported together with everything else
// that is wrong. It only reads, and is only called when something is wrong.
func (a *app) checkQueries(ctx context.Context, cfg *config.Config) problems {
	var ps problems
	for _, conf := range cfg.Poll.InputDrivers {
		c := conf.Connection
		if conf.Type != config.JiraPoll || c.BaseURL == "" || c.Token == "" || c.Email == "" && isCloud(conf) {
			continue
		}
		a.hide(c.Email, c.Token)
		client, err := a.jiraClient(c, conf.Flavour)
		if err != nil {
			continue // what is wrong with the connection is reported already
		}
		input := jira.NewInput(client, nil, jira.InputOptions{ScanWindow: conf.ScanWindow})
		for i, q := range conf.Queries {
			if jira.CheckQuery(q.JQL) != nil {
				continue
			}
			var refused *jira.QueryError
			if err := input.CheckQuery(ctx, i, q.JQL); errors.As(err, &refused) {
				ps = append(ps, a.queryProblem(conf, refused))
			}
		}
	}
	return ps
}

func (a *app) queryProblem(conf config.InputDriver, e *jira.QueryError) problem {
	p := problem{file: a.configPath(), line: conf.Line, text: e.Error() + "; try the query in Jira's issue search with the same account"}
	if e.Index < len(conf.Queries) {
		p.line = conf.Queries[e.Index].Line
	}
	return p
}

func bearer(token string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
}
