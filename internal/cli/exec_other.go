//go:build !unix

package cli

import (
	"os"
	"os/exec"
)

func forwarded() []os.Signal { return []os.Signal{os.Interrupt} }

// inGroup does nothing: there are no process groups here, the command stands for
// its own.
func inGroup(*exec.Cmd) {}

// signalGroup kills the command: there is no other signal that it would get.
func signalGroup(p *os.Process, _ os.Signal) error { return p.Kill() }

func exitCode(s *os.ProcessState) int {
	if s == nil {
		return ExitFailed
	}
	return s.ExitCode()
}
