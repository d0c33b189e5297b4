package github

import (
	"context"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"strings"

	"github.com/google/go-github/v62/github"

	"github.com/fullsend/poll-action/internal/dispatch"
)

// Prepare reads the workflow file at the ref and checks that it can take our
// dispatches. Call it once per cycle that has something to dispatch, before
// anything is locked: each call reads the file anew with one request (two
// without [Options.Ref]). A [Dispatcher] that was never prepared prepares
// itself with the first dispatch.
func (d *Dispatcher) Prepare(ctx context.Context) error {
	d.preparing.Lock()
	defer d.preparing.Unlock()
	return d.prepare(ctx)
}

// prepared returns what Prepare found, and prepares where nobody has.
func (d *Dispatcher) prepared(ctx context.Context) (*target, error) {
	d.preparing.Lock()
	defer d.preparing.Unlock()
	d.mu.Lock()
	t := d.target
	d.mu.Unlock()
	if t != nil {
		return t, nil
	}
	if err := d.prepare(ctx); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.target, nil
}

func (d *Dispatcher) prepare(ctx context.Context) error {
	ref := d.ref
	if ref == "" {
		repo, _, err := d.client.Repositories.Get(ctx, d.owner, d.repo)
		if err != nil {
			return d.classify("the default branch of "+d.slug(), err, readRights)
		}
		if ref = repo.GetDefaultBranch(); ref == "" {
			return fatal(fmt.Errorf("repository %s has no default branch", d.slug()), "set gha_dispatch.ref in config.yaml")
		}
	}
	w, err := d.fetchWorkflow(ctx, ref)
	if err != nil {
		return err
	}
	where := d.where(ref)
	if !w.dispatchable {
		return fatal(fmt.Errorf("%s has no workflow_dispatch trigger", where), "add `workflow_dispatch` with inputs under `on:` there")
	}
	if err := checkInputs(where, w); err != nil {
		return err
	}
	t := &target{ref: ref, declared: w.declared(), titled: strings.Contains(w.runName, inLockID), agentFirst: beginsWithAgent(w.runName)}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.target = t
	if !d.hintedTitle && (!t.titled || !strings.Contains(w.runName, inAgent)) {
		d.hintedTitle = true
		d.log.WarnContext(ctx, "the workflow's run-name lacks the lock id or the agent: "+
			"should an answer of GitHub be lost, its run could not be found and the item would stay locked",
			slog.String("workflow", where),
			slog.String("cure", "run-name: ${{ inputs.agent }} ${{ inputs.poll_lock_id }}"))
	}
	return nil
}

// beginsWithAgent says that a run-name begins with the input of the agent's name
// and nothing else before a blank.
func beginsWithAgent(runName string) bool {
	before, expr, ok := strings.Cut(runName, "${{")
	expr, after, closed := strings.Cut(expr, "}}")
	return ok && closed && strings.TrimSpace(before) == "" &&
		(after == "" || after[0] == ' ') &&
		slices.Contains([]string{"inputs." + inAgent, "github.event.inputs." + inAgent}, strings.TrimSpace(expr))
}

func (d *Dispatcher) fetchWorkflow(ctx context.Context, ref string) (workflow, error) {
	where := d.where(ref)
	file, dir, _, err := d.client.Repositories.GetContents(ctx, d.owner, d.repo,
		path.Join(".github/workflows", d.file), &github.RepositoryContentGetOptions{Ref: ref})
	if err != nil {
		return workflow{}, d.classify(where, err, readRights)
	}
	if dir != nil || file == nil {
		return workflow{}, fatal(fmt.Errorf("%s is a folder", where), "name a file")
	}
	text, err := file.GetContent()
	if err != nil {
		return workflow{}, fatal(fmt.Errorf("%s: %w", where, err), "")
	}
	w, err := readWorkflow([]byte(text))
	if err != nil {
		return workflow{}, fatal(fmt.Errorf("%s: %w", where, err), "mend the file; GitHub would refuse it too")
	}
	return w, nil
}

// checkInputs refuses what GitHub would answer with a 422 for every order.
func checkInputs(where string, w workflow) error {
	declared := w.declared()
	sends := ours(declared)
	switch {
	case len(sends) > 0:
	case slices.Contains(declared, jsonInput):
		sends = []string{jsonInput}
	default:
		return fatal(fmt.Errorf("%s declares none of our inputs (it has: %s)", where, list(declared)),
			"declare those it uses, or the single input `"+jsonInput+"`, of: "+strings.Join(InputNames(), ", "))
	}
	if len(declared) > maxInputs {
		return fatal(fmt.Errorf("%s declares %d inputs, GitHub takes %d", where, len(declared), maxInputs),
			"declare only those that are used, or the single input `"+jsonInput+"`")
	}
	var problems []string
	for _, in := range w.inputs {
		sent := slices.Contains(sends, in.name)
		switch {
		case !sent && in.required && !in.hasDefault:
			problems = append(problems, fmt.Sprintf("the input %q is required and a dispatch does not have it; "+
				"give it a default or `required: false`", clip(in.name, 64)))
		case sent && (in.kind == "boolean" || in.kind == "number" && in.name != inStatusNumber):
			problems = append(problems, fmt.Sprintf("the input %q is declared as %s and is text; "+
				"declare it with `type: string`", in.name, in.kind))
		}
	}
	if len(problems) > 0 {
		return fatal(fmt.Errorf("%s: %s", where, strings.Join(problems, "; ")), "")
	}
	return nil
}

func (d *Dispatcher) slug() string { return d.owner + "/" + d.repo }

func (d *Dispatcher) where(ref string) string {
	return fmt.Sprintf(".github/workflows/%s at %s of %s", d.file, ref, d.slug())
}

func list(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	names = slices.Clone(names)
	slices.Sort(names)
	for i, n := range names {
		names[i] = fmt.Sprintf("%q", clip(n, 64))
	}
	const most = 30
	if len(names) > most {
		names = append(names[:most], "…")
	}
	return strings.Join(names, ", ")
}

func fatal(err error, cure string) error {
	return &dispatch.Error{Class: dispatch.Fatal, Cure: cure, Err: err}
}
