// Package simtest sets the simulated servers up for tests and holds every
// exchange with them against the vendors' official descriptions.
package simtest

import (
	_ "embed"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fullsend/poll-action/internal/sim"
)

// Names of the usual stage.
const (
	JiraHost    = "acme.atlassian.net"
	JiraURL     = "https://" + JiraHost
	JiraEmail   = "bot@acme.example"
	JiraToken   = "jira-token-of-the-bot"
	GitHubHost  = "api.github.com"
	GitHubURL   = "https://" + GitHubHost
	GitHubToken = "github-token-of-the-job"
	Repo        = "acme/platform"
	Project     = "PROJ"
	// WorkflowFile is the agents' workflow; it declares every dispatch input,
	// and its run-name has the lock's id and the agent.
	WorkflowFile = "fullsend-agent.yml"

	// DCHost and DCURL are where the stage's Data Center site is, DCToken is
	// its personal access token, DCUser and DCPassword its Basic credentials.
	DCHost     = "jira.acme.example"
	DCURL      = "https://" + DCHost + dcContext
	DCToken    = "data-center-token-of-the-bot"
	DCUser     = "bot"
	DCPassword = "data-center-password-of-the-bot"

	// Bot is the product's own account, an ordinary user by type. On Data
	// Center everybody is known by the name after the colon: [World.ID].
	Bot = "5f00:bot"
	// Alice is a developer, named in the role herself.
	Alice = "5f00:alice"
	// Bob administers the project through the group jira-admins.
	Bob = "5f00:bob"
	// Mallory has no role.
	Mallory = "5f00:mallory"
)

const dcContext = "/jira"

// Workflow is the text of [WorkflowFile].
//
//go:embed fullsend-agent.yml
var Workflow string

// World is a network with a Jira site and a GitHub repository.
type World struct {
	Net    *sim.Net
	Jira   *sim.Jira
	GitHub *sim.GitHub

	dc bool

	mu     sync.Mutex
	offset time.Duration
	base   func() time.Time
}

// Option changes a world before it is built.
type Option func(*options)

type options struct {
	zone, userZone *time.Location
	clock          func() time.Time
	unchecked      bool
	dc             bool
}

// DataCenter makes the Jira site one of Data Center, at [DCURL], with the same
// people, projects and roles.
func DataCenter() Option { return func(o *options) { o.dc = true } }

// Zones sets the zone of timestamps in Jira's bodies and the one of the bot's
// profile.
func Zones(site, user *time.Location) Option {
	return func(o *options) { o.zone, o.userZone = site, user }
}

// Clock replaces time.Now, which inside a synctest bubble is the bubble's.
func Clock(now func() time.Time) Option { return func(o *options) { o.clock = now } }

// Unchecked turns the check against the descriptions off, for tests that make
// a server misbehave on purpose.
func Unchecked() Option { return func(o *options) { o.unchecked = true } }

// New builds the usual stage. Every exchange is checked: the test fails when
// one violates the vendor's description or meets no route.
func New(tb testing.TB, opts ...Option) *World {
	tb.Helper()
	o := options{zone: time.FixedZone("UTC-7", -7*60*60), userZone: time.UTC, clock: time.Now}
	for _, opt := range opts {
		opt(&o)
	}
	w := &World{Net: sim.NewNet(), base: o.clock, dc: o.dc}
	w.Net.Now = w.Now
	config := sim.JiraConfig{
		BaseURL: JiraURL, Now: w.Now, Email: JiraEmail, Token: JiraToken, Zone: o.zone, UserZone: o.userZone,
		Self: sim.User{AccountID: Bot, DisplayName: "Fullsend"},
	}
	if o.dc {
		config.DataCenter, config.BaseURL, config.Token, config.Password = true, DCURL, DCToken, DCPassword
	}
	w.Jira = sim.NewJira(config)
	w.Jira.AddUser(sim.User{AccountID: Alice, DisplayName: "Alice"})
	w.Jira.AddUser(sim.User{AccountID: Bob, DisplayName: "Bob", Groups: []string{"jira-users", "jira-admins"}})
	w.Jira.AddUser(sim.User{AccountID: Mallory, DisplayName: "Mallory"})
	w.Jira.AddProject(Project)
	w.Jira.Grant(Project, "Developers", Alice)
	w.Jira.GrantGroup(Project, "Administrators", "jira-admins")

	w.GitHub = sim.NewGitHub(sim.GitHubConfig{
		BaseURL: GitHubURL, ServerURL: "https://github.com", Now: w.Now, Token: GitHubToken, Repo: Repo,
	})
	w.GitHub.AddWorkflow(WorkflowFile, "main", Workflow)
	w.Net.Handle(w.JiraHost(), w.Jira)
	w.Net.Handle(GitHubHost, w.GitHub)
	if !o.unchecked {
		w.check(tb)
	}
	return w
}

