// Package config turns the bytes of .fullsend/config.yaml into a validated
// [Config]. It promises that nothing half-right gets through: every problem of
// the file is found in one pass and reported with its line and a cure, and no
// report ever contains a secret. The package reads no file and no environment;
// references of the form ${NAME} are resolved by a function that the caller
// passes.
//
// The file is shared with other Fullsend tools, so unknown keys at the top
// level (and in an agent's entry, which the agent runtime reads too) are
// ignored. The poll section belongs to this program alone: there an unknown key
// is an error.
package config

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// The driver types that a configuration may name.
const (
	JiraPoll       = "jira-poll"
	GitLabPoll     = "gitlab-poll"
	GitLabWebhook  = "gitlab-webhook"
	GHADispatch    = "gha-dispatch"
	GitLabPipeline = "gitlab-pipeline"
)

// The values of flavour, mode, restricted_comments and lock.mode.
const (
	FlavourAuto       = "auto"
	FlavourCloud      = "cloud"
	FlavourDataCenter = "datacenter"

	ModeEvents = "events"
	ModeSlash  = "slash"

	RestrictedSkip    = "skip"
	RestrictedInclude = "include"

	ModeVerify      = "verify"
	ModeConditional = "conditional"
)

// Config is the content of a configuration file, validated and with every
// reference resolved. It is not changed after [Parse], except by
// [Config.DetectDrivers].
type Config struct {
	// Version is "1", or empty where the file does not say.
	Version string
	// KillSwitch stops every dispatch.
	KillSwitch bool
	// Agents are the registered agents after the rule for duplicates, in the
	// order of the file. Disabled ones are among them, and so are entries
	// without a source, which only set something for an agent that other tools
	// know by default.
	Agents []Agent
	// AllowedRemoteResources are URL prefixes; nil where the file has no such
	// key (the defaults hold then), not nil but empty where it allows nothing.
	AllowedRemoteResources    []string
	AllowedRemoteResourcesSet bool
	Poll                      Poll
}

// Agent is one registered agent.
type Agent struct {
	// Name is the given name, else the source's file name without extension.
	Name string
	// Source is a path under the .fullsend directory or an https URL; empty in
	// an entry that only switches or adjusts a default agent.
	Source  string
	Enabled bool
	// Line is where the entry begins.
	Line int
}

// Poll is the section of this program.
type Poll struct {
	// InputDrivers is empty where the file has none; see [Config.DetectDrivers].
	InputDrivers []InputDriver
	// OutputDriver is as given; by default gitlab-pipeline where every input
	// driver is a GitLab one, else gha-dispatch.
	OutputDriver string
	GHADispatch  GHA

	outputGiven bool
}

// GHA is what the gha-dispatch output needs to know.
type GHA struct {
	// Workflow is a file name in .github/workflows.
	Workflow string
	// Ref is a branch or tag; empty means the repository's default branch.
	Ref string
}

// InputDriver is one place where work is looked for.
type InputDriver struct {
	Type string
	// Name tells drivers apart in reports; the type where none is given.
	Name       string
	Connection Connection

	// The members below are for jira-poll.

	Queries []Query
	Lock    Lock
	// Flavour is "auto", "cloud" or "datacenter".
	Flavour string
	// ScanWindow is how far back the searching of changed issues goes.
	ScanWindow time.Duration
	// FirstPollWindow bounds the first sight of an issue; 0 means no bound.
	FirstPollWindow time.Duration
	// ReplayWindow bounds how far back a recorded checkpoint is believed.
	ReplayWindow time.Duration
	// ScanLimit is the most issues that one cycle looks at.
	ScanLimit int
	// MaxEventsPerIssue is the most events of an issue that one cycle handles.
	MaxEventsPerIssue int
	// RestrictedComments is "skip" or "include".
	RestrictedComments string
	// Authorization says how actors' roles are found.
	Authorization Authorization
	// Bots are accounts that count as bots.
	Bots []string
	// RefuseUnsigned: with a key for signatures, only signed state counts
	// (state.accept_unsigned: false).
	RefuseUnsigned bool

	// The members below are for the GitLab drivers.

	// Project is the path of the project, groups included.
	Project string
	// Mode is "events" or "slash".
	Mode           string
	RoutableLabels []string

	// Line is where the entry begins; 0 for a driver that was detected.
	Line int
}

