//go:build !linux

package servers

import "syscall"

func endsWithParent() *syscall.SysProcAttr { return nil }
