package record

import (
	"errors"
	"fmt"
	"math/rand"
	"strings"
	"time"

	"palisade/judge/history"
	"palisade/judge/servers"
)

const (
	slots = 16384
	// masterSkew is lock.max-clock-skew in a cluster, where every second wall clock is a second ahead.
	masterSkew = 1500
	redirects  = 10
	moveWithin = 30 * time.Second
	// movesApart is longer than clocks differ: slots that move sooner may get smaller tokens (docs/guarantees.md).
	movesApart = 1300 * time.Millisecond
)

// cluster is several masters, each with a part of the slots.
type cluster struct {
	masters []*servers.Server
	ids     []string
	// moved has the master of each slot that is no longer where it was at first.
	moved map[int64]int
	last  time.Time
}

// formCluster makes a cluster of all servers, and waits until it serves.
func (run *recording) formCluster() error {
	formed := &cluster{masters: run.servers, moved: map[int64]int{}}
	for number, master := range formed.masters {
		id, err := master.Do("CLUSTER", "MYID")
		if err != nil {
			return err
		}
		formed.ids = append(formed.ids, fmt.Sprint(id))
		host, port, bus := master.Ports()
		for _, words := range [][]string{
			{"CLUSTER", "SET-CONFIG-EPOCH", fmt.Sprint(number + 1)},
			{"CLUSTER", "ADDSLOTSRANGE", fmt.Sprint(formed.first(number)), fmt.Sprint(formed.first(number+1) - 1)},
		} {
			if err := master.Say(words...); err != nil {
				return err
			}
		}
		if number > 0 {
			if err := formed.masters[0].Say("CLUSTER", "MEET", host, port, bus); err != nil {
				return err
			}
		}
		if err := master.StepWallClock(int64(number % 2)); err != nil {
			return err
		}
	}
	run.cluster = formed
	return formed.serves()
}

// first is the first slot of a master at the beginning.
func (cluster *cluster) first(number int) int {
	return slots * number / len(cluster.masters)
}

func (cluster *cluster) serves() error {
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		ready := 0
		for _, master := range cluster.masters {
			info, _ := master.Do("CLUSTER", "INFO")
			text := fmt.Sprint(info)
			if strings.Contains(text, "cluster_state:ok") && strings.Contains(text, fmt.Sprintf("cluster_known_nodes:%d\r", len(cluster.masters))) {
				ready++
			}
		}
		if ready == len(cluster.masters) {
			return nil
		}
	}
	return errors.New("the cluster does not come to serve: see the logs of its servers")
}

// master returns which one has a slot.
func (cluster *cluster) master(slot int64) int {
	if number, isMoved := cluster.moved[slot]; isMoved {
		return number
	}
	for number := range cluster.masters {
		if slot < int64(cluster.first(number+1)) {
			return number
		}
	}
	panic(fmt.Sprintf("there is no slot %d", slot))
}

// move moves the slot of a key that lives now to another master, with its locks. Nothing else is done to the masters meanwhile.
func (run *recording) move(random *rand.Rand) error {
	for number := range run.turns {
		run.turns[number].Lock()
		defer run.turns[number].Unlock()
	}
	cluster := run.cluster
	if !run.settings.Plan.Hasty {
		time.Sleep(time.Until(cluster.last.Add(movesApart)))
	}
	defer func() { cluster.last = time.Now() }()
	answer, err := cluster.masters[0].Do("CLUSTER", "KEYSLOT", run.keys()[random.Intn(keysAtOnce)])
	slot, isSlot := answer.(int64)
	if err != nil || !isSlot {
		return fmt.Errorf("a master does not know a key's slot: %v %v", answer, err)
	}
	from := cluster.master(slot)
	to := (from + 1 + random.Intn(len(cluster.masters)-1)) % len(cluster.masters)
	source, target, number := cluster.masters[from], cluster.masters[to], fmt.Sprint(slot)
	if err := target.Say("CLUSTER", "SETSLOT", number, "IMPORTING", cluster.ids[from]); err != nil {
		return err
	}
	if err := source.Say("CLUSTER", "SETSLOT", number, "MIGRATING", cluster.ids[to]); err != nil {
		return err
	}
	time.Sleep(time.Duration(random.Intn(300)) * time.Millisecond)
	host, port, _ := target.Ports()
	for end := time.Now().Add(moveWithin); ; {
		keys, err := source.Do("CLUSTER", "GETKEYSINSLOT", number, "100")
		names, isList := keys.([]interface{})
		if err != nil || !isList {
			return fmt.Errorf("a master does not name the keys of slot %d: %v %v", slot, keys, err)
		}
		if len(names) == 0 {
			break
		}
		words := []string{"MIGRATE", host, port, "", "0", "1000", "KEYS"}
		for _, name := range names {
			words = append(words, fmt.Sprint(name))
		}
		// A master refuses locks whose tokens are further ahead than clocks may be apart, which passes.
		if err := source.Say(words...); err != nil && time.Now().After(end) {
			return err
		}
	}
	cluster.moved[slot] = to
	others := []*servers.Server{target, source}
	for at, master := range append(others, cluster.masters...) {
		if at < 2 || at-2 != from && at-2 != to {
			if err := master.Say("CLUSTER", "SETSLOT", number, "NODE", cluster.ids[to]); err != nil {
				return err
			}
		}
	}
	return nil
}

// redirected is a client of a cluster: it asks where it is sent to.
type redirected struct {
	run     *recording
	clients map[string]*single
	// at has the address of each key's master, as far as it is known.
	at map[string]string
}

func newRedirected(run *recording) *redirected {
	return &redirected{run: run, clients: map[string]*single{}, at: map[string]string{}}
}

func (client *redirected) turn(*rand.Rand) {}

func (client *redirected) hangUp() {
	for _, single := range client.clients {
		single.hangUp()
	}
}

func (client *redirected) do(call history.Line) history.Line {
	address, isKnown := client.at[call.Key]
	if !isKnown {
		address = client.run.servers[0].Address()
	}
	asks := false
	for tries := 0; tries < redirects; tries++ {
		single := client.of(address)
		single.asks = asks
		line := single.do(call)
		words := strings.Fields(single.failed)
		if line.Event != history.Refused || len(words) != 3 || words[0] != "MOVED" && words[0] != "ASK" {
			return line
		}
		address, asks = words[2], words[0] == "ASK"
		if !asks {
			client.at[call.Key] = address
		}
	}
	return history.Line{Event: history.Refused, Text: "sent on too often"}
}

// of returns the client of the master that has this address, through its proxy.
func (client *redirected) of(address string) *single {
	if client.clients[address] == nil {
		made := &single{run: client.run}
		for number, server := range client.run.servers {
			if server.Address() == address {
				made.front = number
			}
		}
		client.clients[address] = made
	}
	return client.clients[address]
}
