package locks_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"palisade/locks"
	"palisade/locks/internal/servers"
)

func TestACancelledWaitLeavesTheQueue(t *testing.T) {
	t.Parallel()
	servers.OnEach(t, func(t *testing.T, server *servers.Server) {
		client, key := open(t, server.URL), servers.Key()
		lock := must(t)(client.Lock(ctx, key))
		waiting, cancel := context.WithCancelCause(ctx)
		waits := begin(func() (*locks.Lock, error) { return client.Lock(waiting, key) })
		server.AwaitWaiters(t, key, 1)
		reason := errors.New("no longer wanted")
		cancel(reason)
		err := soon(t, waits).err
		is(t, err, context.Canceled)
		is(t, err, reason)
		server.AwaitWaiters(t, key, 0)
		unlocked(t, lock)
		server.AwaitFree(t, key)
		_, err = client.Lock(waiting, key)
		is(t, err, reason)
	})
}

func TestADeadlineEndsAWait(t *testing.T) {
	t.Parallel()
	server := servers.Node(t)
	client, key := open(t, server.URL), servers.Key()
	lock := must(t)(client.Lock(ctx, key))
	waiting, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	_, err := client.Lock(waiting, key)
	is(t, err, context.DeadlineExceeded)
	server.AwaitWaiters(t, key, 0)
	unlocked(t, lock)
}

func TestALateGrantIsGivenBack(t *testing.T) {
	t.Parallel()
	node := servers.Node(t)
	way := servers.WayTo(t, node)
	client, key := open(t, way.URL, locks.TTL(time.Minute)), servers.Key()
	for name, wait := range map[string][]locks.Option{"at once": {locks.Wait(0)}, "waiting": nil} {
		// The request reaches the server only after it was given up, and after the release for it.
		way.HoldRequests("LOCK.ACQUIRE")
		waiting, cancel := context.WithCancel(ctx)
		waits := begin(func() (*locks.Lock, error) { return client.Lock(waiting, key, wait...) })
		servers.Eventually(t, "it is held up", func() bool { return way.Held() > 0 })
		way.Count("LOCK.RELEASE")
		cancel()
		is(t, soon(t, waits).err, context.Canceled)
		servers.Eventually(t, "the first release is sent: "+name, func() bool { return way.Sent("LOCK.RELEASE") > 0 })
		way.LetGo()
		servers.Eventually(t, "the second release is sent: "+name, func() bool { return way.Sent("LOCK.RELEASE") > 1 })
		node.AwaitFree(t, key)
		if calls := commandCalls(t, node, "lock.acquire"); calls == 0 {
			t.Fatal("the request did not arrive")
		}
	}
}

func TestAGrantThatComesWithTheCancellationIsReleased(t *testing.T) {
	t.Parallel()
	servers.OnEach(t, func(t *testing.T, server *servers.Server) {
		client, key := open(t, server.URL, locks.TTL(time.Minute)), servers.Key()
		for range 20 {
			lock := must(t)(client.Lock(ctx, key))
			waiting, cancel := context.WithCancel(ctx)
			waits := begin(func() (*locks.Lock, error) { return client.Lock(waiting, key) })
			server.AwaitWaiters(t, key, 1)
			go cancel()
			unlocked(t, lock)
			if came := soon(t, waits); came.err == nil {
				unlocked(t, came.lock)
			}
			server.AwaitFree(t, key)
			cancel()
		}
	})
}

func TestAWaitGoesOnOverAnotherConnection(t *testing.T) {
	t.Parallel()
	server := servers.Node(t)
	client, key := open(t, server.URL), servers.Key()
	lock := must(t)(open(t, server.URL).Lock(ctx, key, locks.TTL(30*time.Second)))
	waits := begin(func() (*locks.Lock, error) { return client.Lock(ctx, key) })
	for range 3 {
		server.AwaitWaiters(t, key, 1)
		server.Disconnect(t)
	}
	server.AwaitWaiters(t, key, 1)
	unlocked(t, lock)
	came := soon(t, waits)
	unlocked(t, must(t)(came.lock, came.err))
}

func TestALostAnswerOfAnAcquisitionIsAskedForAgain(t *testing.T) {
	t.Parallel()
	node := servers.Node(t)
	way := servers.WayTo(t, node)
	client, key := open(t, way.URL), servers.Key()
	way.LoseAnswer("LOCK.ACQUIRE")
	lock := must(t)(client.Lock(ctx, key, locks.Wait(0)))
	if way.Lost() != 1 || node.Info(key, "holds") != 1 {
		t.Fatal(way.Lost(), node.Info(key, "holds"))
	}
	way.LoseAnswer("LOCK.RELEASE")
	// The repetition is answered with Null, which may be the work of the first.
	is(t, lock.Unlock(ctx), locks.ErrUnknown)
	node.AwaitFree(t, key)
}

