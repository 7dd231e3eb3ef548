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

// errOldHeld is that of an old lock that somebody holds.
var errOldHeld = errors.New("the old lock is held")

// An oldMutex is one with the methods of redsync, on one node, that tries once.
type oldMutex struct {
	client     *redis.Client
	key, value string
}

func (m *oldMutex) LockContext(ctx context.Context) error {
	isNew, err := m.client.SetNX(ctx, m.key, m.value, time.Minute).Result()
	if err == nil && !isNew {
		err = errOldHeld
	}
	return err
}

func (m *oldMutex) UnlockContext(ctx context.Context) (bool, error) {
	const release = `return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0`
	n, err := m.client.Eval(ctx, release, []string{m.key}, m.value).Int()
	return n == 1, err
}

// TestOneStepOfTheRollOutBesideTheNextKeepsExclusion plays each pair of versions. The last two are what a skipped step does.
func TestOneStepOfTheRollOutBesideTheNextKeepsExclusion(t *testing.T) {
	t.Parallel()
	server := servers.Node(t)
	client := open(t, server.URL)
	type version func(key, value string) (unlock func(context.Context) error, err error)
	old := version(func(key, value string) (func(context.Context) error, error) {
		mutex := &oldMutex{server.Outside, key, value}
		return func(ctx context.Context) error { _, err := mutex.UnlockContext(ctx); return err }, mutex.LockContext(ctx)
	})
	both := version(func(key, value string) (func(context.Context) error, error) {
		lock, err := client.LockBoth(ctx, &oldMutex{server.Outside, key, value}, key+":new", locks.Wait(0))
		if err != nil {
			return nil, err
		}
		return lock.Unlock, nil
	})
	only := version(func(key, _ string) (func(context.Context) error, error) {
		lock, err := client.TryLock(ctx, key+":new")
		if err != nil {
			return nil, err
		}
		return lock.Unlock, nil
	})
	for _, pair := range []struct {
		name          string
		first, second version
		excludes      bool
	}{
		{"old, both", old, both, true}, {"both, old", both, old, true}, {"both, both", both, both, true},
		{"both, new", both, only, true}, {"new, both", only, both, true},
		{"old, new: the step of both was skipped", old, only, false}, {"new, old", only, old, false},
	} {
		key := servers.Key()
		unlock, err := pair.first(key, "first")
		if err != nil {
			t.Fatal(pair.name, err)
		}
		unlockSecond, err := pair.second(key, "second")
		if isRefused := errors.Is(err, errOldHeld) || errors.Is(err, locks.ErrNotAcquired); isRefused != pair.excludes {
			t.Fatal(pair.name, err)
		}
		if err == nil {
			unlockSecond(ctx)
		}
		if err := unlock(ctx); err != nil {
			t.Fatal(pair.name, err)
		}
		// Who was refused has left nothing behind, in either lock.
		unlock, err = both(key, "third")
		if err != nil {
			t.Fatal(pair.name, err)
		}
		if err := unlock(ctx); err != nil {
			t.Fatal(pair.name, err)
		}
	}
}

func TestTheLossOfEitherLockIsReported(t *testing.T) {
	t.Parallel()
	server := servers.Node(t)
	client, key := open(t, server.URL), servers.Key()
	lock, err := client.LockBoth(ctx, &oldMutex{server.Outside, key, "me"}, key+":new")
	if err != nil {
		t.Fatal(err)
	}
	server.Outside.Del(ctx, key)
	is(t, lock.Unlock(ctx), locks.ErrOldLost)
	lock, err = client.LockBoth(ctx, &oldMutex{server.Outside, key, "me"}, key+":new")
	if err != nil {
		t.Fatal(err)
	}
	broken(t, server, key+":new")
	is(t, lock.Unlock(ctx), locks.ErrLost)
	if server.Outside.Exists(ctx, key).Val() != 0 {
		t.Fatal("the old lock was left")
	}
	_, err = client.LockBoth(ctx, nil, key)
	is(t, err, locks.ErrBadArgument)
}
