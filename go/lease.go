package locks

import "time"

const (
	// The largest time to answer an extension; never more than a third of the ttl.
	extendWithinMost = time.Second
	// The bounds of the pause after a failed extension, which is a part of the ttl.
	extendAgainLeast = 20 * time.Millisecond
	extendAgainMost  = time.Second
	// A wake-up that is later than this after the end of a lease shows that the program could not run.
	lateMost = 50 * time.Millisecond
)

// A lease decides when a lock is extended and when it is lost. The time is handed to it.
type lease struct {
	ttl        time.Duration
	autoExtend bool
	maxHold    time.Duration
	since      instant
	validUntil instant
	extendAt   instant
	wakeAt     instant
	// lastFailure is of the last extension in the background, and nil after one that succeeded.
	lastFailure error
}

func newLease(s settings, validUntil, now instant) *lease {
	l := &lease{ttl: s.ttl, autoExtend: s.autoExtend, maxHold: s.maxHold, since: now}
	l.extended(validUntil)
	return l
}

// extended records that the lock is valid until this time. It is due for extension when a third of the lease has
// passed.
func (l *lease) extended(validUntil instant) {
	l.validUntil = max(l.validUntil, validUntil)
	l.extendAt = l.validUntil - instant(l.ttl*2/3)
	l.lastFailure = nil
}

// failed records that an extension in the background has failed. The next one comes soon.
func (l *lease) failed(now instant, err error) {
	l.lastFailure = err
	l.extendAt = now.plus(min(max(l.ttl/20, extendAgainLeast), extendAgainMost))
}

// validFor returns for how long the lock may be relied on.
func (l *lease) validFor(now instant) time.Duration {
	return max(0, l.validUntil.since(now))
}

func (l *lease) mayExtend(now instant) bool {
	return l.autoExtend && now.since(l.since) < l.maxHold
}

// sleep returns for how long nothing is to be done.
func (l *lease) sleep(now instant) time.Duration {
	l.wakeAt = l.validUntil
	if l.mayExtend(now) {
		l.wakeAt = min(l.extendAt, l.validUntil)
	}
	return l.wakeAt.since(now)
}

// isDue reports whether the lock is to be extended now.
func (l *lease) isDue(now instant) bool {
	return now >= l.extendAt && l.mayExtend(now)
}

// checkTTL returns the ttl of an extension that shows whether the lock is held. A lease that is not to be extended keeps what is
// left of it.
func (l *lease) checkTTL(now instant) time.Duration {
	if l.mayExtend(now) {
		return l.ttl
	}
	return l.validFor(now)
}

// answerWithin returns the time to answer an extension, which ends with the lease.
func (l *lease) answerWithin(now instant) time.Duration {
	return max(time.Millisecond, min(extendWithinMost, l.ttl/3, l.validFor(now)))
}

// loss returns the reason why the lease is over; nil if it is not.
func (l *lease) loss(now instant) *LostError {
	if now < l.validUntil {
		return nil
	}
	switch {
	case now.since(l.wakeAt) > max(lateMost, l.ttl/3):
		return &LostError{Reason: Asleep}
	case !l.autoExtend:
		return &LostError{Reason: NotExtended}
	case !l.mayExtend(now):
		return &LostError{Reason: MaxHoldReached}
	}
	lost := &LostError{Reason: NotExtendedInTime}
	if l.lastFailure != nil {
		lost.Detail = l.lastFailure.Error()
	}
	return lost
}
