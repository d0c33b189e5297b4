// Package examples_test holds the files that users copy to what they promise:
// the agent workflow takes exactly what gha-dispatch sends, both workflows ask
// for no more rights than they need, and the configuration loads.
package examples_test

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"

	"github.com/fullsend/poll-action/internal/config"
	"github.com/fullsend/poll-action/internal/harness"
)

// dispatchInputs are the inputs of a dispatch, section 6 of the contract.
var dispatchInputs = []string{
	"agent", "role",
	"source_repo", "event_type", "event_action", "event_payload", "trigger_source", "status_repo", "status_number",
	"normalized_event",
	"work_item_url", "work_item_source", "work_item_key",
	"poll_lock_id", "poll_lock_driver", "poll_lock_property",
	"dispatch_key",
}

type workflow struct {
	RunName string `yaml:"run-name"`
	On      struct {
		Schedule []struct {
			Cron string `yaml:"cron"`
		} `yaml:"schedule"`
		Dispatch struct {
			Inputs map[string]struct {
				Type string `yaml:"type"`
			} `yaml:"inputs"`
		} `yaml:"workflow_dispatch"`
	} `yaml:"on"`
	Permissions map[string]string `yaml:"permissions"`
	Concurrency struct {
		Group  string `yaml:"group"`
		Cancel bool   `yaml:"cancel-in-progress"`
	} `yaml:"concurrency"`
	Jobs map[string]struct {
		Needs       any               `yaml:"needs"`
		Permissions map[string]string `yaml:"permissions"`
		Timeout     int               `yaml:"timeout-minutes"`
		Steps       []step            `yaml:"steps"`
	} `yaml:"jobs"`
}

