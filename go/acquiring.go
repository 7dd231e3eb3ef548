package locks

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

const (
	// A wait without a limit ends once the server has been unreachable for this long.
	lookedFor = 10 * time.Second
	lookAgain = 200 * time.Millisecond
	// A request that was pending for longer than this before it failed shows that the server was reachable until then.
	stood = time.Second
	// An acquisition ends after this many consecutive grants that came too late.
	tooLateMax = 10
)

// wanted are the parameters of an acquisition.
type wanted struct {
	acquisition
	mode mode
	note string
	// wait is the limit of the wait, if there is one.
	wait  time.Duration
	waits bool
}

// A mode is the mode of an acquisition: exclusive, with others that read, or one of several permits.
type mode struct {
	isShared bool
	// limit is the number of permits of a semaphore, or 0.
	limit int
}

// words returns the words of the command that name the mode.
func (m mode) words() []any {
	switch {
	case m.isShared:
		return []any{"SHARED"}
	case m.limit > 0:
		return []any{"LIMIT", m.limit}
	}
	return nil
}

// A grant is a granted lock, and until when it may be relied on.
type grant struct {
	granted
	validUntil instant
}

// An attempt acquires one lock.
type attempt struct {
	connections *connections
	logger      *slog.Logger
	wanted      wanted
	ctx         context.Context
	// underWay is the request whose answer has not arrived.
	underWay *underWay
	// isUnsure is true if a request had no answer: the server may still grant it, even if it refused a later one.
	isUnsure bool
	// mayRemain is true if something may be left on the server to release.
	mayRemain bool
	// trouble is the obstacle when the server was last asked.
	trouble error
}

// acquire acquires a lock, or returns the reason why it was not acquired. However this ends, also with ctx, it leaves
// neither a lock nor a place in the queue behind: both are cleaned up in the background.
func (c *Client) acquire(ctx context.Context, wanted wanted) (*grant, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.connections.closing, func() { cancel(ErrClosed) })()
	if ctx.Err() != nil {
		return nil, givenUp(ctx, nil)
	}
	a := &attempt{connections: c.connections, logger: c.defaults.logger, wanted: wanted, ctx: ctx}
	grant, err := a.run()
	tooLate := err == nil && grant.validUntil <= now()
	if tooLate {
		err = &NotAcquiredError{Reason: TooLate}
	}
	if err == nil {
		return grant, nil
	}
	if a.underWay != nil || a.mayRemain || tooLate {
		c.connections.giveBack(wanted.acquisition, a.underWay)
	}
	if ctx.Err() != nil && !tooLate {
		err = givenUp(ctx, a.trouble)
	}
	return nil, err
}

func (a *attempt) run() (*grant, error) {
	by := never
	if a.wanted.waits {
		by = now().plus(a.wanted.wait)
	}
	grant, err := a.ask(by)
	if grant != nil || err != nil {
		return grant, err
	}
	if a.wanted.waits && a.wanted.wait == 0 {
		return nil, a.notAcquired(Held)
	}
	return a.wait(by)
}

// ask asks without waiting: most locks are free. It returns nil if there is something to wait for: a holder, or a server
// or nodes behind it that are away.
func (a *attempt) ask(by instant) (*grant, error) {
	for broken := false; ; {
		grant, err := a.await(nil, a.connections.answerWithin)
		if err == nil || a.ctx.Err() != nil {
			return grant, err
		}
		pause, passes := passesIn(err)
		switch {
		case passes && now().plus(pause) < by:
			if err := a.pause(pause); err != nil {
				return nil, err
			}
		case isBroken(err) && !broken:
			// The connection may have ended long ago: a new one is tried once.
			broken = true
		case now() >= by || isLasting(err):
			return nil, err
		default:
			a.awaitEndOf(err)
			return nil, nil
		}
	}
}

// awaitEndOf remembers trouble, which is returned if nothing else happens before the end of the wait.
func (a *attempt) awaitEndOf(trouble error) {
	a.trouble = trouble
	// The server may be just as silent on the idle connections.
	if errors.Is(trouble, ErrUnavailable) {
		a.connections.destroyIdle()
	}
	a.logger.Warn("a lock cannot be asked for, and is waited for", "key", shown(a.wanted.key), "error", trouble)
}

