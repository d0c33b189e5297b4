package sim

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	maxInputs      = 25
	maxInputsChars = 65535
	maxRunSearch   = 1000
	defaultPerPage = 30
	maxPerPage     = 100
	shownLimit     = 1000
)

// fail is GitHub's error document.
func fail(status int, format string, args ...any) answer {
	return answer{status, map[string]any{
		"message": fmt.Sprintf(format, args...), "status": strconv.Itoa(status),
		"documentation_url": "https://docs.github.com/rest",
	}}
}

func notFound() answer { return fail(http.StatusNotFound, "Not Found") }

// ServeHTTP answers one request.
func (g *GitHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Date", g.now().UTC().Format(http.TimeFormat))
	h.Set("X-GitHub-Request-Id", "SIM0:0000:0000")
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if token != g.token || !strings.EqualFold(scheme, "Bearer") && !strings.EqualFold(scheme, "token") {
		text := "Bad credentials"
		if scheme == "" {
			text = "Requires authentication"
		}
		g.send(w, fail(http.StatusUnauthorized, "%s", text))
		return
	}
	if !g.admit(h) {
		g.send(w, fail(http.StatusForbidden, "API rate limit exceeded for installation."))
		return
	}
	if g.prefix != "" {
		http.StripPrefix(g.prefix, g.mux).ServeHTTP(w, r)
		return
	}
	g.mux.ServeHTTP(w, r)
}

// send writes an answer with GitHub's content type.
func (g *GitHub) send(w http.ResponseWriter, a answer) {
	write(&typed{w}, a)
}

// typed replaces Jira's spelling of the content type.
type typed struct{ http.ResponseWriter }

func (t *typed) WriteHeader(status int) {
	if t.Header().Get("Content-Type") != "" {
		t.Header().Set("Content-Type", "application/json; charset=utf-8")
	}
	t.ResponseWriter.WriteHeader(status)
}

// admit counts a request against the hour's limit and shows the account.
func (g *GitHub) admit(h http.Header) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if now := g.now(); !now.Before(g.resetAt) {
		g.used, g.resetAt = 0, now.Truncate(time.Second).Add(time.Hour)
	}
	g.used++
	limit := g.switches.RateLimit
	admitted := limit == 0 || g.used <= limit
	if limit == 0 {
		limit = shownLimit
	}
	h.Set("X-RateLimit-Limit", strconv.Itoa(limit))
	h.Set("X-RateLimit-Used", strconv.Itoa(min(g.used, limit)))
	h.Set("X-RateLimit-Resource", "core")
	h.Set("X-RateLimit-Reset", strconv.FormatInt(g.resetAt.Unix(), 10))
	remaining := max(limit-g.used, 0)
	if g.switches.RateLimit == 0 {
		remaining = max(remaining, 1)
	}
	h.Set("X-RateLimit-Remaining", strconv.Itoa(remaining))
	return admitted
}

// Routes returns "METHOD /path/{wildcard}" of every operation that is served.
func (g *GitHub) Routes() []string { return slices.Clone(g.patterns) }

func (g *GitHub) routes() *http.ServeMux {
	mux := http.NewServeMux()
	handle := func(pattern string, f func(http.ResponseWriter, *http.Request) answer) {
		method, path, _ := strings.Cut(pattern, " ")
		pattern = method + " /repos/{owner}/{repo}" + path
		g.patterns = append(g.patterns, pattern)
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if !strings.EqualFold(r.PathValue("owner")+"/"+r.PathValue("repo"), g.repo) {
				g.send(w, notFound())
				return
			}
			g.send(w, f(w, r))
		})
	}
	handle("GET ", g.locked(g.getRepo))
	handle("GET /actions/workflows", g.locked(g.listWorkflows))
	handle("GET /actions/workflows/{workflow}", g.locked(g.getWorkflow))
	handle("POST /actions/workflows/{workflow}/dispatches", g.dispatch)
	handle("GET /actions/workflows/{workflow}/runs", g.locked(g.readable(g.listRuns)))
	handle("GET /actions/runs", g.locked(g.readable(g.listRuns)))
	handle("GET /actions/runs/{run}", g.locked(g.readable(g.getRun)))
	handle("GET /actions/runs/{run}/jobs", g.locked(g.readable(g.getJobs)))
	handle("POST /actions/runs/{run}/cancel", g.locked(g.cancel))
	handle("POST /actions/runs/{run}/force-cancel", g.locked(g.forceCancel))
	handle("GET /contents/{path...}", g.locked(g.getContents))
	handle("GET /collaborators/{login}/permission", g.locked(g.getPermission))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		g.unknown = append(g.unknown, r.Method+" "+r.URL.Path)
		g.mu.Unlock()
		g.send(w, notFound())
	})
	return mux
}

