// Package record takes locks on real servers while it breaks them, and writes down every request and answer. It uses no
// code of the module or of its clients.
package record

import (
	"fmt"
	"math/rand"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"palisade/judge/driver"
	"palisade/judge/history"
	"palisade/judge/proxy"
	"palisade/judge/servers"
)

const (
	workers = 8
	// processes is the number of processes of a client library.
	processes = 3
)

// Settings say what is recorded, with which programs, and where.
type Settings struct {
	Plan    Plan
	Program string // the server
	Module  string
	Agent   string // the program palisade
	Seed    int64
	Length  time.Duration
	// Dense is true if faults are short and frequent, and leases short too.
	Dense  bool
	Shim   string // the source of the shim for wall clocks
	Folder string // of the servers' data
	Out    string
}

// recording is one run of servers, clients and faults that records one history.
type recording struct {
	settings Settings
	writer   *history.Writer
	servers  []*servers.Server
	turns    []sync.Mutex // one fault at a time for each server
	proxies  []*proxy.Proxy
	begun    int64
	end      time.Time
	// master is the index of the server that clients reach, where one of two servers is the other's replica. links has,
	// for each server, the proxy to which the other one connects as a replica.
	master int
	links  []*proxy.Proxy
	// agents are between the fronts and the nodes. fronts are the proxies to which clients connect: those before the
	// agents, or those before the nodes if there are no agents.
	agents  []*servers.Server
	fronts  []*proxy.Proxy
	cluster *cluster
	// gate is the server that has the registers behind gates: the only node, if it loses nothing, else a server that
	// has no faults.
	gate       interface{ Address() string }
	gateServer *servers.Server
	// drivers are the processes of a client library.
	drivers []*driver.Driver
}

// Now returns the boot clock in nanoseconds.
func Now() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		panic("this system has no boot clock: " + err.Error())
	}
	return now.Nano()
}

// Run records one history into the file settings.Out.
func Run(settings Settings) error {
	run := &recording{settings: settings}
	defer run.stop()
	if err := run.start(); err != nil {
		return err
	}
	header, err := run.header()
	if err != nil {
		return err
	}
	if run.writer, err = history.Create(settings.Out, header); err != nil {
		return err
	}
	run.turns = make([]sync.Mutex, len(run.servers))
	run.begun, run.end = Now(), time.Now().Add(settings.Length)
	var running sync.WaitGroup
	failed := make(chan error, run.lanes()*len(run.proxies)+len(run.agents)+len(run.drivers)+1)
	for number, process := range run.clients() {
		running.Add(1)
		go func(number int, process breakable) {
			defer running.Done()
			failed <- run.breakClient(number, process, rand.New(rand.NewSource(settings.Seed*100+50+int64(number))))
		}(number, process)
	}
	for lane := 0; lane < run.lanes()*len(run.proxies); lane++ {
		running.Add(1)
		go func(lane int) {
			defer running.Done()
			failed <- run.breakServer(lane%len(run.proxies), rand.New(rand.NewSource(settings.Seed*100+int64(lane))))
		}(lane)
	}
	if settings.Plan.Spare {
		running.Add(1)
		go func() {
			defer running.Done()
			failed <- run.changeMembers(rand.New(rand.NewSource(settings.Seed*100 + 90)))
		}()
	}
	for number := 0; number < workers; number++ {
		running.Add(1)
		go func(number int) {
			defer running.Done()
			newWorker(run, number).work()
		}(number)
	}
	running.Wait()
	close(failed)
	for err := range failed {
		if err != nil {
			return err
		}
	}
	return run.writer.Close()
}

// start starts the servers, and a proxy before each. Nobody holds a lock yet, so it lifts the guard of the new nodes.
func (run *recording) start() error {
	shim := ""
	if run.does(stepClock) || run.settings.Plan.Masters > 0 {
		var err error
		if shim, err = servers.BuildShim(run.settings.Shim, run.settings.Folder); err != nil {
			return err
		}
	}
	for number := 0; number < run.settings.Plan.started(run.does(promote)); number++ {
		plan := run.plan(number, shim)
		plan.Cluster = run.settings.Plan.Masters > 0
		server, err := servers.Start(plan, number)
		if server != nil {
			run.servers = append(run.servers, server)
		}
		if err != nil {
			return err
		}
		before, err := proxy.Start(server.Address())
		if err != nil {
			return err
		}
		run.proxies = append(run.proxies, before)
		if !run.settings.Plan.SetNX {
			if _, err := server.Do("LOCK.GUARD", "LIFT"); err != nil {
				return err
			}
		}
	}
	run.fronts = run.proxies
	if err := run.startGate(shim); err != nil {
		return err
	}
	if run.settings.Plan.Masters > 0 {
		return run.formCluster()
	}
	if run.settings.Plan.Agents > 0 {
		if err := run.startAgents(); err != nil {
			return err
		}
	}
	if run.settings.Plan.Spare {
		if err := run.found(); err != nil {
			return err
		}
	}
	if run.settings.Plan.Driver != noLibrary {
		return run.startDrivers()
	}
	if run.does(promote) {
		return run.startReplica()
	}
	return nil
}

