package sim

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// GitHubConfig is what a simulated GitHub is born with.
type GitHubConfig struct {
	// BaseURL is the API's address, for example https://api.github.com or,
	// on an Enterprise Server, https://ghe.acme.example/api/v3.
	BaseURL string
	// ServerURL is the address of the pages, for example https://github.com.
	ServerURL string
	// Now is the server's clock; it also feeds the Date header.
	Now func() time.Time
	// Token is the only accepted bearer token.
	Token string
	// Repo is the only repository, "owner/name". Its default branch is main.
	Repo string
}

// GitHubSwitches are behaviours that differ between servers, tokens and days.
type GitHubSwitches struct {
	// NoRunDetails refuses return_run_details as unknown (400), as Enterprise
	// Server up to 3.20 does.
	NoRunDetails bool
	// Always204 takes return_run_details and ignores it.
	Always204 bool
	// RunVisibleAfter is how long a new run is missing from lists.
	RunVisibleAfter time.Duration
	// RunTitleWithoutLock shows the workflow's name as the title of new runs,
	// whatever its run-name says.
	RunTitleWithoutLock bool
	// DispatchForbidden takes "actions: write" from the token: 403 for dispatches
	// and cancels.
	DispatchForbidden bool
	// CancelForbidden does the same for cancels, forced ones too, and
	// RunsForbidden takes "actions: read": of runs nothing can be read.
	CancelForbidden, RunsForbidden bool
	// CancelTakes is how long a cancelled run stays alive.
	CancelTakes time.Duration
	// CancelIgnored makes runs ignore a cancel, but not a forced one.
	CancelIgnored bool
	// RateLimit is the number of requests per hour; 0 means no limit.
	RateLimit int
	// PermissionForbidden takes the right to ask for somebody's permission
	// from the token: 403.
	PermissionForbidden bool
	// UnknownLogin404 says of logins without a permission that they do not
	// exist, and not that they have none.
	UnknownLogin404 bool
}

// Run is one workflow run.
type Run struct {
	ID int64
	// Workflow is the file's name, Ref the branch or tag.
	Workflow, Ref string
	DisplayTitle  string
	// Status is "queued", "in_progress" or "completed"; Conclusion is empty
	// until it is completed.
	Status, Conclusion string
	// URL is the address of the run's page.
	URL string
	// Inputs are the values that were sent, and the defaults of the others.
	Inputs    map[string]string
	CreatedAt time.Time
}

// Job is one job of a run; Status and Conclusion are as in [Run].
type Job struct {
	Name, Status, Conclusion string
	// Runner is the name of the runner that has taken the job; empty before.
	Runner string
}

// GitHub is a simulated GitHub with one repository. It is an http.Handler,
// safe for concurrent use.
type GitHub struct {
	base, server, prefix string
	now                  func() time.Time
	token, repo          string
	mux                  *http.ServeMux
	// patterns are the routes of mux.
	patterns []string

	mu         sync.Mutex
	switches   GitHubSwitches
	workflows  []*workflow
	refs       map[string]bool
	runs       []*run
	roles      map[string]grant
	onDispatch func(Run)
	lastID     int64
	unknown    []string
	used       int
	resetAt    time.Time
}

// defaultBranch is the repository's default branch.
const defaultBranch = "main"

type run struct {
	Run
	workflow   *workflow
	jobs       []Job
	updated    time.Time
	cancelFrom time.Time
}

// NewGitHub returns a GitHub whose repository has no workflow yet.
func NewGitHub(c GitHubConfig) *GitHub {
	g := &GitHub{
		server: strings.TrimSuffix(c.ServerURL, "/"), now: c.Now, token: c.Token, repo: c.Repo,
		refs: map[string]bool{defaultBranch: true}, roles: map[string]grant{}, lastID: 17_000_000_000,
	}
	if g.server == "" {
		g.server = "https://github.com"
	}
	g.SetBaseURL(c.BaseURL)
	g.mux = g.routes()
	return g
}

// SetBaseURL moves the API, for example to a listener's address. It must not
// be called while requests are under way.
func (g *GitHub) SetBaseURL(base string) {
	g.base = strings.TrimSuffix(base, "/")
	g.prefix = ""
	if u, err := url.Parse(g.base); err == nil {
		g.prefix = u.Path
	}
}

// Set changes switches.
func (g *GitHub) Set(change func(*GitHubSwitches)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change(&g.switches)
}

