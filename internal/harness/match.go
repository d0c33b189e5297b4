package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/cel-go/interpreter"

	"github.com/fullsend/poll-action/internal/event"
)

// Match says for every harness, in the order of registration, whether the event
// is for it. It never fails: an expression that asks for a member that the
// event does not have, costs too much or gives no boolean is false, and the
// reason says so. When ctx ends, the decisions not yet made are marked as
// interrupted.
func (s *Set) Match(ctx context.Context, ev event.NormalizedEvent) []Decision {
	out := make([]Decision, len(s.harnesses))
	root, err := s.value(ev)
	for i, h := range s.harnesses {
		d := Decision{Agent: h.agent, Role: h.role}
		switch {
		case h.trigger == nil:
			d.Reason = "the harness has no trigger, so no event starts it"
		case err != nil:
			d.Reason = "false: " + err.Error()
		case ctx.Err() != nil:
			d.Interrupted, d.Reason = true, "the evaluation was interrupted"
		default:
			var v verdict
			v, d.Reason = h.trigger.decide(ctx, root)
			d.Matched, d.Interrupted = v == isTrue, v == isInterrupted
		}
		out[i] = d
	}
	return out
}

// value makes the CEL value of an event by way of its JSON form, which is the
// one that triggers are written for.
func (s *Set) value(ev event.NormalizedEvent) (*object, error) {
	raw, err := json.Marshal(ev)
	if err != nil {
		return nil, fmt.Errorf("the event has no JSON form: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var doc map[string]any
	if err := dec.Decode(&doc); err != nil {
		return nil, fmt.Errorf("the event has no JSON form: %w", err)
	}
	return newObject("event", s.shape, doc), nil
}

// activation has the one variable of triggers.
type activation struct{ event *object }

// ResolveName gives event.
func (a activation) ResolveName(name string) (any, bool) {
	if name == "event" {
		return a.event, true
	}
	return nil, false
}

// Parent is nil: there is no outer scope.
func (a activation) Parent() interpreter.Activation { return nil }
