package redsynclock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"palisade/locks"
	"palisade/locks/internal/servers"
	"palisade/locks/locktest"
	redsync "palisade/locks/redsynclock"
)

// onEach runs the test on locks in memory, and on a real server.
func onEach(t *testing.T, test func(t *testing.T, client *locks.Client, takeAway func(key string))) {
	t.Run("in memory", func(t *testing.T) {
		t.Parallel()
		server := locktest.New(t)
		test(t, server.Client(), server.TakeAway)
	})
	t.Run("on a node", func(t *testing.T) {
		t.Parallel()
		server := servers.Node(t)
		client, err := locks.Open(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		test(t, client, func(key string) { server.Say("LOCK.BREAK", key) })
	})
}

func TestAProgramOfRedsyncRuns(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, client *locks.Client, _ func(string)) {
		rs := redsync.New(client)
		mutex, other := rs.NewMutex("orders", redsync.WithExpiry(10*time.Second)), rs.NewMutex("orders")
		if err := mutex.Lock(); err != nil {
			t.Fatal(err)
		}
		if valid, err := mutex.Valid(); !valid || err != nil || mutex.Value() == "" || mutex.Token() == 0 || mutex.Name() != "orders" {
			t.Fatal(valid, err)
		}
		if left := time.Until(mutex.Until()); left <= 0 || left > 10*time.Second {
			t.Fatal(left)
		}
		for _, err := range []error{other.TryLock(), rs.NewMutex("orders", redsync.WithTries(2), redsync.WithRetryDelay(20*time.Millisecond)).Lock()} {
			if !errors.Is(err, redsync.ErrFailed) || !errors.Is(err, locks.ErrNotAcquired) {
				t.Fatal(err)
			}
		}
		if extended, err := mutex.Extend(); !extended || err != nil {
			t.Fatal(err)
		}
		// It waits in turn, where redsync tries again.
		came := make(chan error, 1)
		go func() { came <- other.LockContext(context.Background()) }()
		first := mutex.Token()
		if held, err := mutex.Unlock(); !held || err != nil {
			t.Fatal(err)
		}
		if err := <-came; err != nil || other.Token() <= first {
			t.Fatal(err)
		}
		if held, err := other.Unlock(); !held || err != nil {
			t.Fatal(err)
		}
		if held, err := other.Unlock(); held || !errors.Is(err, redsync.ErrLockAlreadyExpired) {
			t.Fatal(held, err)
		}
		if valid, _ := other.Valid(); valid || other.Value() != "" || !other.Until().IsZero() {
			t.Fatal("it is held after its release")
		}
	})
}

func TestALeaseEndsUnlessItIsExtended(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, client *locks.Client, _ func(string)) {
		rs := redsync.New(client)
		// A busy machine may keep this program from running for a good part of a second.
		kept := rs.NewMutex("kept", redsync.WithExpiry(2*time.Second), redsync.WithAutoExtend())
		mutex := rs.NewMutex("left", redsync.WithExpiry(2200*time.Millisecond))
		for _, one := range []*redsync.Mutex{kept, mutex} {
			if err := one.Lock(); err != nil {
				t.Fatal(err)
			}
		}
		<-mutex.Held().Context().Done()
		if held, err := mutex.Unlock(); held || !errors.Is(err, redsync.ErrLockAlreadyExpired) {
			t.Fatal(held, err)
		}
		if extended, err := mutex.Extend(); extended || !errors.Is(err, redsync.ErrExtendFailed) {
			t.Fatal(extended, err)
		}
		if held, err := kept.Unlock(); !held || err != nil {
			t.Fatal(held, err)
		}
	})
}

func TestALockThatWasTakenAwayIsNotExtended(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, client *locks.Client, takeAway func(string)) {
		mutex := redsync.New(client).NewMutex("orders")
		if err := mutex.Lock(); err != nil {
			t.Fatal(err)
		}
		takeAway("orders")
		if extended, err := mutex.Extend(); extended || !errors.Is(err, redsync.ErrExtendFailed) || !errors.Is(err, locks.ErrLost) {
			t.Fatal(extended, err)
		}
		if held, err := mutex.Unlock(); held || !errors.Is(err, redsync.ErrLockAlreadyExpired) {
			t.Fatal(held, err)
		}
	})
}
