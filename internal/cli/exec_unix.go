//go:build unix

package cli

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// forwarded are the signals that are a command's to answer.
func forwarded() []os.Signal {
	return []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2}
}

// inGroup makes the command the leader of a process group of its own.
func inGroup(cmd *exec.Cmd) { cmd.SysProcAttr = attributes() }

// signalGroup sends a signal to all that is left of a command's group.
func signalGroup(p *os.Process, sig os.Signal) error {
	n, ok := sig.(syscall.Signal)
	if !ok || p == nil || p.Pid <= 1 {
		return errors.ErrUnsupported
	}
	return syscall.Kill(-p.Pid, n)
}

// exitCode is the code that a shell would give.
func exitCode(s *os.ProcessState) int {
	const signalled = 128
	if s == nil {
		return ExitFailed
	}
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return signalled + int(w.Signal())
	}
	return s.ExitCode()
}
