package locks

import (
	"context"
	"errors"
	"time"
)

// Once runs work if the lock is free, and skips it otherwise. The lock stays held for at least minHold from its grant, even if
// work takes less or fails: so hosts whose clocks differ by less than that do not run one cron job twice. The call does not
// wait for that time; the lease runs out by itself. Longer work runs under a lock that is extended as usual, and is free
// afterwards.
//
// minHold is at least 100 ms. The first lease is that long: it must not exceed the server's lock.max-ttl. The error is as that
// of [Client.WithLock].
func (c *Client) Once(ctx context.Context, name string, minHold time.Duration, work Work, options ...Option) (ran bool, err error) {
	settings, err := c.defaults.withTry(options)
	if err == nil {
		err = within("minHold", minHold, ttlLeast, day)
	}
	if err == nil && work == nil {
		err = badArgument("the work must not be nil")
	}
	settings.minHold = minHold
	lock, err := c.take(ctx, name, mode{}, settings, err)
	var refused *NotAcquiredError
	if errors.As(err, &refused) && refused.Reason == Held {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	giveBack := func(ctx context.Context) error { return lock.leaveUntil(ctx, minHold) }
	return true, c.workUnder(ctx, lock, work, giveBack)
}

// leaveUntil leaves the lock to the end of its lease if it was held for less than minHold, and releases it otherwise.
func (l *Lock) leaveUntil(ctx context.Context, minHold time.Duration) error {
	if !l.leave(minHold) {
		return l.Unlock(ctx)
	}
	return nil
}

// leave reports whether the lock is left to the end of its lease.
func (l *Lock) leave(minHold time.Duration) bool {
	h := l.held
	defer h.tell()
	l.mu.Lock()
	defer l.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	at := now()
	if l.released != nil || h.end != nil || h.lease.validFor(at) == 0 || at.since(h.lease.since) >= minHold {
		return false
	}
	l.released = make(chan struct{})
	close(l.released)
	h.finish(ErrReleased)
	return true
}
