// Package locktest has locks in memory, for unit tests of programs that hold locks: no server is needed. Its clients are
// those of package locks, and a test takes a lock away at a moment of its choice:
//
//	server := locktest.New(t)
//	err := importAll(ctx, server.Client(), func() { server.TakeAway("import") })
//	if !errors.Is(err, locks.ErrLost) {
//		t.Fatal("it went on without the lock")
//	}
//
// It has the locks, the queue and the leases of one node. It has no guard, no network that fails, and no observation of
// leaders.
package locktest

import (
	"context"
	"net"
	"testing"
	"time"

	"palisade/locks"
	"palisade/locks/internal/switches"

	"github.com/redis/go-redis/v9"
)

// A Server has locks in memory. It is no server of the network, and keeps nothing after the test.
type Server struct {
	t       testing.TB
	book    *book
	clients []*locks.Client
}

// New returns a server without locks, which ends with the test.
func New(t testing.TB) *Server {
	s := &Server{t: t, book: &book{locks: map[string]*lock{}, lastToken: firstToken}}
	t.Cleanup(func() {
		for _, client := range s.clients {
			client.Close()
		}
	})
	return s
}

// Client returns a client of this server, which is closed at the end of the test. The options are defaults of its locks.
func (s *Server) Client(options ...locks.Option) *locks.Client {
	s.t.Helper()
	lender := redis.NewClient(&redis.Options{Addr: "locktest:0", Protocol: 2, Dialer: s.dial})
	defer lender.Close()
	client, err := locks.New(lender, options...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.clients = append(s.clients, client)
	return client
}

// TakeAway takes a lock away from all its holders, as an operator does with LOCK.BREAK. When it returns, their contexts have
// ended with [locks.TakenAway], and the next in the queue has the lock.
func (s *Server) TakeAway(key string) {
	for _, client := range s.clients {
		switches.TakeAway(client, key)
	}
	s.book.takeAway(key)
}

// HoldElsewhere holds a lock as another program does, until release is called or the test ends. The lock must be free.
func (s *Server) HoldElsewhere(key string) (release func()) {
	s.t.Helper()
	const elsewhere = "another program"
	wanted := request{owner: elsewhere, ttl: 24 * time.Hour, note: elsewhere}
	if s.book.acquire(key, wanted) == nil {
		s.t.Fatalf("%s is held already", key)
	}
	return func() { s.book.release(key, elsewhere, 1) }
}

// Waiting returns how many wait for a lock.
func (s *Server) Waiting(key string) int { return s.book.waiting(key) }

// IsHeld reports whether somebody holds a lock.
func (s *Server) IsHeld(key string) bool { return s.book.isHeld(key) }

// dial connects a client.
func (s *Server) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	go s.serve(server)
	return client, nil
}
