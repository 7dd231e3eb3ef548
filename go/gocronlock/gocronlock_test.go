package gocronlock_test

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"palisade/locks"
	"palisade/locks/gocronlock"
	"palisade/locks/internal/servers"
	"palisade/locks/locktest"

	"github.com/go-co-op/gocron/v2"
)

var ctx = context.Background()

// open returns a client of a real server.
func open(t *testing.T, url string) *locks.Client {
	client, err := locks.Open(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// schedule starts a scheduler with a job that is due once, at a moment.
func schedule(t *testing.T, at time.Time, option gocron.SchedulerOption, job func()) gocron.Scheduler {
	t.Helper()
	scheduler, err := gocron.NewScheduler(option)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { scheduler.Shutdown() })
	when := gocron.OneTimeJob(gocron.OneTimeJobStartDateTime(at))
	if _, err := scheduler.NewJob(when, gocron.NewTask(job), gocron.WithName("nightly")); err != nil {
		t.Fatal(err)
	}
	scheduler.Start()
	return scheduler
}

func TestOneOfManySchedulersRunsAJob(t *testing.T) {
	node := servers.Node(t)
	var runs atomic.Int64
	at := time.Now().Add(time.Second)
	for range 5 {
		locker := gocronlock.NewLocker(open(t, node.URL), 20*time.Second)
		schedule(t, at, gocron.WithDistributedLocker(locker), func() { runs.Add(1) })
	}
	servers.Eventually(t, "it runs", func() bool { return runs.Load() > 0 })
	servers.Passes(t, time.Second)
	if runs.Load() != 1 {
		t.Fatalf("it ran %d times", runs.Load())
	}
}

func TestALockerLeavesTheLockForTheSplay(t *testing.T) {
	server := locktest.New(t)
	client := server.Client(locks.TTL(200 * time.Millisecond))
	locker := gocronlock.NewLocker(client, 500*time.Millisecond)
	began := time.Now()
	lock, err := locker.Lock(ctx, "job")
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := locker.Lock(ctx, "job"); !errors.Is(err, gocronlock.ErrElsewhere) && time.Since(began) < 500*time.Millisecond {
		t.Fatal(err)
	}
	servers.Eventually(t, "it is free", func() bool { return !server.IsHeld("job") })
	if held := time.Since(began); held < 500*time.Millisecond {
		t.Fatalf("held for %v", held)
	}
	lock, err = locker.Lock(ctx, "job")
	if err != nil {
		t.Fatal(err)
	}
	server.TakeAway("job")
	if err := lock.Unlock(ctx); !errors.Is(err, locks.ErrLost) {
		t.Fatal(err)
	}
}

func TestTheNextHostLeadsAfterTheFirst(t *testing.T) {
	server := locktest.New(t)
	first := gocronlock.NewElector(server.Client(), "cron")
	defer first.Close()
	servers.Eventually(t, "the first leads", func() bool { return first.IsLeader(ctx) == nil })
	host, _ := os.Hostname()
	leader, err := server.Client().Election("cron").Leader(ctx)
	if err != nil || leader == nil || leader.Value != host {
		t.Fatal(leader, err)
	}
	second := gocronlock.NewElector(server.Client(), "cron")
	defer second.Close()
	servers.Eventually(t, "the second waits", func() bool { return server.Waiting("cron") == 1 })
	if err := second.IsLeader(ctx); !errors.Is(err, gocronlock.ErrNotLeader) {
		t.Fatal(err)
	}
	server.TakeAway("cron")
	if err := first.IsLeader(ctx); !errors.Is(err, gocronlock.ErrNotLeader) {
		t.Fatal("it lost the lock: ", err)
	}
	servers.Eventually(t, "the second leads", func() bool { return second.IsLeader(ctx) == nil })
	servers.Eventually(t, "the first waits", func() bool { return server.Waiting("cron") == 1 })
	second.Close()
	servers.Eventually(t, "the first leads again", func() bool { return first.IsLeader(ctx) == nil })
}
