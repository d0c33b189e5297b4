// Package examples holds the files that users copy, so that the demo runs the
// very ones.
package examples

import _ "embed" // the files are part of the program

// Config is .fullsend/config.yaml.
//
//go:embed config.yaml
var Config string

// Harness is .fullsend/harness/triage.yaml.
//
//go:embed harness/triage.yaml
var Harness string

// AgentWorkflow is .github/workflows/fullsend-agent.yml of the target repository.
//
//go:embed fullsend-agent.yml
var AgentWorkflow string
