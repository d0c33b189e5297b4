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

	// Bot is the product's own account, an ordinary user by type.
	Bot = "5f00:bot"
	// Alice is a developer, named in the role herself.
	Alice = "5f00:alice"
	// Bob administers the project through the group jira-admins.
	Bob = "5f00:bob"
	// Mallory has no role.
	Mallory = "5f00:mallory"
)

// Workflow is the text of [WorkflowFile].
//
//go:embed fullsend-agent.yml
var Workflow string

// World is a network with a Jira site and a GitHub repository.
type World struct {
	Net    *sim.Net
	Jira   *sim.Jira
	GitHub *sim.GitHub

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
}

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
	w := &World{Net: sim.NewNet(), base: o.clock}
	w.Net.Now = w.Now
	w.Jira = sim.NewJira(sim.JiraConfig{
		BaseURL: JiraURL, Now: w.Now, Email: JiraEmail, Token: JiraToken, Zone: o.zone, UserZone: o.userZone,
		Self: sim.User{AccountID: Bot, DisplayName: "Fullsend"},
	})
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
	w.Net.Handle(JiraHost, w.Jira)
	w.Net.Handle(GitHubHost, w.GitHub)
	if !o.unchecked {
		w.check(tb)
	}
	return w
}

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
	jira := httptest.NewServer(w.Net.Handler(JiraHost))
	tb.Cleanup(jira.Close)
	github := httptest.NewServer(w.Net.Handler(GitHubHost))
	tb.Cleanup(github.Close)
	w.Jira.SetBaseURL(jira.URL)
	w.GitHub.SetBaseURL(github.URL)
	return jira.URL, github.URL
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
		if req.URL.Host == GitHubHost {
			d = github
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
	if req.URL.Host == GitHubHost {
		req.Header.Set("Authorization", "Bearer "+GitHubToken)
	} else {
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
