package locks_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"palisade/locks"
	"palisade/locks/internal/servers"

	"github.com/redis/go-redis/v9"
)

func TestCommandsPassTheGateUntilANewerHolderHasCome(t *testing.T) {
	t.Parallel()
	servers.OnEach(t, func(t *testing.T, server *servers.Server) {
		data := servers.Node(t).Outside
		key := servers.Key()
		late := must(t)(open(t, server.URL).Lock(ctx, key))
		writes := late.Fenced(data, key+":gate")
		record := key + ":record"
		if n, err := writes.Do(ctx, "HSET", record, "state", "open", "price", 3).Int(); n != 2 || err != nil {
			t.Fatal(n, err)
		}
		if _, err := writes.Do(ctx, "GET", key+":missing").Result(); err != redis.Nil {
			t.Fatal(err)
		}
		if err := writes.Do(ctx, "GET", record).Err(); err == nil || errors.Is(err, locks.ErrFenced) {
			t.Fatal("the error of the command is not its own:", err)
		}
		seen := late.Token() + 5
		if err := data.Do(ctx, "LOCK.GATE", key+":gate", seen).Err(); err != nil {
			t.Fatal(err)
		}
		var refused *locks.FencedError
		err := writes.Do(ctx, "HSET", record, "state", "late").Err()
		if !errors.As(err, &refused) || !errors.Is(err, locks.ErrFenced) || refused.Seen != seen || refused.Token != late.Token() {
			t.Fatal(err)
		}
		// A pipeline sends the same words, and its errors are converted by Err.
		var queued *redis.Cmd
		_, err = data.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			queued = late.Fenced(pipe, key+":gate").Do(ctx, "HSET", record, "state", "late")
			return nil
		})
		is(t, writes.Err(err), locks.ErrFenced)
		is(t, writes.Err(queued.Err()), locks.ErrFenced)
		if state := data.HGet(ctx, record, "state").Val(); state != "open" {
			t.Fatalf("a late write has landed: %q", state)
		}
		unlocked(t, late)
	})
}

func TestARefusalMakesTheLockAskWhetherItIsHeld(t *testing.T) {
	t.Parallel()
	server := servers.Node(t)
	key := servers.Key()
	lock := must(t)(open(t, server.URL).Lock(ctx, key, locks.TTL(time.Minute)))
	broken(t, server, key)
	if err := server.Outside.Do(ctx, "LOCK.GATE", key+":gate", lock.Token()+1).Err(); err != nil {
		t.Fatal(err)
	}
	is(t, lock.Fenced(server.Outside, key+":gate").Do(ctx, "SET", key+":record", "late").Err(), locks.ErrFenced)
	if reason := lossOf(t, lock); reason != locks.TakenAway {
		t.Fatal(reason)
	}
	// What is known to be lost, or was released, is not sent.
	is(t, lock.Fenced(server.Outside, key+":other").Do(ctx, "SET", key+":record", "late").Err(), locks.ErrLost)
	released := must(t)(open(t, server.URL).Lock(ctx, key))
	unlocked(t, released)
	is(t, released.Fenced(server.Outside, key+":other").Do(ctx, "SET", key+":record", "late").Err(), locks.ErrReleased)
	if n := server.Outside.Exists(ctx, key+":record", key+":other").Val(); n != 0 {
		t.Fatal("something was sent")
	}
}

func TestReadersAndPermitsComeToTheGateAsSuch(t *testing.T) {
	t.Parallel()
	server := servers.Node(t)
	client, key := open(t, server.URL), servers.Key()
	passes := func(lock *locks.Lock, gate string) {
		t.Helper()
		if err := lock.Fenced(server.Outside, gate).Do(ctx, "INCR", key+":record").Err(); err != nil {
			t.Fatal(err)
		}
	}
	first, second := must(t)(client.ReadLock(ctx, key)), must(t)(client.ReadLock(ctx, key))
	passes(second, key+":gate")
	passes(first, key+":gate")
	seats := client.Semaphore(key+":seats", 2)
	one, two := must(t)(seats.Acquire(ctx)), must(t)(seats.Acquire(ctx))
	passes(two, key+":seats:gate")
	passes(one, key+":seats:gate")
	only := must(t)(client.Semaphore(key+":only", 1).Acquire(ctx))
	if err := only.FencedByLock(server.Outside).Do(ctx, "INCR", key+":record").Err(); err != nil {
		t.Fatal(err)
	}
	// A writer that reads from now on comes as a reader.
	writer := must(t)(client.WriteLock(ctx, key+":converted"))
	if err := writer.Downgrade(ctx); err != nil {
		t.Fatal(err)
	}
	passes(writer, key+":converted:gate")
	largest, err := server.Outside.Do(ctx, "LOCK.GATE", key+":converted:gate", writer.Token()-1, "SHARED").Int()
	if err != nil || largest != 1 {
		t.Fatal("it came as a writer:", err)
	}
}

func TestTheLockItselfIsAGate(t *testing.T) {
	t.Parallel()
	server := servers.Node(t)
	key := servers.Key()
	lock := must(t)(open(t, server.URL).Lock(ctx, key, locks.TTL(time.Minute)))
	writes := lock.FencedByLock(server.Outside)
	if err := writes.Do(ctx, "SET", key+":record", "open").Err(); err != nil {
		t.Fatal(err)
	}
	broken(t, server, key)
	is(t, writes.Do(ctx, "SET", key+":record", "late").Err(), locks.ErrLost)
	if state := server.Outside.Get(ctx, key+":record").Val(); state != "open" {
		t.Fatalf("a late write has landed: %q", state)
	}
}

func TestKeepBoundsTheLifeOfAGate(t *testing.T) {
	t.Parallel()
	server := servers.Node(t)
	key := servers.Key()
	lock := must(t)(open(t, server.URL).Lock(ctx, key))
	if err := lock.Fenced(server.Outside, key+":gate").Keep(90*time.Second).Do(ctx, "SET", key+":record", "open").Err(); err != nil {
		t.Fatal(err)
	}
	if keep := server.Info(key+":gate", "keep"); keep < 80_000 || keep > 102_000 {
		t.Fatal(keep)
	}
}

func TestWhatCannotBeMeantOfAGateIsRefused(t *testing.T) {
	t.Parallel()
	server := servers.Node(t)
	key := servers.Key()
	lock := must(t)(open(t, server.URL).Lock(ctx, key))
	for _, wrong := range []*locks.Fenced{
		lock.Fenced(nil, "gate"),
		lock.Fenced(server.Outside, "gate").Keep(10),
		lock.Fenced(server.Outside, "gate").Keep(time.Hour).Keep(time.Hour),
		lock.FencedByLock(server.Outside).Keep(time.Hour),
	} {
		is(t, wrong.Do(ctx, "SET", key+":record", "1").Err(), locks.ErrBadArgument)
	}
	is(t, lock.Fenced(server.Outside, "gate").Do(ctx).Err(), locks.ErrBadArgument)
	bare := servers.Bare(t)
	is(t, lock.Fenced(bare.Outside, "gate").Do(ctx, "SET", "x", "1").Err(), locks.ErrMisconfigured)
	agent := servers.Agent(t)
	if err := lock.Fenced(agent.Outside, "gate").Do(ctx, "SET", "x", "1").Err(); err == nil {
		t.Fatal("an agent has passed it")
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	is(t, lock.Fenced(server.Outside, "gate").Do(ended, "SET", key+":record", "1").Err(), context.Canceled)
}
