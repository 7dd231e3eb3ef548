package locks

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// held is a held acquisition, shared by all re-entered locks. One goroutine extends it, and ends it in time.
type held struct {
	acquisition
	client      *Client
	connections *connections
	number      int
	// limit is the number of permits of a semaphore.
	limit    int
	flow     *flow
	ctx      context.Context
	cancel   context.CancelCauseFunc
	listener Listener
	kind     Kind
	// checked makes keep find out whether the lock is held. It has room for one signal.
	checked chan struct{}

	mu    sync.Mutex
	token int64
	// isShared is true of a reader.
	isShared bool
	lease    *lease
	holds    int
	// end is the reason why the lock is no longer held: a LostError, or ErrReleased.
	end error
	// reports are calls of the listener, which tell makes.
	reports []func()
}

// hold keeps a granted lock from now on. The caller has waited for it since began. The lock's context has the values of ctx, and
// an end of its own.
func (c *Client) hold(
	ctx context.Context, began instant, acquired acquisition, mode mode, grant *grant, s settings, flow *flow,
) (*held, error) {
	ctx, cancel := context.WithCancelCause(context.WithValue(context.WithoutCancel(ctx), flowKey{}, flow))
	h := &held{
		acquisition: acquired, client: c, connections: c.connections, number: grant.number, flow: flow, ctx: ctx, cancel: cancel,
		checked: make(chan struct{}, 1), token: grant.token, holds: 1, listener: s.listener, kind: kindOf(mode, s),
		isShared: mode.isShared, limit: mode.limit,
		lease: newLease(s, grant.validUntil, now()),
	}
	c.mu.Lock()
	isClosed := c.held == nil
	if !isClosed {
		c.held[h] = true
	}
	c.mu.Unlock()
	if isClosed {
		cancel(ErrClosed)
		c.connections.giveBack(acquired, nil)
		return nil, ErrClosed
	}
	h.listener.Acquired(h.kind, now().since(began))
	go h.keep()
	c.connections.inBackground(h.watch)
	return h, nil
}

// keep extends the lock in the background, until it ends.
func (h *held) keep() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		h.mu.Lock()
		timer.Reset(h.lease.sleep(now()))
		h.mu.Unlock()
		isAsked := false
		select {
		case <-h.ctx.Done():
			return
		case <-h.checked:
			isAsked = true
		case <-timer.C:
		}
		h.mu.Lock()
		at := now()
		h.loseIfOver(at)
		ttl := h.lease.checkTTL(at)
		isDue := h.end == nil && (isAsked || h.lease.isDue(at))
		h.mu.Unlock()
		h.tell()
		if isDue {
			h.extend(ttl, true)
		}
	}
}

// check makes the lock be extended soon, or found to be lost.
func (h *held) check() {
	select {
	case h.checked <- struct{}{}:
	default:
	}
}

// extend requests a lease of ttl from now.
func (h *held) extend(ttl time.Duration, inBackground bool) error {
	defer h.tell()
	h.mu.Lock()
	at := now()
	h.loseIfOver(at)
	limit, err := h.connections.answerWithin, h.end
	if inBackground {
		limit = h.lease.answerWithin(at)
	}
	h.mu.Unlock()
	if err != nil {
		return err
	}
	sent := now()
	reply, _, err := h.connections.ask(limit, "LOCK.EXTEND", h.key, h.owner, milliseconds(ttl))
	h.mu.Lock()
	defer h.mu.Unlock()
	// An answer that arrives after the end of the lease does not revive a lock that was not valid meanwhile.
	if h.loseIfOver(now()); h.end != nil {
		return h.end
	}
	if err == nil && reply == nil {
		h.finish(&LostError{Reason: TakenAway})
		return h.end
	}
	var token int64
	if err == nil {
		token, err = toInteger(reply)
	}
	if err != nil {
		if inBackground {
			h.report(func() { h.listener.Extended(h.kind, false) })
			h.lease.failed(now(), err)
		}
		if errors.Is(err, ErrUnavailable) {
			left := h.lease.validFor(now()).Truncate(time.Millisecond)
			return fmt.Errorf("the lock was not extended, and stays valid for %v: %w", left, err)
		}
		return err
	}
	if inBackground {
		h.report(func() { h.listener.Extended(h.kind, true) })
	}
	h.token = max(h.token, token)
	h.lease.extended(validUntil(sent, 0, ttl))
	return nil
}

// validFor returns for how long the lock may be relied on. The clock decides at each call, not whether a timer has run.
func (h *held) validFor() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.end != nil {
		return 0
	}
	return h.lease.validFor(now())
}

// state returns the reason why the lock is no longer held; nil while it is valid. If its lease is over, it marks the
// lock as lost.
func (h *held) state() error {
	defer h.tell()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.loseIfOver(now())
	return h.end
}

// loseNow marks the lock as lost, unless it has ended, and returns the reason why it has ended.
func (h *held) loseNow(reason LossReason) error {
	defer h.tell()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.finish(&LostError{Reason: reason})
	return h.end
}

// loseIfOver marks the lock as lost if its lease is over. The caller has the mutex, as for finish, and calls tell afterwards.
func (h *held) loseIfOver(at instant) {
	if lost := h.lease.loss(at); lost != nil {
		h.finish(lost)
	}
}

// finish ends the extensions, for the first reason that is given.
func (h *held) finish(why error) {
	if h.end != nil {
		return
	}
	h.end = why
	heldFor := now().since(h.lease.since)
	if lost, isLost := why.(*LostError); isLost {
		h.report(func() { h.listener.Lost(h.kind, heldFor, lost.Reason) })
	} else {
		h.report(func() { h.listener.Released(h.kind, heldFor) })
	}
	h.cancel(of(h.key, why))
	h.flow.letGo(h.key)
	h.client.forget(h)
}

// report adds a call of the listener, which tell makes.
func (h *held) report(call func()) {
	h.reports = append(h.reports, call)
}

// tell calls the listener. The caller must not have the mutex, since the listener may use the lock.
func (h *held) tell() {
	h.mu.Lock()
	reports := h.reports
	h.reports = nil
	h.mu.Unlock()
	for _, call := range reports {
		call()
	}
}
