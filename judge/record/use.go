package record

import (
	"fmt"

	"palisade/judge/history"
)

// abilities are what a kind of client can do beyond acquiring, extending and releasing an exclusive lock.
type abilities struct {
	modes, wait, retry bool
	// namePermits is true for a client of several nodes: it chooses a permit's number, and asks all nodes for the same
	// one.
	namePermits bool
	reenter     bool
	// downgrade is true if the client can convert a grant to shared, upgrade if it can convert one to exclusive.
	downgrade, upgrade bool
	// keepAlive is true if the client can use LOCK.CHECK and KEEPALIVE, which one node has. looks is true if the
	// library tells how long a lock is valid, and may extend it.
	keepAlive, looks bool
	// elects is true if the library has elections.
	elects bool
}

func (plan Plan) abilities() abilities {
	switch {
	case plan.SetNX:
		return abilities{}
	case plan.Driver != noLibrary:
		return abilities{modes: true, wait: true, looks: true, elects: plan.Driver == crate}
	case plan.Agents > 0:
		// Each agent counts holds separately, and the client changes agents, so that it does not re-enter.
		return abilities{modes: true, wait: true, retry: true, downgrade: true}
	case plan.Nodes > 1:
		return abilities{modes: true, namePermits: true, downgrade: true}
	}
	return abilities{modes: true, wait: true, retry: true, reenter: true, downgrade: true, upgrade: true, keepAlive: true}
}

// choose draws a lock for which nobody has asked under this owner's name.
func (worker *worker) choose() history.Line {
	keys := worker.run.keys()
	at := worker.random.Intn(len(keys))
	worker.taken++
	lock := history.Line{Op: history.Acquire, Key: keys[at], Owner: fmt.Sprintf("w%d.%d", worker.number, worker.taken), Mode: "x",
		TTL: worker.ttl()}
	if worker.can.wait && worker.happens(70) {
		lock.Wait = int64(worker.random.Intn(1500))
	}
	// On the first key most requests are exclusive, the second is read and written, the third has permits.
	switch draw := worker.random.Intn(100); {
	case !worker.can.modes:
	case at == 1 && draw < 65 || at == 0 && draw < 5:
		lock.Mode = "s"
	case at == 2 && draw < 80:
		lock.Mode, lock.Limit = "p", 2+worker.random.Intn(2)
		if worker.can.namePermits || worker.can.keepAlive && worker.happens(30) {
			lock.Permit = 1 + worker.random.Intn(lock.Limit)
		}
	}
	longest := worker.run.maxTTL()
	switch {
	case worker.can.keepAlive && worker.happens(12):
		lock.TTL, lock.KeepAlive = longest, longest+int64(worker.random.Intn(2000))
	case worker.can.elects && worker.happens(20):
		// Elections use keys of their own.
		lock = history.Line{Op: history.Acquire, Key: "e" + lock.Key[1:], Owner: lock.Owner, Mode: "x", TTL: lock.TTL, Wait: lock.Wait, Elect: true}
	case worker.can.looks && worker.happens(50):
		lock.KeepAlive = longest
	}
	return lock
}

// ttl draws the length of a lease in milliseconds. With several nodes it is longer, since requests take longer.
func (worker *worker) ttl() int64 {
	dense, several := worker.run.settings.Dense, worker.run.settings.Plan.Nodes > 1
	switch {
	case dense && several:
		return int64(100 + worker.random.Intn(200))
	case dense:
		return int64(40 + worker.random.Intn(200))
	case several:
		return int64(260 + worker.random.Intn(400))
	}
	return int64(60 + worker.random.Intn(400))
}

// held is a lock that a worker holds.
type held struct {
	worker *worker
	lock   history.Line
	token  int64
	permit int
}

// ask sends a request about this lock.
func (held held) ask(call history.Line) history.Line {
	call.Key, call.Owner, call.Elect = held.lock.Key, held.lock.Owner, held.lock.Elect
	return held.worker.ask(call)
}

// use does with a held lock what clients do: most release it in time, some extend it, some release it late or never.
func (held held) use() {
	worker, ttl := held.worker, int(held.lock.TTL)
	worker.sleep(1, 40)
	held.access()
	if worker.can.looks {
		held.watch()
	}
	level := 0
	switch draw := worker.random.Intn(100); {
	case held.lock.Elect:
	case held.lock.KeepAlive > 0 || draw < 7 && worker.can.keepAlive:
		if held.watch(); worker.can.keepAlive && worker.happens(30) {
			worker.client.hangUp()
			return
		}
	case draw < 20: // dies
		if worker.happens(30) {
			worker.client.hangUp()
		}
		return
	case draw < 30: // comes late
		worker.sleep(ttl, 80)
		held.access()
		if worker.can.reenter && worker.happens(50) {
			held.ask(history.Line{Op: history.Reenter})
		}
	case draw < 50:
		if held.extend(); worker.happens(30) {
			return
		}
	case draw < 70:
		level = held.change()
	}
	held.release(level)
}

// access reads or writes the register that the lock protects, or does neither.
func (held held) access() {
	if held.worker.gate == nil || held.worker.happens(30) {
		return
	}
	call := history.Line{Op: history.Put, Key: "of " + held.lock.Key, Owner: held.lock.Owner, Mode: held.lock.Mode, Limit: held.lock.Limit,
		Permit: held.permit, Token: held.token}
	if held.worker.happens(40) {
		call.Op = history.Get
	}
	held.worker.askOf(held.worker.gate, call)
}

// watch asks the library several times how long the lock is valid.
func (held held) watch() {
	for times := held.worker.random.Intn(6); times >= 0; times-- {
		if held.ask(history.Line{Op: history.Check, Token: held.token}).Event != history.OK {
			return
		}
		held.worker.sleep(1, int(held.lock.TTL)/3)
	}
}

func (held held) extend() {
	for times := held.worker.random.Intn(4); times >= 0; times-- {
		if held.ask(history.Line{Op: history.Extend, TTL: held.lock.TTL}).Event != history.OK {
			return
		}
		if held.worker.can.looks {
			held.watch()
		}
		held.worker.sleep(1, int(held.lock.TTL)/2)
	}
}

// change re-enters a lock, or converts it. It returns the LEVEL for the release, or 0 if each hold is to be released by
// itself.
func (held held) change() int {
	worker := held.worker
	if worker.can.reenter && (held.lock.Mode == "p" || worker.happens(40)) {
		answer := held.ask(history.Line{Op: history.Reenter})
		worker.sleep(1, 20)
		if answer.Event == history.OK && worker.happens(70) {
			return 0
		}
		return 1
	}
	if held.lock.Mode == "x" && worker.can.downgrade {
		held.convert("s")
	}
	if held.lock.Mode != "p" && worker.can.upgrade {
		held.convert("x")
	}
	return 1
}

func (held held) convert(mode string) {
	held.ask(history.Line{Op: history.Convert, Mode: mode, Token: held.token})
	held.worker.sleep(1, 20)
}

// release removes one hold after the other, or all down to a level at once.
func (held held) release(level int) {
	answer := held.ask(history.Line{Op: history.Release, Level: level})
	for answer.Event == history.OK && answer.Holds > 0 {
		held.worker.sleep(1, 10)
		answer = held.ask(history.Line{Op: history.Release})
	}
}
