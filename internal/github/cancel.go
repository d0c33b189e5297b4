package github

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/google/go-github/v62/github"

	"github.com/fullsend/poll-action/internal/httpx"
)

// ErrNoRun is matched by errors about a run that GitHub does not know, or does
// not know any more.
var ErrNoRun = errors.New("there is no such run")

// CancelRun asks GitHub to cancel a run. nil means that GitHub will, or that the
// run is completed already; [Dispatcher.GetRun] tells when it has ended. With
// force, steps that would run in spite of a cancel (always()) do not; GitHub wants
// that only for a run that a cancel left running. The error matches [ErrNoRun]
// when there is no such run; all others have a class.
func (d *Dispatcher) CancelRun(ctx context.Context, id int64, force bool) error {
	verb := "cancel"
	if force {
		verb = "force-cancel"
	}
	thing := fmt.Sprintf("%s of run %d of %s", verb, id, d.slug())
	if id <= 0 {
		return fmt.Errorf("%s: %w", thing, ErrNoRun)
	}
	req, err := d.client.NewRequest(http.MethodPost, fmt.Sprintf("repos/%s/%s/actions/runs/%d/%s", d.owner, d.repo, id, verb), nil)
	if err != nil {
		return fmt.Errorf("%s: %w", thing, err)
	}
	// Asked twice, GitHub cancels once.
	_, err = d.client.Do(httpx.Repeatable(ctx), req, nil)
	var accepted *github.AcceptedError // the library's word for 202
	if err == nil || errors.As(err, &accepted) {
		return nil
	}
	switch statusOf(err) {
	case http.StatusConflict:
		return nil
	case http.StatusNotFound:
		return fmt.Errorf("%s: %w", thing, ErrNoRun)
	}
	return d.classify(thing, err, actionsRights)
}