func (g *GitHub) getRepo(http.ResponseWriter, *http.Request) answer {
	return ok(g.showFullRepo())
}

// locked runs a handler on a consistent state.
func (g *GitHub) locked(f func(http.ResponseWriter, *http.Request) answer) func(http.ResponseWriter, *http.Request) answer {
	return func(w http.ResponseWriter, r *http.Request) answer {
		g.mu.Lock()
		defer g.mu.Unlock()
		return f(w, r)
	}
}

// readable refuses what takes "actions: read" where the token has it not.
func (g *GitHub) readable(f func(http.ResponseWriter, *http.Request) answer) func(http.ResponseWriter, *http.Request) answer {
	return func(w http.ResponseWriter, r *http.Request) answer {
		if g.switches.RunsForbidden {
			return fail(http.StatusForbidden, "Resource not accessible by integration")
		}
		return f(w, r)
	}
}

// known resolves a workflow that the default branch has, by id or file name.
func (g *GitHub) known(r *http.Request) *workflow {
	name := r.PathValue("workflow")
	for _, w := range g.workflows {
		if _, onDefault := w.at[defaultBranch]; onDefault && (w.file == name || strconv.FormatInt(w.id, 10) == name) {
			return w
		}
	}
	return nil
}

func (g *GitHub) listWorkflows(w http.ResponseWriter, r *http.Request) answer {
	var all []any
	for _, wf := range g.workflows {
		if _, onDefault := wf.at[defaultBranch]; onDefault {
			all = append(all, g.showWorkflow(wf))
		}
	}
	page, total, bad := g.page(w, r, all)
	if bad != nil {
		return *bad
	}
	return ok(map[string]any{"total_count": total, "workflows": page})
}

func (g *GitHub) getWorkflow(_ http.ResponseWriter, r *http.Request) answer {
	w := g.known(r)
	if w == nil {
		return notFound()
	}
	return ok(g.showWorkflow(w))
}

// dispatch creates a run and tells the observer before it answers.
func (g *GitHub) dispatch(_ http.ResponseWriter, r *http.Request) answer {
	g.mu.Lock()
	created, details, bad := g.dispatchLocked(r)
	observer := g.onDispatch
	g.mu.Unlock()
	if bad != nil {
		return *bad
	}
	if observer != nil {
		observer(created)
	}
	if !details {
		return answer{status: http.StatusNoContent}
	}
	return ok(map[string]any{
		"workflow_run_id": created.ID, "html_url": created.URL,
		"run_url": fmt.Sprintf("%s/repos/%s/actions/runs/%d", g.base, g.repo, created.ID),
	})
}

func (g *GitHub) dispatchLocked(r *http.Request) (created Run, details bool, bad *answer) {
	refused := func(a answer) (Run, bool, *answer) { return Run{}, false, &a }
	unprocessable := func(format string, args ...any) (Run, bool, *answer) {
		return refused(fail(http.StatusUnprocessableEntity, format, args...))
	}
	body, err := io.ReadAll(r.Body)
	var members map[string]json.RawMessage
	if err != nil || json.Unmarshal(body, &members) != nil {
		return refused(fail(http.StatusBadRequest, "Problems parsing JSON"))
	}
	w := g.known(r)
	if w == nil {
		return refused(notFound())
	}
	if g.switches.DispatchForbidden {
		return refused(fail(http.StatusForbidden, "Resource not accessible by integration"))
	}
	newest := r.Header.Get("X-GitHub-Api-Version") >= "2026-03-10"
	for name := range members {
		if name == "return_run_details" && (g.switches.NoRunDetails || newest) || !slices.Contains([]string{"ref", "inputs", "return_run_details"}, name) {
			return refused(fail(http.StatusBadRequest, "Invalid request.\n\n%q is not a permitted key.", name))
		}
	}
	var req struct {
		Ref     string         `json:"ref"`
		Inputs  map[string]any `json:"inputs"`
		Details bool           `json:"return_run_details"`
	}
	if json.Unmarshal(body, &req) != nil || req.Ref == "" {
		return unprocessable("Invalid request.\n\n\"ref\" wasn't supplied.")
	}
	ref := strings.TrimPrefix(strings.TrimPrefix(req.Ref, "refs/heads/"), "refs/tags/")
	if w.state != "active" {
		return unprocessable("Cannot trigger a 'workflow_dispatch' on a disabled workflow")
	}
	if !g.refs[ref] {
		return unprocessable("No ref found for: %s", req.Ref)
	}
	d := w.at[ref]
	if !d.dispatched {
		return unprocessable("Workflow does not have 'workflow_dispatch' trigger")
	}
	if len(req.Inputs) > maxInputs {
		return unprocessable("Invalid request.\n\nNo more than %d properties are allowed; %d were supplied.", maxInputs, len(req.Inputs))
	}
	if utf8.RuneCount(members["inputs"]) > maxInputsChars {
		return unprocessable("inputs are too large.")
	}
	inputs, problem := d.resolve(req.Inputs)
	if problem != "" {
		return unprocessable("%s", problem)
	}
	run := g.create(w, d, ref, inputs)
	return run.Run, (req.Details || newest) && !g.switches.Always204, nil
}

