package servers

import "syscall"

// EndsWithParent returns attributes of a process that ends with this one, however that ends, where the system can.
func EndsWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
