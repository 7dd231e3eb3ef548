package locks

import (
	"context"
	"errors"
)

// An OldLock is a mutex of redsync, or one like it.
type OldLock interface {
	LockContext(ctx context.Context) error
	// UnlockContext returns whether it was held until then.
	UnlockContext(ctx context.Context) (bool, error)
}

// ErrOldLost: the old one of two locks was no longer held at its release.
var ErrOldLost = errors.New("the old lock was no longer held")

// A DualLock has both locks of a resource, while programs move from an old lock to this one: docs/migrate.md.
type DualLock struct {
	*Lock
	old OldLock
}

// LockBoth acquires the old lock and then this one, in the same order in every program. This one needs a name of its own if both
// are on one server. The old one is extended, or not, as its library does it.
//
// The error is that of the old lock, or of [Client.Lock]; then neither is held.
func (c *Client) LockBoth(ctx context.Context, old OldLock, key string, options ...Option) (*DualLock, error) {
	if old == nil {
		return nil, of(key, badArgument("the old lock must not be nil"))
	}
	if err := old.LockContext(ctx); err != nil {
		return nil, err
	}
	lock, err := c.Lock(ctx, key, options...)
	if err != nil {
		_, failed := old.UnlockContext(context.WithoutCancel(ctx))
		return nil, errors.Join(err, failed)
	}
	return &DualLock{Lock: lock, old: old}, nil
}

// Unlock releases both, the old one last, and returns the errors of both. Call it once.
func (l *DualLock) Unlock(ctx context.Context) error {
	err := l.Lock.Unlock(ctx)
	wasHeld, failed := l.old.UnlockContext(context.WithoutCancel(ctx))
	if failed == nil && !wasHeld {
		failed = ErrOldLost
	}
	return errors.Join(err, failed)
}