func (g *GitHub) listRuns(w http.ResponseWriter, r *http.Request) answer {
	var only *workflow
	if r.PathValue("workflow") != "" {
		if only = g.known(r); only == nil {
			return notFound()
		}
	}
	q := r.URL.Query()
	inRange, err := createdFilter(q.Get("created"))
	if err != nil {
		return fail(http.StatusUnprocessableEntity, "%s", err)
	}
	filtered := q.Get("created") != "" || q.Get("event") != "" || q.Get("branch") != "" || q.Get("status") != ""
	all := []any{}
	for _, run := range slices.Backward(g.runs) {
		g.settle(run)
		switch {
		case only != nil && run.workflow != only,
			g.now().Sub(run.CreatedAt) < g.switches.RunVisibleAfter,
			!inRange(run.CreatedAt.Truncate(time.Second)),
			!matchesFilter(q, "event", "workflow_dispatch"),
			!matchesFilter(q, "branch", run.Ref),
			!matchesFilter(q, "status", run.Status, run.Conclusion),
			!matchesFilter(q, "actor", actorLogin):
			continue
		}
		all = append(all, g.showRun(run))
	}
	if filtered {
		all = all[:min(len(all), maxRunSearch)]
	}
	page, total, bad := g.page(w, r, all)
	if bad != nil {
		return *bad
	}
	return ok(map[string]any{"total_count": total, "workflow_runs": page})
}

func matchesFilter(q url.Values, name string, values ...string) bool {
	want := q.Get(name)
	return want == "" || slices.Contains(values, want)
}

// createdFilter reads a date range of the search syntax: >=T, >T, <=T, <T,
// A..B (a bound may be *), or T, where a T without time is a day.
func createdFilter(text string) (func(time.Time) bool, error) {
	if text == "" {
		return func(time.Time) bool { return true }, nil
	}
	parse := func(s string) (from, to time.Time, err error) {
		if from, err = time.Parse(time.RFC3339, s); err == nil {
			return from, from, nil
		}
		if from, err = time.Parse(time.DateOnly, s); err == nil {
			return from, from.Add(24*time.Hour - time.Second), nil
		}
		return from, to, fmt.Errorf("created: %q is no date", s)
	}
	if a, b, isRange := strings.Cut(text, ".."); isRange {
		var from, to time.Time
		var err error
		if a != "*" {
			if from, _, err = parse(a); err != nil {
				return nil, err
			}
		}
		if b != "*" {
			if _, to, err = parse(b); err != nil {
				return nil, err
			}
		}
		return func(t time.Time) bool { return !t.Before(from) && (b == "*" || !t.After(to)) }, nil
	}
	value := strings.TrimLeft(text, "<>=")
	from, to, err := parse(value)
	if err != nil {
		return nil, err
	}
	switch strings.TrimSuffix(text, value) {
	case ">=":
		return func(t time.Time) bool { return !t.Before(from) }, nil
	case ">":
		return func(t time.Time) bool { return t.After(to) }, nil
	case "<=":
		return func(t time.Time) bool { return !t.After(to) }, nil
	case "<":
		return func(t time.Time) bool { return t.Before(from) }, nil
	case "":
		return func(t time.Time) bool { return !t.Before(from) && !t.After(to) }, nil
	}
	return nil, fmt.Errorf("created: %q is no range", text)
}

