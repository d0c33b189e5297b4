package cli

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fullsend/poll-action/internal/dispatch"
	"github.com/fullsend/poll-action/internal/sim"
	"github.com/fullsend/poll-action/internal/sim/simtest"
)

// examined is what one run of the doctor left.
type examined struct {
	outcome
	diagnosis
}

func (e examined) check(t *testing.T, name string) dispatch.Check {
	t.Helper()
	for _, c := range e.Checks {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("there is no check %q among\n%s", name, e.stdout)
	return dispatch.Check{}
}

// doctor runs the verb, holds its lines against its document, and checks that
// nothing but its own property was written and nothing started.
func (p *poller) doctor() examined {
	p.t.Helper()
	runs, before := len(p.w.GitHub.Runs()), len(p.w.Net.Log())
	file := filepath.Join(p.t.TempDir(), "result.json")
	e := examined{outcome: p.run(p.t.Context(), "doctor", "--result", file)}
	raw, err := os.ReadFile(file)
	if err != nil {
		p.t.Fatalf("%v\n%s", err, e.stderr)
	}
	if err := json.Unmarshal(raw, &e.diagnosis); err != nil {
		p.t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(e.stdout, "\n"), "\n")
	if len(lines) != len(e.Checks) {
		p.t.Errorf("%d lines for %d checks\n%s", len(lines), len(e.Checks), e.stdout)
	}
	bad := false
	for i, c := range e.Checks {
		mark := map[dispatch.Health]string{dispatch.Good: "✓ ", dispatch.Doubtful: "! ", dispatch.Bad: "✗ "}[c.Health]
		if mark == "" || i < len(lines) && !strings.HasPrefix(lines[i], mark+c.Name+": ") {
			p.t.Errorf("line %q for %+v", lines[i], c)
		}
		if c.Health == dispatch.Bad {
			bad = true
		}
	}
	if want := map[bool]int{false: ExitOK, true: ExitFailed}[bad]; e.code != want || e.OK == bad {
		p.t.Errorf("exit code %d and ok %t, want %d\n%s", e.code, e.OK, want, e.stdout)
	}
	for _, entry := range p.w.Net.Log()[before:] {
		switch {
		case entry.Method == http.MethodGet, strings.HasSuffix(entry.Path, "/search/jql"), strings.HasSuffix(entry.Path, "/search/approximate-count"):
		case strings.HasSuffix(entry.Path, ".doctor"): // its own
		case strings.HasSuffix(entry.Path, "/dispatches") && (entry.Status >= 400 || entry.Status == 0): // the one that cannot succeed
		default:
			p.t.Errorf("the doctor writes: %s %s %d", entry.Method, entry.Path, entry.Status)
		}
	}
	if n := len(p.w.GitHub.Runs()); n != runs {
		p.t.Errorf("the doctor started %d runs", n-runs)
	}
	return e
}

// surgery is a bubble with a world that has one issue, and a poller for it.
func surgery(t *testing.T, f func(t *testing.T, w *simtest.World, p *poller)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := simtest.New(t)
		createIssues(w, 1)
		time.Sleep(time.Minute)
		f(t, w, newPoller(t, w, testConfig("m: 50, n: 5"), 1))
	})
}

func TestAHealthyInstallationGetsOneGoodLineForEachCheck(t *testing.T) {
	t.Parallel()
	surgery(t, func(t *testing.T, w *simtest.World, p *poller) {
		t.Helper()
		e := p.doctor()
		for _, c := range e.Checks {
			if c.Health != dispatch.Good || c.Cure != "" {
				t.Errorf("%+v", c)
			}
		}
		for _, name := range []string{
			"configuration", "harnesses", "jira-poll: credentials", "jira-poll: flavour", "jira-poll: clock", "jira-poll: query 1", "jira-poll: permissions in PROJ",
			"jira-poll: authorization in PROJ", "jira-poll: properties of PROJ-1",
			"github: workflow", "github: inputs", "github: run-name", "github: lock-refresh", "github: state", "github: permission actions: write",
		} {
			e.check(t, name)
		}
		if n := w.Jira.PropertyWrites(); n != 2 {
			t.Errorf("%d property writes, want one and its undoing", n)
		}
		if left := w.Jira.Properties("PROJ-1"); len(left) != 0 {
			t.Errorf("left behind: %v", left)
		}
	})
}

