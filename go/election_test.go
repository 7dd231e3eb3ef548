package locks_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"testing"
	"time"

	"palisade/locks"
	"palisade/locks/internal/servers"
)

// reports returns what an observer hears of, one at a time.
func reports(t *testing.T, election *locks.Election) func() string {
	next, stop := iter.Pull2(election.Observe(ctx))
	t.Cleanup(stop)
	return func() string {
		t.Helper()
		came := make(chan string, 1)
		go func() {
			leader, err, more := next()
			switch {
			case !more:
				came <- "the end"
			case err != nil:
				came <- err.Error()
			case leader == nil:
				came <- "nobody"
			default:
				came <- leader.Value
			}
		}()
		return soon(t, came)
	}
}

func TestAnElectionHasOneLeaderWhoProclaimsAndResigns(t *testing.T) {
	t.Parallel()
	servers.OnEach(t, func(t *testing.T, server *servers.Server) {
		name := servers.Key()
		election := open(t, server.URL).Election(name)
		if leader, err := election.Leader(ctx); leader != nil || err != nil {
			t.Fatal(leader, err)
		}
		heard := reports(t, election)
		if told := heard(); told != "nobody" {
			t.Fatal(told)
		}
		first, err := election.Campaign(ctx, "10.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		if told := heard(); told != "10.0.0.1" {
			t.Fatal(told)
		}
		if err := first.Proclaim(ctx, "10.0.0.1:80"); err != nil {
			t.Fatal(err)
		}
		if told := heard(); told != "10.0.0.1:80" {
			t.Fatal(told)
		}
		leader, err := election.Leader(ctx)
		if err != nil || *leader != (locks.Leader{Term: first.Term(), Sequence: 2, Value: "10.0.0.1:80"}) {
			t.Fatal(leader, err)
		}
		next := make(chan *locks.Leadership, 1)
		go func() {
			second, err := open(t, server.URL).Election(name).Campaign(ctx, "10.0.0.2")
			if err != nil {
				t.Error(err)
			}
			next <- second
		}()
		server.AwaitWaiters(t, name, 1)
		unlocked(t, first.Lock)
		second := soon(t, next)
		if second.Term() <= first.Term() {
			t.Fatal("the term has not grown")
		}
		is(t, first.Proclaim(ctx, "late"), locks.ErrReleased)
		unlocked(t, second.Lock)
		for told := ""; told != "nobody"; told = heard() {
		}
	})
}

func TestWhoHoldsTheLockOnlyIsNoLeader(t *testing.T) {
	t.Parallel()
	client, name := open(t, servers.Node(t).URL), servers.Key()
	lock := must(t)(client.Lock(ctx, name, locks.Note("term 5 me")))
	if leader, err := client.Election(name).Leader(ctx); leader != nil || err != nil {
		t.Fatal(leader, err)
	}
	unlocked(t, lock)
}

