package examples_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/fullsend/poll-action/internal/sim"
)

// The story of act: an agent that works for far longer than its lock lives
// without a refresh, and than two cycles take on a slow machine. It ends within
// the first minute, so that keepalive's second look at the jobs is the last one.
const (
	staleThreshold  = 10 * time.Second
	refreshInterval = 3 * time.Second
	agentWorks      = 30 * time.Second
)

// actor is the program act, which runs whole workflows in containers.
type actor struct{ bin, image, jobImage string }

func actOrSkip(t *testing.T, r runner) actor {
	t.Helper()
	a := actor{bin: os.Getenv("FULLSEND_TEST_ACT"), image: r.image, jobImage: os.Getenv("FULLSEND_TEST_JOB_IMAGE")}
	if a.bin == "" || a.jobImage == "" {
		t.Skip("needs act; run .ci/container, which sets FULLSEND_TEST_ACT and FULLSEND_TEST_JOB_IMAGE")
	}
	return a
}

// replayed is the example workflow for act: the agent sleeps, and the two things
// are added that GitHub's runner tells a container step and act does not, namely
// the state that a step saved for its post part and the runner's name. Nothing
// else differs from what users copy.
func replayed(t *testing.T, run sim.Run) []byte {
	t.Helper()
	var w map[string]any
	if err := yaml.Unmarshal(read(t, agentWorkflow), &w); err != nil {
		t.Fatal(err)
	}
	jobs := w["jobs"].(map[string]any)
	for name, job := range jobs {
		job.(map[string]any)["env"] = map[string]any{"RUNNER_NAME": runnerOf(name)}
	}
	steps := jobs["agent"].(map[string]any)["steps"].([]any)
	env := steps[0].(map[string]any)["env"].(map[string]any)
	for name, value := range savedBy(run) {
		env["STATE_"+name] = value
	}
	agent := steps[len(steps)-1].(map[string]any)
	agent["shell"] = "sh" // the job's image has no bash where no registry answers
	agent["run"] = fmt.Sprintf("echo \"works on $FULLSEND_WORK_ITEM_KEY under $FULLSEND_POLL_LOCK_ID\"\nsleep %d\n", int(agentWorks.Seconds()))
	raw, err := yaml.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func runnerOf(job string) string { return "runner of " + job }

// start runs the agent workflow of run in a copy of the workspace and returns how
// to wait for its end: its exit code and its log.
func (a actor) start(t *testing.T, s site, run sim.Run, workspace string) (wait func() (int, string)) {
	t.Helper()
	dir := t.TempDir()
	write := func(name string, raw []byte) string {
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, raw, 0o644); err != nil {
			t.Fatal(err)
		}
		return to
	}
	write("config/act/actrc", nil) // without it, act asks which images to use
	none := write("none", nil)
	// The action as a release has it: with the image's name instead of the Dockerfile's.
	release := bytes.Replace(read(t, filepath.Join("..", "action.yml")), []byte("  image: Dockerfile\n"), []byte("  image: docker://"+a.image+"\n"), 1)
	action := filepath.Dir(write("action/action.yml", release))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	c := exec.CommandContext(ctx, a.bin, "workflow_dispatch",
		"--directory", workspace, "--workflows", write(agentWorkflow, replayed(t, run)), "--eventpath", eventOf(t, run.Inputs),
		"--platform", "ubuntu-latest="+a.jobImage, "--pull=false", "--concurrent-jobs", "2", "--container-daemon-socket", "-",
		"--local-repository", "fullsend/poll-action@v1="+action,
		"--action-cache-path", filepath.Join(dir, "cache"), "--no-cache-server", "--log-prefix-job-id", "--rm",
		"--env-file", none, "--var-file", none, "--secret-file", none, "--input-file", none,
		"--env", "GITHUB_API_URL="+s.githubURL, "--env", "GITHUB_REPOSITORY="+repository,
		"--env", "GITHUB_RUN_ID="+strconv.FormatInt(run.ID, 10),
		"--var", "JIRA_BASE_URL="+s.jiraURL, "--secret", "JIRA_USER_EMAIL", "--secret", "JIRA_TOKEN", "--secret", "GITHUB_TOKEN",
	)
	c.Env = append(os.Environ(), "XDG_CONFIG_HOME="+filepath.Join(dir, "config"),
		"JIRA_USER_EMAIL="+jiraEmail, "JIRA_TOKEN="+jiraToken, "GITHUB_TOKEN="+githubToken)
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) } // it removes its containers
	c.WaitDelay = 30 * time.Second
	var log bytes.Buffer
	c.Stdout, c.Stderr = &log, &log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = c.Wait() // the exit code tells
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		if t.Failed() {
			t.Logf("log of act:\n%s", log.String())
		}
	})
	return func() (int, string) {
		<-ended
		tells(t, log.String())
		return c.ProcessState.ExitCode(), log.String()
	}
}

// watched is a lock that is looked at again and again.
type watched struct {
	// gone is closed when there is no lock any more.
	gone <-chan struct{}
	// stop ends the looks; it returns how many different values the lock had.
	stop func() int
}

