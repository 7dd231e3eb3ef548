package locks_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"
	"time"

	"palisade/locks"

	"github.com/redis/go-redis/v9"
)

// address is that of a server with the module, or of a `palisade agent`.
var address = "unix:///run/palisade/agent.sock"

func Example() {
	ctx := context.Background()
	client, err := locks.Open(address)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	// It waits in turn. The lease is extended in the background until the lock is given back.
	lock, err := client.Lock(ctx, "orders:42", locks.TTL(10*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer lock.Unlock(ctx)

	// The resource remembers the largest token it has seen, and refuses smaller ones. The context ends with the lock.
	if lock.IsValid() {
		pay(lock.Context(), lock.Token())
	}
	// Output: paid
}

func pay(context.Context, int64) { fmt.Println("paid") }

func ExampleClient_TryLock() {
	ctx := context.Background()
	client, _ := locks.Open(address)
	defer client.Close()
	lock, _ := client.Lock(ctx, "report", locks.Note("the nightly report"))
	defer lock.Unlock(ctx)

	_, err := client.TryLock(ctx, "report")
	var held *locks.NotAcquiredError
	if errors.As(err, &held) {
		fmt.Println(held.Reason, "by", held.Holder.Note)
	}
	// Output: held by the nightly report
}

func ExampleClient_WithLock() {
	ctx := context.Background()
	client, _ := locks.Open(address)
	defer client.Close()

	err := client.WithLock(ctx, "orders:42", func(ctx context.Context, lock *locks.Lock) error {
		pay(ctx, lock.Token())
		return nil
	})
	switch {
	case errors.Is(err, locks.ErrNotAcquired):
		fmt.Println("somebody else is at it")
	case errors.Is(err, locks.ErrLost):
		fmt.Println("the last steps may have been done without the lock")
	case err != nil:
		log.Fatal(err)
	}
	// Output: paid
}

func ExampleLock_Context() {
	ctx := context.Background()
	client, _ := locks.Open(address)
	defer client.Close()
	lock, _ := client.Lock(ctx, "import", locks.TTL(time.Second), locks.AutoExtend(false))

	// The work takes longer than the lease, which nobody extends.
	select {
	case <-time.After(time.Minute):
	case <-lock.Context().Done():
		fmt.Println(errors.Is(context.Cause(lock.Context()), locks.ErrLost))
	}
	fmt.Println(errors.Is(lock.Unlock(ctx), locks.ErrLost))
	// Output:
	// true
	// true
}

func ExampleSemaphore() {
	ctx := context.Background()
	client, _ := locks.Open(address)
	defer client.Close()

	printers := client.Semaphore("printers", 3)
	permit, err := printers.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("printer", permit.Number())
	fmt.Println(permit.Unlock(ctx))
	// Output:
	// printer 1
	// <nil>
}

func ExampleLock_Fenced() {
	ctx := context.Background()
	client, _ := locks.Open(address)
	defer client.Close()
	// The data is on any server with the module.
	data := redis.NewClient(&redis.Options{Network: "unix", Addr: strings.TrimPrefix(address, "unix://")})
	defer data.Close()

	lock, err := client.Lock(ctx, "invoices")
	if err != nil {
		log.Fatal(err)
	}
	defer lock.Unlock(ctx)
	invoices := lock.Fenced(data, "invoices:gate")
	// A gated read shows the token early: from here on no earlier holder writes.
	state, err := invoices.Do(ctx, "HGET", "invoice:42", "state").Text()
	if errors.Is(err, redis.Nil) {
		state, err = "new", nil
	}
	if err == nil && state != "paid" {
		err = invoices.Do(ctx, "HSET", "invoice:42", "state", "paid", "before", state).Err()
	}
	switch {
	case errors.Is(err, locks.ErrFenced), errors.Is(err, locks.ErrLost):
		fmt.Println("stop, a newer holder was here:", err)
	case err != nil:
		log.Fatal(err)
	}
	fmt.Println(data.HGetAll(ctx, "invoice:42").Val())
	// Output: map[before:new state:paid]
}

func ExampleElection() {
	ctx := context.Background()
	client, _ := locks.Open(address)
	defer client.Close()

	election := client.Election("scheduler")
	leadership, err := election.Campaign(ctx, "10.0.0.1:80")
	if err != nil {
		log.Fatal(err)
	}
	defer leadership.Unlock(ctx)
	for leader, err := range election.Observe(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(leader.Value, leader.Term == leadership.Term())
		break
	}
	// Output: 10.0.0.1:80 true
}

func ExampleClient_LockAll() {
	ctx := context.Background()
	client, _ := locks.Open(address)
	defer client.Close()

	// Callers that name them in another order do not wait for each other in a circle.
	both, err := client.LockAll(ctx, []string{"account:7", "account:3"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(both[0].Key(), both[1].Key())
	fmt.Println(locks.UnlockAll(ctx, both))
	// Output:
	// account:3 account:7
	// <nil>
}

func ExampleClient_Adopt() {
	ctx := context.Background()
	client, _ := locks.Open(address)
	defer client.Close()

	// Who enqueues a job takes its lock, so that nobody else enqueues it.
	lock, _ := client.Lock(ctx, "report:7")
	owner, token, err := lock.HandOver(ctx)
	if err != nil {
		log.Fatal(err)
	}
	// The worker reads owner and token from the job, and gives the lock back.
	adopted, err := client.Adopt(ctx, "report:7", owner, token)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(adopted.Unlock(ctx))
	// Output: <nil>
}

func ExampleLock_Downgrade() {
	ctx := context.Background()
	client, _ := locks.Open(address)
	defer client.Close()

	// One writes, and then reads beside others what was written.
	lock, _ := client.WriteLock(ctx, "catalogue")
	if err := lock.Downgrade(ctx); err != nil {
		log.Fatal(err)
	}
	reader, err := client.ReadLock(ctx, "catalogue", locks.Wait(0))
	fmt.Println(err)
	reader.Unlock(ctx)
	lock.Unlock(ctx)
	// Output: <nil>
}
