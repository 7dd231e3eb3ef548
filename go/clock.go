package locks

import "time"

// An instant is a time on a clock that nobody sets: CLOCK_BOOTTIME on Linux, which runs while the machine sleeps.
type instant time.Duration

// never is later than every instant that a clock shows.
const never = instant(1<<63 - 1)

// Maximum drift between clocks in percent, and maximum loss through rounding to milliseconds on both sides.
const (
	driftPercent = 1
	rounding     = 2 * time.Millisecond
)

// validUntil returns until when a holder may rely on a lease of ttl, requested at sent and granted after a wait of waited.
// The server's clock counts both, and may be faster than this one.
func validUntil(sent instant, waited, ttl time.Duration) instant {
	return sent.plus((waited+ttl)/100*(100-driftPercent) - rounding)
}

// plus returns the instant d later. No wait lasts until never.
func (at instant) plus(d time.Duration) instant {
	return at + instant(d)
}

// since returns the time from earlier to at.
func (at instant) since(earlier instant) time.Duration {
	return time.Duration(at - earlier)
}
