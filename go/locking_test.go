package locks_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"palisade/locks"
	"palisade/locks/internal/servers"

	"github.com/redis/go-redis/v9"
)

func TestALockIsHeldAloneAndTokensRise(t *testing.T) {
	t.Parallel()
	servers.OnEach(t, func(t *testing.T, server *servers.Server) {
		client, key := open(t, server.URL), servers.Key()
		first := must(t)(client.Lock(ctx, key, locks.TTL(5*time.Second), locks.Note("the first")))
		if valid := first.ValidFor(); !first.IsValid() || valid > 4950*time.Millisecond || valid < 2*time.Second {
			t.Fatalf("valid for %v of 5 s", valid)
		}
		if first.Key() != key || len(first.Owner()) != 32 || first.Number() != 0 {
			t.Fatal(first.Key(), first.Owner(), first.Number())
		}
		_, err := client.TryLock(ctx, key)
		var refused *locks.NotAcquiredError
		if !errors.As(err, &refused) || refused.Reason != locks.Held || refused.Holder == nil {
			t.Fatal(err)
		}
		if holder := refused.Holder; holder.Note != "the first" || holder.Token < first.Token() || holder.LeaseLeft <= 0 {
			t.Fatalf("%+v", *holder)
		}
		if !strings.HasPrefix(err.Error(), key+": somebody else holds the lock; it has been held for ") {
			t.Fatal(err)
		}
		unlocked(t, first)
		server.AwaitFree(t, key)
		second := must(t)(client.TryLock(ctx, key))
		if second.Token() <= first.Token() || second.Owner() == first.Owner() {
			t.Fatal(second.Token(), first.Token())
		}
		unlocked(t, second)
	})
}

func TestWaitersAreServedInTurn(t *testing.T) {
	t.Parallel()
	servers.OnEach(t, func(t *testing.T, server *servers.Server) {
		client, key := open(t, server.URL), servers.Key()
		lock := must(t)(client.Lock(ctx, key))
		var waits []<-chan result
		for n := range 3 {
			waits = append(waits, begin(func() (*locks.Lock, error) { return client.Lock(ctx, key) }))
			server.AwaitWaiters(t, key, int64(n+1))
		}
		last := lock.Token()
		unlocked(t, lock)
		for _, wait := range waits {
			one := soon(t, wait)
			next := must(t)(one.lock, one.err)
			if next.Token() <= last {
				t.Fatal("the token fell")
			}
			last = next.Token()
			unlocked(t, next)
		}
	})
}

func TestAWaitEndsInTime(t *testing.T) {
	t.Parallel()
	servers.OnEach(t, func(t *testing.T, server *servers.Server) {
		client, key := open(t, server.URL), servers.Key()
		lock := must(t)(client.Lock(ctx, key))
		began := time.Now()
		_, err := client.Lock(ctx, key, locks.Wait(300*time.Millisecond))
		var refused *locks.NotAcquiredError
		if !errors.As(err, &refused) || refused.Reason != locks.TimedOut || refused.Holder == nil {
			t.Fatal(err)
		}
		if waited := time.Since(began); waited < 300*time.Millisecond {
			t.Fatal("it waited for", waited)
		}
		server.AwaitWaiters(t, key, 0)
		unlocked(t, lock)
		server.AwaitFree(t, key)
	})
}

func TestReadersShareAndWritersDoNot(t *testing.T) {
	t.Parallel()
	servers.OnEach(t, func(t *testing.T, server *servers.Server) {
		client, key := open(t, server.URL), servers.Key()
		one := must(t)(client.ReadLock(ctx, key))
		two := must(t)(client.ReadLock(ctx, key))
		_, err := client.WriteLock(ctx, key, locks.Wait(0))
		is(t, err, locks.ErrNotAcquired)
		unlocked(t, one)
		unlocked(t, two)
		writer := must(t)(client.WriteLock(ctx, key))
		if writer.Token() <= max(one.Token(), two.Token()) {
			t.Fatal("a writer's token is above those of earlier readers")
		}
		_, err = client.ReadLock(ctx, key, locks.Wait(0))
		is(t, err, locks.ErrNotAcquired)
		// From exclusive to shared nobody gets in between.
		token := writer.Token()
		if err := writer.Downgrade(ctx); err != nil || writer.Token() != token {
			t.Fatal(err)
		}
		three := must(t)(client.ReadLock(ctx, key))
		unlocked(t, three)
		unlocked(t, writer)
	})
}

func TestOnlyASoleReaderIsUpgraded(t *testing.T) {
	t.Parallel()
	server := servers.Node(t)
	client, key := open(t, server.URL), servers.Key()
	one := must(t)(client.ReadLock(ctx, key))
	two := must(t)(client.ReadLock(ctx, key))
	is(t, one.Upgrade(ctx), locks.ErrNotAcquired)
	if !one.IsValid() {
		t.Fatal("it stays a reader")
	}
	unlocked(t, two)
	before := one.Token()
	if err := one.Upgrade(ctx); err != nil || one.Token() <= before {
		t.Fatal(err, one.Token(), before)
	}
	_, err := client.ReadLock(ctx, key, locks.Wait(0))
	is(t, err, locks.ErrNotAcquired)
	broken(t, server, key)
	is(t, one.Upgrade(ctx), locks.ErrLost)
	if reason := lossOf(t, one); reason != locks.TakenAway {
		t.Fatal(reason)
	}
	permit := must(t)(client.Semaphore(servers.Key(), 2).Acquire(ctx))
	is(t, permit.Downgrade(ctx), locks.ErrBadArgument)
}