func TestAServerThatIsAwayIsWaitedFor(t *testing.T) {
	t.Parallel()
	server := servers.Node(t)
	client := open(t, server.URL)
	first := must(t)(client.Lock(ctx, "k", locks.TTL(time.Minute)))
	waits := begin(func() (*locks.Lock, error) { return client.Lock(ctx, "k") })
	server.AwaitWaiters(t, "k", 1)
	server.Kill()
	_, err := client.TryLock(ctx, "other")
	is(t, err, locks.ErrUnavailable)
	if !strings.HasPrefix(err.Error(), "other: unix://") {
		t.Fatal(err)
	}
	_, err = client.Lock(ctx, "other", locks.Wait(300*time.Millisecond))
	is(t, err, locks.ErrUnavailable)
	server.Restart(t)
	came := soon(t, waits)
	second := must(t)(came.lock, came.err)
	if second.Token() <= first.Token() {
		t.Fatal("the token fell")
	}
	unlocked(t, second)
	if calls := commandCalls(t, server, "lock.acquire"); calls > 2 {
		t.Fatalf("%d requests: what was asked for meanwhile is not sent later", calls)
	}
}

func TestAServerThatHangsIsToldOfWhatWasGivenUp(t *testing.T) {
	t.Parallel()
	server := servers.Node(t)
	client := open(t, server.URL, locks.TTL(time.Minute), locks.AnswerWithin(500*time.Millisecond))
	unlocked(t, must(t)(client.Lock(ctx, "warm")))
	server.Stop()
	waiting, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, err := client.Lock(waiting, "k")
	is(t, err, context.DeadlineExceeded)
	_, err = client.TryLock(ctx, "k")
	is(t, err, locks.ErrUnavailable)
	if !strings.Contains(err.Error(), "did not answer within 500ms") {
		t.Fatal(err)
	}
	server.Continue()
	server.AwaitFree(t, "k")
	servers.Eventually(t, "the requests were executed", func() bool { return commandCalls(t, server, "lock.acquire") >= 2 })
	server.AwaitFree(t, "k")
	unlocked(t, must(t)(client.Lock(ctx, "k")))
}

func TestCloseReleasesAndEndsWaits(t *testing.T) {
	t.Parallel()
	server := servers.Node(t)
	client, key := open(t, server.URL, locks.TTL(time.Minute)), servers.Key()
	lock := must(t)(client.Lock(ctx, key))
	waits := begin(func() (*locks.Lock, error) { return client.Lock(ctx, key) })
	server.AwaitWaiters(t, key, 1)
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	is(t, soon(t, waits).err, locks.ErrClosed)
	if reason := lossOf(t, lock); reason != locks.ClientClosed {
		t.Fatal(reason)
	}
	is(t, lock.Unlock(ctx), locks.ErrLost)
	if server.Info(key, "holders") != 0 {
		t.Fatal("it was not released")
	}
	_, err := client.Lock(ctx, key)
	is(t, err, locks.ErrClosed)
	servers.Eventually(t, "the connections are closed", func() bool {
		list, _ := server.Say("CLIENT", "LIST")
		return strings.Count(fmt.Sprint(list), "\n") <= 1
	})
	client.Close()
}

func TestCloseLeavesNothingOfItsWaits(t *testing.T) {
	t.Parallel()
	server := servers.Node(t)
	client, key := open(t, server.URL, locks.TTL(time.Minute)), servers.Key()
	must(t)(client.Lock(ctx, key))
	const waits = 50
	ended := make(chan error, waits)
	for range waits {
		go func() {
			_, err := client.Lock(ctx, key)
			ended <- err
		}()
	}
	server.AwaitWaiters(t, key, waits)
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	if holders, waiters := server.Info(key, "holders"), server.Info(key, "waiters"); holders != 0 || waiters != 0 {
		t.Fatal(holders, waiters)
	}
	for range waits {
		is(t, <-ended, locks.ErrClosed)
	}
}

// commandCalls returns how often the server has executed a command.
func commandCalls(t *testing.T, server *servers.Server, command string) int {
	t.Helper()
	info, _ := server.Say("INFO", "commandstats")
	var calls int
	for _, line := range strings.Split(fmt.Sprint(info), "\n") {
		if rest, found := strings.CutPrefix(strings.ToLower(line), "cmdstat_"+command+":calls="); found {
			fmt.Sscanf(rest, "%d", &calls)
		}
	}
	return calls
}
