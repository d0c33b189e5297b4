package cli

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fullsend/poll-action/internal/sim"
	"github.com/fullsend/poll-action/internal/sim/simtest"
)

// TestIssuesThatNeverGetOnDoNotHoldUpOthers: more issues than one cycle looks at
// can never be checkpointed; a command on another one is served all the same.
func TestIssuesThatNeverGetOnDoNotHoldUpOthers(t *testing.T) {
	t.Parallel()
	for name, stuck := range map[string]func(w *simtest.World, issues []sim.Issue){
		"their properties cannot be written": func(w *simtest.World, issues []sim.Issue) {
			for _, i := range issues {
				w.Jira.SetReadOnly(i.Key, true)
			}
		},
		"property writes move updated": func(w *simtest.World, _ []sim.Issue) {
			w.Jira.Set(func(j *sim.JiraSwitches) { j.BumpUpdatedOnPropertyWrite = true })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := simtest.New(t)
				issues := createIssues(w, 60)
				stuck(w, issues)
				p := newPoller(t, w, testConfig("m: 50, n: 5"), 6)
				for range 6 {
					time.Sleep(2 * time.Minute)
					p.cycle()
				}
				fresh := createIssues(w, 1)[0]
				w.Jira.Comment(fresh.Key, simtest.Alice, "/fs-triage go")
				for cycle := 1; cycle <= 30; cycle++ {
					time.Sleep(2 * time.Minute)
					p.cycle()
					if len(w.GitHub.Runs()) == 1 {
						t.Logf("served in cycle %d", cycle)
						return
					}
				}
				t.Error("the command was not dispatched in 30 cycles")
			})
		})
	}
}
