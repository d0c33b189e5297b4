package github

import (
	"context"
	"fmt"
	"net/http"
)

// Owns reports whether a run, named by its id, is one of the workflow that is
// dispatched, at whatever ref. A run that does not exist is not; that a token may
// not see it is told apart, by an error. It costs two requests; errors have a
// class.
func (d *Dispatcher) Owns(ctx context.Context, id int64) (bool, error) {
	w, _, err := d.client.Actions.GetWorkflowByFileName(ctx, d.owner, d.repo, d.file)
	if err != nil {
		return false, d.classify("workflow "+d.file+" of "+d.slug(), err, actionsRights)
	}
	r, _, err := d.client.Actions.GetWorkflowRunByID(ctx, d.owner, d.repo, id)
	if statusOf(err) == http.StatusNotFound {
		return false, nil
	}
	if err != nil {
		return false, d.classify(fmt.Sprintf("run %d of %s", id, d.slug()), err, actionsRights)
	}
	return w.GetID() > 0 && r.GetWorkflowID() == w.GetID(), nil
}
