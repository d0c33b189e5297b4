package sim

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTriggersAndInputsAreReadFromEverySpelling(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		source     string
		dispatched bool
		inputs     int
	}{
		"a word":           {"on: workflow_dispatch", true, 0},
		"a list":           {"on: [push, workflow_dispatch]", true, 0},
		"an empty trigger": {"on:\n  workflow_dispatch:\n", true, 0},
		"a quoted key":     {"\"on\":\n  workflow_dispatch: {inputs: {a: {}, b: {required: true}}}", true, 2},
		"a boolean key":    {"true:\n  workflow_dispatch: {inputs: {a: }}", true, 1},
		"another event":    {"on: push", false, 0},
		"no trigger":       {"name: x", false, 0},
		"no YAML":          {"a: [", false, 0},
		"a list of maps":   {"on: [{workflow_dispatch: }]", false, 0},
	} {
		d := parseWorkflow("w.yml", c.source)
		if d.dispatched != c.dispatched || len(d.inputs) != c.inputs {
			t.Errorf("%s: dispatched %t, %d inputs", name, d.dispatched, len(d.inputs))
		}
	}
}

func TestRunNamesAreRendered(t *testing.T) {
	t.Parallel()
	inputs := map[string]string{"a": "1", "b": "", "c-d": "$& ${{ inputs.a }}"}
	for runName, want := range map[string]string{
		"":                                "The name",
		"run ${{ inputs.a }}":             "run 1",
		"${{inputs.b||inputs.a}}!":        "1!",
		"${{ github.event.inputs.a }}":    "1",
		"${{ inputs['a'] }}":              "1",
		"${{ inputs.b || 'it''s' }}":      "it's",
		"x ${{ github.actor }}":           "x",
		"${{ inputs.c-d }}":               "$& ${{ inputs.a }}",
		"${{ inputs.a }}-${{ inputs.a }}": "1-1",
	} {
		if got := (definition{name: "The name", runName: runName}).title(inputs); got != want {
			t.Errorf("%q: %q, want %q", runName, got, want)
		}
	}
}

func TestWorkflowsFromTheWildAreRead(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../../shared/realdata/github/workflow/*.yaml")
	if err != nil || len(files) == 0 {
		t.Skip("the collected workflows are not here")
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(file)
		d := parseWorkflow(name, string(source))
		if want := strings.Contains(string(source), "workflow_dispatch"); d.dispatched != want {
			t.Errorf("%s: dispatched %t, %d inputs", name, d.dispatched, len(d.inputs))
		}
	}
}
