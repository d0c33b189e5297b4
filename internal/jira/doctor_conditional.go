package jira

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fullsend/poll-action/internal/dispatch"
	"github.com/fullsend/poll-action/internal/lease"
)

// conditional makes the self-test of conditional writes on one issue, where
// lock.mode is conditional.
func (p *probe) conditional(ctx context.Context, row *issueRow) {
	const check = "lock.mode conditional"
	const cure = "set lock.mode: verify for all pollers of the repository"
	if !p.in.o.Conditional {
		return
	}
	c, n := p.in.client, 0
	run := fmt.Sprintf("doctor-%x", c.now().UnixNano())
	start := c.now()
	err := p.in.state.SelfTest(ctx, row.ID, func() lease.Lock {
		n++
		return lease.Lock{
			ID: fmt.Sprintf("%s-%d-%x", run, n, p.in.o.IntN(1<<30)), TS: c.ServerNow(), Phase: lease.Pending, Driver: DriverType,
			Runs: []lease.Run{{Agent: "self-test", ID: 1 << 34}},
		}
	})
	took := c.now().Sub(start).Round(time.Millisecond)
	switch {
	case err == nil:
		p.add(check, dispatch.Good, fmt.Sprintf("of two racing conditional writes on %s exactly one won; the test took %s", row.Key, took), "")
	case lease.Contended(err):
		p.add(check, dispatch.Doubtful, "it could not be tried on "+row.Key+": "+err.Error(), "try again")
	case errors.Is(err, lease.ErrUnfit), errors.Is(err, errors.ErrUnsupported):
		p.add(check, dispatch.Bad, err.Error()+": no lock is taken", cure)
	default:
		p.fail(check, err, cure)
	}
}