// page cuts out the page that a request asks for and links to the next.
func (g *GitHub) page(w http.ResponseWriter, r *http.Request, all []any) (page []any, total int, bad *answer) {
	q := r.URL.Query()
	size, number := defaultPerPage, 1
	for name, into := range map[string]*int{"per_page": &size, "page": &number} {
		if s := q.Get(name); s != "" {
			n, err := strconv.Atoi(s)
			if err != nil || n < 1 {
				a := fail(http.StatusUnprocessableEntity, "%s must be a positive number", name)
				return nil, 0, &a
			}
			*into = n
		}
	}
	size, number = min(size, maxPerPage), min(number, maxBody)
	first, end := min((number-1)*size, len(all)), min(number*size, len(all))
	if end < len(all) {
		q.Set("page", strconv.Itoa(number+1))
		w.Header().Set("Link", fmt.Sprintf("<%s%s?%s>; rel=\"next\"", g.base, r.URL.EscapedPath(), q.Encode()))
	}
	return append([]any{}, all[first:end]...), len(all), nil
}

func (g *GitHub) runOf(r *http.Request) *run {
	id, err := strconv.ParseInt(r.PathValue("run"), 10, 64)
	if err != nil {
		return nil
	}
	return g.run(id)
}

func (g *GitHub) getRun(_ http.ResponseWriter, r *http.Request) answer {
	run := g.runOf(r)
	if run == nil {
		return notFound()
	}
	return ok(g.showRun(run))
}

func (g *GitHub) getJobs(w http.ResponseWriter, r *http.Request) answer {
	run := g.runOf(r)
	if run == nil {
		return notFound()
	}
	jobs := run.jobs
	if jobs == nil {
		jobs = []Job{{Name: "agent", Status: run.Status, Conclusion: run.Conclusion}}
	}
	var all []any
	for i, job := range jobs {
		all = append(all, g.showJob(run, int64(i), job))
	}
	page, total, bad := g.page(w, r, all)
	if bad != nil {
		return *bad
	}
	return ok(map[string]any{"total_count": total, "jobs": page})
}

func (g *GitHub) cancel(_ http.ResponseWriter, r *http.Request) answer {
	return g.stop(r, g.switches.CancelTakes, g.switches.CancelIgnored)
}

func (g *GitHub) forceCancel(_ http.ResponseWriter, r *http.Request) answer {
	return g.stop(r, 0, false)
}

func (g *GitHub) stop(r *http.Request, after time.Duration, ignored bool) answer {
	run := g.runOf(r)
	switch {
	case run == nil:
		return notFound()
	case g.switches.DispatchForbidden, g.switches.CancelForbidden:
		return fail(http.StatusForbidden, "Resource not accessible by integration")
	case run.Status == "completed":
		return fail(http.StatusConflict, "Cannot cancel a workflow run that is completed.")
	}
	if at := g.now().Add(after); !ignored && (run.cancelFrom.IsZero() || at.Before(run.cancelFrom)) {
		run.cancelFrom = at
	}
	return answer{http.StatusAccepted, map[string]any{}}
}

func (g *GitHub) getContents(_ http.ResponseWriter, r *http.Request) answer {
	ref := r.URL.Query().Get("ref")
	if ref == "" {
		ref = defaultBranch
	}
	ref = strings.TrimPrefix(strings.TrimPrefix(ref, "refs/heads/"), "refs/tags/")
	dir, file := path.Split(r.PathValue("path"))
	if !g.refs[ref] {
		return fail(http.StatusNotFound, "No commit found for the ref %s", ref)
	}
	w := g.workflow(file)
	if w == nil || dir != ".github/workflows/" {
		return notFound()
	}
	d, found := w.at[ref]
	if !found {
		return notFound()
	}
	return ok(g.showFile(w.path(), ref, d.source))
}

func (g *GitHub) getPermission(_ http.ResponseWriter, r *http.Request) answer {
	login := r.PathValue("login")
	has, found := g.roles[login]
	switch {
	case g.switches.PermissionForbidden:
		return fail(http.StatusForbidden, "Must have push access to view collaborator permission.")
	case !found && g.switches.UnknownLogin404:
		return notFound()
	case !found:
		has = grant{"none", "none"}
	}
	return ok(map[string]any{
		"permission": has.permission, "role_name": has.role, "user": g.showCollaborator(login, has),
	})
}
