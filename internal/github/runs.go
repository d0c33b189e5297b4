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
	// maxRunPages bounds one look; GitHub's filters end at 1,000 runs anyway.
	maxRunPages = 3
	// completed is the one status in which a run does nothing more. The others
	// change with GitHub's features and are never compared with.
	completed = "completed"
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

// RunsByLock returns the runs dispatched since a time by GitHub's clock whose
// name has the lock id, newest first. Freshly dispatched runs appear in the
// list some seconds late.
func (d *Dispatcher) RunsByLock(ctx context.Context, lockID string, since time.Time) ([]Run, error) {
	if lockID == "" {
		return nil, errors.New("runs by lock: no lock id")
	}
	opts := &github.ListWorkflowRunsOptions{
		Event:       "workflow_dispatch",
		Created:     ">=" + since.UTC().Format("2006-01-02T15:04:05Z"),
		ListOptions: github.ListOptions{PerPage: 100},
	}
	var found []Run
	for range maxRunPages {
		page, resp, err := d.client.Actions.ListWorkflowRunsByFileName(ctx, d.owner, d.repo, d.file, opts)
		if err != nil {
			return nil, d.classify("runs of "+d.file, err, actionsRights)
		}
		for _, r := range page.WorkflowRuns {
			if r == nil || r.GetID() <= 0 || !strings.Contains(r.GetDisplayTitle(), lockID) {
				continue
			}
			found = append(found, Run{
				ID:         r.GetID(),
				URL:        d.runURL(r.GetID(), r.GetHTMLURL()),
				Title:      r.GetDisplayTitle(),
				Completed:  r.GetStatus() == completed,
				Conclusion: r.GetConclusion(),
				CreatedAt:  r.GetCreatedAt().Time,
			})
		}
		if resp.NextPage == 0 {
			break
		}
		opts.Page = resp.NextPage
	}
	return found, nil
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
		runs, err := d.RunsByLock(ctx, o.Lock.ID, began.Add(-lookBack))
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
