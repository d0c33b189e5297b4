package github

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/fullsend/poll-action/internal/dispatch"
	"github.com/fullsend/poll-action/internal/httpx"
)

// noSuchRef is a ref that no repository has: a dispatch to it is refused for the
// ref by those who may dispatch, and for the right by those who may not.
const noSuchRef = "fullsend-poll-doctor/no-such-ref"

// Probe implements [dispatch.Prober]: the target workflow at its ref, what it
// declares, its state, and the token's rights. It starts nothing.
func (d *Dispatcher) Probe(ctx context.Context) []dispatch.Check {
	var checks []dispatch.Check
	add := func(name string, h dispatch.Health, detail, cure string) {
		checks = append(checks, dispatch.Check{Name: "github: " + name, Health: h, Detail: detail, Cure: cure})
	}
	if err := d.Prepare(ctx); err != nil {
		what, cure := split(err)
		add("workflow", dispatch.Bad, what, cure)
		return checks
	}
	t, err := d.prepared(ctx)
	if err != nil {
		what, cure := split(err)
		add("workflow", dispatch.Bad, what, cure)
		return checks
	}
	where := d.where(t.ref)
	add("workflow", dispatch.Good, where+" exists and can be dispatched", "")
	add("inputs", dispatch.Good, fmt.Sprintf("declares %d inputs: %s", len(t.declared), list(t.declared)), "")
	w, err := d.fetchWorkflow(ctx, t.ref)
	if err == nil {
		if t.titled && strings.Contains(w.runName, inAgent) {
			add("run-name", dispatch.Good, "has the lock id and the agent", "")
		} else {
			add("run-name", dispatch.Doubtful, "lacks the lock id or the agent: a run whose answer is lost cannot be found", "run-name: ${{ inputs.agent }} ${{ inputs.poll_lock_id }}")
		}
		if w.refreshes {
			add("lock-refresh", dispatch.Good, "a step refreshes the lock", "")
		} else {
			add("lock-refresh", dispatch.Doubtful, "no step runs the command lock-refresh: the lock goes stale while the agent works", "make `uses: fullsend/poll-action@v1` with `command: lock-refresh` the first step")
		}
	}
	checks = append(checks, d.probeState(ctx), d.probeRights(ctx, t))
	return checks
}

func (d *Dispatcher) probeState(ctx context.Context) dispatch.Check {
	c := dispatch.Check{Name: "github: state", Health: dispatch.Good, Detail: "the workflow is enabled"}
	w, _, err := d.client.Actions.GetWorkflowByFileName(ctx, d.owner, d.repo, d.file)
	if err != nil {
		c.Health = dispatch.Doubtful
		c.Detail, c.Cure = split(d.classify("the workflow's state", err, "actions: read"))
		return c
	}
	if state := w.GetState(); state != "active" {
		c.Health, c.Detail, c.Cure = dispatch.Bad, fmt.Sprintf("the workflow is %q", clip(state, 64)), "enable it on the repository's Actions page"
	}
	return c
}

// probeRights asks for a dispatch that cannot succeed: to a ref that does not
// exist.
func (d *Dispatcher) probeRights(ctx context.Context, t *target) dispatch.Check {
	c := dispatch.Check{Name: "github: permission actions: write", Health: dispatch.Good, Detail: "the token may dispatch workflows"}
	req, err := d.client.NewRequest(http.MethodPost, d.workflowPath("dispatches"), map[string]any{"ref": noSuchRef, "inputs": map[string]string{}})
	if err == nil {
		_, err = d.client.Do(httpx.Once(ctx), req, nil)
	}
	switch statusOf(err) {
	case http.StatusUnprocessableEntity:
	case http.StatusForbidden, http.StatusNotFound, http.StatusUnauthorized:
		c.Health = dispatch.Bad
		c.Detail, c.Cure = split(d.explain(err, t))
	default:
		c.Health, c.Detail = dispatch.Doubtful, "could not be found out"
		if err != nil {
			c.Detail += ": " + sentence(err)
		}
	}
	return c
}

// split takes an error apart into what is wrong and what cures it.
func split(err error) (what, cure string) {
	var e *dispatch.Error
	if errors.As(err, &e) {
		return sentence(e.Err), e.Cure
	}
	return sentence(err), ""
}