// Connection is how a server is reached. Token is a secret.
type Connection struct {
	// BaseURL has no trailing slash.
	BaseURL string
	// Email belongs to a Jira Cloud API token; without one the token is sent as
	// a Data Center personal access token.
	Email string
	Token string
}

// String describes the connection without its secret.
func (c Connection) String() string { return c.BaseURL }

// GoString keeps the secret out of %#v.
func (c Connection) GoString() string { return fmt.Sprintf("config.Connection{BaseURL:%q}", c.BaseURL) }

// Query is one JQL search.
type Query struct {
	JQL  string
	Line int
}

// Lock tunes how pollers of one repository keep out of each other's way.
type Lock struct {
	// Mode is "verify" or "conditional".
	Mode string
	// M is how many issues with something pending a cycle looks at, N how many
	// of them it locks.
	M, N int
	// StaleThreshold is the age at which a lock is taken to be abandoned.
	StaleThreshold time.Duration
	// PendingTTL is the same for a lock whose run has not refreshed it yet;
	// StaleThreshold where nothing else is given.
	PendingTTL time.Duration
	// MaxHold is how long a stale lock is kept while its run is still at work.
	MaxHold time.Duration
	// RefreshInterval is how often a run renews its lock.
	RefreshInterval time.Duration
	// Guard plus a random time between JitterMin and JitterMax is the wait
	// between writing a lock and verifying it.
	Guard, JitterMin, JitterMax time.Duration
}

// Defaults returns a jira-poll driver with the defaults of contract section 3.
func Defaults() InputDriver {
	const day = 24 * time.Hour
	return InputDriver{
		Type:    JiraPoll,
		Name:    JiraPoll,
		Flavour: FlavourAuto,
		Lock: Lock{
			// It relies on nothing that Jira does not describe.
			Mode: ModeVerify,
			// Fifty candidates are one page of the search; five locks keep a
			// cycle well inside a scheduled workflow's five minutes.
			M: 50,
			N: 5,
			// A run refreshes every 5 minutes, so that two refreshes in a row
			// may fail before anybody calls its lock abandoned.
			StaleThreshold:  900 * time.Second,
			PendingTTL:      900 * time.Second,
			RefreshInterval: 300 * time.Second,
			// As long as a job on GitHub's own runners may take.
			MaxHold: 6 * time.Hour,
			// Guard and shortest jitter together are the bound that a poller's
			// read and write must stay under (1.5 s), so all pollers of a
			// repository must share them; the jitter range is ADR 63's.
			Guard:     time.Second,
			JitterMin: 500 * time.Millisecond,
			JitterMax: 1500 * time.Millisecond,
		},
		// A week covers a poller that was broken over a long weekend.
		ScanWindow: 7 * day,
		// A first deployment on a backlog must not answer old comments.
		FirstPollWindow: day,
		// Anybody who may edit an issue can rewind its checkpoint; a week bounds
		// what that can start again.
		ReplayWindow: 7 * day,
		// Ten pages of a hundred bound the requests of a cycle; the rest follows
		// in the next ones.
		ScanLimit: 1000,
		// No single issue may eat a cycle.
		MaxEventsPerIssue: 100,
		// A comment hidden from most readers must not steer a public agent.
		RestrictedComments: RestrictedSkip,
		// The Jira adapter's own mapping.
		Authorization: Authorization{Mode: AuthorizeByProjectRoles},
	}
}

const (
	// DefaultWorkflow is the file name that the examples use.
	DefaultWorkflow = "fullsend-agent.yml"
	// DefaultGitLabURL is the server where neither file nor environment has one.
	DefaultGitLabURL = "https://gitlab.com"
)

// Problem is one thing that is wrong with a configuration.
type Problem struct {
	// Line is the line in the file, from 1; 0 where none is known.
	Line int
	// Path is the member at fault, e.g. "poll.input_drivers[0].lock.n".
	Path string
	// What says what is wrong, Cure what to do. Neither contains a secret.
	What, Cure string
}

