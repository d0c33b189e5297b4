package dispatch

import (
	"fmt"

	"github.com/fullsend/poll-action/internal/event"
)

// Authorize is the gate of ADR 54: it runs after normalization and before any
// trigger, on every path, and is not configurable. It returns whether the
// actor may start agents by this event, and why (not).
func Authorize(ev event.NormalizedEvent) (ok bool, reason string) {
	if ev.Actor.Kind == event.Bot && ev.Transition.Comment != nil && ev.Transition.Comment.Command != "" {
		return false, "a bot's slash command is refused"
	}
	if ev.Source.System == event.GitHub {
		if l := ev.Transition.Label; l != nil && l.Action == event.LabelAdded {
			return true, "adding a label on GitHub already needs the triage role"
		}
		if ev.Transition.Review != nil && ev.Actor.Kind == event.Bot {
			return true, "a bot's review is left to the triggers"
		}
	}
	switch ev.Actor.Role {
	case event.RoleAdmin, event.RoleMaintain, event.RoleWrite:
		return true, fmt.Sprintf("role %s", ev.Actor.Role)
	case event.RoleTriage, event.RoleRead, event.RoleNone, event.RoleExternal:
	}
	return false, fmt.Sprintf("role %q may not start agents (admin, maintain or write is needed)", string(ev.Actor.Role))
}
