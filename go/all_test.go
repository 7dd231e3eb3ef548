package locks_test

import (
	"testing"
	"time"

	"palisade/locks"
	"palisade/locks/internal/servers"
)

// A hearing is a listener that passes on losses.
type hearing chan locks.LossReason

func (hearing) Acquired(locks.Kind, time.Duration)                         {}
func (hearing) Failed(locks.Kind, time.Duration, error)                    {}
func (hearing) Extended(locks.Kind, bool)                                  {}
func (hearing) Released(locks.Kind, time.Duration)                         {}
func (h hearing) Lost(_ locks.Kind, _ time.Duration, why locks.LossReason) { h <- why }

func TestAllLocksAreHeldOrNone(t *testing.T) {
	t.Parallel()
	server, key := servers.Node(t), servers.Key()
	keys := []string{key + ":a", key + ":b", key + ":c"}
	if _, err := server.Say("LOCK.ACQUIRE", keys[2], "somebody", 60000); err != nil {
		t.Fatal(err)
	}
	lost := make(hearing, len(keys))
	client := open(t, server.URL, locks.Listen(lost))
	failed := make(chan error, 1)
	go func() {
		_, err := client.LockAll(ctx, keys)
		failed <- err
	}()
	server.AwaitWaiters(t, keys[2], 1)
	// The second: it is the first one whose loss ends the wait.
	broken(t, server, keys[1])
	soon(t, lost)
	if _, err := server.Say("LOCK.RELEASE", keys[2], "somebody"); err != nil {
		t.Fatal(err)
	}
	is(t, soon(t, failed), locks.ErrLost)
	for _, key := range keys {
		server.AwaitFree(t, key)
	}
}
