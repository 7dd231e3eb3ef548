package locks_test

import (
	"sync/atomic"
	"testing"
	"time"

	"palisade/locks"
	"palisade/locks/locktest"
)

// asking is a listener that calls the lock whose event it receives.
type asking struct {
	lock  atomic.Pointer[locks.Lock]
	heard chan string
}

func (a *asking) ask(event string) {
	if lock := a.lock.Load(); lock != nil {
		lock.ValidFor()
		lock.Token()
		a.heard <- event
	}
}

func (*asking) Acquired(locks.Kind, time.Duration)                 {}
func (*asking) Failed(locks.Kind, time.Duration, error)            {}
func (a *asking) Extended(locks.Kind, bool)                        { a.ask("extended") }
func (a *asking) Released(locks.Kind, time.Duration)               { a.ask("released") }
func (a *asking) Lost(locks.Kind, time.Duration, locks.LossReason) { a.ask("lost") }

func TestAListenerMayAskTheLock(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]struct {
		event string
		end   func(*locktest.Server, *locks.Client, *locks.Lock)
	}{
		"released":    {"released", func(_ *locktest.Server, _ *locks.Client, lock *locks.Lock) { lock.Unlock(ctx) }},
		"handed over": {"released", func(_ *locktest.Server, _ *locks.Client, lock *locks.Lock) { lock.HandOver(ctx) }},
		"taken away":  {"lost", func(server *locktest.Server, _ *locks.Client, _ *locks.Lock) { server.TakeAway("k") }},
		"closed":      {"lost", func(_ *locktest.Server, client *locks.Client, _ *locks.Lock) { client.Close() }},
		"extended":    {"extended", func(_ *locktest.Server, _ *locks.Client, _ *locks.Lock) {}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, heard := locktest.New(t), &asking{heard: make(chan string, 100)}
			client := server.Client(locks.Listen(heard), locks.TTL(3*time.Second))
			lock := must(t)(client.Lock(ctx, "k"))
			heard.lock.Store(lock)
			go one.end(server, client, lock)
			for soon(t, heard.heard) != one.event {
			}
		})
	}
}
