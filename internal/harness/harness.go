// Package harness turns the registered agents into a [Set] that says, for any
// event, which of them it is for and why.
//
// Loading reads harness files, follows their bases and compiles their triggers
// (CEL); everything that is wrong with any of them is reported at once, with
// file, line and cure, so that a bad trigger stops a cycle before it touches
// anything. Loading does I/O only through the file system and the fetch
// function of the [Loader]. Matching is pure: same set, same event, same
// decisions, in the order of registration.
package harness

import (
	"context"
	"fmt"
	"io/fs"
	"strings"
)

// Agent is one registration.
type Agent struct {
	Name string
	// Source is a path under the .fullsend directory, or an https URL with an
	// integrity fragment.
	Source string
	// Line is the registration's line in the configuration, 0 if unknown.
	Line int
}

// Loader reads harnesses.
type Loader struct {
	// FS is the .fullsend directory. It must not let symbolic links out of it;
	// the file system of an os.Root does not.
	FS fs.FS
	// Fetch reads a URL (without fragment). It should stop reading after 1 MiB
	// and must not follow a redirect to another place. Nil refuses all URLs.
	Fetch func(ctx context.Context, url string) ([]byte, error)
	// Allowed are the prefixes under which URLs may be; nil means
	// [DefaultAllowed], an empty list means none.
	Allowed []string
}

// DefaultAllowed returns the prefixes that hold where the configuration has no
// allowed_remote_resources (specs, "Agents and harnesses").
func DefaultAllowed() []string {
	return []string{
		"https://raw.githubusercontent.com/fullsend-ai/fullsend/",
		"https://raw.githubusercontent.com/fullsend-ai/agents/",
	}
}

// Problem is something wrong with a registration or a harness file.
type Problem struct {
	// Source is the path or URL of a harness file; empty for the configuration
	// file itself, where Line is then the registration's.
	Source string
	// Line is the line in it, from 1; 0 where none is known.
	Line int
	// What says what is wrong, Cure what to do.
	What, Cure string
	// Warning marks what does not stop the program.
	Warning bool
}

// String is the problem on one line, without the name of the configuration.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.Source)
	switch {
	case p.Line > 0 && p.Source != "":
		fmt.Fprintf(&b, ":%d: ", p.Line)
	case p.Line > 0:
		fmt.Fprintf(&b, "line %d: ", p.Line)
	case p.Source != "":
		b.WriteString(": ")
	}
	b.WriteString(p.What)
	if p.Cure != "" {
		b.WriteString("; " + p.Cure)
	}
	return b.String()
}

// Set is the loaded harnesses. It is immutable and may be used by many
// goroutines.
type Set struct {
	harnesses []harness
	shape     *shape
}

type harness struct {
	agent, role string
	trigger     *trigger // nil: never dispatched
}

// Names returns the agents' names in the order of registration.
func (s *Set) Names() []string {
	out := make([]string, len(s.harnesses))
	for i, h := range s.harnesses {
		out[i] = h.agent
	}
	return out
}

// Decision says whether an event is for an agent, and why.
type Decision struct {
	Agent, Role string
	Matched     bool
	// Reason is one line for a human. It may contain text of the trigger, never
	// of the event.
	Reason string
	// Interrupted means that the context ended before the trigger was decided;
	// the decision is then no evidence that the event is not for this agent.
	Interrupted bool
}
