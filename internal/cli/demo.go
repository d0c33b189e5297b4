package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fullsend/poll-action/examples"
	"github.com/fullsend/poll-action/internal/poll"
	"github.com/fullsend/poll-action/internal/sim"
)

func (a *app) demoCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Run the real cycle on embedded simulated Jira and GitHub servers; needs no account and no network",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return a.demo(cmd.Context()) },
	}
}

const (
	demoJira   = "acme.atlassian.net"
	demoGitHub = "api.github.com"
	demoRepo   = "acme/platform"
	demoEmail  = "poller@acme.example"
	demoToken  = "a-demo-token"
)

// demo seeds a small project, runs two real cycles and tells what happened.
func (a *app) demo(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "fullsend-demo-")
	if err != nil {
		return &exitError{code: ExitFailed, err: err}
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := demoFiles(dir); err != nil {
		return &exitError{code: ExitFailed, err: err}
	}
	w := a.Stdout
	var ahead time.Duration // the demo does not wait between its cycles
	now := func() time.Time { return a.Now().Add(ahead) }
	stage := newStage(now)
	say(w, "A team tracks work in Jira (project PROJ) and keeps code in %s.", demoRepo)
	stage.seed(w)
	ahead += time.Minute

	d := &app{Process: a.Process, runner: a.runner, log: a.log, mask: a.mask}
	d.Transport, d.Now = stage.net, now
	d.Getenv = demoEnv
	d.set.config = filepath.Join(dir, "config.yaml")
	drivers, err := d.prepare(ctx)
	if err != nil {
		return err
	}
	for n := 1; n <= 2; n++ {
		stage.net.ResetLog()
		reports, err := d.cycles(ctx, drivers, false)
		if err != nil {
			return err
		}
		say(w, "\nCycle %d, a minute later", n)
		tell(w, reports[0], stage)
		if !reports[0].OK() {
			return &exitError{code: ExitFailed, err: fmt.Errorf("the demo's cycle %d failed", n)}
		}
		if n == 1 {
			stage.runAgents(w)
			ahead += time.Minute
		}
	}
	if n := len(stage.github.Runs()); n != 1 {
		return &exitError{code: ExitFailed, err: fmt.Errorf("the demo started %d runs, one was due", n)}
	}
	say(w, "\nOne change, one run. The rest was read, judged and checkpointed; it costs nothing any more.")
	return nil
}

func demoFiles(dir string) error {
	if err := os.MkdirAll(filepath.Join(dir, "harness"), 0o750); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(examples.Config), 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "harness", "triage.yaml"), []byte(examples.Harness), 0o600)
}

func demoEnv(name string) string {
	return map[string]string{
		"JIRA_BASE_URL": "https://" + demoJira, "JIRA_USER_EMAIL": demoEmail, "JIRA_TOKEN": demoToken,
		"GITHUB_TOKEN": demoToken, "GITHUB_REPOSITORY": demoRepo, "GITHUB_API_URL": "https://" + demoGitHub,
	}[name]
}

// stage is the simulated world of the demo.
type stage struct {
	net    *sim.Net
	jira   *sim.Jira
	github *sim.GitHub
	issue  sim.Issue
}

func newStage(now func() time.Time) *stage {
	s := &stage{net: sim.NewNet()}
	s.jira = sim.NewJira(sim.JiraConfig{
		BaseURL: "https://" + demoJira, Now: now, Email: demoEmail, Token: demoToken, Zone: time.UTC,
		Self: sim.User{AccountID: "acct:poller", DisplayName: "Poller", Type: "atlassian"},
	})
	s.github = sim.NewGitHub(sim.GitHubConfig{
		BaseURL: "https://" + demoGitHub, ServerURL: defaultServerURL, Now: now, Token: demoToken, Repo: demoRepo,
	})
	s.github.AddWorkflow("fullsend-agent.yml", "main", examples.AgentWorkflow)
	s.net.Handle(demoJira, s.jira)
	s.net.Handle(demoGitHub, s.github)
	return s
}

func (s *stage) seed(w io.Writer) {
	s.jira.AddProject("PROJ")
	s.jira.AddUser(sim.User{AccountID: "acct:dana", DisplayName: "Dana", Type: "atlassian"})
	s.jira.AddUser(sim.User{AccountID: "acct:guest", DisplayName: "Guest", Type: "atlassian"})
	s.jira.Grant("PROJ", "Developers", "acct:dana")
	s.issue = s.jira.CreateIssue(sim.IssueSpec{Project: "PROJ", Summary: "Export fails on large files", Reporter: "acct:guest"})
	labelled := s.jira.CreateIssue(sim.IssueSpec{Project: "PROJ", Summary: "Rename the settings page", Reporter: "acct:dana"})
	forbidden := s.jira.CreateIssue(sim.IssueSpec{Project: "PROJ", Summary: "Translate the manual", Reporter: "acct:guest"})
	s.jira.Comment(s.issue.Key, "acct:dana", "/fs-triage check acceptance criteria")
	s.jira.SetLabels(labelled.Key, "acct:dana", "ui")
	s.jira.Comment(forbidden.Key, "acct:guest", "/fs-triage please")
	say(w, "  Dana (a developer) comments on %s: /fs-triage check acceptance criteria", s.issue.Key)
	say(w, "  Dana labels %s: ui", labelled.Key)
	say(w, "  Guest (no role in the project) comments on %s: /fs-triage please", forbidden.Key)
}

// runAgents plays the runs that were dispatched: each works and its lock is
// given back, which in this version no step of the agent workflow does yet.
func (s *stage) runAgents(w io.Writer) {
	for _, r := range s.github.Runs() {
		s.github.Complete(r.ID, "success")
		s.jira.DeleteProperty(s.issue.Key, r.Inputs["poll_lock_property"])
		say(w, "  run %d works on %s under lock %s and gives the lock back", r.ID, r.Inputs["work_item_key"], short(r.Inputs["poll_lock_id"]))
	}
}

// tell says what a cycle did, from its report and from the servers' own logs.
func tell(w io.Writer, r *poll.Report, s *stage) {
	say(w, "  found: %d issues, %d with something new", r.Candidates, r.Pending)
	for _, row := range r.Items {
		switch {
		case len(row.Runs) == 0:
			say(w, "  %s: %d events, nothing to dispatch (%s)", row.Key, row.Events, row.Reason)
		default:
			say(w, "  %s: %d events, locked", row.Key, row.Events)
		}
		for _, run := range row.Runs {
			say(w, "    matched harness %s, key %s: %s as run %d (%s)", run.Agent, run.Key, run.Status, run.RunID, run.RunURL)
		}
	}
	if len(r.Items) == 0 {
		say(w, "  nothing is new: nothing was read further, locked or written")
	}
	say(w, "  cost: %d requests to Jira, %d to GitHub", s.net.Count(demoJira), s.net.Count(demoGitHub))
}

func short(id string) string {
	head, _, _ := strings.Cut(id, "-")
	return head + "…"
}

func say(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(w, format+"\n", args...) // a reader that went away is no failure of the demo
}