// String is the problem on one line.
func (p Problem) String() string {
	var b strings.Builder
	if p.Line > 0 {
		fmt.Fprintf(&b, "line %d: ", p.Line)
	}
	if p.Path != "" {
		b.WriteString(p.Path + ": ")
	}
	b.WriteString(p.What)
	if p.Cure != "" {
		b.WriteString("; " + p.Cure)
	}
	return b.String()
}

// Problems is everything that is wrong with a configuration, by line; problems
// without a line come last.
type Problems []Problem

// Error joins the problems, one to a line.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Err returns the problems as an error, nil where there are none. (A nil
// Problems in an error variable would not be nil.)
func (ps Problems) Err() error {
	if len(ps) == 0 {
		return nil
	}
	return ps
}

func (ps Problems) sorted() Problems {
	key := func(p Problem) int {
		if p.Line == 0 {
			return math.MaxInt
		}
		return p.Line
	}
	slices.SortStableFunc(ps, func(a, b Problem) int { return cmp.Compare(key(a), key(b)) })
	return ps
}

// Options are what [Parse] is told by its caller.
type Options struct {
	// CheckJQL judges each query; nil accepts every text that is not blank and
	// not too long.
	CheckJQL func(jql string) error
	// Overrides take the place of members of the file.
	Overrides Overrides
	// WithoutConnections leaves connections alone: references are not resolved
	// and nothing is missed. It is for commands that talk to no server, such as
	// explain. What is wrong in itself (a literal token) stays an error.
	WithoutConnections bool
}

// Overrides come from flags, action inputs or the environment. One that is not
// empty replaces the member in every jira-poll driver before the file's own
// value is looked at, so that a reference that is not defined does no harm
// there.
type Overrides struct{ JiraBaseURL, JiraUserEmail, JiraToken string }

// Lookup resolves a reference ${NAME}; an empty value counts as undefined.
type Lookup func(name string) (value string, ok bool)

// Parse reads a configuration file. With problems, the Config is what could be
// understood (nil where nothing could): it is good for finding further problems,
// such as a query that the server refuses, and for nothing else.
func Parse(raw []byte, lookup Lookup, opts Options) (*Config, Problems) {
	r := newReader(lookup, opts)
	root := r.document(raw)
	if root == nil && len(r.problems) > 0 {
		return nil, r.problems.sorted()
	}
	cfg := r.config(root)
	if len(r.problems) > 0 {
		return cfg, r.problems.sorted()
	}
	return cfg, nil
}

func (r *reader) config(root *node) *Config {
	cfg := &Config{Poll: Poll{GHADispatch: GHA{Workflow: DefaultWorkflow}}}
	for _, f := range r.open(root, "") {
		switch f.key {
		case "version":
			cfg.Version = r.version(f.value)
		case "kill_switch":
			cfg.KillSwitch = r.boolean(f.value, f.key)
		case "agents":
			cfg.Agents = r.agents(f.value)
		case "allowed_remote_resources":
			cfg.AllowedRemoteResources = r.allowed(f.value)
			cfg.AllowedRemoteResourcesSet = true
		case "poll":
			r.poll(f.value, &cfg.Poll)
		}
	}
	cfg.Poll.chooseOutput()
	return cfg
}

// version accepts the one version there is, as text or as a number.
func (r *reader) version(n *node) string {
	if n.Kind != scalarNode || n.Value != "1" {
		r.add(n.Line, "version", "this program reads version \"1\" of the configuration only", `write version: "1"`)
		return ""
	}
	return n.Value
}

// chooseOutput fills in the output that belongs to the input drivers.
func (p *Poll) chooseOutput() {
	if p.outputGiven {
		return
	}
	p.OutputDriver = GHADispatch
	jira := func(d InputDriver) bool { return d.Type == JiraPoll }
	if len(p.InputDrivers) > 0 && !slices.ContainsFunc(p.InputDrivers, jira) {
		p.OutputDriver = GitLabPipeline
	}
}
