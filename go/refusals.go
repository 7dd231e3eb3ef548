package locks

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Pauses before a request is sent again that a server refused for now.
const (
	notYetPause = 10 * time.Millisecond
	busyPause   = 100 * time.Millisecond
)

// translated converts an error of go-redis to one of this package.
func translated(err error, address string, within time.Duration) error {
	var reply redis.Error
	switch {
	case errors.Is(err, redis.ErrClosed):
		return ErrClosed
	case errors.As(err, &reply):
		return ofReply(reply.Error(), address)
	case isTimeout(err):
		message := fmt.Sprintf("%s did not answer within %v", address, within)
		return &failure{kind: ErrUnavailable, message: message, cause: err}
	default:
		var dialing *net.OpError
		isDialing := errors.As(err, &dialing) && dialing.Op == "dial"
		return &failure{kind: ErrUnavailable, message: address + ": " + err.Error(), cause: err, broken: !isDialing}
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, redis.ErrPoolTimeout) ||
		errors.As(err, &timeout) && timeout.Timeout()
}

// ofReply returns the error of an error reply.
func ofReply(message, address string) error {
	words := strings.SplitN(message, " ", 3)
	err := &ServerError{Code: words[0], Message: message}
	if (err.Code == "GUARDED" || err.Code == "NOTYET") && len(words) > 1 {
		ms, _ := strconv.Atoi(words[1])
		err.RetryAfter = time.Duration(ms) * time.Millisecond
	}
	switch err.Code {
	case "GUARDED":
		err.kind = ErrGuarded
	case "NOQUORUM":
		err.kind = ErrNoQuorum
	case "MOVED", "ASK":
		err.kind, err.advice = ErrMisconfigured, address+" is one node of a cluster: reach it through a `palisade agent`, docs/agent.md"
	case "NOAUTH":
		err.kind, err.advice = ErrMisconfigured, address+" wants a password: put it into the address, redis://user:password@host"
	case "WRONGPASS":
		err.kind, err.advice = ErrMisconfigured, address+" refuses the user or the password of the address"
	case "NOPERM":
		err.kind, err.advice = ErrMisconfigured, "the user may not do that on "+address+": docs/acl.md has the rules that locks need"
	case "ERR":
		return ofGeneralReply(err, address)
	}
	return err
}

// ofGeneralReply tells two errors of servers apart that have no first word of their own.
func ofGeneralReply(err *ServerError, address string) error {
	if strings.HasPrefix(err.Message, "ERR max number of clients reached") {
		return &failure{kind: ErrUnavailable, message: address + ": " + err.Message, cause: err}
	}
	if strings.HasPrefix(strings.ToLower(err.Message), "err unknown command") {
		err.kind = ErrMisconfigured
		err.advice = address + " does not know the commands of locks: load the Palisade module there (docs/install.md), " +
			"or use the address of a `palisade agent`"
	}
	return err
}

// passesIn returns the time to wait before a request with this error is sent again; false if that makes no sense.
func passesIn(err error) (time.Duration, bool) {
	var refused *ServerError
	if !errors.As(err, &refused) {
		return 0, false
	}
	switch refused.Code {
	case "NOTYET":
		return max(refused.RetryAfter, notYetPause), true
	case "LOADING", "TRYAGAIN", "BUSY":
		return busyPause, true
	}
	return 0, false
}

// isLasting reports whether an error does not pass by itself, so that somebody has to act.
func isLasting(err error) bool {
	if errors.Is(err, ErrUnavailable) || errors.Is(err, ErrNoQuorum) || errors.Is(err, ErrGuarded) {
		return false
	}
	var refused *ServerError
	if errors.As(err, &refused) && refused.kind == nil {
		return slices.Contains([]string{"ERR", "WRONGTYPE", "OWNED", "LOCKPANIC"}, refused.Code)
	}
	return true
}

// isRefusal reports whether the error proves that the server has done nothing. NOQUORUM proves nothing: an agent may have
// asked nodes that answer later.
func isRefusal(err error) bool {
	var refused *ServerError
	return errors.As(err, &refused) && !errors.Is(err, ErrNoQuorum) && !errors.Is(err, ErrUnavailable)
}

// isBroken reports whether a connection ended that was open.
func isBroken(err error) bool {
	var failed *failure
	return errors.As(err, &failed) && failed.broken
}