func TestASemaphoreGivesNumbers(t *testing.T) {
	t.Parallel()
	servers.OnEach(t, func(t *testing.T, server *servers.Server) {
		semaphore := open(t, server.URL).Semaphore(servers.Key(), 2)
		one := must(t)(semaphore.Acquire(ctx))
		two := must(t)(semaphore.TryAcquire(ctx))
		if one.Number()+two.Number() != 3 {
			t.Fatal(one.Number(), two.Number())
		}
		_, err := semaphore.TryAcquire(ctx)
		is(t, err, locks.ErrNotAcquired)
		waits := begin(func() (*locks.Lock, error) { return semaphore.Acquire(ctx) })
		server.AwaitWaiters(t, one.Key(), 1)
		unlocked(t, two)
		came := soon(t, waits)
		three := must(t)(came.lock, came.err)
		if three.Number() != two.Number() || three.Token() <= two.Token() {
			t.Fatal(three.Number(), three.Token(), two.Token())
		}
		unlocked(t, three)
		unlocked(t, one)
	})
}

func TestAReenteredLockIsFreeAfterItsLastRelease(t *testing.T) {
	t.Parallel()
	servers.OnEach(t, func(t *testing.T, server *servers.Server) {
		client, key := open(t, server.URL), servers.Key()
		outer := must(t)(client.Lock(ctx, key))
		inner := must(t)(outer.Reenter(ctx))
		if inner.Token() != outer.Token() {
			t.Fatal(inner.Token(), outer.Token())
		}
		unlocked(t, outer)
		is(t, outer.Extend(ctx, 0), locks.ErrReleased)
		if outer.IsValid() || !inner.IsValid() {
			t.Fatal("the inner lock is still held")
		}
		if _, err := client.TryLock(ctx, key); err == nil {
			t.Fatal("two holders")
		}
		unlocked(t, outer)
		unlocked(t, inner)
		server.AwaitFree(t, key)
	})
}

func TestWorkUnderALockIsToldOfItsLoss(t *testing.T) {
	t.Parallel()
	server := servers.Node(t)
	client, key := open(t, server.URL), servers.Key()
	wrong := errors.New("of the work")
	is(t, client.WithLock(ctx, key, func(context.Context, *locks.Lock) error { return wrong }), wrong)
	is(t, client.WithLock(ctx, key, func(ctx context.Context, lock *locks.Lock) error {
		broken(t, server, key)
		<-ctx.Done()
		is(t, context.Cause(ctx), locks.ErrLost)
		return nil
	}, locks.TTL(600*time.Millisecond)), locks.ErrLost)
	until, cancel := context.WithCancel(ctx)
	is(t, client.WithLock(until, key, func(ctx context.Context, lock *locks.Lock) error {
		cancel()
		<-ctx.Done()
		if !lock.IsValid() {
			t.Error("the end of ctx does not end the lock")
		}
		return ctx.Err()
	}), context.Canceled)
	server.AwaitFree(t, key)
	if err := client.WithLock(ctx, key, func(context.Context, *locks.Lock) error { return nil }); err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() { recover() }()
		client.WithLock(ctx, key, func(context.Context, *locks.Lock) error { panic("of the work") })
	}()
	server.AwaitFree(t, key)
}

func TestManyGoroutinesExcludeEachOther(t *testing.T) {
	t.Parallel()
	server := servers.Node(t)
	client, key := open(t, server.URL), servers.Key()
	inside, last := 0, int64(0)
	var all sync.WaitGroup
	for range 20 {
		all.Add(1)
		go func() {
			defer all.Done()
			for range 5 {
				lock, err := client.Lock(ctx, key)
				if err != nil {
					t.Error(err)
					return
				}
				// The race detector looks at these too: the lock is what orders them.
				inside++
				if inside != 1 || lock.Token() <= last {
					t.Error("two inside")
				}
				last = lock.Token()
				inside--
				if err := lock.Unlock(ctx); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	all.Wait()
}

func TestAClientOfGoRedisLendsItsSettings(t *testing.T) {
	t.Parallel()
	server := servers.Node(t)
	server.Say("CONFIG", "SET", "requirepass", "secret")
	existing := redis.NewClient(&redis.Options{Network: "unix", Addr: server.Path, Password: "secret", PoolSize: 1})
	defer existing.Close()
	client, err := locks.New(existing)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	lock := must(t)(client.Lock(ctx, "k"))
	unlocked(t, lock)
	if existing.PoolStats().TotalConns != 0 {
		t.Fatal("the client's own connections are not used")
	}
}
