package main

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// The longest time for which a call is repeated.
const repeatsMax = 15 * time.Second

// Clients among which one lock goes round. Whoever gives it back queues again when the next one has it.
type round struct {
	begin   chan struct{}
	ctx     context.Context
	cancel  context.CancelFunc
	clients []client
	running sync.WaitGroup
	holdS   [2]float64

	mutex    sync.Mutex
	released time.Time
	// Closed once the next one has the lock.
	taken chan struct{}
	// The times from a release to the next holder's answer, and how often each client had the lock.
	delays, turns []int64
	// The number of calls that failed, and were made again.
	repeated int
}

// Makes a call until it succeeds, or for a while: when a busy machine makes etcd change its leader, calls fail.
func (r *round) persist(call func() error) error {
	for since := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		err := call()
		if err == nil || r.ctx.Err() != nil || time.Since(since) > repeatsMax {
			return err
		}
		r.mutex.Lock()
		r.repeated++
		r.mutex.Unlock()
	}
}

// Starts one client more than there are waiters; the first one holds the lock until the round begins.
func start(newClient func() client, q question) *round {
	r := &round{begin: make(chan struct{}), holdS: q.HoldS, delays: []int64{}, turns: make([]int64, q.Waiters+1)}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	for range r.turns {
		r.clients = append(r.clients, newClient())
	}
	for n, c := range r.clients {
		r.running.Go(func() { r.run(n, c, q.Name) })
		for n == 0 && !r.isHeld() {
			time.Sleep(time.Millisecond)
		}
	}
	return r
}

func (r *round) isHeld() bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.turns[0] > 0
}

func (r *round) run(n int, c client, name string) {
	for {
		var release release
		err := r.persist(func() (err error) {
			release, err = c.lock(r.ctx, name, true)
			return err
		})
		now := time.Now()
		if r.ctx.Err() != nil {
			return
		}
		must(err)
		r.mutex.Lock()
		if r.taken != nil {
			r.delays = append(r.delays, now.Sub(r.released).Nanoseconds())
			close(r.taken)
		}
		r.turns[n]++
		r.mutex.Unlock()
		<-r.begin
		hold := r.holdS[0] + rand.Float64()*(r.holdS[1]-r.holdS[0])
		time.Sleep(time.Duration(hold * float64(time.Second)))
		byNext := make(chan struct{})
		r.mutex.Lock()
		r.taken, r.released = byNext, time.Now()
		r.mutex.Unlock()
		err = r.persist(func() error { return release(r.ctx) })
		if r.ctx.Err() != nil {
			return
		}
		must(err)
		select {
		case <-byNext:
		case <-r.ctx.Done():
			return
		}
	}
}

// Returns what was measured, and ends all clients.
func (r *round) result() any {
	r.mutex.Lock()
	answer := map[string]any{
		"delays_ns": slices.Clone(r.delays),
		"turns":     slices.Clone(r.turns),
		"repeated":  r.repeated,
	}
	r.mutex.Unlock()
	r.cancel()
	r.running.Wait()
	var closing sync.WaitGroup
	for _, c := range r.clients {
		closing.Go(c.close)
	}
	closing.Wait()
	return answer
}
