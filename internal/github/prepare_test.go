package github_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fullsend/poll-action/internal/dispatch"
)

func TestPrepareChecksTheWorkflow(t *testing.T) {
	t.Parallel()
	var many strings.Builder
	many.WriteString("on:\n  workflow_dispatch:\n    inputs:\n      agent: {}\n")
	for i := range 25 {
		fmt.Fprintf(&many, "      x%d: {}\n", i)
	}
	const named = "run-name: ${{ inputs.agent }} ${{ inputs.poll_lock_id }}\n"
	for name, c := range map[string]struct {
		workflow string
		says     []string // nothing: fine
		warns    bool
	}{
		"everything declared":                {workflow: agentWorkflow()},
		"a single input of ours":             {workflow: named + "on: {workflow_dispatch: {inputs: {agent: }}}"},
		"a quoted on":                        {workflow: named + "\"on\":\n  workflow_dispatch:\n    inputs:\n      agent: {}"},
		"the JSON input":                     {workflow: "run-name: ${{ fromJSON(inputs.fullsend).agent }} ${{ fromJSON(inputs.fullsend).poll_lock_id }}\non: {workflow_dispatch: {inputs: {fullsend: {required: true}}}}"},
		"the inputs behind an alias":         {workflow: named + "x: &i {agent: {}}\non: {workflow_dispatch: {inputs: *i}}"},
		"a run-name without the lock":        {workflow: "run-name: ${{ inputs.agent }}\non: {workflow_dispatch: {inputs: {agent: }}}", warns: true},
		"no run-name":                        {workflow: "on: {workflow_dispatch: {inputs: {agent: }}}", warns: true},
		"a required input with a default":    {workflow: named + "on: {workflow_dispatch: {inputs: {agent: , env: {required: true, default: ''}}}}"},
		"a number for the number":            {workflow: named + "on: {workflow_dispatch: {inputs: {status_number: {type: number}}}}"},
		"no trigger":                         {workflow: "on: push", says: []string{"no workflow_dispatch trigger", "agent.yml at main of acme/app", "`on:`"}},
		"no trigger in a list":               {workflow: "on: [push, pull_request]", says: []string{"no workflow_dispatch trigger"}},
		"the trigger without inputs":         {workflow: "on: workflow_dispatch", says: []string{"none of our inputs", "it has: none", "`fullsend`"}},
		"the trigger in a list":              {workflow: "on: [push, workflow_dispatch]", says: []string{"none of our inputs"}},
		"inputs that are all others":         {workflow: "on: {workflow_dispatch: {inputs: {debug: {}}}}", says: []string{"none of our inputs", `"debug"`}},
		"a required input of others":         {workflow: "on: {workflow_dispatch: {inputs: {agent: , env: {required: true}}}}", says: []string{`"env"`, "default"}},
		"two problems at once":               {workflow: "on: {workflow_dispatch: {inputs: {a: {required: true}, agent: {type: boolean}}}}", says: []string{`"a"`, `"agent"`, "type: string"}},
		"ours declared as a number":          {workflow: "on: {workflow_dispatch: {inputs: {poll_lock_id: {type: number}}}}", says: []string{"poll_lock_id", "type: string"}},
		"26 inputs":                          {workflow: many.String(), says: []string{"26 inputs", "takes 25"}},
		"no YAML":                            {workflow: "on: [", says: []string{"agent.yml"}},
		"an empty file":                      {workflow: "\n", says: []string{"empty"}},
		"a list":                             {workflow: "- x", says: []string{"no mapping"}},
		"no on":                              {workflow: "name: x", says: []string{`no "on"`}},
		"a circle of aliases":                {workflow: "on: &a [*a]", says: []string{"no workflow_dispatch trigger"}},
		"an on with workflow_dispatch twice": {workflow: "on: {workflow_dispatch: , workflow_dispatch: }", says: []string{"none of our inputs"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, log := newDispatcher(t, &fake{workflow: c.workflow}, nil)
			err := d.Prepare(t.Context())
			if len(c.says) == 0 && err != nil || len(c.says) > 0 && dispatch.ClassOf(err) != dispatch.Fatal {
				t.Fatalf("got %v", err)
			}
			for _, want := range c.says {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q lacks %q", err, want)
				}
			}
			if got := strings.Contains(log.String(), "run-name"); len(c.says) == 0 && got != c.warns {
				t.Errorf("warned: %v, want %v: %s", got, c.warns, log)
			}
		})
	}
}

func TestPrepareReadsAnewAndWarnsOnce(t *testing.T) {
	t.Parallel()
	f := &fake{workflow: "on: {workflow_dispatch: {inputs: {agent: }}}", answers: answers{details(1)}}
	d, log := newDispatcher(t, f, nil)
	for range 2 {
		if err := d.Prepare(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Count(log.String(), "level=WARN"); got != 1 {
		t.Errorf("%d warnings: %s", got, log)
	}
	f.workflow = agentWorkflow()
	if err := d.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Dispatch(t.Context(), order("triage")); err != nil {
		t.Fatal(err)
	}
	if got := f.posts[0].Inputs["poll_lock_id"]; got != lockID {
		t.Errorf("the input declared last was not sent: %+v", f.posts[0])
	}
}

func TestPrepareErrorsHaveAClass(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status int
		body   string
		class  dispatch.Class
		says   string
	}{
		"404":             {404, `{"message":"Not Found"}`, dispatch.Fatal, "no repository acme/app"},
		"403":             {403, `{"message":"Resource not accessible by integration"}`, dispatch.Fatal, "contents: read"},
		"401":             {401, `{"message":"Bad credentials"}`, dispatch.Fatal, "github-token"},
		"500":             {500, ``, dispatch.Transient, "500"},
		"a folder":        {200, `[{"type":"file","name":"x"}]`, dispatch.Fatal, "folder"},
		"a symbolic link": {200, `{"type":"symlink","target":"x"}`, dispatch.Fatal, "agent.yml"},
		"a huge file":     {200, `{"type":"file","encoding":"none","content":"","size":2000000}`, dispatch.Fatal, "agent.yml"},
		"a page of HTML":  {200, `<html>`, dispatch.Transient, "agent.yml"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := &fake{content: func() (*http.Response, error) { return reply(c.status, c.body) }}
				d, _ := newDispatcher(t, f, nil)
				err := d.Prepare(t.Context())
				if err == nil || dispatch.ClassOf(err) != c.class || !strings.Contains(err.Error(), c.says) {
					t.Errorf("got %v (%v)", err, dispatch.ClassOf(err))
				}
				if _, derr := d.Dispatch(t.Context(), order("triage")); derr == nil || len(f.posts) != 0 {
					t.Errorf("dispatched without a known workflow: %v", derr)
				}
			})
		})
	}
}
