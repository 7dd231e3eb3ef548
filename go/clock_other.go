//go:build !linux

package locks

import "time"

var started = time.Now()

// now reads Go's monotonic clock, which may stand still while the machine sleeps.
func now() instant {
	return instant(time.Since(started))
}
