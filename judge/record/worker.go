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

// client performs requests.
type client interface {
	// do performs a request, and returns the answer without its time.
	do(call history.Line) history.Line
	// turn goes on with another agent, if there are several.
	turn(random *rand.Rand)
	// hangUp ends all connections, as a client that dies does.
	hangUp()
}

// worker takes one lock after the other.
type worker struct {
	run    *recording
	number int
	random *rand.Rand
	client client
	taken  int
}

func newWorker(run *recording, number int) *worker {
	worker := &worker{run: run, number: number, random: rand.New(rand.NewSource(run.settings.Seed*1000 + int64(number)))}
	if run.settings.Plan.Nodes == 1 || run.settings.Plan.Agents > 0 {
		worker.client = &single{run: run, front: number % len(run.fronts)}
	} else {
		worker.client = newQuorum(run)
	}
	return worker
}

// keys are those that live now.
func (run *recording) keys() []string {
	life := (Now() - run.begun) / int64(keyLife)
	keys := make([]string, keysAtOnce)
	for at := range keys {
		keys[at] = fmt.Sprintf("k%d.%d", at, life)
	}
	return keys
}

// waits returns whether clients can wait in a queue, re-enter and convert.
func (run *recording) waits() bool {
	return run.settings.Plan.Nodes == 1 || run.settings.Plan.Agents > 0
}

// ask writes the request, performs it, and writes the answer.
func (worker *worker) ask(call history.Line) history.Line {
	call.Worker, call.Time = worker.number, Now()
	call.ID = worker.run.writer.Call(call)
	answer := worker.client.do(call)
	answer.ID, answer.Time = call.ID, Now()
	worker.run.writer.Write(answer)
	return answer
}

func (worker *worker) work() {
	for time.Now().Before(worker.run.end) {
		lock := worker.choose()
		answer := worker.ask(lock)
		if answer.Event == history.Unknown && worker.happens(50) {
			worker.client.turn(worker.random)
			lock.Retry = true
			answer = worker.ask(lock)
		}
		switch answer.Event {
		case history.OK:
			worker.use(lock, answer.Token)
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
}

// choose draws a lock that nobody has asked for as this owner.
func (worker *worker) choose() history.Line {
	keys := worker.run.keys()
	at := worker.random.Intn(len(keys))
	worker.taken++
	lock := history.Line{Op: history.Acquire, Key: keys[at], Owner: fmt.Sprintf("w%d.%d", worker.number, worker.taken), Mode: "x",
		TTL: int64(60 + worker.random.Intn(400))}
	if worker.run.settings.Plan.Nodes > 1 {
		lock.TTL += 200
	}
	if worker.run.waits() && worker.happens(70) {
		lock.Wait = int64(worker.random.Intn(1500))
	}
	if worker.run.settings.Plan.SetNX {
		lock.Wait = 0
		return lock
	}
	// The first key is exclusive for most, the second is read and written, the third has permits.
	switch draw := worker.random.Intn(100); {
	case at == 1 && draw < 65 || at == 0 && draw < 5:
		lock.Mode = "s"
	case at == 2 && draw < 80:
		lock.Mode, lock.Limit = "p", 2+worker.random.Intn(2)
		if !worker.run.waits() || worker.happens(30) {
			lock.Permit = 1 + worker.random.Intn(lock.Limit)
		}
	}
	if worker.run.settings.Plan.hasModule() && worker.happens(12) {
		lock.TTL, lock.KeepAlive = maxTTL, int64(maxTTL+worker.random.Intn(2000))
	}
	return lock
}

// hasModule returns whether clients ask one node with the module.
func (plan Plan) hasModule() bool {
	return plan.Nodes == 1 && !plan.SetNX
}

// use does with a held lock what clients do: most release it in time, some extend it, some come late or never.
func (worker *worker) use(lock history.Line, token int64) {
	request := history.Line{Key: lock.Key, Owner: lock.Owner}
	asks := func(op string, change func(*history.Line)) history.Line {
		asked := request
		asked.Op = op
		if change != nil {
			change(&asked)
		}
		return worker.ask(asked)
	}
	worker.sleep(1, 40)
	level := 0
	switch draw := worker.random.Intn(100); {
	case lock.KeepAlive > 0 || draw < 7 && worker.run.settings.Plan.hasModule():
		for times := worker.random.Intn(6); times > 0; times-- {
			worker.sleep(1, int(lock.TTL)/3)
			if asks(history.Check, func(asked *history.Line) { asked.Token = token }).Event != history.OK {
				break
			}
		}
		if worker.happens(30) {
			worker.client.hangUp()
			return
		}
	case draw < 20: // dies
		if worker.happens(30) {
			worker.client.hangUp()
		}
		return
	case draw < 30: // comes late
		worker.sleep(int(lock.TTL), 80)
	case draw < 50: // extends
		for times := worker.random.Intn(4); times >= 0; times-- {
			if asks(history.Extend, func(asked *history.Line) { asked.TTL = lock.TTL }).Event != history.OK {
				break
			}
			worker.sleep(1, int(lock.TTL)/2)
		}
		if worker.happens(30) {
			return
		}
	case draw < 70 && worker.run.waits() && !worker.run.settings.Plan.SetNX:
		level = worker.change(lock, asks)
	}
	answer := asks(history.Release, func(asked *history.Line) { asked.Level = level })
	for answer.Event == history.OK && answer.Holds > 0 {
		worker.sleep(1, 10)
		answer = asks(history.Release, nil)
	}
}

// change re-enters a lock, or converts it. It returns the level to release with, 0 for one hold.
func (worker *worker) change(lock history.Line, asks func(string, func(*history.Line)) history.Line) int {
	agents := worker.run.settings.Plan.Agents > 0
	if lock.Mode == "p" || worker.happens(40) {
		if agents { // which count holds for themselves
			return 0
		}
		answer := asks(history.Reenter, nil)
		worker.sleep(1, 20)
		if answer.Event == history.OK && worker.happens(70) {
			return 0
		}
		return 1
	}
	for _, mode := range []string{"s", "x"} {
		if lock.Mode == mode && mode == "s" || agents && mode == "x" {
			continue
		}
		answer := asks(history.Convert, func(asked *history.Line) { asked.Mode = mode })
		if answer.Event != history.OK && answer.Event != history.Null {
			break
		}
		worker.sleep(1, 20)
	}
	return 1
}

func (worker *worker) happens(percent int) bool {
	return worker.random.Intn(100) < percent
}

func (worker *worker) sleep(least, more int) {
	time.Sleep(time.Duration(least)*time.Millisecond + time.Duration(worker.random.Intn(more+1))*time.Millisecond)
}
