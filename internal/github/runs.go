package github

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/google/go-github/v62/github"

	"github.com/fullsend/poll-action/internal/dispatch"
)

const (
	// lookBack is taken off the time of a post: the list's filter has a grain
	// of a second, and GitHub's clocks are several.
	lookBack = 2 * time.Minute
	// maxRunPages bounds one look at an interval without an end, maxRangePages one
	// at an interval with both: there the runs that matter come last. More than
	// 1,000 runs GitHub does not list through a filter.
	maxRunPages   = 3
	maxRangePages = 10
	maxListed     = 1000
	// completed is the one status in which a run does nothing more. The others
	// change with GitHub's features and are never compared with.
	completed = "completed"
	// minLockID is the length of the shortest lock id that runs are looked for by.
	minLockID = 8
	readRuns  = "actions: read"
)

// Run is one run of the workflow.
type Run struct {
	ID int64
	// URL is where a human finds it.
	URL string
	// Title is the run's name as its run-name made it.
	Title string
	// Completed is false as long as the run may still do something.
	Completed bool
	// Conclusion is GitHub's word for how it ended; empty before.
	Conclusion string
	// CreatedAt is by GitHub's clock.
	CreatedAt time.Time
}

// GetRun returns a run of the repository by its id; found is false where there
// is none, or none any more. Errors have a class (see [dispatch.ClassOf]).
func (d *Dispatcher) GetRun(ctx context.Context, id int64) (run Run, found bool, err error) {
	if id <= 0 {
		return Run{}, false, nil
	}
	thing := fmt.Sprintf("run %d of %s", id, d.slug())
	r, _, err := d.client.Actions.GetWorkflowRunByID(ctx, d.owner, d.repo, id)
	if statusOf(err) == http.StatusNotFound {
		return Run{}, false, nil
	}
	if err != nil {
		return Run{}, false, d.classify(thing, err, readRuns)
	}
	if r.GetID() != id || r.GetStatus() == "" {
		return Run{}, false, &dispatch.Error{Class: dispatch.Transient, Err: fmt.Errorf("%s: the answer is not about it", thing)}
	}
	return d.read(r), true, nil
}

// RunsByLock returns the runs that were dispatched from since to until (zero:
// until now), by GitHub's clock, and have the lock id in their names, newest
// first. Freshly dispatched runs appear in the list some seconds late. Lock ids
// are written by others: one that is shorter than 8 bytes or has other characters
// than letters, digits and dashes is no run's. When none is found among more runs
// than a look goes through, that is an error. Errors have a class.
func (d *Dispatcher) RunsByLock(ctx context.Context, lockID string, since, until time.Time) ([]Run, error) {
	if lockID == "" {
		return nil, errors.New("runs by lock: no lock id")
	}
	l, err := d.look(ctx, lockID, since, until)
	if err == nil && len(l.found) == 0 && l.more {
		err = d.tooMany(l)
	}
	return l.found, err
}

// looked is what a look at the list of runs gave.
type looked struct {
	found []Run // newest first
	seen  int
	// more: there are runs that were not looked at.
	more bool
}

func (d *Dispatcher) tooMany(l looked) error {
	return &dispatch.Error{Class: dispatch.Transient, Err: fmt.Errorf("runs of %s: none of %d has the lock id in its name, and there are more", d.file, l.seen)}
}

// look goes through the list of runs for those with a lock id.
func (d *Dispatcher) look(ctx context.Context, lockID string, since, until time.Time) (looked, error) {
	const second = "2006-01-02T15:04:05Z"
	created, pages := ">="+since.UTC().Format(second), maxRunPages
	if !until.IsZero() {
		created, pages = since.UTC().Format(second)+".."+until.UTC().Format(second), maxRangePages
	}
	var l looked
	if !searchable(lockID) {
		return l, nil
	}
	opts := &github.ListWorkflowRunsOptions{Event: "workflow_dispatch", Created: created, ListOptions: github.ListOptions{PerPage: 100}}
	for range pages {
		page, next, err := d.listRuns(ctx, opts)
		if err != nil {
			return looked{}, err
		}
		for _, r := range page {
			l.seen++
			if strings.Contains(r.Title, lockID) {
				l.found = append(l.found, r)
			}
		}
		l.more = next != 0 || l.seen >= maxListed
		if next == 0 {
			break
		}
		opts.Page = next
	}
	return l, nil
}