// DataCenter reports whether the Jira site is one of Data Center.
func (w *World) DataCenter() bool { return w.dc }

// JiraHost is the host of the Jira site in the network.
func (w *World) JiraHost() string {
	if w.dc {
		return DCHost
	}
	return JiraHost
}

// JiraURL is the base URL of the Jira site, with its context path.
func (w *World) JiraURL() string { return w.Jira.BaseURL() }

// JiraAPI is the address of the site's REST API, with its version.
func (w *World) JiraAPI() string {
	if w.dc {
		return w.JiraURL() + "/rest/api/2"
	}
	return w.JiraURL() + "/rest/api/3"
}

// JiraCredentials are the email and the token that the product is configured
// with: none and a personal access token on Data Center.
func (w *World) JiraCredentials() (email, token string) {
	if w.dc {
		return "", DCToken
	}
	return JiraEmail, JiraToken
}

// ID is how the site names a person, for example [Alice].
func (w *World) ID(person string) string { return w.Jira.AccountName(person) }

// Now is the clock of both servers.
func (w *World) Now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.base().Add(w.offset)
}

// Advance moves the servers' clock, and only theirs: inside a synctest bubble
// it makes a skew, for time that passes sleep there.
func (w *World) Advance(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.offset += d
}

// Client is an HTTP client on the network, without sockets.
func (w *World) Client() *http.Client { return &http.Client{Transport: w.Net} }

// Listen serves the world on the loopback interface until the test ends and
// returns the base URLs. The servers then give themselves these addresses.
func (w *World) Listen(tb testing.TB) (jiraURL, githubURL string) {
	tb.Helper()
	jira := httptest.NewServer(w.Net.Handler(w.JiraHost()))
	tb.Cleanup(jira.Close)
	github := httptest.NewServer(w.Net.Handler(GitHubHost))
	tb.Cleanup(github.Close)
	base := jira.URL
	if w.dc {
		base += dcContext
	}
	w.Jira.SetBaseURL(base)
	w.GitHub.SetBaseURL(github.URL)
	return base, github.URL
}

// check hooks the descriptions into the network.
func (w *World) check(tb testing.TB) {
	tb.Helper()
	jira, err := JiraDescription()
	if err != nil {
		tb.Fatal(err)
	}
	github, err := GitHubDescription()
	if err != nil {
		tb.Fatal(err)
	}
	w.Net.Check = func(req *http.Request, reqBody []byte, status int, header http.Header, respBody []byte) {
		d := jira
		switch {
		case req.URL.Host == GitHubHost:
			d = github
		case w.dc:
			if err := checkDataCenter(req, reqBody, status, header, respBody); err != nil {
				tb.Errorf("shape of Data Center: %v", err)
			}
			return
		}
		if err := d.Check(req, reqBody, status, header, respBody); err != nil {
			tb.Errorf("official description: %v", err)
		}
	}
	tb.Cleanup(func() {
		for _, u := range append(w.Jira.Unknown(), w.GitHub.Unknown()...) {
			tb.Errorf("request without a route: %s", u)
		}
	})
}

// Answer is a response without its body.
type Answer struct {
	StatusCode int
	Header     http.Header
}

// Do sends one request over the network with the good credentials of its host
// and returns the answer with its body read. Body "" means none.
func (w *World) Do(tb testing.TB, method, target, body string) (Answer, string) {
	tb.Helper()
	var content io.Reader
	if body != "" {
		content = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(tb.Context(), method, target, content)
	if err != nil {
		tb.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	switch {
	case req.URL.Host == GitHubHost:
		req.Header.Set("Authorization", "Bearer "+GitHubToken)
	case w.dc:
		req.Header.Set("Authorization", "Bearer "+DCToken)
	default:
		req.SetBasicAuth(JiraEmail, JiraToken)
	}
	res, err := w.Client().Do(req)
	if err != nil {
		tb.Fatal(err)
	}
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		tb.Fatal(err)
	}
	if err := res.Body.Close(); err != nil {
		tb.Fatal(err)
	}
	return Answer{StatusCode: res.StatusCode, Header: res.Header}, string(raw)
}
