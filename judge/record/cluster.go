package record

import (
	"errors"
	"fmt"
	"math/rand"
	"strings"
	"sync"
	"time"

	"palisade/judge/history"
	"palisade/judge/servers"
)

const (
	slots = 16384
	// masterSkew is lock.max-clock-skew in a cluster, in milliseconds. Every second server's wall clock is one second
	// ahead.
	masterSkew = 1500
	redirects  = 10
	moveWithin = 30 * time.Second
	// movesApart is the time between two moves of slots. It exceeds the difference between the servers' clocks: after a
	// move that comes sooner, a slot may get smaller tokens (docs/guarantees.md).
	movesApart = 1300 * time.Millisecond
)

// cluster has several masters, each with a part of the slots. If the plan says so, each also has a replica.
type cluster struct {
	servers []*servers.Server
	ids     []string
	// masters and replicas are indexes into servers. The replica of a master has the master's index in replicas.
	masters, replicas []int
	// moved has the number of the present master of each slot that was moved.
	moved map[int64]int
	// changing is locked while slots or roles change. last is the time of the last such change.
	changing sync.Mutex
	last     time.Time
}

// formCluster makes a cluster of all servers, and waits until it accepts commands.
func (run *recording) formCluster() error {
	formed := &cluster{servers: run.servers, moved: map[int64]int{}}
	run.cluster = formed
	for place, server := range formed.servers {
		if place < run.settings.Plan.Masters {
			formed.masters = append(formed.masters, place)
		} else {
			formed.replicas = append(formed.replicas, place)
		}
		id, err := server.Do("CLUSTER", "MYID")
		if err != nil {
			return err
		}
		formed.ids = append(formed.ids, fmt.Sprint(id))
	}
	for place, server := range formed.servers {
		if err := formed.add(place, server); err != nil {
			return err
		}
		if err := server.StepWallClock(int64(place % 2)); err != nil {
			return err
		}
	}
	for number, place := range formed.replicas {
		if err := formed.follow(place, formed.masters[number]); err != nil {
			return err
		}
	}
	return formed.serves()
}

// add adds a server to the cluster. If it is a master, it gets its part of the slots.
func (cluster *cluster) add(place int, server *servers.Server) error {
	if err := server.Say("CLUSTER", "SET-CONFIG-EPOCH", fmt.Sprint(place+1)); err != nil {
		return err
	}
	if place < len(cluster.masters) {
		first, next := fmt.Sprint(cluster.first(place)), fmt.Sprint(cluster.first(place+1)-1)
		if err := server.Say("CLUSTER", "ADDSLOTSRANGE", first, next); err != nil {
			return err
		}
	}
	if place == 0 {
		return nil
	}
	host, port, bus := server.Ports()
	return cluster.servers[0].Say("CLUSTER", "MEET", host, port, bus)
}

// follow makes a server the replica of a master, once the server knows the master.
func (cluster *cluster) follow(place, master int) error {
	return until("a replica does not hear of its master", func() bool {
		return cluster.servers[place].Say("CLUSTER", "REPLICATE", cluster.ids[master]) == nil
	})
}

// first is the first slot that a master has at the start of the recording.
func (cluster *cluster) first(number int) int {
	return slots * number / len(cluster.masters)
}

// serves waits until all servers know that the cluster is complete, and each has its role.
func (cluster *cluster) serves() error {
	return until("the cluster does not come to serve", func() bool {
		for _, server := range cluster.servers {
			info, _ := server.Do("CLUSTER", "INFO")
			text := fmt.Sprint(info)
			if !strings.Contains(text, "cluster_state:ok") || !strings.Contains(text, fmt.Sprintf("cluster_known_nodes:%d\r", len(cluster.servers))) {
				return false
			}
		}
		for _, place := range cluster.replicas {
			if info, _ := cluster.servers[place].Do("INFO", "replication"); !strings.Contains(fmt.Sprint(info), "role:slave") {
				return false
			}
		}
		return true
	})
}

// until waits until holds returns true. If that takes too long, it returns an error with the text fails.
func until(fails string, holds func() bool) error {
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if holds() {
			return nil
		}
	}
	return errors.New(fails + ": see the logs of the servers")
}

// master returns the number of the master that has a slot.
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

// inTurn calls change while no other slots or roles change. Once the recording's time is over it does nothing. It
// returns what change returns, or an empty text.
func (run *recording) inTurn(change func() (string, error)) (string, error) {
	run.cluster.changing.Lock()
	defer run.cluster.changing.Unlock()
	if time.Now().After(run.end) {
		return "", nil
	}
	return change()
}

