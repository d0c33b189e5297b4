package dispatch

import "context"

// Health is the result of one check.
type Health string

// The results of a check.
const (
	// Good: nothing to do.
	Good Health = "ok"
	// Doubtful: a cycle works, but something should be looked at.
	Doubtful Health = "warning"
	// Bad: a cycle would fail.
	Bad Health = "failed"
)

// Check is one line of the doctor: what was looked at, how it is, and what cures
// it.
type Check struct {
	Name   string `json:"name"`
	Health Health `json:"health"`
	// Detail says what was found, in one line.
	Detail string `json:"detail"`
	Cure   string `json:"cure,omitempty"`
}

// Prober is an optional ability of drivers: Probe looks at everything that a
// cycle needs and changes nothing that it does not put back.
type Prober interface {
	Probe(ctx context.Context) []Check
}
