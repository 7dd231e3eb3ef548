// Locks of redsync, bsm/redislock and etcd's client, driven by palisade-bench: each line of standard input is a question
// in JSON, each line of standard output the answer.
package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"
)

// A question; which fields it has depends on what it says to do.
type question struct {
	Do string `json:"do"`
	// The client, the ports of its servers, and the length of its leases.
	Client string `json:"client"`
	Ports  []int  `json:"ports"`
	TTLMs  int64  `json:"ttl_ms"`
	// A lock, the number of clients that wait for it, and the shortest and the longest time to hold it.
	Name    string     `json:"name"`
	Waiters int        `json:"waiters"`
	HoldS   [2]float64 `json:"hold_s"`
	// The number of tasks, for how long they take locks, and the time after which one is given up.
	Tasks int   `json:"tasks"`
	Ms    int64 `json:"ms"`
	MostS int64 `json:"most_s"`
}

type peer struct {
	question
	newClient func() client
	shared    client
	round     *round
}

func (p *peer) answer(q question) any {
	switch q.Do {
	case "hello":
		var version string
		p.question = q
		p.newClient, version = clients(q)
		p.shared = p.newClient()
		return map[string]string{"version": version}
	case "hold":
		_, err := p.shared.lock(context.Background(), q.Name, true)
		must(err)
	case "slice":
		return slice(p.shared, q)
	case "start":
		p.round = start(p.newClient, q)
	case "go":
		close(p.round.begin)
	case "result":
		return p.round.result()
	}
	return struct{}{}
}

// The results of tasks that took and gave back locks.
type times struct {
	AcquireNs []int64 `json:"acquire_ns"`
	ReleaseNs []int64 `json:"release_ns"`
	Failed    int     `json:"failed"`
	ElapsedNs int64   `json:"elapsed_ns"`
}

// Takes and gives back locks with names of their own.
func slice(c client, q question) times {
	start := time.Now()
	end := start.Add(time.Duration(q.Ms) * time.Millisecond)
	each := make([]times, q.Tasks)
	var tasks sync.WaitGroup
	for n := range each {
		tasks.Go(func() { each[n] = task(c, end, time.Duration(q.MostS)*time.Second) })
	}
	tasks.Wait()
	all := times{AcquireNs: []int64{}, ReleaseNs: []int64{}, ElapsedNs: time.Since(start).Nanoseconds()}
	for _, one := range each {
		all.AcquireNs = append(all.AcquireNs, one.AcquireNs...)
		all.ReleaseNs = append(all.ReleaseNs, one.ReleaseNs...)
		all.Failed += one.Failed
	}
	return all
}

func task(c client, end time.Time, most time.Duration) (done times) {
	for time.Now().Before(end) {
		name := rand.Text()
		asked := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), most)
		release, err := c.lock(ctx, name, false)
		cancel()
		held := time.Now()
		if err != nil {
			done.Failed++
			continue
		}
		done.AcquireNs = append(done.AcquireNs, held.Sub(asked).Nanoseconds())
		ctx, cancel = context.WithTimeout(context.Background(), most)
		err = release(ctx)
		cancel()
		if err != nil {
			done.Failed++
			continue
		}
		done.ReleaseNs = append(done.ReleaseNs, time.Since(held).Nanoseconds())
	}
	return done
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "peer in Go:", err)
		os.Exit(1)
	}
}

func main() {
	var p peer
	answers := json.NewEncoder(os.Stdout)
	questions := bufio.NewScanner(os.Stdin)
	for questions.Scan() {
		var q question
		must(json.Unmarshal(questions.Bytes(), &q))
		must(answers.Encode(p.answer(q)))
	}
}
