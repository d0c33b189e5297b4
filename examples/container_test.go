package examples_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"

	"github.com/fullsend/poll-action/internal/sim"
)

// The one story that the container is told.
const (
	repository    = "acme/widgets"
	lockProperty  = "fullsend.poll.acme.widgets.lock"
	jiraEmail     = "poller@example.com"
	jiraToken     = "jira-token-of-this-test"
	githubToken   = "github-token-of-this-test"
	developer     = "5b10a2844c20165700ede21g"
	agentWorkflow = "fullsend-agent.yml"
)

// stepResult is what runner-replay prints of one container step.
type stepResult struct {
	ExitCode   int               `json:"exit_code"`
	Env        map[string]string `json:"env"`
	Outputs    map[string]string `json:"outputs"`
	State      map[string]string `json:"state"`
	Summary    string            `json:"summary"`
	FileErrors []string          `json:"file_errors"`
}

// runner runs steps of the image as GitHub's runner does.
type runner struct {
	image, replay, apiURL string
	// given are the inputs that every step gets beside its own.
	given map[string]string
}

// runnerOrSkip finds what .ci/container prepared.
func runnerOrSkip(t *testing.T) runner {
	t.Helper()
	r := runner{image: os.Getenv("FULLSEND_TEST_IMAGE"), replay: os.Getenv("FULLSEND_TEST_RUNNER_REPLAY")}
	if r.image == "" || r.replay == "" {
		t.Skip("needs a container engine; run .ci/container, which sets FULLSEND_TEST_IMAGE and FULLSEND_TEST_RUNNER_REPLAY")
	}
	return r
}

type actionFile struct {
	Inputs map[string]struct {
		Default string `yaml:"default"`
	} `yaml:"inputs"`
	Runs struct {
		Args           []string `yaml:"args"`
		PostEntrypoint string   `yaml:"post-entrypoint"`
	} `yaml:"runs"`
}

func readAction(t *testing.T) actionFile {
	t.Helper()
	var action actionFile
	if err := yaml.Unmarshal(read(t, filepath.Join("..", "action.yml")), &action); err != nil {
		t.Fatal(err)
	}
	return action
}

// step runs one step in workspace with the arguments and the input defaults of
// action.yml. The file event, if it is not empty, is the run's event.
func (r runner) step(t *testing.T, workspace, event string, with map[string]string) stepResult {
	t.Helper()
	return r.run(t, workspace, event, with)
}

// post runs the post part of a step that had the inputs with and saved the state.
func (r runner) post(t *testing.T, event string, with, state map[string]string) stepResult {
	t.Helper()
	flags := []string{"-entrypoint", readAction(t).Runs.PostEntrypoint}
	for name, value := range state {
		flags = append(flags, "-s", name+"="+value)
	}
	return r.run(t, workspaceOf(t), event, with, flags...)
}

func (r runner) run(t *testing.T, workspace, event string, with map[string]string, flags ...string) stepResult {
	t.Helper()
	action := readAction(t)
	args, err := json.Marshal(action.Runs.Args)
	if err != nil {
		t.Fatal(err)
	}
	cmd := append([]string{
		"-image", r.image, "-args", string(args), "-network", "host", "-workspace", workspace,
		"-api-url", r.apiURL, "-repo", repository, "-event", event, "-event-name", "workflow_dispatch",
	}, flags...)
	contexts := strings.NewReplacer("${{ github.token }}", githubToken, "${{ github.repository }}", repository)
	for name, input := range action.Inputs {
		value := contexts.Replace(input.Default)
		for _, from := range []map[string]string{r.given, with} {
			if v, ok := from[name]; ok {
				value = v
			}
		}
		cmd = append(cmd, "-i", name+"="+value)
	}
	c := exec.CommandContext(t.Context(), r.replay, cmd...)
	var out, log bytes.Buffer
	c.Stdout, c.Stderr = &out, &log
	err = c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	t.Logf("log of the step %v %q:\n%s", with, flags, log.String())
	tells(t, out.String()+log.String())
	var res stepResult
	if err := json.Unmarshal(out.Bytes(), &res); err != nil {
		t.Fatalf("runner-replay: %v; it printed %q", err, out.String())
	}
	if len(res.FileErrors) > 0 {
		t.Errorf("the runner refuses the command files: %q", res.FileErrors)
	}
	return res
}

// tells fails the test when a log, or what else a step hands on, has a token.
func tells(t *testing.T, text string) {
	t.Helper()
	for _, secret := range []string{jiraToken, githubToken} {
		if strings.Contains(text, secret) {
			t.Error("a token is in a step's log, outputs, variables or summary")
		}
	}
}

