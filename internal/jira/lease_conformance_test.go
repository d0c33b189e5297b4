package jira

import (
	"testing"

	"github.com/fullsend/poll-action/internal/lease/leasetest"
	"github.com/fullsend/poll-action/internal/sim"
	"github.com/fullsend/poll-action/internal/sim/simtest"
)

// TestTheLocksOfBothFlavoursKeepTheRegistersPromises runs the suite that every
// register has to pass; items are named by id, as pollers do, and by key, as runs
// do.
func TestTheLocksOfBothFlavoursKeepTheRegistersPromises(t *testing.T) {
	t.Parallel()
	for flavour, opts := range map[string][]simtest.Option{"Cloud": nil, "Data Center": {simtest.DataCenter()}} {
		for by, name := range map[string]func(sim.Issue) string{
			"by id":  func(i sim.Issue) string { return i.ID },
			"by key": func(i sim.Issue) string { return i.Key },
		} {
			t.Run(flavour+" "+by, func(t *testing.T) {
				t.Parallel()
				leasetest.Run(t, func(t *testing.T) leasetest.Subject {
					t.Helper()
					s := newStage(t, opts...) // nothing here waits
					_, state := s.process()
					return leasetest.Subject{Register: state, Item: name(s.issue()), Other: name(s.issue())}
				})
			})
		}
	}
}
