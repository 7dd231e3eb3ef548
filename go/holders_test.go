package locks_test

import (
	"context"
	"regexp"
	"testing"

	"palisade/locks"
	"palisade/locks/internal/servers"
)

var holderOf = regexp.MustCompile(`^(.*?) ?\[holder=([^\]]+)\]$`)

// holder returns the note for people, and the holder id.
func holder(t *testing.T, server *servers.Server, key string) (note, id string) {
	t.Helper()
	found := holderOf.FindStringSubmatch(server.Note(key))
	if found == nil {
		t.Fatalf("no holder id in %q", server.Note(key))
	}
	return found[1], found[2]
}

func TestANoteSaysWhoHoldsTheLock(t *testing.T) {
	t.Parallel()
	server := servers.Node(t)
	client, key := open(t, server.URL), servers.Key()
	lock := must(t)(client.Lock(ctx, key))
	note, _ := holder(t, server, key)
	if !regexp.MustCompile(`^\S+ pid \d+: \S*locks\S*test$`).MatchString(note) {
		t.Fatal(note)
	}
	unlocked(t, lock)
	lock = must(t)(client.Lock(ctx, key, locks.Note("of mine"), locks.HolderID("job-7")))
	if note, id := holder(t, server, key); note != "of mine" || id != "job-7" {
		t.Fatal(note, id)
	}
	unlocked(t, lock)
}

func TestLocksOfOneFlowHaveOneHolderID(t *testing.T) {
	t.Parallel()
	server := servers.Node(t)
	client := open(t, server.URL)
	first := must(t)(client.Lock(ctx, servers.Key()))
	_, of := holder(t, server, first.Key())
	second := must(t)(client.Lock(first.Context(), servers.Key()))
	if _, id := holder(t, server, second.Key()); id != of {
		t.Fatal(id, of)
	}
	client.WithLock(first.Context(), servers.Key(), func(ctx context.Context, third *locks.Lock) error {
		fourth := must(t)(client.Lock(ctx, servers.Key()))
		if _, id := holder(t, server, fourth.Key()); id != of {
			t.Error(id, of)
		}
		return nil
	})
	other := must(t)(client.Lock(ctx, servers.Key()))
	if _, id := holder(t, server, other.Key()); id == of {
		t.Fatal("another flow has an id of its own")
	}
	// What waits for a lock that its flow holds is another flow: it would wait for itself.
	waits := begin(func() (*locks.Lock, error) { return client.Lock(context.WithoutCancel(first.Context()), first.Key()) })
	server.AwaitWaiters(t, first.Key(), 1)
	unlocked(t, first)
	came := soon(t, waits)
	must(t)(came.lock, came.err)
	if _, id := holder(t, server, first.Key()); id == of {
		t.Fatal("it has the id of the flow that it waited for")
	}
}