// started is the number of servers that are started.
func (plan Plan) started(promotes bool) int {
	switch {
	case plan.Masters > 0 && plan.Replicas:
		return 2 * plan.Masters
	case plan.Masters > 0:
		return plan.Masters
	case plan.Spare:
		return plan.Nodes + 1
	case promotes:
		return 2
	}
	return plan.Nodes
}

// startGate chooses or starts the server with the registers.
func (run *recording) startGate(shim string) error {
	switch chosen := run.settings.Plan; {
	case chosen.SetNX:
	case chosen.Nodes == 1 && chosen.Strict:
		run.gate = run.proxies[0]
	default:
		server, err := servers.Start(run.plan(0, shim), len(run.servers))
		run.gateServer, run.gate = server, server
		return err
	}
	return nil
}

// startReplica makes the second server a replica of the first, through a proxy that clients do not use. Clients reach
// one of the two servers.
func (run *recording) startReplica() error {
	run.links = run.proxies
	first, err := proxy.Start(run.servers[0].Address())
	if err != nil {
		return err
	}
	run.proxies = []*proxy.Proxy{first}
	run.fronts = run.proxies
	return run.servers[1].Follow(run.links[0].Address())
}

// startAgents starts the agents, and a proxy before each. Agents reach the nodes through the nodes' proxies.
func (run *recording) startAgents() error {
	var nodes []string
	for _, before := range run.proxies {
		nodes = append(nodes, before.Address())
	}
	run.fronts = nil
	for number := 0; number < run.settings.Plan.Agents; number++ {
		agent, err := servers.StartAgent(run.settings.Agent, run.settings.Folder, number, nodes)
		if agent != nil {
			run.agents = append(run.agents, agent)
		}
		if err != nil {
			return err
		}
		front, err := proxy.Start(agent.Address())
		if err != nil {
			return err
		}
		run.fronts = append(run.fronts, front)
	}
	return nil
}

// plan says how a node is started. Every second one of several nodes forgets everything in a crash.
func (run *recording) plan(number int, shim string) servers.Plan {
	chosen := run.settings.Plan
	plan := servers.Plan{Program: run.settings.Program, Folder: run.settings.Folder, Shim: shim, Args: []string{"--save", ""}}
	if !chosen.Forgets && (chosen.Durable || number%2 == 0) {
		plan.Args = append(plan.Args, "--appendonly", "yes", "--appendfsync", "always")
	}
	if chosen.Evicts {
		plan.Args = append(plan.Args, "--maxmemory-policy", "allkeys-random")
	}
	if chosen.SetNX {
		return plan
	}
	plan.Module = run.settings.Module
	plan.Options = []string{"max-ttl", fmt.Sprint(run.maxTTL()), "max-clock-skew", fmt.Sprint(run.skew())}
	if chosen.GuardNever {
		plan.Options = append(plan.Options, "restart-guard", "never")
	}
	return plan
}

// maxTTL is lock.max-ttl in milliseconds. A guard lasts a little longer.
func (run *recording) maxTTL() int64 {
	if run.settings.Dense {
		return 300
	}
	return 1000
}

// skew is lock.max-clock-skew in milliseconds.
func (run *recording) skew() int {
	switch {
	case run.settings.Plan.Masters > 0:
		return masterSkew
	case run.settings.Dense:
		return 50
	}
	return 200
}

func (run *recording) header() (history.Header, error) {
	chosen := run.settings.Plan
	answer, err := run.servers[0].Do("INFO", "server")
	if err != nil {
		return history.Header{}, err
	}
	header := history.Header{Nodes: chosen.Nodes, Server: version(answer), Lock: "palisade", Plan: chosen.Name,
		Seed: run.settings.Seed, Seconds: int(run.settings.Length.Seconds()), Strict: chosen.Strict,
		Dense:    run.settings.Dense,
		Settings: map[string]string{"max-ttl": fmt.Sprint(run.maxTTL()), "max-clock-skew": fmt.Sprint(run.skew()), "faults": strings.Join(chosen.Faults, " ")}}
	if chosen.SetNX {
		header.Lock = "SET NX PX"
		return header, nil
	}
	answer, err = run.servers[0].Do("LOCK.NODE")
	if fields, isList := answer.([]interface{}); err == nil && isList {
		for at := 0; at+1 < len(fields); at += 2 {
			if fields[at] == "version" {
				header.Module = fmt.Sprint(fields[at+1])
			}
		}
	}
	return header, err
}

// version finds the name and the version of a server in its INFO.
func version(info interface{}) string {
	text, _ := info.(string)
	found := map[string]string{}
	for _, line := range strings.Split(text, "\r\n") {
		if parts := strings.SplitN(line, ":", 2); len(parts) == 2 {
			found[parts[0]] = parts[1]
		}
	}
	if found["valkey_version"] != "" {
		return "Valkey " + found["valkey_version"]
	}
	return "Redis " + found["redis_version"]
}

func (run *recording) stop() {
	for _, proxies := range [][]*proxy.Proxy{run.fronts, run.proxies, run.links} {
		for _, proxy := range proxies {
			proxy.Stop()
		}
	}
	for _, server := range append(run.agents, run.servers...) {
		server.Kill()
	}
	if run.gateServer != nil {
		run.gateServer.Kill()
	}
	for _, driver := range run.drivers {
		driver.Kill()
	}
}
