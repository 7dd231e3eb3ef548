package locktest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"palisade/locks"
	"palisade/locks/internal/servers"
	"palisade/locks/locktest"
)

var ctx = context.Background()

// outcome returns the kind of an error for a comparison.
func outcome(err error) string {
	for name, kind := range map[string]error{
		"not acquired": locks.ErrNotAcquired, "lost": locks.ErrLost, "released": locks.ErrReleased, "cancelled": context.Canceled,
	} {
		if errors.Is(err, kind) {
			return name
		}
	}
	return fmt.Sprint(err)
}

// played plays a program's use of locks, and returns the outcome of each step.
func played(t *testing.T, client *locks.Client, waiting func(string) int) (story []string) {
	say := func(what string, err error) { story = append(story, what+": "+outcome(err)) }
	await := func(key string, number int) {
		servers.Eventually(t, "they wait", func() bool { return waiting(key) == number })
	}
	first, err := client.Lock(ctx, "k", locks.Note("the first"))
	say("lock", err)
	_, err = client.TryLock(ctx, "k")
	var held *locks.NotAcquiredError
	if errors.As(err, &held) {
		story = append(story, held.Holder.Note, fmt.Sprint(held.Holder.Token == first.Token()))
	}
	_, err = client.Lock(ctx, "k", locks.Wait(20*time.Millisecond))
	say("wait", err)
	waiter, cancel := context.WithCancel(ctx)
	left := make(chan error, 1)
	go func() {
		_, err := client.Lock(waiter, "k")
		left <- err
	}()
	await("k", 1)
	cancel()
	say("cancel", <-left)
	await("k", 0)
	inner, err := first.Reenter(ctx)
	say("reenter", err)
	say("extend", first.Extend(ctx, 20*time.Second))
	say("outer", first.Unlock(ctx))
	_, err = client.TryLock(ctx, "k")
	say("still held", err)
	next := make(chan *locks.Lock, 1)
	go func() {
		lock, _ := client.Lock(ctx, "k")
		next <- lock
	}()
	await("k", 1)
	say("inner", inner.Unlock(ctx))
	second := <-next
	story = append(story, fmt.Sprint("rises: ", second.Token() > first.Token()))
	say("downgrade", second.Downgrade(ctx))
	reader, err := client.ReadLock(ctx, "k", locks.Wait(0))
	say("read", err)
	say("upgrade", second.Upgrade(ctx))
	say("release", reader.Unlock(ctx))
	say("upgrade", second.Upgrade(ctx))
	_, err = client.ReadLock(ctx, "k", locks.Wait(0))
	say("read", err)
	say("release", second.Unlock(ctx))
	say("again", second.Unlock(ctx))
	return story
}

// playedPermits is the same with permits, and with a lease that ends.
func playedPermits(client *locks.Client) (story []string) {
	say := func(what string, err error) { story = append(story, what+": "+outcome(err)) }
	one, err := client.Semaphore("s", 2).Acquire(ctx)
	say("permit", err)
	two, err := client.Semaphore("s", 2).Acquire(ctx)
	say("permit", err)
	_, err = client.Semaphore("s", 2).TryAcquire(ctx)
	say("permit", err)
	numbers := []int{one.Number(), two.Number()}
	slices.Sort(numbers)
	story = append(story, fmt.Sprint(numbers))
	_, err = client.TryLock(ctx, "s")
	say("lock", err)
	say("release", one.Unlock(ctx))
	short, err := client.Lock(ctx, "short", locks.TTL(200*time.Millisecond), locks.AutoExtend(false))
	say("short", err)
	<-short.Context().Done()
	say("after its lease", short.Unlock(ctx))
	return story
}

// playedElection is the same with a leader, and with a lock that is handed over.
func playedElection(client *locks.Client) (story []string) {
	say := func(what string, err error) { story = append(story, what+": "+outcome(err)) }
	election := client.Election("e")
	leader, err := election.Leader(ctx)
	say(fmt.Sprint("nobody leads: ", leader == nil), err)
	leadership, err := election.Campaign(ctx, "10.0.0.1")
	say("campaign", err)
	say("proclaim", leadership.Proclaim(ctx, "10.0.0.2"))
	leader, err = election.Leader(ctx)
	say(fmt.Sprint(leader.Value, leader.Sequence, leader.Term == leadership.Term()), err)
	owner, token, err := leadership.HandOver(ctx)
	say("hand over", err)
	adopted, err := client.Adopt(ctx, "e", owner, token)
	say("adopt", err)
	say("release", adopted.Unlock(ctx))
	_, err = client.Adopt(ctx, "e", owner, token)
	say("adopt again", err)
	return story
}

func TestTheFakeAnswersAsAServerDoes(t *testing.T) {
	node := servers.Node(t)
	client, err := locks.Open(node.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	real := played(t, client, func(key string) int { return int(node.Waiters(key)) })
	fake := locktest.New(t)
	story := played(t, fake.Client(), fake.Waiting)
	story, real = append(story, playedPermits(fake.Client())...), append(real, playedPermits(client)...)
	story, real = append(story, playedElection(fake.Client())...), append(real, playedElection(client)...)
	if !slices.Equal(story, real) {
		t.Fatalf("the fake:\n%q\nthe server:\n%q", story, real)
	}
}

func TestALockIsTakenAwayAtOnce(t *testing.T) {
	server := locktest.New(t)
	client := server.Client()
	lock, err := client.Lock(ctx, "k", locks.TTL(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	next := make(chan error, 1)
	go func() {
		_, err := client.Lock(ctx, "k")
		next <- err
	}()
	servers.Eventually(t, "it waits", func() bool { return server.Waiting("k") == 1 })
	server.TakeAway("k")
	var lost *locks.LostError
	if !errors.As(context.Cause(lock.Context()), &lost) || lost.Reason != locks.TakenAway || lock.IsValid() {
		t.Fatal(context.Cause(lock.Context()))
	}
	if err := <-next; err != nil || !server.IsHeld("k") {
		t.Fatal(err)
	}
	if err := lock.Unlock(ctx); !errors.Is(err, locks.ErrLost) {
		t.Fatal(err)
	}
}

func TestALockIsHeldByAnotherProgram(t *testing.T) {
	server := locktest.New(t)
	client := server.Client(locks.Note("mine"))
	release := server.HoldElsewhere("k")
	if _, err := client.TryLock(ctx, "k"); outcome(err) != "not acquired" {
		t.Fatal(err)
	}
	release()
	lock, err := client.TryLock(ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Unlock(ctx); err != nil || server.IsHeld("k") {
		t.Fatal(err)
	}
}

func TestLeadersInMemoryAreNotObserved(t *testing.T) {
	told := 0
	for leader, err := range locktest.New(t).Client().Election("e").Observe(ctx) {
		var refused *locks.ServerError
		if told++; told == 1 && (leader != nil || err != nil) || told == 2 && !errors.As(err, &refused) {
			t.Fatal(told, leader, err)
		}
	}
	if told != 2 {
		t.Fatal(told)
	}
}