func watch(t *testing.T, s site) watched {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	seen, gone, ended := map[string]bool{}, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			raw, ok := s.jira.Property(s.issue, lockProperty)
			if !ok {
				close(gone)
				return
			}
			seen[string(raw)] = true
			time.Sleep(50 * time.Millisecond)
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return watched{gone: gone, stop: func() int { cancel(); <-ended; return len(seen) }}
}

func TestContainerAgentThatWorksLongerThanTheThresholdKeepsItsLockToItsEnd(t *testing.T) {
	t.Parallel()
	r := runnerOrSkip(t)
	a := actOrSkip(t, r)
	s := newSite(t)
	r = r.at(s)
	workspace := workspaceOf(t, "config.yaml", "harness/triage.yaml")
	file := filepath.Join(workspace, ".fullsend", "config.yaml")
	shortened := strings.NewReplacer(
		"stale_threshold: 900s", "stale_threshold: "+staleThreshold.String(),
		"refresh_interval: 300s", "refresh_interval: "+refreshInterval.String(),
	).Replace(string(read(t, file)))
	if err := os.WriteFile(file, []byte(shortened), 0o644); err != nil {
		t.Fatal(err)
	}
	poll := func(when string, runs, held int) {
		t.Helper()
		res := r.step(t, workspace, "", map[string]string{"command": "poll"})
		var report struct {
			Drivers []struct {
				Held int `json:"candidates_held"`
			} `json:"drivers"`
		}
		if err := json.Unmarshal([]byte(res.Outputs["result"]), &report); err != nil || res.ExitCode != 0 || len(report.Drivers) != 1 {
			t.Fatalf("poll %s exited %d with the result %q: %v", when, res.ExitCode, res.Outputs["result"], err)
		}
		if got := report.Drivers[0].Held; got != held {
			t.Errorf("%s the poller left %d issues alone whose lock it takes to be alive, want %d", when, got, held)
		}
		if got := s.github.Runs(); len(got) != runs {
			t.Fatalf("%s there are %d runs, want %d", when, len(got), runs)
		}
	}

	poll("at first", 1, 0)
	run := s.github.Runs()[0]
	working := func(agent sim.Job) {
		agent.Name, agent.Runner = "agent", runnerOf("agent")
		s.github.SetJobs(run.ID, agent, sim.Job{Name: "keepalive", Status: "in_progress", Runner: runnerOf("keepalive")})
	}
	s.github.Start(run.ID)
	working(sim.Job{Status: "in_progress"})
	wait := a.start(t, s, run, workspace)

	// The run has the lock, and works until it has long been stale without a refresh.
	deadline := time.Now().Add(time.Minute)
	for lockOf(t, s.jira, s.issue).Phase != "running" {
		if time.Now().After(deadline) {
			t.Fatal("lock-refresh did not take the lock over")
		}
		time.Sleep(50 * time.Millisecond)
	}
	began := time.Now()
	if lock := lockOf(t, s.jira, s.issue); lock.ID != run.Inputs["poll_lock_id"] || lock.RunID != run.ID {
		t.Errorf("the lock is %+v, want id %q of run %d", lock, run.Inputs["poll_lock_id"], run.ID)
	}
	lock := watch(t, s)
	time.Sleep(staleThreshold + 2*time.Second)
	s.jira.Comment(s.issue, developer, "/fs-triage look again")
	poll("while the agent works", 1, 1)
	// A poller that may not read runs has nothing but the lock's age: without keepalive it would call it stale.
	s.github.Set(func(sw *sim.GitHubSwitches) { sw.RunsForbidden = true })
	poll("while the agent works and its run cannot be read", 1, 1)
	s.github.Set(func(sw *sim.GitHubSwitches) { sw.RunsForbidden = false })

	select {
	case <-lock.gone:
		t.Logf("the lock was held for %s", time.Since(began).Round(time.Second))
	case <-time.After(agentWorks + time.Minute):
		t.Fatal("the lock is still there after the agent's end")
	}
	if worked := time.Since(began); worked < agentWorks {
		t.Errorf("the lock was released after %s, while the agent worked", worked)
	}
	if n, least := lock.stop(), int(agentWorks/refreshInterval)/2; n < least {
		t.Errorf("the lock had %d different values while the agent worked for %s, want at least %d", n, agentWorks, least)
	}
	working(sim.Job{Status: "completed", Conclusion: "success"})
	code, log := wait()
	s.github.Complete(run.ID, "success")
	if code != 0 {
		t.Errorf("act exited %d", code)
	}
	for _, want := range []string{
		"works on " + s.issue + " under " + run.Inputs["poll_lock_id"],
		"the run's other jobs have ended",
	} {
		if !strings.Contains(log, want) {
			t.Errorf("the log of act lacks %q", want)
		}
	}
	if strings.Contains(log, "Job failed") {
		t.Error("a job failed")
	}
	if raw, ok := s.jira.Property(s.issue, lockProperty); ok {
		t.Errorf("after the run there is the lock %s", raw)
	}

	poll("after the agent's end", 2, 0)
	second := s.github.Runs()[1]
	if first := run.Inputs["dispatch_key"]; second.Inputs["dispatch_key"] == first || !strings.Contains(second.Inputs["event_payload"], "look again") {
		t.Errorf("the second run is for %q, want the second comment", second.Inputs["event_payload"])
	}
	s.check(t)
}
