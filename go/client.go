package locks

import (
	"context"
	"errors"
	"sync"

	"palisade/locks/internal/switches"

	"github.com/redis/go-redis/v9"
)

func init() {
	switches.TakeAway = func(client any, key string) { client.(*Client).takeAway(key) }
}

// A Client has locks on one server with the Palisade module, or on several through a `palisade agent`. Any number of
// goroutines may use it.
//
// It opens connections of its own when they are needed: a pool for commands that are answered at once, and one connection
// for each wait and each watch. Call [Client.Close] at the end; a program that ends without it leaves its leases to run out.
type Client struct {
	connections *connections
	defaults    settings

	mu sync.Mutex
	// held is nil once the Client is closed.
	held map[*held]bool
}

// Open returns a Client of the server at address: redis://[user:password@]host:port, rediss://… or unix:///path. The options
// are defaults of every lock. Nothing is sent yet.
func Open(address string, options ...Option) (*Client, error) {
	at, err := optionsOfURL(address)
	if err != nil {
		return nil, err
	}
	return newClient(at, options)
}

// New returns a Client of the server of a client of go-redis, from which it takes address, TLS, user and password, and opens
// connections of its own. The options are defaults of every lock. Nothing is sent yet.
func New(client *redis.Client, options ...Option) (*Client, error) {
	at, err := optionsOfClient(client)
	if err != nil {
		return nil, err
	}
	return newClient(at, options)
}

func newClient(at *redis.Options, options []Option) (*Client, error) {
	settings := defaults().with(options)
	if settings.wrong != nil {
		return nil, settings.wrong
	}
	return &Client{connections: newConnections(at, settings.answerWithin), defaults: settings, held: map[*held]bool{}}, nil
}

// Lock acquires a lock, waiting in turn if it is not free, and keeps it: its lease is extended until it is released. ctx
// ends the wait, leaving neither a lock nor a place in the queue; it does not affect a held lock.
func (c *Client) Lock(ctx context.Context, key string, options ...Option) (*Lock, error) {
	settings, err := c.defaults.withLock(options)
	return c.take(ctx, key, mode{}, settings, err)
}

// TryLock acquires the lock if it is free now; otherwise it returns [ErrNotAcquired].
func (c *Client) TryLock(ctx context.Context, key string, options ...Option) (*Lock, error) {
	settings, err := c.defaults.withTry(options)
	return c.take(ctx, key, mode{}, settings, err)
}

// ReadLock acquires the lock together with other readers, for callers that do not change what it protects. See Lock.
func (c *Client) ReadLock(ctx context.Context, key string, options ...Option) (*Lock, error) {
	settings, err := c.defaults.withLock(options)
	return c.take(ctx, key, mode{isShared: true}, settings, err)
}

// WriteLock acquires the lock alone. Neither readers nor writers pass an earlier waiter. See Lock.
func (c *Client) WriteLock(ctx context.Context, key string, options ...Option) (*Lock, error) {
	return c.Lock(ctx, key, options...)
}

// Work is done under a lock. Its context ends when the lock is lost, and with the caller's.
type Work = func(ctx context.Context, lock *Lock) error

// WithLock runs work under a lock, and releases it. The context of work is cancelled when ctx is, and when the lock is lost.
//
// It returns the error of work; else [ErrLost] if the lock was lost before work had ended. A release that does not reach the
// server is logged, since the work was done under a valid lock.
func (c *Client) WithLock(ctx context.Context, key string, work Work, options ...Option) error {
	if work == nil {
		return of(key, badArgument("the work must not be nil"))
	}
	lock, err := c.Lock(ctx, key, options...)
	if err != nil {
		return err
	}
	return c.workUnder(ctx, lock, work, lock.Unlock)
}

// workUnder runs work under a lock, and gives the lock back, even if work panics.
func (c *Client) workUnder(ctx context.Context, lock *Lock, work Work, giveBack func(context.Context) error) error {
	defer giveBack(ctx)
	working, end := withEndOf(ctx, lock.Context())
	defer end()
	if err := work(working, lock); err != nil {
		return err
	}
	// The loss of the lock alone is an error: otherwise it was valid until now.
	err := giveBack(context.Background())
	if errors.Is(err, ErrUnknown) {
		c.defaults.logger.Warn("the work under a lock was done, and its release failed", "error", err)
		return nil
	}
	return err
}

// withEndOf returns a child of a lock's context, which ends with ctx too.
func withEndOf(ctx, ofLock context.Context) (working context.Context, end func()) {
	working, cancel := context.WithCancelCause(ofLock)
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	timed := func() {}
	if deadline, has := ctx.Deadline(); has {
		working, timed = context.WithDeadline(working, deadline)
	}
	return working, func() {
		stop()
		timed()
		cancel(nil)
	}
}

// Close releases all held locks (they are lost: [ClientClosed]), ends all waits with [ErrClosed], and closes the connections
// once the server has answered.
func (c *Client) Close() error {
	c.mu.Lock()
	all := c.held
	c.held = nil
	c.mu.Unlock()
	for one := range all {
		one.loseNow(ClientClosed)
		c.connections.giveBack(one.acquisition, nil)
	}
	return c.connections.end()
}

// takeAway marks all locks of this key as lost.
func (c *Client) takeAway(key string) {
	var taken []*held
	c.mu.Lock()
	for one := range c.held {
		if one.key == key {
			taken = append(taken, one)
		}
	}
	c.mu.Unlock()
	for _, one := range taken {
		one.loseNow(TakenAway)
	}
}

func (c *Client) forget(one *held) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.held, one)
}

// take acquires a lock and keeps it. If wrong, the error of the settings, is not nil, it returns that error with the
// lock's name.
func (c *Client) take(ctx context.Context, key string, mode mode, s settings, wrong error) (*Lock, error) {
	if wrong != nil {
		return nil, of(key, wrong)
	}
	flow, began := flowFor(ctx, key), now()
	held, err := c.takeIn(ctx, flow, key, mode, s)
	flow.waited(key, err == nil)
	if err != nil {
		s.listener.Failed(kindOf(mode, s), now().since(began), err)
		return nil, of(key, err)
	}
	return &Lock{held: held}, nil
}

func (c *Client) takeIn(ctx context.Context, flow *flow, key string, mode mode, s settings) (*held, error) {
	began := now()
	note, holder := defaultNoteText, s.holder
	if s.note != nil {
		note = *s.note
	}
	if holder == "" {
		holder = flow.id
	}
	// Close waits for this: a grant, or a place in the queue, must be given back before the connections are closed.
	defer c.connections.startWork()()
	left, by := s.wait, began.plus(s.wait)
	for tries := 1; ; tries++ {
		// The owner is new for each attempt, so that no one mistakes another's grant for their own.
		acquired := acquisition{key: key, owner: randomHex(16), ttl: max(s.ttl, s.minHold)}
		grant, err := c.acquire(ctx, wanted{acquisition: acquired, mode: mode, note: noted(note, holder), wait: left, waits: s.waits})
		if err == nil {
			return c.hold(ctx, began, acquired, mode, grant, s, flow)
		}
		var late *NotAcquiredError
		isLate := errors.As(err, &late) && late.Reason == TooLate
		if !isLate || tries == tooLateMax || s.waits && now() >= by {
			return nil, err
		}
		left = max(0, by.since(now()))
	}
}
