package locks_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"palisade/locks"
	"palisade/locks/internal/servers"
)

func TestAJobRunsOnceInItsTime(t *testing.T) {
	servers.OnEach(t, func(t *testing.T, server *servers.Server) {
		job := servers.Key()
		runs := 0
		work := func(context.Context, *locks.Lock) error {
			runs++
			return nil
		}
		began := time.Now()
		ran, err := open(t, server.URL).Once(ctx, job, 2*time.Second, work, locks.TTL(time.Second))
		if !ran || err != nil {
			t.Fatal(ran, err)
		}
		other := open(t, server.URL)
		ran, err = other.Once(ctx, job, 2*time.Second, work, locks.TTL(time.Second))
		if err != nil || ran && time.Since(began) < 2*time.Second {
			t.Fatal(ran, err)
		}
		server.AwaitFree(t, job)
		if held := time.Since(began); held < 2*time.Second {
			t.Fatalf("held for %v of 2 s", held)
		}
		before := runs
		if ran, err = other.Once(ctx, job, 2*time.Second, work, locks.TTL(time.Second)); !ran || err != nil || runs != before+1 {
			t.Fatal(ran, err, runs)
		}
	})
}

func TestALongJobFreesItsLock(t *testing.T) {
	t.Parallel()
	server := servers.Node(t)
	client, job := open(t, server.URL), servers.Key()
	wrong := errors.New("of the work")
	ran, err := client.Once(ctx, job, 100*time.Millisecond, func(ctx context.Context, lock *locks.Lock) error {
		servers.Passes(t, 150*time.Millisecond)
		return wrong
	}, locks.TTL(time.Minute))
	if !ran || !errors.Is(err, wrong) {
		t.Fatal(ran, err)
	}
	server.AwaitFree(t, job)
	ran, err = client.Once(ctx, job, time.Second, func(context.Context, *locks.Lock) error {
		broken(t, server, job)
		return nil
	}, locks.TTL(time.Minute))
	if !ran || err != nil {
		t.Fatal("nobody has noticed the loss of a lock that is left to its lease", ran, err)
	}
	_, err = client.Once(ctx, job, 5, func(context.Context, *locks.Lock) error { return nil })
	is(t, err, locks.ErrBadArgument)
	_, err = client.Once(ctx, job, time.Second, nil)
	is(t, err, locks.ErrBadArgument)
}
