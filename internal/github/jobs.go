package github

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/google/go-github/v62/github"

	"github.com/fullsend/poll-action/internal/dispatch"
)

// maxJobPages bounds the jobs of one run: far more than GitHub starts.
const maxJobPages = 10

// Job is one job of a run.
type Job struct {
	ID int64
	// Name is the job's name as it is shown: for a matrix or a reusable workflow
	// with more than the job's key.
	Name string
	// Status and Conclusion are GitHub's words; Conclusion is empty before the end.
	Status, Conclusion string
	// Runner is the name of the machine that it runs on; empty before it starts.
	Runner string
	// Completed is false as long as the job may still do something.
	Completed bool
}

// Jobs lists the jobs of a run's latest attempt, one request for each hundred. It
// returns all of them or an error, which matches [ErrNoRun] when there is no such
// run; all others have a class.
func (d *Dispatcher) Jobs(ctx context.Context, runID int64) ([]Job, error) {
	thing := fmt.Sprintf("jobs of run %d of %s", runID, d.slug())
	if runID <= 0 {
		return nil, fmt.Errorf("%s: %w", thing, ErrNoRun)
	}
	opts := &github.ListWorkflowJobsOptions{Filter: "latest", ListOptions: github.ListOptions{PerPage: 100}}
	var jobs []Job
	for range maxJobPages {
		page, resp, err := d.client.Actions.ListWorkflowJobs(ctx, d.owner, d.repo, runID, opts)
		switch {
		case statusOf(err) == http.StatusNotFound:
			return nil, fmt.Errorf("%s: %w", thing, ErrNoRun)
		case err != nil:
			return nil, d.jobsError(thing, err)
		case page == nil || page.TotalCount == nil && page.Jobs == nil:
			return nil, &dispatch.Error{Class: dispatch.Transient, Err: fmt.Errorf("%s: the answer is no list of jobs", thing)}
		}
		for _, j := range page.Jobs {
			if j.GetID() > 0 {
				jobs = append(jobs, Job{
					ID: j.GetID(), Name: j.GetName(), Status: j.GetStatus(), Conclusion: j.GetConclusion(),
					Runner: j.GetRunnerName(), Completed: j.GetStatus() == completed,
				})
			}
		}
		if resp.NextPage == 0 {
			return jobs, nil
		}
		opts.Page = resp.NextPage
	}
	return nil, &dispatch.Error{Class: dispatch.Transient, Err: fmt.Errorf("%s: more than %d", thing, len(jobs))}
}

// jobsError is [Dispatcher.classify] with the cure for an agent's job, which
// dispatches nothing.
func (d *Dispatcher) jobsError(thing string, err error) error {
	told := d.classify(thing, err, readRuns)
	var e *dispatch.Error
	if errors.As(told, &e) && e.Class == dispatch.Fatal && statusOf(err) == http.StatusForbidden {
		e.Cure = "give the job `permissions: {actions: read}`, beside those that it has"
	}
	return told
}
