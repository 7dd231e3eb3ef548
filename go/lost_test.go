package locks_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"palisade/locks"
	"palisade/locks/internal/servers"
)

func TestALockIsExtendedInTheBackground(t *testing.T) {
	t.Parallel()
	servers.OnEach(t, func(t *testing.T, server *servers.Server) {
		client, key := open(t, server.URL), servers.Key()
		lock := must(t)(client.Lock(ctx, key, locks.TTL(1500*time.Millisecond)))
		servers.Passes(t, 3*time.Second)
		if !lock.IsValid() {
			t.Fatal(context.Cause(lock.Context()))
		}
		_, err := client.TryLock(ctx, key)
		is(t, err, locks.ErrNotAcquired)
		unlocked(t, lock)
		is(t, context.Cause(lock.Context()), locks.ErrReleased)
	})
}

func TestALockIsExtendedOnRequest(t *testing.T) {
	t.Parallel()
	server := servers.Node(t)
	lock := must(t)(open(t, server.URL).Lock(ctx, servers.Key(), locks.TTL(2*time.Second), locks.AutoExtend(false)))
	if err := lock.Extend(ctx, 20*time.Second); err != nil || lock.ValidFor() < 15*time.Second {
		t.Fatal(err, lock.ValidFor())
	}
	if err := lock.Extend(ctx, 0); err != nil || lock.ValidFor() < 10*time.Second {
		t.Fatal("a lease that lasts longer stays", err, lock.ValidFor())
	}
	is(t, lock.Extend(ctx, 10), locks.ErrBadArgument)
	unlocked(t, lock)
	is(t, lock.Extend(ctx, 0), locks.ErrReleased)
}

func TestALockThatIsTakenAwayIsLost(t *testing.T) {
	t.Parallel()
	servers.OnEach(t, func(t *testing.T, server *servers.Server) {
		client, key := open(t, server.URL), servers.Key()
		type name struct{}
		lock := must(t)(client.Lock(context.WithValue(ctx, name{}, "mine"), key, locks.TTL(3*time.Second)))
		if lock.Context().Value(name{}) != "mine" {
			t.Fatal("its context has the values of the caller's")
		}
		broken(t, server, key)
		if reason := lossOf(t, lock); reason != locks.TakenAway {
			t.Fatal(reason)
		}
		if lock.IsValid() {
			t.Fatal("it is lost")
		}
		is(t, lock.Extend(ctx, 0), locks.ErrLost)
		_, err := lock.Reenter(ctx)
		is(t, err, locks.ErrLost)
		is(t, lock.Unlock(ctx), locks.ErrLost)
		is(t, lock.Unlock(ctx), locks.ErrLost)
	})
}

func TestAnAgentTellsOfALossAtOnce(t *testing.T) {
	t.Parallel()
	server := servers.Agent(t)
	key := servers.Key()
	// Its next extension is 20 s away, longer than a test waits.
	lock := must(t)(open(t, server.URL).Lock(ctx, key, locks.TTL(time.Minute)))
	broken(t, server, key)
	if reason := lossOf(t, lock); reason != locks.TakenAway {
		t.Fatal(reason)
	}
}

func TestALeaseEndsInTime(t *testing.T) {
	t.Parallel()
	server := servers.Node(t)
	client := open(t, server.URL)
	left := must(t)(client.Lock(ctx, servers.Key(), locks.TTL(300*time.Millisecond), locks.AutoExtend(false)))
	held := must(t)(client.Lock(ctx, servers.Key(), locks.TTL(600*time.Millisecond), locks.MaxHold(time.Second)))
	reason := lossOf(t, left)
	if reason != locks.NotExtended && reason != locks.Asleep || left.IsValid() {
		t.Fatal(reason)
	}
	is(t, left.Unlock(ctx), locks.ErrLost)
	reason = lossOf(t, held)
	if reason != locks.MaxHoldReached && reason != locks.Asleep {
		t.Fatal(reason)
	}
	server.AwaitFree(t, left.Key())
	server.AwaitFree(t, held.Key())
}

func TestAServerThatHangsLosesItsLocksInTime(t *testing.T) {
	t.Parallel()
	server := servers.Node(t)
	client, key := open(t, server.URL, locks.AnswerWithin(800*time.Millisecond)), servers.Key()
	lock := must(t)(client.Lock(ctx, key, locks.TTL(3*time.Second)))
	server.Stop()
	err := lock.Extend(ctx, 0)
	is(t, err, locks.ErrUnavailable)
	if !strings.Contains(err.Error(), "the lock was not extended, and stays valid for ") {
		t.Fatal(err)
	}
	reason := lossOf(t, lock)
	if reason != locks.NotExtendedInTime && reason != locks.Asleep || lock.IsValid() {
		t.Fatal(reason)
	}
	server.Continue()
	is(t, lock.Unlock(ctx), locks.ErrLost)
	server.AwaitFree(t, key)
	next := must(t)(client.Lock(ctx, key, locks.TTL(time.Minute)))
	server.Stop()
	is(t, next.Unlock(ctx), locks.ErrUnknown)
	server.Continue()
	server.AwaitFree(t, key)
}

