package locks

import (
	"context"
	"errors"
	"slices"
)

// LockAll acquires several locks, all or none, waiting for each in turn. The limit of [Wait] covers all of them together.
//
// The locks are acquired one after the other, in the order of their bytes, so callers that acquire several like this never wait
// for each other in a circle. That holds only for callers without other locks. A key that is named twice is acquired once.
//
// The error is that of [Client.Lock], for the first lock that could not be acquired, or [ErrLost], for one that was lost before all
// were held; then none is held. Release all with [UnlockAll].
func (c *Client) LockAll(ctx context.Context, keys []string, options ...Option) ([]*Lock, error) {
	settings, err := c.defaults.withLock(options)
	if err != nil {
		return nil, err
	}
	if len(keys) == 0 {
		return nil, badArgument("name one key at least")
	}
	by := now().plus(settings.wait)
	var all []*Lock
	for _, key := range slices.Compact(slices.Sorted(slices.Values(keys))) {
		lock, err := c.take(ctx, key, mode{}, settings, nil)
		if err != nil {
			UnlockAll(context.WithoutCancel(ctx), all)
			return nil, err
		}
		// The later ones are acquired with the context of the first: one flow of control has one holder id.
		if len(all) == 0 {
			var end func()
			ctx, end = withEndOf(ctx, lock.Context())
			defer end()
		}
		all = append(all, lock)
		// One may have been lost while the next one was waited for.
		for _, earlier := range all {
			if err := earlier.held.state(); err != nil {
				UnlockAll(context.WithoutCancel(ctx), all)
				return nil, of(earlier.Key(), err)
			}
		}
		settings.wait = max(0, by.since(now()))
	}
	return all, nil
}

// UnlockAll releases locks in the reverse order, and returns the errors of all ([Lock.Unlock]).
func UnlockAll(ctx context.Context, all []*Lock) error {
	var failed []error
	for _, lock := range slices.Backward(all) {
		failed = append(failed, lock.Unlock(ctx))
	}
	return errors.Join(failed...)
}
