package github

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/fullsend/poll-action/internal/dispatch"
	"github.com/fullsend/poll-action/internal/httpx"
)

type dispatchRequest struct {
	Ref              string            `json:"ref"`
	Inputs           map[string]string `json:"inputs"`
	ReturnRunDetails bool              `json:"return_run_details,omitempty"`
}

type runDetails struct {
	RunID   int64  `json:"workflow_run_id"`
	RunURL  string `json:"run_url"`
	HTMLURL string `json:"html_url"`
}

// Dispatch schedules one run. It posts once; whatever leaves it open whether
// the run exists (a time-out, a lost connection, a 5xx, a success without an
// id) is settled by looking for a run with the order's lock id and agent in
// its name. What that cannot settle either is an error of class
// [dispatch.Unknown], and only such an error means that a run may exist.
//
// ctx ends the look-up too; a caller that wants a posted order settled passes
// one that survives the cycle's cancellation.
func (d *Dispatcher) Dispatch(ctx context.Context, o dispatch.Order) (dispatch.Receipt, error) {
	t, err := d.prepared(ctx)
	if err != nil {
		return dispatch.Receipt{}, err
	}
	inputs, err := Inputs(o, t.declared)
	if err != nil {
		return dispatch.Receipt{}, err
	}
	began := d.clock()
	details, err := d.post(ctx, dispatchRequest{Ref: t.ref, Inputs: inputs, ReturnRunDetails: d.wantsDetails()})
	if err != nil && d.rejectsDetails(err) {
		details, err = d.post(ctx, dispatchRequest{Ref: t.ref, Inputs: inputs})
	}
	var open *openError
	switch {
	case err == nil && details != nil && details.RunID > 0:
		d.claim(details.RunID)
		return dispatch.Receipt{RunID: details.RunID, RunURL: d.runURL(details.RunID, details.HTMLURL)}, nil
	case err == nil:
		err = &openError{errors.New("GitHub accepted the dispatch without naming the run"), true}
	case !errors.As(err, &open):
		return dispatch.Receipt{}, d.explain(err, t)
	}
	return d.settle(ctx, o, t, began, err)
}

// openError marks a post of which it is not known whether it made a run.
type openError struct {
	err      error
	accepted bool
}

// Error implements error.
func (e *openError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *openError) Unwrap() error { return e.err }

// post sends one dispatch. An *openError means that a run may exist; all other
// errors mean that none does.
func (d *Dispatcher) post(ctx context.Context, body dispatchRequest) (*runDetails, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", httpx.ErrNotSent, err)
	}
	req, err := d.client.NewRequest(http.MethodPost, d.workflowPath("dispatches"), body)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", httpx.ErrNotSent, err)
	}
	watched, s := watch(httpx.Once(ctx))
	var details *runDetails
	_, err = d.client.Do(watched, req, &details)
	switch status := statusOf(err); {
	case err == nil:
		return details, nil
	case !s.asked && status == 0, s.notSent:
		return nil, fmt.Errorf("%w: %w", httpx.ErrNotSent, err)
	case errors.Is(err, httpx.ErrRedirect):
		return nil, err
	case status >= 400 && status < 500 && status != http.StatusRequestTimeout:
		return nil, err
	}
	return nil, &openError{err: err}
}

func (d *Dispatcher) workflowPath(tail string) string {
	return fmt.Sprintf("repos/%s/%s/actions/workflows/%s/%s", d.owner, d.repo, url.PathEscape(d.file), tail)
}

func (d *Dispatcher) wantsDetails() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.noDetails
}

// rejectsDetails recognizes a server that does not know return_run_details
// (Enterprise Server up to 3.20) and remembers it.
func (d *Dispatcher) rejectsDetails(err error) bool {
	if s := statusOf(err); s != http.StatusBadRequest && s != http.StatusUnprocessableEntity {
		return false
	}
	if !strings.Contains(answer(err), "return_run_details") {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.noDetails = true
	return true
}

// runURL prefers what GitHub said, if it is a link at all.
func (d *Dispatcher) runURL(id int64, html string) string {
	if u, err := url.Parse(html); err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && u.User == nil {
		return u.String()
	}
	if d.serverURL == "" {
		return ""
	}
	return fmt.Sprintf("%s/%s/actions/runs/%d", d.serverURL, d.slug(), id)
}

// claim reserves a run for an order; false means that it has one already.
func (d *Dispatcher) claim(id int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, taken := d.claimed[id]; taken {
		return false
	}
	d.claimed[id] = struct{}{}
	return true
}

// sleep waits and reports whether it waited to the end.
func sleep(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
