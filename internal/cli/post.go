package cli

import (
	"context"
	"strconv"
)

// PostName is the name by which the image calls the program for the post part of
// a step (runs.post-entrypoint takes one word, and no arguments of its own).
const PostName = "fullsend-poll-post"

// post ends a step's part in its lock at the end of the job: only where this
// step's saved state says that it held one. Arguments are the main part's and mean
// nothing here. A failure is a warning, since the job's own work is done and the
// next poll cycle frees the lock of a run that has ended.
func (a *app) post(ctx context.Context) error {
	h := handed{
		LockID: a.runner.GetState(savedID), WorkItemKey: a.runner.GetState(savedItem),
		LockDriver: a.runner.GetState(savedDriver), LockProperty: a.runner.GetState(savedProperty),
	}
	run := a.runner.GetState(savedRun)
	if h.LockID == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	a.set = settings{
		config: a.runner.Input("config"), targetRepo: a.runner.Input("target-repo"), jiraBaseURL: a.runner.Input("jira-base-url"),
		jiraUserEmail: a.runner.Input("jira-user-email"), jiraToken: a.runner.Input("jira-token"),
	}
	inputs, err := a.dispatchInputs()
	if err != nil {
		a.warn("the event of this run cannot be read, the lock is released without it: " + err.Error())
	}
	h.event(inputs)
	held, err := a.reach(ctx, h)
	if err == nil {
		if id, bad := strconv.ParseInt(run, 10, 64); bad == nil {
			held.run.ID = id
		}
		err = a.release(ctx, held)
	}
	if err != nil {
		a.warn(err.Error())
	}
	return nil
}
