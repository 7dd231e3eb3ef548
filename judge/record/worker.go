package record

import (
	"fmt"
	"math/rand"
	"time"

	"palisade/judge/history"
)

const (
	keysAtOnce = 3
	keyLife    = 8 * time.Second
)

// client sends requests to the service.
type client interface {
	// do sends a request. It returns the answer, without its time.
	do(call history.Line) history.Line
	// turn makes the client use another agent, if there are several.
	turn(random *rand.Rand)
	// hangUp ends all connections, as if the client had died.
	hangUp()
}

// worker takes one lock after the other.
type worker struct {
	run    *recording
	number int
	random *rand.Rand
	client client
	// gate is a client of the server with the registers; nil if there is none.
	gate  *single
	can   abilities
	taken int
}

func newWorker(run *recording, number int) *worker {
	plan := run.settings.Plan
	worker := &worker{run: run, number: number, random: rand.New(rand.NewSource(run.settings.Seed*1000 + int64(number))), can: plan.abilities()}
	switch {
	case plan.Driver != noLibrary:
		worker.client = &libraryClient{run: run, process: number % len(run.drivers)}
	case plan.Masters > 0:
		worker.client = newRedirected(run)
	case plan.Nodes == 1 || plan.Agents > 0:
		worker.client = &single{run: run, front: number % len(run.fronts)}
	default:
		worker.client = newQuorum(run, worker.random)
	}
	if run.gate != nil {
		worker.gate = &single{run: run, to: run.gate}
	}
	return worker
}

// keys are the names of the keys that are in use now.
func (run *recording) keys() []string {
	life := (Now() - run.begun) / int64(keyLife)
	keys := make([]string, keysAtOnce)
	for at := range keys {
		keys[at] = fmt.Sprintf("k%d.%d", at, life)
	}
	return keys
}

// ask writes down the request, sends it, and writes down the answer.
func (worker *worker) ask(call history.Line) history.Line {
	return worker.askOf(worker.client, call)
}

func (worker *worker) askOf(client client, call history.Line) history.Line {
	call.Worker, call.Time = worker.number, Now()
	call.ID = worker.run.writer.Call(call)
	answer := client.do(call)
	answer.ID, answer.Time = call.ID, Now()
	worker.run.writer.Write(answer)
	return answer
}

func (worker *worker) work() {
	for time.Now().Before(worker.run.end) {
		lock := worker.choose()
		if worker.can.keepAlive && worker.happens(15) {
			worker.ask(history.Line{Op: history.Await, Key: lock.Key, Owner: lock.Owner, Mode: lock.Mode, Limit: lock.Limit,
				Permit: lock.Permit, Wait: lock.Wait})
			lock.Wait = 0
		}
		answer := worker.ask(lock)
		if answer.Event == history.Unknown && worker.can.retry && worker.happens(50) {
			worker.client.turn(worker.random)
			lock.Retry = true
			answer = worker.ask(lock)
		}
		switch answer.Event {
		case history.OK:
			held{worker, lock, answer.Token, answer.Permit}.use()
		case history.Unknown:
			worker.sleep(20, 150)
			worker.ask(history.Line{Op: history.Release, Key: lock.Key, Owner: lock.Owner, Level: 1})
		case history.Null:
			worker.sleep(5, 40)
		default:
			worker.sleep(20, 150)
		}
	}
	worker.client.hangUp()
	if worker.gate != nil {
		worker.gate.hangUp()
	}
}

func (worker *worker) happens(percent int) bool {
	return worker.random.Intn(100) < percent
}

func (worker *worker) sleep(least, more int) {
	time.Sleep(time.Duration(least)*time.Millisecond + time.Duration(worker.random.Intn(more+1))*time.Millisecond)
}
