package locks

import "time"

// A Kind is a kind of locks. Metrics count by kind, since names of locks are unlimited.
type Kind struct {
	// Class is that of the option [Class].
	Class string
	// Mode is exclusive, shared or permit, as the lock was acquired.
	Mode string
}

// A Listener receives the events of locks, for metrics; the module palisade/locks/promlock has one for Prometheus. Any
// goroutine may call it. Its methods must not block: the next step of the lock waits for them. They may read the state of a lock,
// and must not release one.
type Listener interface {
	// Acquired reports a granted lock, this long after the call.
	Acquired(kind Kind, waited time.Duration)
	// Failed reports an acquisition that failed, or was given up.
	Failed(kind Kind, waited time.Duration, err error)
	// Extended reports an extension in the background. One that failed is tried again while the lock is valid.
	Extended(kind Kind, succeeded bool)
	// Released reports the release, or the hand-over, of a lock that was held until then.
	Released(kind Kind, heldFor time.Duration)
	// Lost reports the loss of a lock.
	Lost(kind Kind, heldFor time.Duration, reason LossReason)
}

// silent is the listener of locks without one.
type silent struct{}

func (silent) Acquired(Kind, time.Duration)         {}
func (silent) Failed(Kind, time.Duration, error)    {}
func (silent) Extended(Kind, bool)                  {}
func (silent) Released(Kind, time.Duration)         {}
func (silent) Lost(Kind, time.Duration, LossReason) {}

// kindOf returns the kind of a lock with these settings.
func kindOf(mode mode, s settings) Kind {
	switch {
	case mode.isShared:
		return Kind{s.class, "shared"}
	case mode.limit > 0:
		return Kind{s.class, "permit"}
	}
	return Kind{s.class, "exclusive"}
}