// Unknown returns the requests, "METHOD path", that met no route.
func (g *GitHub) Unknown() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.unknown)
}

// AddRef adds a branch or tag without files.
func (g *GitHub) AddRef(ref string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refs[ref] = true
}

// AddWorkflow puts a workflow file on a ref, which is added if need be. Its
// name, run-name, trigger and declared inputs are read from the YAML; a file
// that cannot be read has no trigger.
func (g *GitHub) AddWorkflow(file, ref, yaml string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refs[ref] = true
	w := g.workflow(file)
	if w == nil {
		g.lastID++
		w = &workflow{id: g.lastID, file: file, state: "active", created: g.now(), at: map[string]definition{}}
		g.workflows = append(g.workflows, w)
	}
	w.at[ref] = parseWorkflow(file, yaml)
}

// SetState sets a workflow's state: active, disabled_manually,
// disabled_inactivity, disabled_fork or deleted.
func (g *GitHub) SetState(file, state string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if w := g.workflow(file); w != nil {
		w.state = state
	}
}

// grant is a person's permission on the repository in both of its forms.
type grant struct{ permission, role string }

// SetPermission sets a person's permission on the repository: admin, maintain,
// write, triage, read or none. GitHub tells maintain and triage only as the
// role's name, and write and read as the permission.
func (g *GitHub) SetPermission(login, permission string) {
	legacy := permission
	switch permission {
	case "maintain":
		legacy = "write"
	case "triage":
		legacy = "read"
	}
	g.SetRole(login, permission, legacy)
}

// SetRole gives a person a role of any name, as organizations make them, which
// comes with admin, write, read or none.
func (g *GitHub) SetRole(login, role, permission string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.roles[login] = grant{permission, role}
}

// OnDispatch calls f for every run that a dispatch creates, after it exists
// and before the answer is sent.
func (g *GitHub) OnDispatch(f func(Run)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.onDispatch = f
}

// Runs returns all runs, oldest first.
func (g *GitHub) Runs() []Run {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]Run, len(g.runs))
	for i, r := range g.runs {
		g.settle(r)
		out[i] = r.Run
		out[i].Inputs = maps.Clone(r.Inputs)
	}
	return out
}

// Start marks a run as in progress.
func (g *GitHub) Start(id int64) { g.move(id, "in_progress", "") }

// Complete ends a run with a conclusion, for example "success".
func (g *GitHub) Complete(id int64, conclusion string) { g.move(id, "completed", conclusion) }

// SetJobs says what the jobs of a run are; a run has one job of its own
// status until this is called.
func (g *GitHub) SetJobs(id int64, jobs ...Job) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r := g.run(id); r != nil {
		r.jobs = slices.Clone(jobs)
	}
}

// DeleteRun deletes a run: nothing knows it any more.
func (g *GitHub) DeleteRun(id int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.runs = slices.DeleteFunc(g.runs, func(r *run) bool { return r.ID == id })
}

func (g *GitHub) move(id int64, status, conclusion string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r := g.run(id); r != nil {
		r.Status, r.Conclusion, r.updated = status, conclusion, g.now()
	}
}

func (g *GitHub) run(id int64) *run {
	for _, r := range g.runs {
		if r.ID == id {
			g.settle(r)
			return r
		}
	}
	return nil
}

// settle lets an asked-for cancel come true when its time has come.
func (g *GitHub) settle(r *run) {
	if !r.cancelFrom.IsZero() && r.Status != "completed" && !g.now().Before(r.cancelFrom) {
		r.Status, r.Conclusion, r.updated = "completed", "cancelled", r.cancelFrom
	}
}

func (g *GitHub) workflow(file string) *workflow {
	for _, w := range g.workflows {
		if w.file == file {
			return w
		}
	}
	return nil
}

// create adds a run of a workflow.
func (g *GitHub) create(w *workflow, d definition, ref string, inputs map[string]string) *run {
	g.lastID++
	title := d.title(inputs)
	if g.switches.RunTitleWithoutLock {
		title = d.name
	}
	r := &run{workflow: w, updated: g.now(), Run: Run{
		ID: g.lastID, Workflow: w.file, Ref: ref, DisplayTitle: title, Status: "queued",
		URL:    fmt.Sprintf("%s/%s/actions/runs/%d", g.server, g.repo, g.lastID),
		Inputs: inputs, CreatedAt: g.now(),
	}}
	g.runs = append(g.runs, r)
	return r
}
