package record

import (
	"fmt"
	"math/rand"
	"time"

	"palisade/judge/history"
)

// The faults.
const (
	kill      = "kill"
	killAll   = "kill-all"
	pause     = "pause"
	cut       = "cut"
	hold      = "hold"
	flush     = "flush"
	stepClock = "clock"
	promote   = "promote"
	lockBreak = "break"
	evict     = "evict"
	stop      = "stop"
	restore   = "restore"
	move      = "move"
)

// furthest is how far a wall clock is set, in seconds.
const furthest = 2 * 3600

// does returns whether a fault may come.
func (run *recording) does(fault string) bool {
	for _, chosen := range run.settings.Plan.Faults {
		if chosen == fault {
			return true
		}
	}
	return false
}

// breakServer breaks one server until the time is over. A server that does not come back is an error.
func (run *recording) breakServer(number int, random *rand.Rand) error {
	faults := run.settings.Plan.Faults
	for len(faults) > 0 {
		rest := time.Duration(300+random.Intn(1500)) * time.Millisecond
		if run.settings.Plan.Nodes > 1 {
			rest *= 2
		}
		if time.Now().Add(rest).After(run.end) {
			return nil
		}
		time.Sleep(rest)
		if err := run.hit(number, faults[random.Intn(len(faults))], random); err != nil {
			return err
		}
	}
	return nil
}

// breakable is an agent, or a process of a client library.
type breakable interface {
	Kill()
	Run() error
	Pause(time.Duration)
}

// clients are the processes between workers and servers.
func (run *recording) clients() []breakable {
	var all []breakable
	for _, agent := range run.agents {
		all = append(all, agent)
	}
	for _, driver := range run.drivers {
		all = append(all, driver)
	}
	return all
}

// breakClient breaks a process of clients until the time is over.
func (run *recording) breakClient(number int, process breakable, random *rand.Rand) error {
	for {
		rest := time.Duration(500+random.Intn(3000)) * time.Millisecond
		if time.Now().Add(rest).After(run.end) {
			return nil
		}
		time.Sleep(rest)
		short := time.Duration(20+random.Intn(700)) * time.Millisecond
		// Libraries of slow languages take long to start again.
		fault := []string{kill, pause, pause, pause, cut, cut}[random.Intn(6)]
		run.note(fmt.Sprintf("client %d: %s", number+1, fault))
		switch {
		case fault == kill:
			process.Kill()
			time.Sleep(short / 3)
			if err := process.Run(); err != nil {
				return err
			}
		case fault == pause:
			process.Pause(short)
		case number < len(run.agents):
			run.fronts[number].Cut()
		}
	}
}

// hit does one fault. What is done to all nodes at one moment comes from the first.
func (run *recording) hit(number int, fault string, random *rand.Rand) error {
	if fault == killAll && number > 0 {
		return nil
	}
	before := run.proxies[number]
	if run.does(promote) {
		number = run.master
	}
	server := run.servers[number]
	if fault == move {
		run.note("a slot moves")
		return run.move(random)
	}
	if fault != killAll {
		run.turns[number].Lock()
		defer run.turns[number].Unlock()
	}
	short := time.Duration(20+random.Intn(700)) * time.Millisecond
	run.note(fmt.Sprintf("node %d: %s", number+1, fault))
	switch fault {
	case kill:
		server.Kill()
		time.Sleep(short / 3)
		return server.Run()
	case killAll:
		return run.killAll()
	case pause:
		server.Pause(short)
	case cut:
		before.Cut()
	case hold:
		before.Hold(short)
	case flush:
		_, _ = server.Do("FLUSHALL")
	case stepClock:
		return server.StepWallClock(int64(random.Intn(2*furthest) - furthest))
	case promote:
		return run.promote(short)
	case evict:
		// All keys go at the next command, since the server has no room for any.
		_, _ = server.Do("CONFIG", "SET", "maxmemory", "1")
		_, _ = server.Do("PING")
		_, _ = server.Do("CONFIG", "SET", "maxmemory", "0")
	case stop:
		return server.Restart()
	case restore:
		return server.GoBack(short)
	case lockBreak:
		for _, key := range run.keys() {
			_, _ = server.Do("LOCK.BREAK", key)
		}
	}
	return nil
}

func (run *recording) killAll() error {
	for number, server := range run.servers {
		run.turns[number].Lock()
		defer run.turns[number].Unlock()
		server.Kill()
	}
	for _, server := range run.servers {
		if err := server.Run(); err != nil {
			return err
		}
	}
	return nil
}

// promote kills the master, and its replica takes its place, which misses what was granted in the last moments. The old
// master comes back as the new one's replica.
func (run *recording) promote(missed time.Duration) error {
	master, replica, link := run.servers[run.master], run.servers[1-run.master], run.links[run.master]
	if err := replica.Follows(); err != nil {
		return err
	}
	held := make(chan struct{})
	go func() {
		link.Hold(missed + 200*time.Millisecond)
		close(held)
	}()
	time.Sleep(missed)
	master.Kill()
	link.Cut()
	if _, err := replica.Do("REPLICAOF", "NO", "ONE"); err != nil {
		return err
	}
	run.master = 1 - run.master
	run.proxies[0].Retarget(replica.Address())
	<-held
	if err := master.Run(); err != nil {
		return err
	}
	return master.Follow(run.links[run.master].Address())
}

func (run *recording) note(text string) {
	run.writer.Write(history.Line{Time: Now(), Event: history.Fault, Text: text})
}
