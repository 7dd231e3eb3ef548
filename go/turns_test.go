package locks_test

import (
	"testing"
	"time"

	"palisade/locks"
	"palisade/locks/internal/servers"
)

func TestAGrantOfWhichLittleIsLeftIsAskedForAgain(t *testing.T) {
	t.Parallel()
	server := servers.Node(t)
	way, key := servers.WayTo(t, server), servers.Key()
	if _, err := server.Say("LOCK.ACQUIRE", key, "before", 60000); err != nil {
		t.Fatal(err)
	}
	const ttl = 2 * time.Second
	client := open(t, way.URL, locks.TTL(ttl), locks.AutoExtend(false))
	way.HoldAnswers("WAIT")
	came := begin(func() (*locks.Lock, error) { return client.Lock(ctx, key) })
	server.AwaitWaiters(t, key, 1)
	if _, err := server.Say("LOCK.RELEASE", key, "before"); err != nil {
		t.Fatal(err)
	}
	servers.Eventually(t, "the grant is held up", func() bool { return way.Held() == 1 })
	servers.Passes(t, ttl*6/10)
	way.LetGo()
	one := soon(t, came)
	lock := must(t)(one.lock, one.err)
	if left := lock.ValidFor(); left < ttl/2 {
		t.Fatal("it is valid only for ", left)
	}
	unlocked(t, lock)
}