// listRuns returns one page of the workflow's runs and the number of the next
// page, 0 for none.
func (d *Dispatcher) listRuns(ctx context.Context, opts *github.ListWorkflowRunsOptions) (runs []Run, next int, err error) {
	page, resp, err := d.client.Actions.ListWorkflowRunsByFileName(ctx, d.owner, d.repo, d.file, opts)
	if err != nil {
		return nil, 0, d.classify("runs of "+d.file, err, readRuns)
	}
	if page == nil || page.TotalCount == nil && page.WorkflowRuns == nil {
		return nil, 0, &dispatch.Error{Class: dispatch.Transient, Err: fmt.Errorf("runs of %s: the answer is no list of runs", d.file)}
	}
	for _, r := range page.WorkflowRuns {
		if r.GetID() > 0 {
			runs = append(runs, d.read(r))
		}
	}
	return runs, resp.NextPage, nil
}

// read takes over what is used of a run.
func (d *Dispatcher) read(r *github.WorkflowRun) Run {
	return Run{
		ID:         r.GetID(),
		URL:        d.runURL(r.GetID(), r.GetHTMLURL()),
		Title:      r.GetDisplayTitle(),
		Completed:  r.GetStatus() == completed,
		Conclusion: r.GetConclusion(),
		CreatedAt:  r.GetCreatedAt().Time,
	}
}

// searchable says that a lock id is one that can be looked for in names of runs.
func searchable(id string) bool {
	for i := range len(id) {
		if id[i] == '_' || !nameByte(id[i]) {
			return false
		}
	}
	return len(id) >= minLockID
}

// settle looks for the run of an order whose post is open.
func (d *Dispatcher) settle(ctx context.Context, o dispatch.Order, t *target, began time.Time, cause error) (dispatch.Receipt, error) {
	var open *openError
	accepted := errors.As(cause, &open) && open.accepted
	if accepted && !t.titled {
		// The search could not find it, whatever it did.
		d.log.WarnContext(ctx, "dispatched, but the run's id is unknown: this server does not tell it and the run-name lacks the lock id",
			slog.String("dispatch_key", o.Key), slog.String("cure", "run-name: ${{ inputs.agent }} ${{ inputs.poll_lock_id }}"))
		return dispatch.Receipt{}, nil
	}
	problem := "no run has the lock id in its name"
	var waited time.Duration
	for pause := time.Second; o.Lock.ID != "" && waited+pause <= d.lookupFor; pause += time.Second {
		if !sleep(ctx, pause) {
			problem = "the look for its run was interrupted"
			break
		}
		waited += pause
		runs, err := d.RunsByLock(ctx, o.Lock.ID, began.Add(-lookBack), time.Time{})
		if err != nil {
			problem = err.Error()
			if dispatch.ClassOf(err) == dispatch.Fatal {
				break
			}
			continue
		}
		if run, ok := d.pick(runs, o); ok {
			return dispatch.Receipt{RunID: run.ID, RunURL: run.URL}, nil
		}
	}
	return dispatch.Receipt{}, &dispatch.Error{
		Class: dispatch.Unknown,
		Cure: fmt.Sprintf("look for a run of %s with the lock id %s; it is not dispatched again while the lock stands",
			d.file, o.Lock.ID),
		Err: fmt.Errorf("dispatch of %s: whether the run exists is unknown: %s; %s", o.Key, sentence(cause), problem),
	}
}

// pick chooses the order's run among those of its lock: the one that names the
// agent as a word and is no other order's. A name with the dispatch key wins.
func (d *Dispatcher) pick(runs []Run, o dispatch.Order) (Run, bool) {
	for _, named := range []string{o.Key, o.Agent} {
		for _, r := range runs {
			if hasWord(r.Title, named) && d.claim(r.ID) {
				return r, true
			}
		}
	}
	return Run{}, false
}

// hasWord says that word stands in s with nothing around it that could belong
// to a longer agent name.
func hasWord(s, word string) bool {
	if word == "" {
		return false
	}
	for from := 0; ; {
		i := strings.Index(s[from:], word)
		if i < 0 {
			return false
		}
		i += from
		end := i + len(word)
		if (i == 0 || !nameByte(s[i-1])) && (end == len(s) || !nameByte(s[end])) {
			return true
		}
		from = i + 1
	}
}

func nameByte(c byte) bool {
	return c == '-' || c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// sentence says what happened to a post.
func sentence(err error) string {
	if s := statusOf(err); s != 0 {
		return fmt.Sprintf("GitHub answered %d %s%s", s, http.StatusText(s), quoted(answer(err)))
	}
	return err.Error()
}