func TestTheDoctorNamesWhatIsWrongWithTheTargetWorkflow(t *testing.T) {
	t.Parallel()
	without := func(cut string) string {
		var kept []string
		for line := range strings.SplitSeq(simtest.Workflow, "\n") {
			if !strings.Contains(line, cut) {
				kept = append(kept, line)
			}
		}
		return strings.Join(kept, "\n")
	}
	for name, c := range map[string]struct {
		set    func(w *simtest.World, p *poller)
		check  string
		health dispatch.Health
		says   []string
	}{
		"it is missing": {
			func(_ *simtest.World, p *poller) {
				p.write("config.yaml", strings.Replace(testConfig("n: 5"), "workflow: fullsend-agent.yml", "workflow: nosuch.yml", 1))
			}, "github: workflow", dispatch.Bad, []string{"nosuch.yml"},
		},
		"its ref is missing": {
			func(_ *simtest.World, p *poller) {
				p.write("config.yaml", strings.Replace(testConfig("n: 5"), "ref: main", "ref: nosuch", 1))
			}, "github: workflow", dispatch.Bad, []string{"nosuch"},
		},
		"it is disabled": {
			func(w *simtest.World, _ *poller) { w.GitHub.SetState(simtest.WorkflowFile, "disabled_manually") },
			"github: state", dispatch.Bad,
			[]string{"disabled_manually", "enable"},
		},
		"it has no trigger": {
			func(w *simtest.World, _ *poller) {
				w.GitHub.AddWorkflow(simtest.WorkflowFile, "main", "name: x\non: push\njobs: {}\n")
			}, "github: workflow", dispatch.Bad, []string{"workflow_dispatch"},
		},
		"it declares nothing of ours": {
			func(w *simtest.World, _ *poller) {
				w.GitHub.AddWorkflow(simtest.WorkflowFile, "main", "name: x\non:\n  workflow_dispatch:\n    inputs:\n      other: {type: string}\njobs: {}\n")
			}, "github: workflow", dispatch.Bad, []string{"declares none of our inputs"},
		},
		"it has no run-name": {
			func(w *simtest.World, _ *poller) {
				w.GitHub.AddWorkflow(simtest.WorkflowFile, "main", without("run-name:"))
			}, "github: run-name", dispatch.Doubtful, []string{"cannot be found", "poll_lock_id"},
		},
		"it does not refresh the lock": {
			func(w *simtest.World, _ *poller) {
				w.GitHub.AddWorkflow(simtest.WorkflowFile, "main", without("lock-refresh"))
			}, "github: lock-refresh", dispatch.Doubtful, []string{"goes stale", "command: lock-refresh"},
		},
		"the token may not start it": {
			func(w *simtest.World, _ *poller) {
				w.GitHub.Set(func(g *sim.GitHubSwitches) { g.DispatchForbidden = true })
			}, "github: permission actions: write", dispatch.Bad, []string{"actions: write"},
		},
		"the token is wrong": {
			func(_ *simtest.World, p *poller) { p.env["GITHUB_TOKEN"] = "wrong-token-for-github" },
			"github: workflow", dispatch.Bad,
			[]string{"token"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			surgery(t, func(t *testing.T, w *simtest.World, p *poller) {
				t.Helper()
				c.set(w, p)
				e := p.doctor()
				got := e.check(t, c.check)
				if got.Health != c.health || got.Cure == "" {
					t.Errorf("%+v, want health %q and a cure", got, c.health)
				}
				for _, part := range c.says {
					if !strings.Contains(got.Detail+got.Cure, part) {
						t.Errorf("%q is not said: %+v", part, got)
					}
				}
				if e.check(t, "jira-poll: credentials").Health != dispatch.Good {
					t.Error("the other side is not looked at")
				}
			})
		})
	}
}