// wait waits in the queue, on a connection of its own.
func (a *attempt) wait(by instant) (*grant, error) {
	troubleSince := never
	for {
		left := min(by.since(now()), waitMax)
		if left <= 0 {
			if a.trouble != nil {
				return nil, a.trouble
			}
			return nil, a.notAcquired(TimedOut)
		}
		asked := now()
		grant, err := a.waitOnce(left)
		if err == nil {
			troubleSince, a.trouble = never, nil
			grant, err = a.inTime(grant, by)
		}
		if grant != nil {
			return grant, nil
		}
		if a.ctx.Err() != nil {
			return nil, a.ctx.Err()
		}
		if err == nil {
			continue
		}
		// Nothing was sent over a connection that had ended before.
		if errors.Is(err, errConnectionEnded) {
			continue
		}
		pause, passes := passesIn(err)
		if !passes {
			if a.endsWait(err) {
				return nil, err
			}
			if troubleSince == never || now().since(asked) > stood {
				troubleSince = now()
			}
			if by == never && now().since(troubleSince) > lookedFor {
				return nil, err
			}
			pause = lookAgain
		}
		a.trouble = err
		if err := a.pause(min(pause, by.since(now()))); err != nil {
			return nil, err
		}
	}
}

// waitOnce sends one request that waits.
func (a *attempt) waitOnce(left time.Duration) (*grant, error) {
	connection, err := a.connections.forWait(a.ctx)
	if err != nil {
		return nil, err
	}
	grant, err := a.await(connection, left+a.connections.answerWithin, "WAIT", milliseconds(left))
	if a.ctx.Err() == nil || a.underWay == nil {
		a.connections.giveIdle(connection)
	}
	return grant, err
}

// inTime returns a grant with most of its lease left; nil if the lock has to be waited for.
func (a *attempt) inTime(grant *grant, by instant) (*grant, error) {
	if grant == nil || grant.validUntil.since(now()) >= a.wanted.ttl/2 {
		return grant, nil
	}
	// After a long wait the clocks may have drifted apart, and this program may have slept. So the lock is requested again, since
	// the new lease counts from now.
	a.isUnsure, a.mayRemain = true, true
	return a.ask(by)
}

// endsWait reports whether an error that answers a waiting request ends the wait at once.
func (a *attempt) endsWait(err error) bool {
	// An agent waits for nodes itself: NOQUORUM before the end of the wait is final. But the agent searches only once for a grant
	// that this owner may already have: if there may be one, the wait goes on.
	return isLasting(err) || errors.Is(err, ErrNoQuorum) && !a.isUnsure
}

// await sends the request, and awaits its answer; nil if the lock is not this owner's.
func (a *attempt) await(connection *connection, limit time.Duration, more ...any) (*grant, error) {
	words := append([]any{"LOCK.ACQUIRE", a.wanted.key, a.wanted.owner, milliseconds(a.wanted.ttl)}, a.wanted.mode.words()...)
	words = append(append(words, more...), "RETRY")
	if a.wanted.note != "" {
		words = append(words, "NOTE", a.wanted.note)
	}
	if a.ctx.Err() != nil {
		return nil, a.ctx.Err()
	}
	// The lease is counted from before the request was sent.
	sent := now()
	var came <-chan answer
	if connection == nil {
		came = a.connections.begin(words)
	} else {
		came = connection.begin(limit, words)
	}
	a.underWay = &underWay{connection, came}
	select {
	case one := <-came:
		return a.grantOf(one, sent)
	case <-a.ctx.Done():
		return nil, a.ctx.Err()
	}
}

// grantOf reads an answer to a request that was sent at this time.
func (a *attempt) grantOf(one answer, sent instant) (*grant, error) {
	a.underWay = nil
	if one.err != nil {
		a.isUnsure = a.isUnsure || errors.Is(one.err, ErrUnavailable)
		a.mayRemain = a.mayRemain || !isRefusal(one.err)
		return nil, one.err
	}
	if one.reply == nil {
		return nil, nil
	}
	granted, err := toGranted(one.reply)
	if err != nil {
		a.mayRemain = true
		return nil, err
	}
	return &grant{granted, validUntil(sent, granted.waited, a.wanted.ttl)}, nil
}

// pause lets time pass, unless ctx ends first.
func (a *attempt) pause(d time.Duration) error {
	timer := time.NewTimer(max(d, time.Millisecond))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-a.ctx.Done():
		return a.ctx.Err()
	}
}

// notAcquired asks the server who has the lock, and returns the error that names the holder.
func (a *attempt) notAcquired(reason NotAcquiredReason) error {
	refused := &NotAcquiredError{Reason: reason, Waited: a.wanted.wait}
	select {
	case one := <-a.connections.begin([]any{"LOCK.INFO", a.wanted.key}):
		if one.err == nil {
			refused.Holder, _ = toHolder(one.reply)
		}
	case <-a.ctx.Done():
		return a.ctx.Err()
	}
	return refused
}

// milliseconds converts a time to the server's unit, rounded up.
func milliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
