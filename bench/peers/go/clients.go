package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	redsyncpool "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredis "github.com/redis/go-redis/v9"
	etcd "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

// A client, as one process of an application has it.
type client struct {
	// Takes a lock, and returns its release. Fails if somebody has the lock, unless it shall wait.
	lock  func(ctx context.Context, name string, wait bool) (release, error)
	close func()
}

type release = func(context.Context) error

// The time after which redislock tries again, as in its documentation; it has no default.
const redislockRetry = 100 * time.Millisecond

const goRedis = "github.com/redis/go-redis/v9"

// Returns how to make clients, and the versions of what they are made of.
func clients(q question) (func() client, string) {
	ttl := time.Duration(q.TTLMs) * time.Millisecond
	var addresses []string
	for _, port := range q.Ports {
		addresses = append(addresses, fmt.Sprintf("127.0.0.1:%d", port))
	}
	switch q.Client {
	case "redsync":
		return func() client { return newRedsync(addresses, ttl) }, versions("github.com/go-redsync/redsync/v4", goRedis)
	case "redislock":
		return func() client { return newRedislock(addresses[0], ttl) }, versions("github.com/bsm/redislock", goRedis)
	default:
		// Sessions share the connections, as they would in one process.
		shared, err := etcd.New(etcd.Config{Endpoints: addresses, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
		must(err)
		return func() client { return newEtcd(shared, ttl) }, versions("go.etcd.io/etcd/client/v3")
	}
}

func versions(modules ...string) string {
	info, _ := debug.ReadBuildInfo()
	var all []string
	for _, module := range info.Deps {
		if slices.Contains(modules, module.Path) {
			all = append(all, strings.TrimPrefix(module.Path, "github.com/")+" "+module.Version)
		}
	}
	return strings.Join(append(all, strings.Replace(runtime.Version(), "go", "Go ", 1)), ", ")
}

func newRedsync(addresses []string, ttl time.Duration) client {
	var pools []redis.Pool
	for _, address := range addresses {
		pools = append(pools, redsyncpool.NewPool(goredis.NewClient(&goredis.Options{Addr: address})))
	}
	locks := redsync.New(pools...)
	lock := func(ctx context.Context, name string, wait bool) (release, error) {
		// Only the number of tries differs from the defaults: a client that waits does not give up.
		mutex := locks.NewMutex(name, redsync.WithExpiry(ttl), redsync.WithTries(math.MaxInt))
		release := func(ctx context.Context) error {
			released, err := mutex.UnlockContext(ctx)
			if err == nil && !released {
				err = errors.New("not released")
			}
			return err
		}
		if wait {
			return release, mutex.LockContext(ctx)
		}
		return release, mutex.TryLockContext(ctx)
	}
	return client{lock, func() {}}
}

func newRedislock(address string, ttl time.Duration) client {
	locks := redislock.New(goredis.NewClient(&goredis.Options{Addr: address}))
	lock := func(ctx context.Context, name string, wait bool) (release, error) {
		var options redislock.Options
		if wait {
			options.RetryStrategy = redislock.LinearBackoff(redislockRetry)
			// Without a deadline, it gives up after the length of a lease.
			within, cancel := context.WithTimeout(ctx, time.Hour)
			defer cancel()
			ctx = within
		}
		lock, err := locks.Obtain(ctx, name, ttl, &options)
		if err != nil {
			return nil, err
		}
		return lock.Release, nil
	}
	return client{lock, func() {}}
}

func newEtcd(shared *etcd.Client, ttl time.Duration) client {
	session, err := concurrency.NewSession(shared, concurrency.WithTTL(int(ttl.Seconds())))
	must(err)
	lock := func(ctx context.Context, name string, wait bool) (release, error) {
		mutex := concurrency.NewMutex(session, name)
		if wait {
			return mutex.Unlock, mutex.Lock(ctx)
		}
		return mutex.Unlock, mutex.TryLock(ctx)
	}
	return client{lock, func() { _ = session.Close() }}
}
