package locks

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Kinds of errors, for [errors.Is]. Those with a type of their own say more by [errors.As].
var (
	// ErrBadArgument: an argument is out of bounds. Nothing was sent.
	ErrBadArgument = errors.New("bad argument")
	// ErrNotAcquired: another owner has the lock. See NotAcquiredError.
	ErrNotAcquired = errors.New("not acquired")
	// ErrLost: the lock was held, and no longer is. See LostError.
	ErrLost = errors.New("lost")
	// ErrFenced: a resource has seen a newer holder. See FencedError.
	ErrFenced = errors.New("fenced")
	// ErrReleased: the lock was released before. It is the cause of the context of a released lock.
	ErrReleased = errors.New("the lock was released")
	// ErrUnknown: no answer tells whether the lock was held until its release.
	ErrUnknown = errors.New("whether the lock was given back is not known")
	// ErrGuarded: the server may have forgotten grants, and grants nothing until they have ended. See GuardedError.
	ErrGuarded = errors.New("guarded")
	// ErrNoQuorum: too few nodes behind a `palisade agent` can answer. The message has each node's reason.
	ErrNoQuorum = errors.New("no quorum")
	// ErrUnavailable: the server cannot be reached, or did not answer in time. It may have executed the command.
	ErrUnavailable = errors.New("unavailable")
	// ErrMisconfigured: somebody has to act. The server lacks the module, or the client a password or a permission.
	ErrMisconfigured = errors.New("misconfigured")
	// ErrUnexpectedReply: the answer has another form than this command's answers. It is refused rather than guessed at.
	ErrUnexpectedReply = errors.New("unexpected reply")
	// ErrClosed: the Client was closed.
	ErrClosed = errors.New("this Client was closed: make another one")
)

// A Holder is the holder of a lock, as the server reports it.
type Holder struct {
	// Note is the holder's note for people; empty if there is none.
	Note string
	// Token is the fencing token of its grant.
	Token int64
	// HeldFor is the time since the grant.
	HeldFor time.Duration
	// LeaseLeft is the remaining time of the lease, unless it is extended.
	LeaseLeft time.Duration
}

// A NotAcquiredReason says why a lock was not acquired.
type NotAcquiredReason string

const (
	// Held: the lock is not free, and no wait was allowed.
	Held NotAcquiredReason = "held"
	// TimedOut: the lock was not free in time.
	TimedOut NotAcquiredReason = "timed-out"
	// TooLate: the lock was granted, but nothing of its lease was left when the answer arrived.
	TooLate NotAcquiredReason = "too-late"
)

// A NotAcquiredError says that another owner has the lock. It is [ErrNotAcquired].
type NotAcquiredError struct {
	Reason NotAcquiredReason
	// Holder is nil if the server did not report one; of several, it is the one that has held the lock longest.
	Holder *Holder
	// Waited is the limit of the wait, for TimedOut.
	Waited time.Duration
}

// Error describes the refusal and the holder for people.
func (e *NotAcquiredError) Error() string {
	message := "somebody else holds the lock"
	switch e.Reason {
	case TimedOut:
		message = fmt.Sprintf("the lock was not free within %v", e.Waited)
	case TooLate:
		message = "the lock was granted, but nothing of its lease was left when this program heard of it"
	}
	if e.Holder != nil {
		message += fmt.Sprintf("; it has been held for %v", e.Holder.HeldFor)
		if e.Holder.Note != "" {
			message += " by " + strconv.Quote(e.Holder.Note)
		}
	}
	return message
}

// Is reports whether target is ErrNotAcquired.
func (e *NotAcquiredError) Is(target error) bool { return target == ErrNotAcquired }

// A ServerError is an error reply of the server or an agent. It is also [ErrGuarded], [ErrNoQuorum] or [ErrMisconfigured]
// where its code says so.
type ServerError struct {
	// Code is the first word of the reply, which is stable: docs/errors.md.
	Code string
	// Message is the whole reply, for people.
	Message string
	// RetryAfter is the time after which a retry makes sense, of GUARDED and NOTYET.
	RetryAfter time.Duration
	kind       error
	advice     string
}

// Error returns the reply, after what to do about it.
func (e *ServerError) Error() string {
	if e.advice == "" {
		return e.Message
	}
	return e.advice + " (" + e.Message + ")"
}

// Is reports whether the reply is of the kind target.
func (e *ServerError) Is(target error) bool { return e.kind != nil && target == e.kind }

// A LockError is an error of an operation on one lock. Unwrap returns the error itself.
type LockError struct {
	// Key is the name of the lock.
	Key string
	Err error
}

// Error puts the lock's name before the error.
func (e *LockError) Error() string { return shown(e.Key) + ": " + e.Err.Error() }

// Unwrap returns the error without the name.
func (e *LockError) Unwrap() error { return e.Err }

// A failure is an error of a kind, with a message and perhaps a cause.
type failure struct {
	kind    error
	message string
	cause   error
	// broken is true of a connection that ended, and may be replaced.
	broken bool
}

func (e *failure) Error() string { return e.message }

func (e *failure) Unwrap() []error {
	if e.cause == nil {
		return []error{e.kind}
	}
	return []error{e.kind, e.cause}
}

func badArgument(format string, values ...any) error {
	return &failure{kind: ErrBadArgument, message: fmt.Sprintf(format, values...)}
}

// givenUp returns the error of a wait that ctx ended, with what stood in its way.
func givenUp(ctx context.Context, trouble error) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, ErrClosed) {
		return ErrClosed
	}
	message := "the wait was given up: " + cause.Error()
	if trouble != nil {
		return &failure{kind: ctx.Err(), message: message + ": " + trouble.Error(), cause: errors.Join(cause, trouble)}
	}
	return &failure{kind: ctx.Err(), message: message, cause: cause}
}

// of names the lock of an error.
func of(key string, err error) error {
	var named *LockError
	if err == nil || errors.As(err, &named) {
		return err
	}
	return &LockError{Key: key, Err: err}
}

const shownRunes = 100

// shown returns a key as people read it: text if it is text, with nothing that moves a cursor.
func shown(key string) string {
	var text strings.Builder
	runes := 0
	for _, char := range key {
		if runes++; runes > shownRunes {
			return text.String() + "…"
		}
		if unicode.IsControl(char) {
			quoted := strconv.QuoteRune(char)
			text.WriteString(quoted[1 : len(quoted)-1])
		} else {
			text.WriteRune(char)
		}
	}
	return text.String()
}
