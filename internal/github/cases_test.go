package github_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fullsend/poll-action/internal/dispatch"
	"github.com/fullsend/poll-action/internal/github"
)

// The tests in this file replay public reports about other users of GitHub's
// dispatch; docs/known-poller-defects.md lists them all.

// withInputs is the agents' workflow with more inputs, n in all.
func withInputs(n int) string {
	var more strings.Builder
	for i := range n - len(github.InputNames()) {
		fmt.Fprintf(&more, "      x%d: {type: string, required: false}\n", i)
	}
	return agentWorkflow() + more.String()
}

// TestCaseE48AWorkflowWith26InputsIsRefusedBeforeAnythingIsLocked: GitHub refuses
// every dispatch of it.
// https://github.com/Azure-Samples/holiday-peak-hub/issues/811
// https://github.com/rhysd/actionlint/pull/598
func TestCaseE48AWorkflowWith26InputsIsRefusedBeforeAnythingIsLocked(t *testing.T) {
	t.Parallel()
	f := &fake{workflow: withInputs(26), answers: answers{details(1)}}
	d, _ := newDispatcher(t, f, nil)
	err := d.Prepare(t.Context())
	if dispatch.ClassOf(err) != dispatch.Fatal || !strings.Contains(err.Error(), "26 inputs") {
		t.Errorf("got %v", err)
	}
	var told *dispatch.Error
	if !errors.As(err, &told) || !strings.Contains(told.Cure, "`fullsend`") {
		t.Errorf("the cure is not named: %v", err)
	}
	if _, err := d.Dispatch(t.Context(), order("triage")); err == nil || len(f.posts) != 0 {
		t.Errorf("got %v and %d posts, want a refusal", err, len(f.posts))
	}
}

// TestCaseE48WhatFitsIsSent: 25 inputs are the most, and one has room for all.
// https://github.com/Azure-Samples/holiday-peak-hub/issues/811
func TestCaseE48WhatFitsIsSent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		workflow string
		inputs   []string
	}{
		"25 inputs":  {withInputs(25), github.InputNames()},
		"one as all": {"run-name: x\non: {workflow_dispatch: {inputs: {fullsend: {required: true}}}}", []string{"fullsend"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fake{workflow: c.workflow, answers: answers{details(1)}}
			d, _ := newDispatcher(t, f, nil)
			if _, err := d.Dispatch(t.Context(), order("triage")); err != nil {
				t.Fatal(err)
			}
			for _, name := range c.inputs {
				if _, sent := f.posts[0].Inputs[name]; !sent {
					t.Errorf("the input %s was not sent", name)
				}
			}
			if len(f.posts[0].Inputs) != len(c.inputs) {
				t.Errorf("%d inputs were sent, want %d", len(f.posts[0].Inputs), len(c.inputs))
			}
		})
	}
}

// TestCaseE45ARunIsFoundByItsLockAndNotByItsAge: of two runs dispatched within a
// second, the newest was taken for either.
// https://github.com/cli/cli/issues/4001
// https://github.com/convictional/trigger-workflow-and-wait/issues/6
func TestCaseE45ARunIsFoundByItsLockAndNotByItsAge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		accepted := says(204, "")
		// The second run is listed first, and the first one late.
		f := &fake{answers: answers{runs(11, 5*time.Second, accepted), runs(12, 0, accepted)}}
		d, _ := newDispatcher(t, f, nil)
		got := make([]int64, 2)
		done := make(chan struct{})
		for i := range got {
			go func() {
				defer func() { done <- struct{}{} }()
				time.Sleep(time.Duration(i) * 500 * time.Millisecond)
				o := order("triage")
				o.Lock.ID = fmt.Sprintf("%s-%d", lockID, i)
				receipt, err := d.Dispatch(t.Context(), o)
				if err != nil {
					t.Error(err)
				}
				got[i] = receipt.RunID
			}()
		}
		<-done
		<-done
		if !slices.Equal(got, []int64{11, 12}) {
			t.Errorf("the runs are %v, want 11 and 12", got)
		}
	})
}
