package locks

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// A Lock is a held lock, for as long as it is valid. Check [Lock.IsValid] before each step that must not happen without the
// lock, and give [Lock.Token] to the resource. Its methods may be called from any goroutine.
type Lock struct {
	held *held

	mu sync.Mutex
	// released is closed once outcome is known; nil before a release has begun.
	released chan struct{}
	outcome  error
}

// Key returns the name of the lock.
func (l *Lock) Key() string { return l.held.key }

// Owner returns the name of this acquisition on the server: new and random. Anyone who knows it can release the lock.
func (l *Lock) Owner() string { return l.held.owner }

// Token returns the fencing token: larger than that of every earlier holder, and below 2^53. It never falls, but behind a
// `palisade agent` it can rise while the lock is held: read it at each use.
func (l *Lock) Token() int64 {
	l.held.mu.Lock()
	defer l.held.mu.Unlock()
	return l.held.token
}

// Number returns the number of a permit, from 1 to the limit, which no other holder has meanwhile; 0 of other locks.
func (l *Lock) Number() int { return l.held.number }

// ValidFor returns for how long the lock may be relied on from now; 0 once it may not. It is counted on a clock that nobody
// sets, from before the server was asked, less 1 % and 2 ms.
func (l *Lock) ValidFor() time.Duration {
	if l.isReleased() {
		return 0
	}
	return l.held.validFor()
}

// IsValid reports whether the lock may be relied on now. The clock decides at each call, not whether a timer has run.
func (l *Lock) IsValid() bool { return l.ValidFor() > 0 }

// Context returns a context that is cancelled when the lock is lost, with a [LostError] as its cause, or released, with
// [ErrReleased]. It has the values of the context that the lock was acquired with, and not its end. Locks that are acquired
// with it have the same holder id.
func (l *Lock) Context() context.Context { return l.held.ctx }

// Extend extends the lease to ttl from now, or to the ttl of the lock if that is 0. After [ErrUnavailable] the lock stays
// valid until its previous end.
func (l *Lock) Extend(ctx context.Context, ttl time.Duration) error {
	if ttl == 0 {
		ttl = l.held.lease.ttl
	}
	if err := checkTTL(ttl); err != nil {
		return of(l.Key(), err)
	}
	return l.do(ctx, func() error { return l.held.extend(ttl, false) }, nil)
}

// Reenter returns another lock of this acquisition, for code that acquires a lock it may already hold. The lock is free once
// all are released.
func (l *Lock) Reenter(ctx context.Context) (*Lock, error) {
	h := l.held
	inner := &Lock{held: h}
	err := l.do(ctx, func() error {
		if err := h.state(); err != nil {
			return err
		}
		h.mu.Lock()
		h.holds++
		level := h.holds
		h.mu.Unlock()
		reply, _, err := h.connections.ask(h.connections.answerWithin, "LOCK.REENTER", h.key, h.owner, "LEVEL", level)
		if err == nil && reply == nil {
			err = h.loseNow(TakenAway)
		}
		if err == nil {
			err = h.state()
		}
		if err != nil {
			inner.Unlock(context.Background())
		}
		return err
	}, func() { inner.Unlock(context.Background()) })
	if err != nil {
		return nil, err
	}
	return inner, nil
}

// Downgrade makes an exclusive lock a read lock: waiting readers get in, and the token stays. It is a reader's from the call
// on, also if the server does not answer: the holder must not write any more.
func (l *Lock) Downgrade(ctx context.Context) error {
	return l.convert(ctx, "SHARED", func(h *held) error { return h.loseNow(TakenAway) })
}

// Upgrade makes a read lock exclusive, with a new token, if nobody shares it; else it returns ErrNotAcquired, and the lock
// stays as it was. It never waits, since two readers that both waited to write would wait for ever. An agent refuses it.
func (l *Lock) Upgrade(ctx context.Context) error {
	return l.convert(ctx, "EXCLUSIVE", func(h *held) error {
		// Null is also the answer if the lock is no longer held: an extension shows which of the two it is.
		if err := h.extend(h.lease.ttl, false); err != nil {
			return err
		}
		return &NotAcquiredError{Reason: Held}
	})
}