func TestALeaderThatWasBrokenProclaimsNothing(t *testing.T) {
	t.Parallel()
	server := servers.Node(t)
	name := servers.Key()
	leader, err := open(t, server.URL).Election(name).Campaign(ctx, "a", locks.TTL(600*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	broken(t, server, name)
	is(t, leader.Proclaim(ctx, "b"), locks.ErrLost)
}

func TestProclamationsGoBehindLaterOnes(t *testing.T) {
	t.Parallel()
	server := servers.Node(t)
	name := servers.Key()
	election := open(t, server.URL).Election(name)
	leader, err := election.Campaign(ctx, "1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := server.Say("LOCK.NOTE", name, leader.Owner(), "somebody else", "SEQ", 7); err != nil {
		t.Fatal(err)
	}
	if err := leader.Proclaim(ctx, "8"); err != nil {
		t.Fatal(err)
	}
	if told, err := election.Leader(ctx); err != nil || told.Sequence != 8 || told.Value != "8" {
		t.Fatal(told, err)
	}
	is(t, leader.Proclaim(ctx, string(make([]byte, 1003))), locks.ErrBadArgument)
}

func TestAGuardedServerDoesNotKnowWhoLeads(t *testing.T) {
	t.Parallel()
	server := servers.Node(t)
	election := open(t, server.URL).Election(servers.Key())
	heard := reports(t, election)
	if told := heard(); told != "nobody" {
		t.Fatal(told)
	}
	if _, err := server.Say("LOCK.GUARD", "ARM", 60_000); err != nil {
		t.Fatal(err)
	}
	_, err := election.Leader(ctx)
	is(t, err, locks.ErrGuarded)
	server.Lift(t)
	leader, err := election.Campaign(ctx, "after")
	if err != nil {
		t.Fatal(err)
	}
	if told := heard(); told != "after" {
		t.Fatal(told)
	}
	unlocked(t, leader.Lock)
}

func TestAnObservationEndsWithItsContextAndWithTheClient(t *testing.T) {
	t.Parallel()
	client := open(t, servers.Node(t).URL)
	for _, end := range []func(context.CancelFunc){func(cancel context.CancelFunc) { cancel() }, func(context.CancelFunc) { client.Close() }} {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for range client.Election("e").Observe(ctx) {
				end(cancel)
			}
		}()
		soon(t, ended)
	}
}

func TestSeveralLocksAreAcquiredInTheOrderOfTheirBytes(t *testing.T) {
	t.Parallel()
	servers.OnEach(t, func(t *testing.T, server *servers.Server) {
		client, key := open(t, server.URL), servers.Key()
		a, b := key+":a", key+":b"
		all, err := client.LockAll(ctx, []string{b, a, b})
		if err != nil || len(all) != 2 || all[0].Key() != a || all[1].Key() != b {
			t.Fatal(all, err)
		}
		// One that has to wait for the second has released the first when it gives up.
		unlocked(t, all[0])
		_, err = client.LockAll(ctx, []string{a, b}, locks.Wait(50*time.Millisecond))
		is(t, err, locks.ErrNotAcquired)
		server.AwaitFree(t, a)
		unlocked(t, all[1])
		// Many that want both in any order come to an end.
		done := make(chan error, 8)
		for n := range cap(done) {
			go func() {
				keys := []string{a, b}
				if n%2 == 0 {
					slices.Reverse(keys)
				}
				both, err := client.LockAll(ctx, keys)
				done <- errors.Join(err, locks.UnlockAll(ctx, both))
			}()
		}
		for range cap(done) {
			if err := soon(t, done); err != nil {
				t.Fatal(err)
			}
		}
		_, err = client.LockAll(ctx, nil)
		is(t, err, locks.ErrBadArgument)
	})
}

func TestALockIsHandedOverToAWorker(t *testing.T) {
	t.Parallel()
	servers.OnEach(t, func(t *testing.T, server *servers.Server) {
		enqueuer, worker, key := open(t, server.URL), open(t, server.URL), servers.Key()
		lock := must(t)(enqueuer.Lock(ctx, key, locks.TTL(time.Second)))
		owner, token, err := lock.HandOver(ctx)
		if err != nil {
			t.Fatal(err)
		}
		is(t, lock.Extend(ctx, 0), locks.ErrReleased)
		// The end of the one who enqueues leaves the lock to the worker, which extends it.
		enqueuer.Close()
		adopted := must(t)(worker.Adopt(ctx, key, owner, token, locks.TTL(1500*time.Millisecond)))
		if adopted.Token() < token {
			t.Fatal("the token has fallen")
		}
		servers.Passes(t, 2*time.Second)
		if !adopted.IsValid() {
			t.Fatal("it was not extended")
		}
		unlocked(t, adopted)
		server.AwaitFree(t, key)
		for _, wrong := range []struct {
			owner string
			token int64
			err   error
		}{{owner, token, locks.ErrLost}, {"", token, locks.ErrBadArgument}, {owner, 0, locks.ErrBadArgument}} {
			_, err := worker.Adopt(ctx, key, wrong.owner, wrong.token)
			is(t, err, wrong.err)
		}
		reader := must(t)(worker.ReadLock(ctx, key))
		_, _, err = reader.HandOver(ctx)
		is(t, err, locks.ErrBadArgument)
		unlocked(t, reader)
		later := must(t)(worker.Lock(ctx, key))
		_, err = worker.Adopt(ctx, key, later.Owner(), later.Token()+1_000_000_000)
		is(t, err, locks.ErrLost)
		unlocked(t, later)
	})
}