func TestTheDoctorNamesWhatIsWrongInJira(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		set    func(w *simtest.World, p *poller)
		check  string
		health dispatch.Health
		says   []string
	}{
		"a 200 that means denied": {
			func(w *simtest.World, p *poller) {
				w.Jira.Set(func(j *sim.JiraSwitches) { j.AuthMode = sim.AuthAnonymous200 })
				p.env["JIRA_TOKEN"] = "expired-token"
			}, "jira-poll: credentials", dispatch.Bad, []string{"does not accept the credentials", "JIRA_TOKEN"},
		},
		"no right to read roles": {
			func(w *simtest.World, _ *poller) { w.Jira.Set(func(j *sim.JiraSwitches) { j.RolesForbidden = true }) },
			"jira-poll: permissions in PROJ", dispatch.Bad,
			[]string{"ADMINISTER_PROJECTS", "authorization: allow", "github-users"},
		},
		"a refused query": {
			func(_ *simtest.World, p *poller) {
				p.write("config.yaml", strings.Replace(testConfig("n: 5"), "[project = PROJ]", "[project = NOSUCH, project = PROJ]", 1))
			}, "jira-poll: query 1", dispatch.Bad, []string{"NOSUCH", "issue search"},
		},
		"a candidate that cannot be written": {
			func(w *simtest.World, _ *poller) { w.Jira.SetReadOnly("PROJ-1", true) },
			"jira-poll: properties of PROJ-1", dispatch.Bad,
			[]string{"403", "Edit Issues"},
		},
		"a slow site": {
			func(w *simtest.World, _ *poller) { w.Net.Latency = constant(time.Second) },
			"jira-poll: properties of PROJ-1", dispatch.Bad,
			[]string{"2s", "1.5s", "lock.guard"},
		},
		"a clock that differs": {
			func(w *simtest.World, _ *poller) { w.Advance(time.Hour) },
			"jira-poll: clock", dispatch.Doubtful,
			[]string{"1h0m"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			surgery(t, func(t *testing.T, w *simtest.World, p *poller) {
				t.Helper()
				c.set(w, p)
				e := p.doctor()
				got := e.check(t, c.check)
				if got.Health != c.health || got.Cure == "" {
					t.Errorf("%+v, want health %q and a cure", got, c.health)
				}
				for _, part := range c.says {
					if !strings.Contains(got.Detail+got.Cure, part) {
						t.Errorf("%q is not said: %+v", part, got)
					}
				}
				if e.check(t, "github: workflow").Health != dispatch.Good {
					t.Error("the other side is not looked at")
				}
				if left := w.Jira.Properties("PROJ-1"); len(left) != 0 {
					t.Errorf("left behind: %v", left)
				}
			})
		})
	}
}

func TestTheDoctorSaysWhatTheConfigurationLacks(t *testing.T) {
	t.Parallel()
	surgery(t, func(t *testing.T, w *simtest.World, p *poller) {
		t.Helper()
		p.write("config.yaml", "kill_switch: true\n"+testConfig("m: 50, n: 5"))
		p.write("harness/triage.yaml", "role: triage\ntrigger: event.source.sistem == \"jira\"\n")
		e := p.doctor()
		if c := e.check(t, "kill switch"); c.Health != dispatch.Doubtful || c.Cure == "" {
			t.Errorf("%+v", c)
		}
		if c := e.check(t, "warning"); c.Health != dispatch.Doubtful || !strings.Contains(c.Detail, "which no event has") || !strings.Contains(c.Detail, "triage.yaml") {
			t.Errorf("%+v", c)
		}
		p.write("config.yaml", strings.Replace(testConfig("m: 50, n: 5"), "agents: [harness/triage.yaml]", "agents: []", 1))
		if c := p.doctor().check(t, "harnesses"); c.Health != dispatch.Doubtful || c.Cure == "" {
			t.Errorf("%+v", c)
		}
		_ = w
	})
}

