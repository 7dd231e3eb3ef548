package locks

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// The largest number of idle connections kept for later waits.
const idleMax = 4

// connections are those of a Client: a pool for commands that are answered at once, and one for each command that waits.
type connections struct {
	address      string
	options      *redis.Options
	answerWithin time.Duration
	pool         *redis.Client
	// closing ends with ErrClosed when these connections are closed.
	closing context.Context
	close   context.CancelCauseFunc

	mu       sync.Mutex
	isClosed bool
	// underWay is the number of tasks for which end waits. quiet is signalled when it has become 0.
	underWay int
	quiet    *sync.Cond
	idle     []*connection
	waiting  map[*connection]bool
	// watches is the number of watched locks.
	watches int
	isAgent *bool
}

func newConnections(options *redis.Options, answerWithin time.Duration) *connections {
	own := *options
	own.DialTimeout, own.PoolTimeout = answerWithin, answerWithin
	closing, end := context.WithCancelCause(context.Background())
	c := &connections{
		address: shownAddress(options), options: options, answerWithin: answerWithin, pool: redis.NewClient(&own),
		closing: closing, close: end, waiting: map[*connection]bool{},
	}
	c.quiet = sync.NewCond(&c.mu)
	return c
}

// begin sends words that are answered at once, and returns the channel on which the answer comes.
func (c *connections) begin(words []any) <-chan answer {
	return begin(func() (any, error) { return send(c.pool, c.address, c.answerWithin, words) })
}

// ask sends a repeatable command that is answered at once; again if its connection breaks, or the server is not ready yet.
// It returns whether a connection broke.
func (c *connections) ask(limit time.Duration, words ...any) (reply any, broke bool, err error) {
	until := now().plus(limit)
	for {
		left := until.since(now())
		if left <= 0 && err != nil {
			return nil, broke, err
		}
		reply, err = send(c.pool, c.address, max(left, time.Millisecond), words)
		if err == nil {
			return reply, broke, nil
		}
		if pause, passes := passesIn(err); passes && now().plus(pause) < until {
			time.Sleep(pause)
			continue
		}
		// On a slow connection that is not broken, the command is not sent twice.
		if !isBroken(err) || broke {
			return nil, broke, err
		}
		broke = true
	}
}

// forWait returns a connection for a command that waits, unless ctx ends first. giveIdle or destroy takes it back.
func (c *connections) forWait(ctx context.Context) (*connection, error) {
	if kept := c.popIdle(); kept != nil {
		return kept, nil
	}
	type opened struct {
		connection *connection
		err        error
	}
	came := make(chan opened, 1)
	go func() {
		connection, err := connect(c.options, c.address, c.answerWithin)
		came <- opened{connection, err}
	}()
	select {
	case one := <-came:
		if one.err != nil {
			return nil, one.err
		}
		return one.connection, c.register(one.connection)
	case <-ctx.Done():
		// A connection that opens only after the wait was given up is kept for others.
		c.inBackground(func() {
			if one := <-came; one.err == nil {
				c.giveIdle(one.connection)
			}
		})
		return nil, ctx.Err()
	}
}

func (c *connections) popIdle() *connection {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.idle) > 0 {
		last := c.idle[len(c.idle)-1]
		c.idle = c.idle[:len(c.idle)-1]
		if last.isUsable() {
			c.waiting[last] = true
			return last
		}
		last.destroy()
	}
	return nil
}

func (c *connections) register(one *connection) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed {
		one.destroy()
		return ErrClosed
	}
	c.waiting[one] = true
	return nil
}

// giveIdle takes back a connection on which nothing waits, and keeps it for later waits.
func (c *connections) giveIdle(one *connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, one)
	if one.isUsable() && len(c.idle) < idleMax && c.closing.Err() == nil {
		c.idle = append(c.idle, one)
	} else {
		one.destroy()
	}
}

// destroyIdle closes the idle connections.
func (c *connections) destroyIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.idle {
		one.destroy()
	}
	c.idle = nil
}

// destroy closes a connection on which something may wait.
func (c *connections) destroy(one *connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, one)
	one.destroy()
}

// askIfAgent returns whether the server is an agent, which reports its number of nodes; it asks once.
func (c *connections) askIfAgent() (bool, error) {
	c.mu.Lock()
	known := c.isAgent
	c.mu.Unlock()
	if known != nil {
		return *known, nil
	}
	reply, _, err := c.ask(c.answerWithin, "LOCK.NODE")
	if err != nil {
		return false, err
	}
	fields, err := toFields(reply)
	if err != nil {
		return false, err
	}
	_, isAgent := fields["nodes"]
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isAgent = &isAgent
	return isAgent, nil
}

// inBackground runs work that end waits for.
func (c *connections) inBackground(work func()) {
	done := c.startWork()
	go func() {
		defer done()
		work()
	}()
}

// startWork makes end wait until done is called.
func (c *connections) startWork() (done func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.underWay++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.underWay--; c.underWay == 0 {
			c.quiet.Broadcast()
		}
	}
}

// end announces the end, waits for acquisitions and for the work in the background, and closes all connections.
func (c *connections) end() error {
	c.close(ErrClosed)
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.underWay > 0 {
		c.quiet.Wait()
	}
	c.isClosed = true
	for one := range c.waiting {
		one.destroy()
	}
	for _, one := range c.idle {
		one.destroy()
	}
	c.idle = nil
	if err := c.pool.Close(); !errors.Is(err, redis.ErrClosed) {
		return err
	}
	return nil
}
