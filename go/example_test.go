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
