package locks

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// An answer to a command; nil for Null.
type answer struct {
	reply any
	err   error
}

var errConnectionEnded = errors.New("the connection has ended")

// send sends a command, once, and returns the answer.
func send(client *redis.Client, address string, limit time.Duration, words []any) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	command := redis.NewCmd(ctx, words...)
	err := client.Process(ctx, command)
	if err == nil {
		return command.Val(), nil
	}
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	return nil, translated(err, address, limit)
}

// A connection is for commands that wait, one at a time. It never connects again by itself.
type connection struct {
	address string
	client  *redis.Client
	mu      sync.Mutex
	socket  net.Conn
	ended   bool
}

// connect opens a connection within this time, including the server's first answers.
func connect(options *redis.Options, address string, limit time.Duration) (*connection, error) {
	c := &connection{address: address}
	own := *options
	own.PoolSize, own.ConnMaxIdleTime = 1, -1
	// One command at a time needs no more, and there may be thousands of waits.
	own.ReadBufferSize, own.WriteBufferSize = 4<<10, 4<<10
	own.DialTimeout, own.PoolTimeout = limit, limit
	dial := own.Dialer
	if dial == nil {
		dial = redis.NewDialer(&own)
	}
	own.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
		return c.dial(ctx, dial, network, address)
	}
	c.client = redis.NewClient(&own)
	// Any reply of the server shows that the connection is open: a user may lack the permission to send PING.
	_, err := send(c.client, address, limit, []any{"PING"})
	if err != nil && errors.Is(err, ErrUnavailable) {
		c.destroy()
		return nil, err
	}
	return c, nil
}

// dial opens the socket, once.
func (c *connection) dial(ctx context.Context, dial func(context.Context, string, string) (net.Conn, error), network, address string) (net.Conn, error) {
	c.mu.Lock()
	isFirst := !c.ended && c.socket == nil
	c.mu.Unlock()
	if !isFirst {
		return nil, errConnectionEnded
	}
	socket, err := dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		socket.Close()
		return nil, errConnectionEnded
	}
	c.socket = socket
	return socket, nil
}

// isUsable reports whether commands can be sent.
func (c *connection) isUsable() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.ended && c.client.PoolStats().TotalConns == 1
}

// begin sends words, and returns the channel on which the answer comes.
func (c *connection) begin(limit time.Duration, words []any) <-chan answer {
	return begin(func() (any, error) { return send(c.client, c.address, limit, words) })
}

// destroy closes the connection at once. A pending command fails.
func (c *connection) destroy() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	c.ended = true
	if c.socket != nil {
		c.socket.Close()
	}
	c.client.Close()
}

// begin runs ask in the background, and returns the channel on which the answer comes.
func begin(ask func() (any, error)) <-chan answer {
	came := make(chan answer, 1)
	go func() {
		reply, err := ask()
		came <- answer{reply, err}
	}()
	return came
}
