package locks

import (
	"time"

	"golang.org/x/sys/unix"
)

// now reads the clock.
func now() instant {
	var at unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &at); err != nil {
		panic("CLOCK_BOOTTIME cannot be read: " + err.Error())
	}
	return instant(at.Nano()) * instant(time.Nanosecond)
}