// failOver kills a master after its link to its replica broke. The replica takes over the slots without the changes
// that it missed. Then the old master comes back as its replica.
func (run *recording) failOver(number int, random *rand.Rand) error {
	cluster := run.cluster
	number %= len(cluster.masters)
	master, replica := cluster.servers[cluster.masters[number]], cluster.servers[cluster.replicas[number]]
	if err := replica.Follows(); err != nil {
		return err
	}
	for turn := range run.turns {
		run.turns[turn].Lock()
		defer run.turns[turn].Unlock()
	}
	if err := master.Say("CLIENT", "KILL", "TYPE", "replica"); err != nil {
		return err
	}
	time.Sleep(time.Duration(random.Intn(700)) * time.Millisecond)
	master.Kill()
	if err := replica.Say("CLUSTER", "FAILOVER", "TAKEOVER"); err != nil {
		return err
	}
	cluster.masters[number], cluster.replicas[number] = cluster.replicas[number], cluster.masters[number]
	time.Sleep(time.Duration(random.Intn(1000)) * time.Millisecond)
	if err := master.Run(); err != nil {
		return err
	}
	return cluster.serves()
}

// move moves the slot of a key in use to another master, with its locks, and returns the move as text. Meanwhile no
// fault stops, kills or changes a server.
func (run *recording) move(random *rand.Rand) (string, error) {
	cluster := run.cluster
	if !run.settings.Plan.Hasty {
		time.Sleep(time.Until(cluster.last.Add(movesApart)))
	}
	for number := range run.turns {
		run.turns[number].Lock()
		defer run.turns[number].Unlock()
	}
	defer func() { cluster.last = time.Now() }()
	answer, err := cluster.servers[cluster.masters[0]].Do("CLUSTER", "KEYSLOT", run.keys()[random.Intn(keysAtOnce)])
	slot, isSlot := answer.(int64)
	if err != nil || !isSlot {
		return "", fmt.Errorf("a master does not know a key's slot: %v %v", answer, err)
	}
	from := cluster.master(slot)
	to := (from + 1 + random.Intn(len(cluster.masters)-1)) % len(cluster.masters)
	cluster.moved[slot] = to
	return cluster.carry(fmt.Sprint(slot), cluster.masters[from], cluster.masters[to], time.Duration(random.Intn(300))*time.Millisecond)
}

// carry moves a slot from one server to another. The other server imports the slot for a while before the keys are
// migrated.
func (cluster *cluster) carry(slot string, from, to int, importing time.Duration) (string, error) {
	source, target := cluster.servers[from], cluster.servers[to]
	if err := target.Say("CLUSTER", "SETSLOT", slot, "IMPORTING", cluster.ids[from]); err != nil {
		return "", err
	}
	if err := source.Say("CLUSTER", "SETSLOT", slot, "MIGRATING", cluster.ids[to]); err != nil {
		return "", err
	}
	time.Sleep(importing)
	host, port, _ := target.Ports()
	refused := 0
	begun := time.Now()
	for {
		keys, err := source.Do("CLUSTER", "GETKEYSINSLOT", slot, "100")
		names, isList := keys.([]interface{})
		if err != nil || !isList {
			return "", fmt.Errorf("a master does not name the keys of slot %s: %v %v", slot, keys, err)
		}
		if len(names) == 0 {
			break
		}
		words := []string{"MIGRATE", host, port, "", "0", "1000", "KEYS"}
		for _, name := range names {
			words = append(words, fmt.Sprint(name))
		}
		// A master refuses locks whose tokens are further ahead of its clock than clocks may differ. Some time later it
		// accepts them.
		if err := source.Say(words...); err != nil && time.Since(begun) > moveWithin {
			return "", err
		} else if err != nil {
			refused++
		}
	}
	for _, place := range append([]int{to, from}, cluster.masters...) {
		if err := cluster.servers[place].Say("CLUSTER", "SETSLOT", slot, "NODE", cluster.ids[to]); err != nil {
			return "", err
		}
	}
	if refused > 0 {
		return fmt.Sprintf("a slot for node %d, refused for %d ms", to+1, time.Since(begun).Milliseconds()), nil
	}
	return fmt.Sprintf("a slot for node %d", to+1), nil
}

// redirected is a client of a cluster that follows redirections (MOVED and ASK).
type redirected struct {
	run     *recording
	clients map[string]*single
	// at has the address of each key's master, where the client knows it. For another key the client asks the server
	// with the index first.
	at    map[string]string
	first int
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
		address = client.run.servers[client.first].Address()
	}
	asks := false
	for tries := 0; tries < redirects; tries++ {
		single := client.of(address)
		single.asks = asks
		line := single.do(call)
		words := strings.Fields(single.failed)
		if line.Event == history.Unknown || line.Text == notSent {
			delete(client.at, call.Key)
			client.first = (client.first + 1) % len(client.run.servers)
		}
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

// of returns the client that reaches the master with this address, through that master's proxy.
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