type step struct {
	Uses string            `yaml:"uses"`
	With map[string]string `yaml:"with"`
	Run  string            `yaml:"run"`
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func readWorkflow(t *testing.T, name string) workflow {
	t.Helper()
	var w workflow
	if err := yaml.Unmarshal(read(t, name), &w); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return w
}

func TestAgentWorkflowDeclaresExactlyTheInputsOfADispatchAllStrings(t *testing.T) {
	t.Parallel()
	declared := readWorkflow(t, "fullsend-agent.yml").On.Dispatch.Inputs
	want := map[string]string{}
	for _, name := range dispatchInputs {
		want[name] = "string"
	}
	got := map[string]string{}
	for name, in := range declared {
		got[name] = in.Type
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("declared inputs (-contract +workflow):\n%s", diff)
	}
	if len(declared) > 25 {
		t.Errorf("%d inputs are declared; GitHub takes at most 25", len(declared))
	}
}

func TestAgentWorkflowNamesItsRunsByAgentAndLock(t *testing.T) {
	t.Parallel()
	name := readWorkflow(t, "fullsend-agent.yml").RunName
	for _, want := range []string{"${{ inputs.agent }}", "${{ inputs.poll_lock_id }}"} {
		if !strings.Contains(name, want) {
			t.Errorf("run-name %q lacks %s: a run whose id GitHub did not answer could not be found again", name, want)
		}
	}
}

func TestAgentWorkflowCancelsADuplicateOnTheSameWorkItem(t *testing.T) {
	t.Parallel()
	c := readWorkflow(t, "fullsend-agent.yml").Concurrency
	if !c.Cancel {
		t.Error("cancel-in-progress is not set")
	}
	for _, want := range []string{"inputs.agent", "inputs.source_repo", "fromJSON(inputs.event_payload).issue.number"} {
		if !strings.Contains(c.Group, want) {
			t.Errorf("the concurrency group %q lacks %s", c.Group, want)
		}
	}
}

func TestAgentWorkflowRefreshesTheLockBeforeAnythingElse(t *testing.T) {
	t.Parallel()
	jobs := readWorkflow(t, "fullsend-agent.yml").Jobs
	if diff := cmp.Diff([]string{"agent", "keepalive"}, slices.Sorted(maps.Keys(jobs))); diff != "" {
		t.Fatalf("jobs (-want +got):\n%s", diff)
	}
	first := jobs["agent"].Steps[0]
	if first.Uses != "fullsend/poll-action@v1" || first.With["command"] != "lock-refresh" {
		t.Errorf("the agent's first step is %+v, want lock-refresh of fullsend/poll-action@v1", first)
	}
}

func TestAgentWorkflowKeepsTheLockAliveBesideTheAgent(t *testing.T) {
	t.Parallel()
	jobs := readWorkflow(t, "fullsend-agent.yml").Jobs
	keepalive, agent := jobs["keepalive"], jobs["agent"]
	last := keepalive.Steps[len(keepalive.Steps)-1]
	if last.Uses != "fullsend/poll-action@v1" || last.With["command"] != "lock-keepalive" {
		t.Errorf("the last step is %+v, want lock-keepalive of fullsend/poll-action@v1", last)
	}
	if keepalive.Needs != nil || agent.Needs != nil {
		t.Errorf("the jobs need %v and %v: one would wait for the other", keepalive.Needs, agent.Needs)
	}
	if diff := cmp.Diff(map[string]string{"actions": "read", "contents": "read"}, keepalive.Permissions); diff != "" {
		t.Errorf("permissions of the job (-want +got):\n%s", diff)
	}
	if agent.Timeout <= 0 || keepalive.Timeout <= agent.Timeout {
		t.Errorf("the agent may work for %d minutes, its lock is kept alive for %d", agent.Timeout, keepalive.Timeout)
	}
}

func TestPollWorkflowHasExactlyThePermissionsThatPollingNeeds(t *testing.T) {
	t.Parallel()
	w := readWorkflow(t, "fullsend-poll.yml")
	if diff := cmp.Diff(map[string]string{"actions": "write", "contents": "read"}, w.Permissions); diff != "" {
		t.Errorf("permissions (-want +got):\n%s", diff)
	}
	for name, job := range w.Jobs {
		if job.Permissions != nil {
			t.Errorf("job %s has permissions of its own: %v", name, job.Permissions)
		}
	}
}

func TestPollWorkflowPassesTheCancelInputOn(t *testing.T) {
	t.Parallel()
	w := readWorkflow(t, "fullsend-poll.yml")
	if _, ok := w.On.Dispatch.Inputs["cancel"]; !ok {
		t.Error("workflow_dispatch has no input cancel")
	}
	steps := w.Jobs["poll"].Steps
	i := slices.IndexFunc(steps, func(s step) bool { return s.Uses == "fullsend/poll-action@v1" })
	if i < 0 {
		t.Fatal("no step uses fullsend/poll-action@v1")
	}
	if got := steps[i].With["cancel"]; got != "${{ inputs.cancel }}" {
		t.Errorf("the step's cancel is %q", got)
	}
	if !strings.Contains(w.Concurrency.Group, "inputs.cancel") {
		t.Errorf("the group %q does not set a cancel apart: the next tick would drop one that waits", w.Concurrency.Group)
	}
}

func TestPollWorkflowKeepsOffTheFullAndTheHalfHour(t *testing.T) {
	t.Parallel()
	schedule := readWorkflow(t, "fullsend-poll.yml").On.Schedule
	if len(schedule) != 1 || schedule[0].Cron != "7-59/10 * * * *" {
		t.Errorf("schedule is %+v, want minutes 7, 17, … 57", schedule)
	}
}

func TestNoExampleLeavesCredentialsBehindOrPutsExpressionsIntoScripts(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"fullsend-poll.yml", "fullsend-agent.yml"} {
		for name, job := range readWorkflow(t, file).Jobs {
			for i, s := range job.Steps {
				if strings.Contains(s.Run, "${{") {
					t.Errorf("%s: job %s, step %d: an expression in run: lets text from Jira into the script", file, name, i+1)
				}
				if strings.HasPrefix(s.Uses, "actions/checkout@") && s.With["persist-credentials"] != "false" {
					t.Errorf("%s: job %s, step %d: checkout keeps the token in .git/config", file, name, i+1)
				}
			}
		}
	}
}

func TestConfigurationLoadsWithItsHarnesses(t *testing.T) {
	t.Parallel()
	defined := map[string]string{"JIRA_USER_EMAIL": "poller@example.com", "JIRA_TOKEN": "token-of-the-test"}
	lookup := func(name string) (string, bool) { v, ok := defined[name]; return v, ok }
	c, problems := config.Parse(read(t, "config.yaml"), lookup, config.Options{})
	if err := problems.Err(); err != nil {
		t.Fatalf("config.yaml:\n%v", err)
	}
	agents := make([]harness.Agent, len(c.Agents))
	for i, a := range c.Agents {
		agents[i] = harness.Agent{Name: a.Name, Source: a.Source, Line: a.Line}
	}
	set, bad := (&harness.Loader{FS: os.DirFS(".")}).Load(t.Context(), agents)
	for _, p := range bad {
		t.Errorf("harness: %s", p)
	}
	if set == nil {
		t.Fatal("no harness was loaded")
	}
	if diff := cmp.Diff([]string{"triage"}, set.Names()); diff != "" {
		t.Errorf("agents (-want +got):\n%s", diff)
	}
}
