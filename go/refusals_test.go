package locks_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"palisade/locks"
	"palisade/locks/internal/servers"

	"github.com/redis/go-redis/v9"
)

func TestAddressesThatAreNoneAreRefusedWithTheRightWay(t *testing.T) {
	t.Parallel()
	for address, says := range map[string]string{
		"http://localhost:6379":              "must begin with redis://, rediss:// or unix://",
		"localhost:6379":                     "must begin with redis://",
		"":                                   "must begin with redis://",
		"redis://one:6379,two:6379":          "palisade agent",
		"redis://user:p,w@one,two":           "palisade agent",
		"user:p,w@one:6379,two:6379":         "palisade agent",
		"redis://one;redis://two":            "palisade agent",
		"redis+sentinel://one/master":        "palisade agent",
		"redis+cluster://one":                "palisade agent",
		"redis://user:secret@host:port/zero": "cannot be read",
		"unix:///run/a.sock, unix:///run/palisade/b.sock": "palisade agent",
	} {
		_, err := locks.Open(address)
		is(t, err, locks.ErrBadArgument)
		if !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", address, err)
		}
	}
	for _, address := range []string{"redis://user:a,b@host", "rediss://[::1]:6379/2", "unix:///run/a@b,c.sock"} {
		open(t, address)
	}
	_, err := locks.New(nil)
	is(t, err, locks.ErrBadArgument)
	sentinel := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}})
	defer sentinel.Close()
	_, err = locks.New(sentinel)
	is(t, err, locks.ErrBadArgument)
}

func TestOptionsOutOfBoundsAreRefused(t *testing.T) {
	t.Parallel()
	client := open(t, "unix:///nowhere")
	for says, option := range map[string]locks.Option{
		"write 10*time.Second":                 locks.TTL(10),
		"TTL must be whole milliseconds from":  locks.TTL(99 * time.Millisecond),
		"to 24h0m0s, not 25h0m0s":              locks.TTL(25 * time.Hour),
		"not 100.5ms":                          locks.TTL(100*time.Millisecond + 500*time.Microsecond),
		"Wait must be":                         locks.Wait(-1 * time.Second),
		"at most 1024 bytes long, not 1025":    locks.Note(strings.Repeat("n", 1025)),
		"holder id must be 1 to 64":            locks.HolderID("two words"),
		"MaxHold must not be below 0":          locks.MaxHold(-1),
		"is an option of a Client":             locks.AnswerWithin(time.Second),
		"an option must not be nil":            nil,
		"Logger must not be nil":               locks.Logger(nil),
		"AnswerWithin must be whole millisecs": nil,
	} {
		_, err := client.Lock(ctx, "k", option)
		is(t, err, locks.ErrBadArgument)
		if option != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%q is not in: %v", says, err)
		}
		var named *locks.LockError
		if !errors.As(err, &named) || named.Key != "k" {
			t.Error(err)
		}
	}
	_, err := client.TryLock(ctx, "k", locks.Wait(time.Second))
	is(t, err, locks.ErrBadArgument)
	for _, limit := range []int{0, -1, 65_536} {
		_, err := client.Semaphore("k", limit).Acquire(ctx)
		is(t, err, locks.ErrBadArgument)
	}
	is(t, client.WithLock(ctx, "k", nil), locks.ErrBadArgument)
	_, err = locks.Open("unix:///nowhere", locks.TTL(10))
	is(t, err, locks.ErrBadArgument)
}

func TestErrorsOfTheServerAreKnownByTheirCode(t *testing.T) {
	t.Parallel()
	server := servers.Node(t)
	client, key := open(t, server.URL), servers.Key()
	code := func(err error) string {
		var refused *locks.ServerError
		if !errors.As(err, &refused) {
			t.Fatal(err)
		}
		return refused.Code
	}
	_, err := client.Lock(ctx, key, locks.TTL(time.Hour), locks.Wait(0))
	if code(err) != "ERR" || !strings.Contains(err.Error(), "lock.max-ttl") {
		t.Fatal(err)
	}
	server.Say("SET", key, "text")
	if _, err = client.Lock(ctx, key); code(err) != "WRONGTYPE" {
		t.Fatal(err)
	}
	server.Say("LOCK.GUARD", "ARM", 60_000)
	_, err = client.TryLock(ctx, servers.Key())
	is(t, err, locks.ErrGuarded)
	var guarded *locks.ServerError
	if errors.As(err, &guarded); guarded.RetryAfter <= 0 || guarded.RetryAfter > time.Minute {
		t.Fatal(guarded.RetryAfter)
	}
	// A wait that ends before the guard does names it.
	_, err = client.Lock(ctx, servers.Key(), locks.Wait(100*time.Millisecond))
	is(t, err, locks.ErrGuarded)
}

func TestWhatSomebodyHasToMendIsSaid(t *testing.T) {
	t.Parallel()
	bare := servers.Bare(t)
	_, err := open(t, bare.URL).Lock(ctx, "k")
	is(t, err, locks.ErrMisconfigured)
	if !strings.Contains(err.Error(), "load the Palisade module there (docs/install.md)") {
		t.Fatal(err)
	}
	node := servers.Node(t)
	node.Say("ACL", "SETUSER", "app", "on", ">secret", "~*", "+@connection", "+hello")
	for user, says := range map[string]string{"app:secret": "docs/acl.md", "app:wrong": "refuses the user or the password"} {
		_, err := open(t, fmt.Sprintf("unix://%s@%s", user, node.Path)).Lock(ctx, "k")
		is(t, err, locks.ErrMisconfigured)
		if !strings.Contains(err.Error(), says) {
			t.Fatal(err)
		}
	}
	node.Say("CONFIG", "SET", "requirepass", "new")
	_, err = open(t, node.URL).Lock(ctx, "k")
	is(t, err, locks.ErrMisconfigured)
	if !strings.Contains(err.Error(), "wants a password") {
		t.Fatal(err)
	}
}
