package locks_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"palisade/locks"
	"palisade/locks/internal/servers"

	"github.com/redis/go-redis/v9"
)

// ctx is that of a test that does not end it.
var ctx = context.Background()

// TestMain starts the server of the examples, and the agent of all tests. A worker of the pool is this program too.
func TestMain(m *testing.M) {
	if worker := os.Getenv(workerVariable); worker != "" {
		os.Exit(workIn(worker))
	}
	redis.SetLogger(silent{}) // Servers are killed here, which it would report.
	tb := &ofExamples{}
	address = servers.Node(tb).URL
	servers.ShareAgent(tb)
	status := m.Run()
	for _, end := range slices.Backward(tb.cleanups) {
		end()
	}
	os.Exit(status)
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// ofExamples is what a server's start needs of a test, outside of one.
type ofExamples struct {
	testing.TB
	cleanups []func()
}

func (*ofExamples) Helper() {}

func (o *ofExamples) Cleanup(end func()) { o.cleanups = append(o.cleanups, end) }

func (*ofExamples) Fatal(args ...any) {
	fmt.Fprintln(os.Stderr, args...)
	os.Exit(1)
}

func (o *ofExamples) Fatalf(format string, args ...any) { o.Fatal(fmt.Sprintf(format, args...)) }

func (o *ofExamples) TempDir() string {
	folder, err := os.MkdirTemp("", "palisade-go-")
	if err != nil {
		o.Fatal(err)
	}
	o.Cleanup(func() { os.RemoveAll(folder) })
	return folder
}

// open returns a client of the server, which is closed at the end of the test.
func open(t *testing.T, url string, options ...locks.Option) *locks.Client {
	t.Helper()
	client, err := locks.Open(url, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// must returns a lock that was acquired.
func must(t *testing.T) func(*locks.Lock, error) *locks.Lock {
	return func(lock *locks.Lock, err error) *locks.Lock {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return lock
	}
}

func unlocked(t *testing.T, lock *locks.Lock) {
	t.Helper()
	if err := lock.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
}

// is fails unless err is of the kind.
func is(t *testing.T, err, kind error) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("%v, which is not %v", err, kind)
	}
}

// A result is that of an acquisition that goes on beside the test.
type result struct {
	lock *locks.Lock
	err  error
}

func begin(take func() (*locks.Lock, error)) <-chan result {
	came := make(chan result, 1)
	go func() {
		lock, err := take()
		came <- result{lock, err}
	}()
	return came
}

// soon returns what comes, or fails if that takes too long.
func soon[T any](t *testing.T, came <-chan T) T {
	t.Helper()
	select {
	case value := <-came:
		return value
	case <-time.After(20 * time.Second):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

// lossOf awaits the loss of a lock.
func lossOf(t *testing.T, lock *locks.Lock) locks.LossReason {
	t.Helper()
	soon(t, lock.Context().Done())
	var lost *locks.LostError
	if !errors.As(context.Cause(lock.Context()), &lost) {
		t.Fatalf("no loss: %v", context.Cause(lock.Context()))
	}
	return lost.Reason
}

func broken(t *testing.T, server *servers.Server, key string) {
	t.Helper()
	if _, err := server.Say("LOCK.BREAK", key); err != nil {
		t.Fatal(err)
	}
}
