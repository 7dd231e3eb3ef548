package locks

import (
	"context"
	"fmt"
)

// HandOver leaves the lock to another program: it gives the lease its full length once more, and then neither extends nor
// releases it. That program takes over by [Client.Adopt] with the owner and the token, before the lease ends. Re-entered locks
// of the acquisition are released too. The lock must be exclusive.
func (l *Lock) HandOver(ctx context.Context) (owner string, token int64, err error) {
	if l.held.gateMode() != nil {
		return "", 0, of(l.Key(), badArgument("only an exclusive lock can be handed over"))
	}
	if err := l.Extend(ctx, 0); err != nil {
		return "", 0, err
	}
	owner, token = l.Owner(), l.Token()
	defer l.held.tell()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held.mu.Lock()
	defer l.held.mu.Unlock()
	if l.released != nil {
		return "", 0, of(l.Key(), ErrReleased)
	}
	if l.held.end != nil {
		return "", 0, of(l.Key(), l.held.end)
	}
	l.released = make(chan struct{})
	close(l.released)
	l.held.finish(ErrReleased)
	return owner, token, nil
}

// Adopt takes over a lock that another program has handed over ([Lock.HandOver]), and keeps it: who enqueues a job takes the
// lock, and the worker gives it back. The error is [ErrLost] if the lock was no longer held with that token. The lock must be
// exclusive.
func (c *Client) Adopt(ctx context.Context, key, owner string, token int64, options ...Option) (*Lock, error) {
	settings, err := c.defaults.withTry(options)
	switch {
	case err != nil:
	case owner == "":
		err = badArgument("the owner must not be empty: it is that of HandOver")
	case token < 1 || token > integerMax:
		err = badArgument("the token must be from 1 to 2^53 - 1, not %d", token)
	case settings.set["Note"]:
		err = badArgument("an adopted lock keeps its note: leave Note out")
	}
	if err != nil {
		return nil, of(key, err)
	}
	flow := flowFor(ctx, key)
	type taken struct {
		held *held
		err  error
	}
	came, abandoned := make(chan taken), make(chan struct{})
	c.connections.inBackground(func() {
		held, err := c.adopt(ctx, flow, acquisition{key: key, owner: owner, ttl: settings.ttl}, token, settings)
		flow.waited(key, err == nil)
		select {
		case came <- taken{held, err}:
		case <-abandoned:
			// Another worker may adopt it until its lease ends.
			if err == nil {
				held.mu.Lock()
				held.finish(ErrReleased)
				held.mu.Unlock()
				held.tell()
			}
		}
	})
	select {
	case one := <-came:
		if one.err != nil {
			return nil, of(key, one.err)
		}
		return &Lock{held: one.held}, nil
	case <-ctx.Done():
		close(abandoned)
		return nil, of(key, fmt.Errorf("no answer was awaited: %w", context.Cause(ctx)))
	}
}

func (c *Client) adopt(ctx context.Context, flow *flow, adopted acquisition, token int64, s settings) (*held, error) {
	sent := now()
	reply, _, err := c.connections.ask(c.connections.answerWithin, "LOCK.EXTEND", adopted.key, adopted.owner, milliseconds(s.ttl))
	if err != nil {
		return nil, err
	}
	if reply == nil {
		return nil, &LostError{Reason: TakenAway}
	}
	current, err := toInteger(reply)
	if err != nil {
		return nil, err
	}
	// Behind an agent the token can have risen. A smaller one is of another grant.
	if current < token {
		return nil, &LostError{Reason: TakenAway, Detail: fmt.Sprintf("its token is %d", current)}
	}
	grant := &grant{granted: granted{token: current}, validUntil: validUntil(sent, 0, s.ttl)}
	return c.hold(ctx, sent, adopted, mode{}, grant, s, flow)
}
