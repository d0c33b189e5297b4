package cli

import "syscall"

// attributes: a group of its own, and no life without this process. Nobody would
// refresh the lock of a command whose keeper was killed.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
