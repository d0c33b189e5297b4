package github

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRealWorkflowsAreRead(t *testing.T) {
	t.Parallel()
	const dir = "../../../shared/realdata/github/workflow"
	if _, err := os.Stat(dir); err != nil {
		t.Skip("the shared real workflows are not here")
	}
	for file, want := range map[string]struct {
		dispatchable bool
		inputs       int
		first        workflowInput
	}{
		"act-scalar.yaml":                   {true, 0, workflowInput{}},
		"actionlint-25.yaml":                {true, 25, workflowInput{name: "input1", kind: "string"}},
		"actionlint-26.yaml":                {true, 26, workflowInput{name: "input1", kind: "string"}},
		"actionlint-bad-types.yaml":         {true, 12, workflowInput{name: "choice_input_no_options", kind: "choice"}},
		"actionlint-recursive-anchors.yaml": {false, 0, workflowInput{}},
		"gh-cli-deployment.yaml":            {true, 4, workflowInput{name: "tag_name", kind: "string", required: true}},
		"jira-triage-test-poll.yaml":        {true, 0, workflowInput{}},
		"lasith-number.yaml":                {true, 3, workflowInput{name: "string-type", kind: "string", hasDefault: true}},
		"mistral-quoted-on.yaml":            {true, 2, workflowInput{name: "force", kind: "boolean", hasDefault: true}},
		"uv-labels.yaml":                    {true, 2, workflowInput{name: "pull_request", kind: "number", required: true}},
	} {
		data, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Error(err)
			continue
		}
		w, err := readWorkflow(data)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		var first workflowInput
		if len(w.inputs) > 0 {
			first = w.inputs[0]
		}
		if w.dispatchable != want.dispatchable || len(w.inputs) != want.inputs {
			t.Errorf("%s: dispatchable %v with %d inputs, want %v with %d", file, w.dispatchable, len(w.inputs), want.dispatchable, want.inputs)
		}
		if diff := cmp.Diff(want.first, first, cmp.AllowUnexported(workflowInput{})); diff != "" {
			t.Errorf("%s: %s", file, diff)
		}
	}
}

func TestAnAgentIsFoundAsAWordOnly(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		title, agent string
		want         bool
	}{
		{"triage u-1", "triage", true},
		{"poll: triage, u-1", "triage", true},
		{"triage", "triage", true},
		{"re-triage u-1", "triage", false},
		{"triage_2 triage u-1", "triage", true},
		{"triages", "triage", false},
		{"", "triage", false},
		{"triage", "", false},
	} {
		if got := hasWord(c.title, c.agent); got != c.want {
			t.Errorf("%q in %q: %v", c.agent, c.title, got)
		}
	}
}

func FuzzWorkflow(f *testing.F) {
	for _, s := range []string{
		"", "on: workflow_dispatch", "on: [push, workflow_dispatch]", "\"on\":\n  workflow_dispatch:\n    inputs:\n      a: {required: true, type: boolean}",
		"on: &a [*a]", "a: &a {<<: *a}", "on: {workflow_dispatch: {inputs: [a]}}", "on: {workflow_dispatch: {inputs: {? [a] : b}}}",
		"true: x", "--- \n---\n", "run-name: [x]\non: push", strings.Repeat("[", 300), "on: !!binary x", "on: {workflow_dispatch: {inputs: {a: !!map x}}}",
		"x: &a [1]\ny: &b [*a,*a]\non: [*b]", "\t", "on:\n  workflow_dispatch:\n    inputs:\n      a: &r\n        default: *r",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		w, err := readWorkflow(data)
		if err != nil {
			return
		}
		if len(w.inputs) > 0 && !w.dispatchable {
			t.Error("inputs without a trigger")
		}
		_ = checkInputs("x", w)
	})
}