// workspaceOf is a checkout that has the example configuration.
func workspaceOf(t *testing.T, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range files {
		to := filepath.Join(dir, ".fullsend", name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, read(t, name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// eventOf is the event file of a run with these inputs.
func eventOf(t *testing.T, inputs map[string]string) string {
	t.Helper()
	raw, err := json.Marshal(map[string]any{
		"inputs": inputs, "ref": "refs/heads/main", "workflow": ".github/workflows/" + agentWorkflow,
		"repository": map[string]any{"full_name": repository, "default_branch": "main"},
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "event.json")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

type lockValue struct {
	ID    string `json:"id"`
	Phase string `json:"phase"`
	RunID int64  `json:"run_id"`
}

func lockOf(t *testing.T, jira *sim.Jira, issue string) lockValue {
	t.Helper()
	raw, ok := jira.Property(issue, lockProperty)
	if !ok {
		t.Fatalf("%s has no property %s; it has %q", issue, lockProperty, jira.Properties(issue))
	}
	var lock lockValue
	if err := json.Unmarshal(raw, &lock); err != nil {
		t.Fatalf("%s = %s: %v", lockProperty, raw, err)
	}
	return lock
}

// site is where the stories play: a Jira with one issue, on which a developer has
// asked for an agent, and the repository that has the agent workflow.
type site struct {
	jira   *sim.Jira
	github *sim.GitHub
	issue  string
	// jiraURL and githubURL are reached from the host and from its network.
	jiraURL, githubURL string
}

func newSite(t *testing.T) site {
	t.Helper()
	jira := sim.NewJira(sim.JiraConfig{
		Now: time.Now, Email: jiraEmail, Token: jiraToken,
		Self: sim.User{AccountID: "712020:poller", DisplayName: "Poller"},
	})
	jiraServer := httptest.NewServer(jira)
	t.Cleanup(jiraServer.Close)
	jira.SetBaseURL(jiraServer.URL)
	jira.AddUser(sim.User{AccountID: developer, DisplayName: "Dana Developer"})
	jira.AddProject("PROJ")
	jira.Grant("PROJ", "Developers", developer)
	issue := jira.CreateIssue(sim.IssueSpec{Project: "PROJ", Summary: "The export is empty", Reporter: developer})
	jira.Comment(issue.Key, developer, "/fs-triage check acceptance criteria")

	github := sim.NewGitHub(sim.GitHubConfig{Now: time.Now, Token: githubToken, Repo: repository})
	githubServer := httptest.NewServer(github)
	t.Cleanup(githubServer.Close)
	github.SetBaseURL(githubServer.URL)
	github.AddWorkflow(agentWorkflow, "main", string(read(t, agentWorkflow)))
	return site{jira: jira, github: github, issue: issue.Key, jiraURL: jiraServer.URL, githubURL: githubServer.URL}
}

// at returns the runner for steps that reach the site.
func (r runner) at(s site) runner {
	r.apiURL = s.githubURL
	r.given = map[string]string{"jira-base-url": s.jiraURL, "jira-user-email": jiraEmail, "jira-token": jiraToken}
	return r
}

func (s site) check(t *testing.T) {
	t.Helper()
	if unknown := append(s.jira.Unknown(), s.github.Unknown()...); len(unknown) > 0 {
		t.Errorf("requests that no server knows: %q", unknown)
	}
}

// savedBy is the state that the lock-refresh of a run saves for its post part.
func savedBy(run sim.Run) map[string]string {
	return map[string]string{
		"lock-id": run.Inputs["poll_lock_id"], "lock-item": run.Inputs["work_item_key"],
		"lock-driver": run.Inputs["poll_lock_driver"], "lock-property": run.Inputs["poll_lock_property"],
		"run-id": strconv.FormatInt(run.ID, 10),
	}
}

func TestContainerPollsAndItsRunTakesTheLockOver(t *testing.T) {
	t.Parallel()
	r := runnerOrSkip(t)
	s := newSite(t)
	jira, github, r := s.jira, s.github, r.at(s)
	workspace := workspaceOf(t, "config.yaml", "harness/triage.yaml")

	polled := r.step(t, workspace, "", map[string]string{"command": "poll"})
	got := map[string]string{}
	for _, name := range []string{"locked", "events", "dispatched", "failed"} {
		got[name] = polled.Outputs[name]
	}
	// Two events: the issue was opened, and commented on. The comment matches.
	if diff := cmp.Diff(map[string]string{"locked": "1", "events": "2", "dispatched": "1", "failed": "0"}, got); diff != "" {
		t.Errorf("outputs of poll (-want +got):\n%s", diff)
	}
	if polled.ExitCode != 0 || !json.Valid([]byte(polled.Outputs["result"])) || polled.Outputs["cycle-id"] == "" {
		t.Errorf("poll exited %d with cycle-id %q and result %q", polled.ExitCode, polled.Outputs["cycle-id"], polled.Outputs["result"])
	}
	if !strings.Contains(polled.Summary, s.issue) {
		t.Errorf("the step summary has no row for %s:\n%s", s.issue, polled.Summary)
	}
	runs := github.Runs()
	if len(runs) != 1 {
		t.Fatalf("%d runs were started, want 1: %+v", len(runs), runs)
	}
	run := runs[0]
	for _, name := range dispatchInputs {
		if _, ok := run.Inputs[name]; !ok {
			t.Errorf("the run has no input %s", name)
		}
	}
	handed := lockOf(t, jira, s.issue)
	if handed.RunID != run.ID || handed.ID != run.Inputs["poll_lock_id"] || handed.Phase != "pending" {
		t.Errorf("the lock is %+v, want run %d, id %q, phase pending", handed, run.ID, run.Inputs["poll_lock_id"])
	}
	if !strings.Contains(run.DisplayTitle, handed.ID) || !strings.Contains(run.DisplayTitle, run.Inputs["agent"]) {
		t.Errorf("the run is called %q, without its lock or its agent", run.DisplayTitle)
	}

	// The run's first step: before any checkout, so the workspace is empty.
	refreshed := r.step(t, workspaceOf(t), eventOf(t, run.Inputs), map[string]string{"command": "lock-refresh"})
	if refreshed.ExitCode != 0 {
		t.Errorf("lock-refresh exited %d", refreshed.ExitCode)
	}
	if diff := cmp.Diff(map[string]string{"lock-status": "held", "lock-id": handed.ID}, refreshed.Outputs); diff != "" {
		t.Errorf("outputs of lock-refresh (-want +got):\n%s", diff)
	}
	wantEnv := map[string]string{}
	for _, name := range []string{
		"work_item_url", "work_item_source", "work_item_key",
		"poll_lock_id", "poll_lock_driver", "poll_lock_property",
	} {
		wantEnv["FULLSEND_"+strings.ToUpper(name)] = run.Inputs[name]
	}
	if diff := cmp.Diff(wantEnv, refreshed.Env); diff != "" {
		t.Errorf("variables of the following steps (-want +got):\n%s", diff)
	}
	running := lockOf(t, jira, s.issue)
	if diff := cmp.Diff(lockValue{ID: handed.ID, Phase: "running", RunID: run.ID}, running); diff != "" {
		t.Errorf("the lock after lock-refresh (-want +got):\n%s", diff)
	}

	// Another run, whose lock this is not.
	foreign := maps.Clone(run.Inputs)
	foreign["poll_lock_id"] = "00000000-0000-4000-8000-000000000000"
	lost := r.step(t, workspaceOf(t), eventOf(t, foreign), map[string]string{"command": "lock-refresh"})
	if lost.ExitCode != 3 || lost.Outputs["lock-status"] != "lost" {
		t.Errorf("with a foreign lock id the step exited %d with lock-status %q, want 3 and lost", lost.ExitCode, lost.Outputs["lock-status"])
	}
	if len(lost.Env) > 0 {
		t.Errorf("with a foreign lock id the step set %v", lost.Env)
	}
	if diff := cmp.Diff(running, lockOf(t, jira, s.issue)); diff != "" {
		t.Errorf("the foreign run changed the lock (-before +after):\n%s", diff)
	}

	again := r.step(t, workspace, "", map[string]string{"command": "poll"})
	if again.ExitCode != 0 || again.Outputs["dispatched"] != "0" || len(github.Runs()) != 1 {
		t.Errorf("a second cycle exited %d and dispatched %q; there are %d runs, want 1", again.ExitCode, again.Outputs["dispatched"], len(github.Runs()))
	}

	// The end of the job: every step's post part knows what that step has saved, and nothing else.
	end := func(state map[string]string) {
		t.Helper()
		if res := r.post(t, eventOf(t, run.Inputs), map[string]string{"command": "lock-refresh"}, state); res.ExitCode != 0 {
			t.Errorf("the post part with the state %v exited %d", state, res.ExitCode)
		}
	}
	for _, of := range []stepResult{lost, polled} {
		end(of.State)
		if diff := cmp.Diff(running, lockOf(t, jira, s.issue)); diff != "" {
			t.Errorf("the post part of a step that held no lock changed it (-before +after):\n%s", diff)
		}
	}
	// runner-replay calls every run 777, so that two runs work under the lock.
	saved := savedBy(run)
	saved["run-id"] = "777"
	if diff := cmp.Diff(saved, refreshed.State); diff != "" {
		t.Errorf("state of lock-refresh for its post part (-want +got):\n%s", diff)
	}
	end(refreshed.State)
	if diff := cmp.Diff(running, lockOf(t, jira, s.issue)); diff != "" {
		t.Errorf("the lock of the run that still works (-want +got):\n%s", diff)
	}
	end(savedBy(run))
	if raw, ok := jira.Property(s.issue, lockProperty); ok {
		t.Errorf("the post part of the last run's lock-refresh left the lock %s", raw)
	}
	s.check(t)
}
