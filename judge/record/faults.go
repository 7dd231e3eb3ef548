package record

import (
	"fmt"
	"math/rand"
	"time"

	"palisade/judge/history"
	"palisade/judge/servers"
)

// The kinds of faults.
const (
	kill      = "kill"
	killAll   = "kill-all"
	pause     = "pause"
	cut       = "cut"
	hold      = "hold"
	flush     = "flush"
	stepClock = "clock"
	promote   = "promote"
	failOver  = "fail-over"
	lockBreak = "break"
	evict     = "evict"
	stop      = "stop"
	evictStop = "evict-stop"
	restore   = "restore"
	move      = "move"
)

const (
	// furthest is how far a wall clock is set, in seconds.
	furthest = 2 * 3600
	// heavyApart is the time between two faults that end or empty a server, in a dense history. The server is guarded
	// after each.
	heavyApart = 3 * time.Second
)

// light returns whether a server can grant locks right after the fault.
func light(fault string) bool {
	return fault == pause || fault == cut || fault == hold || fault == stepClock
}

// does returns whether the plan has this fault.
func (run *recording) does(fault string) bool {
	for _, chosen := range run.settings.Plan.Faults {
		if chosen == fault {
			return true
		}
	}
	return false
}

// lanes is the number of faults that a server can have at the same time.
func (run *recording) lanes() int {
	if run.settings.Dense && run.settings.Plan.Nodes == 1 {
		return 2
	}
	return 1
}

// rest is the pause between two faults in one lane of a server.
func (run *recording) rest(random *rand.Rand) time.Duration {
	rest := time.Duration(300+random.Intn(1500)) * time.Millisecond
	if run.settings.Dense {
		rest = time.Duration(10+random.Intn(150)) * time.Millisecond
	}
	if run.settings.Plan.Nodes > 1 {
		rest *= 2
	}
	return rest
}

// short is the length of a fault that ends by itself.
func (run *recording) short(random *rand.Rand) time.Duration {
	if run.settings.Dense {
		return time.Duration(5+random.Intn(80)) * time.Millisecond
	}
	return time.Duration(20+random.Intn(700)) * time.Millisecond
}

// draw chooses the next fault. In a dense history, faults that end a server come at intervals, and light faults between
// them.
func (run *recording) draw(last *time.Time, random *rand.Rand) string {
	faults := run.settings.Plan.Faults
	if run.settings.Dense {
		apart := heavyApart * time.Duration(run.settings.Plan.Nodes)
		isDue := time.Since(*last) > apart/2+time.Duration(random.Int63n(int64(apart)))
		var chosen []string
		for _, fault := range append([]string{pause, cut, hold}, faults...) {
			if light(fault) != isDue {
				chosen = append(chosen, fault)
			}
		}
		if isDue {
			*last = time.Now()
		}
		if len(chosen) > 0 {
			faults = chosen
		}
	}
	return faults[random.Intn(len(faults))]
}

// breakServer brings one fault after another on a server until the recording's time is over. It returns an error if the
// server does not come back.
func (run *recording) breakServer(number int, random *rand.Rand) error {
	last := time.Now()
	for len(run.settings.Plan.Faults) > 0 {
		rest := run.rest(random)
		if time.Now().Add(rest).After(run.end) {
			return nil
		}
		time.Sleep(rest)
		if err := run.hit(number, run.draw(&last, random), random); err != nil {
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

// clients returns the processes between workers and servers: agents, and processes of client libraries.
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

// breakClient brings one fault after another on one of these processes until the recording's time is over.
func (run *recording) breakClient(number int, process breakable, random *rand.Rand) error {
	name := fmt.Sprintf("client %d", number+1)
	for {
		rest := time.Duration(500+random.Intn(3000)) * time.Millisecond
		if run.settings.Dense {
			rest /= 5
		}
		if time.Now().Add(rest).After(run.end) {
			return nil
		}
		time.Sleep(rest)
		short := run.short(random)
		// Libraries of slow languages take long to start again, so that they are killed seldom.
		fault := []string{kill, pause, pause, pause, cut, cut}[random.Intn(6)]
		begun := Now()
		switch {
		case fault == kill:
			process.Kill()
			time.Sleep(short / 3)
			if err := process.Run(); err != nil {
				return err
			}
		case fault == pause:
			process.Pause(short)
		case number >= len(run.agents) || !run.fronts[number].Cut():
			continue
		}
		run.note(begun, name, fault)
	}
}

// hit brings one fault on a server. A fault of all nodes at once is brought only by the routine of the first node.
func (run *recording) hit(number int, fault string, random *rand.Rand) error {
	if fault == killAll && number > 0 {
		return nil
	}
	short, begun, before := run.short(random), Now(), run.proxies[number]
	var err error
	did, where := true, fmt.Sprintf("node %d", number+1)
	switch fault {
	case cut:
		did = before.Cut()
	case hold:
		did = before.Hold(short)
	case killAll:
		err = run.killAll()
	case move:
		where, err = run.inTurn(func() (string, error) { return run.move(random) })
	case failOver:
		where, err = run.inTurn(func() (string, error) { return where, run.failOver(number, random) })
	default:
		run.turns[number].Lock()
		defer run.turns[number].Unlock()
		if run.does(promote) {
			number = run.master
			where = fmt.Sprintf("node %d", number+1)
		}
		err = run.hitServer(number, fault, short, random)
	}
	if did && where != "" {
		run.note(begun, where, fault)
	}
	return err
}

// hitServer brings a fault on a server's process. The caller makes sure that no other such fault is under way there.
func (run *recording) hitServer(number int, fault string, short time.Duration, random *rand.Rand) error {
	server := run.servers[number]
	switch fault {
	case kill:
		server.Kill()
		time.Sleep(short / 3)
		return server.Run()
	case pause:
		server.Pause(short)
	case flush:
		_, _ = server.Do("FLUSHALL")
	case stepClock:
		return server.StepWallClock(int64(random.Intn(2*furthest) - furthest))
	case promote:
		return run.promote(short)
	case evict:
		evictAll(server)
	case evictStop:
		evictAll(server)
		return server.Restart()
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

// evictAll makes the server evict all keys at the next command: it has no memory left for any.
func evictAll(server *servers.Server) {
	_, _ = server.Do("CONFIG", "SET", "maxmemory", "1")
	_, _ = server.Do("PING")
	_, _ = server.Do("CONFIG", "SET", "maxmemory", "0")
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

// promote kills the master. Its replica takes over, without what was granted in the last moments. The old master comes
// back as the replica of the new one.
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

// note writes a line for a fault that began at this time.
func (run *recording) note(begun int64, where, fault string) {
	run.writer.Write(history.Line{Time: begun, Event: history.Fault, Text: where + ": " + fault})
}