func (l *Lock) convert(ctx context.Context, mode string, onNull func(*held) error) error {
	h := l.held
	if h.number > 0 {
		return of(l.Key(), badArgument("a permit has no readers and writers: release it, and acquire the lock"))
	}
	return l.do(ctx, func() error {
		if err := h.state(); err != nil {
			return err
		}
		h.mu.Lock()
		h.isShared = h.isShared || mode == "SHARED"
		h.mu.Unlock()
		reply, _, err := h.connections.ask(h.connections.answerWithin, "LOCK.CONVERT", h.key, h.owner, mode)
		if err != nil {
			return err
		}
		if reply == nil {
			return onNull(h)
		}
		token, err := toInteger(reply)
		if err != nil {
			return err
		}
		h.mu.Lock()
		h.token = max(h.token, token)
		h.isShared = mode == "SHARED"
		h.mu.Unlock()
		return h.state()
	}, nil)
}

// do runs work, which sends requests, and returns its error with the lock's name. If ctx ends first, it returns. Then
// the work goes on, and undo follows if the work succeeds.
func (l *Lock) do(ctx context.Context, work func() error, undo func()) error {
	if l.isReleased() {
		return of(l.Key(), ErrReleased)
	}
	done, abandoned := make(chan error), make(chan struct{})
	l.held.connections.inBackground(func() {
		err := work()
		select {
		case done <- err:
		case <-abandoned:
			if err == nil && undo != nil {
				undo()
			}
		}
	})
	select {
	case err := <-done:
		return of(l.Key(), err)
	case <-ctx.Done():
		close(abandoned)
		return of(l.Key(), fmt.Errorf("no answer was awaited: %w", context.Cause(ctx)))
	}
}

// Unlock releases the lock, and returns the outcome: nil if it was held until then; [ErrLost] if it no longer was, so that
// the last steps may have been done without it; [ErrUnknown] if no answer tells. After ErrUnknown the lock was valid until
// the call, and is released in the background, or ends with its lease.
//
// The release is sent even if ctx has ended, which limits the wait for the answer alone. Later calls return the first
// outcome. A re-entered lock releases one hold.
func (l *Lock) Unlock(ctx context.Context) error {
	l.mu.Lock()
	if l.released == nil {
		l.released = make(chan struct{})
		release := l.held.beginRelease()
		l.held.connections.inBackground(func() {
			l.held.tell()
			outcome := of(l.Key(), release())
			l.mu.Lock()
			defer l.mu.Unlock()
			l.outcome = outcome
			close(l.released)
		})
	}
	released := l.released
	l.mu.Unlock()
	select {
	case <-released:
	case <-ctx.Done():
		select {
		case <-released:
		default:
			message := ErrUnknown.Error() + ": no answer was awaited: " + context.Cause(ctx).Error()
			return of(l.Key(), &failure{kind: ErrUnknown, message: message, cause: context.Cause(ctx)})
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.outcome
}

func (l *Lock) isReleased() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.released != nil
}

// beginRelease removes one hold, and returns the function that tells the server.
func (h *held) beginRelease() func() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	wasValid := h.end == nil && h.lease.validFor(now()) > 0
	level := h.holds
	h.holds--
	isLast := level == 1
	if isLast && !wasValid {
		// The loss is reported even if no timer has run yet; the server may still hold the lock.
		h.loseIfOver(now())
		h.connections.giveBack(h.acquisition, nil)
		return func() error { return h.lossOf() }
	}
	if isLast {
		h.finish(ErrReleased)
	}
	return func() error {
		err := h.connections.release(h.acquisition, level)
		if isLast && errors.Is(err, ErrUnknown) {
			h.connections.giveBack(h.acquisition, nil)
		}
		if !wasValid {
			return h.lossOf()
		}
		return err
	}
}

// lossOf returns the loss of a lock that is no longer held.
func (h *held) lossOf() error {
	var lost *LostError
	if errors.As(h.state(), &lost) {
		return lost
	}
	return &LostError{Reason: TakenAway}
}