func TestTheDoctorReportsABrokenConfigurationLineByLine(t *testing.T) {
	t.Parallel()
	surgery(t, func(t *testing.T, w *simtest.World, p *poller) {
		t.Helper()
		p.write("config.yaml", testConfig("m: 5, n: 50, intervall: 5m"))
		p.write("harness/triage.yaml", "role: triage\ntrigger: event.x ==\n")
		e := p.doctor()
		bad := 0
		for _, c := range e.Checks {
			if c.Name == "configuration" && c.Health == dispatch.Bad {
				bad++
			}
		}
		if bad < 2 {
			t.Errorf("%d problems, want two\n%s", bad, e.stdout)
		}
		before := len(w.Net.Log())
		p.write("config.yaml", "poll: [")
		p.doctor()
		if err := os.Remove(filepath.Join(p.dir, "config.yaml")); err != nil {
			t.Fatal(err)
		}
		if c := p.doctor().check(t, "configuration"); !strings.Contains(c.Detail, "cannot be read") {
			t.Errorf("%+v", c)
		}
		if n := len(w.Net.Log()) - before; n != 0 {
			t.Errorf("%d requests without a configuration", n)
		}
	})
}

func TestAnInterruptedDoctorLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 20; n++ {
		for _, after := range []bool{false, true} {
			surgery(t, func(t *testing.T, w *simtest.World, p *poller) {
				t.Helper()
				w.Jira.SetProperty("PROJ-1", propertyName("doctor"), []byte(`{"theirs":[1]}`))
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				hit := false
				p.transport = &tap{net: w.Net, left: n, after: after, hit: func() { hit = true; cancel(signalError{os.Interrupt}) }}
				o := p.run(ctx, "doctor")
				if hit && o.code != ExitInterrupted {
					t.Errorf("request %d after %t: exit code %d, want %d", n, after, o.code, ExitInterrupted)
				}
				if raw, _ := w.Jira.Property("PROJ-1", propertyName("doctor")); string(raw) != `{"theirs":[1]}` {
					t.Errorf("request %d after %t: the property is %s", n, after, raw)
				}
			})
		}
	}
}

func TestTheDoctorIsACommandOfTheAction(t *testing.T) {
	t.Parallel()
	surgery(t, func(t *testing.T, w *simtest.World, p *poller) {
		t.Helper()
		output := filepath.Join(t.TempDir(), "output")
		p.env["GITHUB_ACTIONS"], p.env["GITHUB_OUTPUT"] = "true", output
		p.env["INPUT_COMMAND"], p.env["INPUT_CONFIG"] = "doctor", filepath.Join(p.dir, "config.yaml")
		o := p.run(t.Context(), "action")
		if o.code != ExitOK {
			t.Errorf("exit code %d\n%s", o.code, o.stdout)
		}
		o.mentions(t, "✓ jira-poll: credentials: ", "✓ github: workflow: ")
		raw, err := os.ReadFile(output)
		if err != nil || !strings.Contains(string(raw), `{"ok":true,"checks":[`) {
			t.Errorf("the output is %s, %v", raw, err)
		}
		w.GitHub.SetState(simtest.WorkflowFile, "disabled_manually")
		if o = p.run(t.Context(), "action"); o.code != ExitFailed {
			t.Errorf("exit code %d, want %d", o.code, ExitFailed)
		}
		for _, secret := range []string{simtest.JiraToken, simtest.GitHubToken} {
			if strings.Contains(strings.ReplaceAll(o.stdout+o.stderr, "::add-mask::"+secret, ""), secret) {
				t.Error("a secret was printed")
			}
		}
	})
}

func TestTheDoctorsDocumentGoesToStandardOutputToo(t *testing.T) {
	t.Parallel()
	surgery(t, func(t *testing.T, _ *simtest.World, p *poller) {
		t.Helper()
		o := p.run(t.Context(), "doctor", "--result", "-")
		_, doc, _ := strings.Cut(o.stdout, "\n{")
		var d diagnosis
		if err := json.Unmarshal([]byte("{"+doc), &d); err != nil || !d.OK || len(d.Checks) < 10 {
			t.Errorf("%v\n%s", err, o.stdout)
		}
	})
}