func TestALateAnswerDoesNotBringALockBack(t *testing.T) {
	t.Parallel()
	node := servers.Node(t)
	way := servers.WayTo(t, node)
	lock := must(t)(open(t, way.URL).Lock(ctx, servers.Key(), locks.TTL(time.Second), locks.AutoExtend(false)))
	way.HoldAnswers("LOCK.EXTEND")
	extends := make(chan error, 1)
	go func() { extends <- lock.Extend(ctx, time.Minute) }()
	servers.Eventually(t, "the answer is held up", func() bool { return way.Held() > 0 })
	lossOf(t, lock)
	way.LetGo()
	is(t, soon(t, extends), locks.ErrLost)
	if lock.IsValid() {
		t.Fatal("somebody else may have had it meanwhile")
	}
}

func TestValidityCountsFromBeforeTheRequest(t *testing.T) {
	t.Parallel()
	node := servers.Node(t)
	way := servers.WayTo(t, node)
	client := open(t, way.URL)
	way.HoldAnswers("LOCK.ACQUIRE")
	takes := begin(func() (*locks.Lock, error) {
		return client.Lock(ctx, servers.Key(), locks.TTL(10*time.Second), locks.AutoExtend(false))
	})
	servers.Eventually(t, "the answer is held up", func() bool { return way.Held() > 0 })
	servers.Passes(t, time.Second)
	way.LetGo()
	came := soon(t, takes)
	lock := must(t)(came.lock, came.err)
	if valid := lock.ValidFor(); valid > 8900*time.Millisecond {
		t.Fatalf("valid for %v, and a second of 10 had passed before the answer", valid)
	}
	// An extension counts in the same way.
	way.HoldAnswers("LOCK.EXTEND")
	extends := make(chan error, 1)
	go func() { extends <- lock.Extend(ctx, 20*time.Second) }()
	servers.Eventually(t, "the answer is held up", func() bool { return way.Held() > 0 })
	servers.Passes(t, time.Second)
	way.LetGo()
	if err := soon(t, extends); err != nil {
		t.Fatal(err)
	}
	if valid := lock.ValidFor(); valid > 18800*time.Millisecond {
		t.Fatalf("valid for %v, and a second of 20 had passed before the answer", valid)
	}
}

func TestAGrantWhoseLeaseIsOverIsGivenBack(t *testing.T) {
	t.Parallel()
	node := servers.Node(t)
	way := servers.WayTo(t, node)
	client, key := open(t, way.URL), servers.Key()
	way.HoldAnswers("LOCK.ACQUIRE")
	takes := begin(func() (*locks.Lock, error) {
		return client.Lock(ctx, key, locks.TTL(400*time.Millisecond), locks.Wait(0))
	})
	servers.Eventually(t, "the answer is held up", func() bool { return way.Held() > 0 })
	servers.Passes(t, 500*time.Millisecond)
	way.LetGo()
	is(t, soon(t, takes).err, locks.ErrNotAcquired)
	node.AwaitFree(t, key)
}

func TestALockOutlivesItsConnections(t *testing.T) {
	t.Parallel()
	server := servers.Node(t)
	lock := must(t)(open(t, server.URL).Lock(ctx, servers.Key(), locks.TTL(2*time.Second)))
	for range 5 {
		server.Disconnect(t)
		servers.Passes(t, 500*time.Millisecond)
		if !lock.IsValid() {
			t.Fatal(context.Cause(lock.Context()))
		}
	}
	unlocked(t, lock)
}

func TestAReleaseIsSentThoughItsContextHasEnded(t *testing.T) {
	t.Parallel()
	server := servers.Node(t)
	client, key := open(t, server.URL, locks.TTL(time.Minute)), servers.Key()
	lock := must(t)(client.Lock(ctx, key))
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := lock.Unlock(ended); err != nil {
		is(t, err, locks.ErrUnknown)
		is(t, err, context.Canceled)
	}
	server.AwaitFree(t, key)
	if err := lock.Unlock(ctx); err != nil {
		t.Fatal("the outcome is known later: ", err)
	}
}
