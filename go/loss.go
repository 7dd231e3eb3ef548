package locks

// A LossReason says why a lock is lost.
type LossReason string

const (
	// TakenAway: the server reports that this owner does not hold the lock. An operator broke it, somebody deleted its key, or the
	// server lost its memory.
	TakenAway LossReason = "taken-away"
	// NotExtendedInTime: the lease ended, because no extension was answered in time.
	NotExtendedInTime LossReason = "not-extended-in-time"
	// NotExtended: the lease ended, and AutoExtend is off.
	NotExtended LossReason = "not-extended"
	// MaxHoldReached: the lease ended, and MaxHold forbids extending it further.
	MaxHoldReached LossReason = "max-hold"
	// Asleep: the lease ended while this program could not run. It was stopped or suspended, or had no processor.
	Asleep LossReason = "asleep"
	// ClientClosed: the Client was closed, and released the lock.
	ClientClosed LossReason = "closed"
)

var lossMessages = map[LossReason]string{
	TakenAway:         "somebody took it away, or the server forgot it",
	NotExtendedInTime: "its lease ended before an extension was answered",
	NotExtended:       "its lease ended, and nobody extended it",
	MaxHoldReached:    "it was held for as long as is allowed (MaxHold)",
	Asleep:            "its lease ended while this program could not run",
	ClientClosed:      "its Client was closed, and gave it back",
}

// A LostError is the loss of a lock that was held: stop the work that it protects. It is [ErrLost], and the cause of the
// lock's context.
type LostError struct {
	Reason LossReason
	// Detail is for people, and may be empty.
	Detail string
}

// Error describes the loss for people.
func (e *LostError) Error() string {
	message := "the lock is lost: " + lossMessages[e.Reason]
	if e.Detail != "" {
		message += ": " + e.Detail
	}
	return message
}

// Is reports whether target is ErrLost.
func (e *LostError) Is(target error) bool { return target == ErrLost }
