package record

// Plan says which servers, clients and faults a history has.
type Plan struct {
	Name string
	// About describes the plan for people.
	About string
	Nodes int
	// Agents is the number of agents between clients and nodes. Without agents, clients ask the nodes themselves.
	Agents int
	// Masters is the number of masters of a cluster, which is used in place of a single node. Replicas is true if each
	// master has a replica.
	Masters  int
	Replicas bool
	// Spare is true if there is one node more than the set has, and the set changes.
	Spare bool
	// Driver names the client library, of which three processes run.
	Driver library
	// Forgets is true if each crash loses all data. Else a single node loses nothing, and every second one of several
	// nodes loses everything.
	Forgets bool
	// Durable is true if none of several nodes loses anything.
	Durable bool
	Faults  []string
	// Evicts is true if the server may evict keys.
	Evicts bool
	// Strict is true if the server forgets nothing. Then it may never answer that a lock is gone while its lease runs.
	Strict bool
	// Broken is true if the history must be illegal.
	Broken bool
	// Extra is true if the plan needs more than the module, the program and the crate.
	Extra bool
	// The fault of the service, for a plan with Broken.
	SetNX      bool  // a plain server with SET NX PX in place of the module
	GuardNever bool  // lock.restart-guard never
	Early      int64 // milliseconds by which leases end before the time that the history says
	Hasty      bool  // slots move sooner than clocks are apart
	Flaw       flaw  // of the client of several nodes
}

// library is a client library that has a driver.
type library int

const (
	noLibrary library = iota
	crate
	python
	node
	golang
)

// flaw is a mistake of a client of several nodes.
type flaw int

const (
	none flaw = iota
	// minority: the client is content with two of five nodes.
	minority
	// oneRound: the client does not raise smaller tokens.
	oneRound
	// fromAnswer: the client counts validity from the answer, not from the request.
	fromAnswer
)

// Plans has every plan.
var Plans = []Plan{
	{Name: "calm", About: "one node, no faults", Nodes: 1, Strict: true},
	{Name: "durable", About: "one node that loses nothing: kill -9, stops, cuts, delays", Nodes: 1, Strict: true, Faults: []string{kill, pause, cut, hold}},
	{Name: "forgets", About: "one node without an AOF: the same, FLUSHALL, wall clocks", Nodes: 1, Forgets: true, Faults: []string{kill, pause, cut, hold, flush, stepClock}},
	{Name: "promotions", About: "a master that dies and its replica that missed its last grants", Nodes: 1, Faults: []string{promote, pause, cut}},
	{Name: "evicts", About: "one node whose locks are evicted to make room, clean stops, kill -9", Nodes: 1, Evicts: true, Faults: []string{evict, evictStop, kill}},
	{Name: "restored", About: "one node that is put back to a backup of itself, clean stops, kill -9", Nodes: 1, Faults: []string{restore, stop, kill}},
	{Name: "cluster", About: "three masters that lose nothing, slots that move, stops and cuts, wall clocks apart", Nodes: 1, Masters: 3, Durable: true, Faults: []string{move, move, pause, cut, hold}},
	{Name: "fail-overs", About: "a cluster whose masters die, and whose replicas missed the last grants", Nodes: 1, Masters: 3, Replicas: true, Durable: true,
		Faults: []string{failOver, pause, cut, hold}},
	{Name: "five", About: "five nodes, every second without an AOF, all faults", Nodes: 5, Faults: []string{kill, killAll, pause, cut, hold, flush, stepClock}},
	{Name: "five-durable", About: "five nodes that lose nothing", Nodes: 5, Durable: true, Strict: true, Faults: []string{kill, pause, cut, hold}},
	{Name: "agents-durable", About: "two agents over them, agents killed", Nodes: 5, Agents: 2, Durable: true, Strict: true, Faults: []string{kill, pause, cut, hold}},
	{Name: "agents", About: "two agents over five nodes, all faults, agents killed", Nodes: 5, Agents: 2, Faults: []string{kill, pause, cut, hold, flush, stepClock}},
	{Name: "crate", About: "the Rust crate over five nodes, all faults, its processes killed and stopped", Nodes: 5, Driver: crate,
		Faults: []string{kill, pause, cut, hold, flush, stepClock}},
	{Name: "members", About: "the crate over a set of five of six nodes that changes all the time", Nodes: 5, Spare: true, Driver: crate,
		Faults: []string{kill, pause, cut, hold, stepClock}},
	{Name: "python", About: "the package for Python with one node that forgets", Nodes: 1, Driver: python, Forgets: true, Extra: true,
		Faults: []string{kill, pause, cut, hold, flush, stepClock}},
	{Name: "python-agents", About: "the package for Python with two agents over five nodes", Nodes: 5, Agents: 2, Driver: python, Extra: true,
		Faults: []string{kill, pause, cut, hold, flush, stepClock}},
	{Name: "node", About: "the package for Node.js with one node that forgets", Nodes: 1, Driver: node, Forgets: true, Extra: true,
		Faults: []string{kill, pause, cut, hold, flush, stepClock}},
	{Name: "node-agents", About: "the package for Node.js with two agents over five nodes", Nodes: 5, Agents: 2, Driver: node, Extra: true,
		Faults: []string{kill, pause, cut, hold, flush, stepClock}},
	{Name: "go", About: "the package for Go with one node that forgets", Nodes: 1, Driver: golang, Forgets: true, Extra: true,
		Faults: []string{kill, pause, cut, hold, flush, stepClock}},
	{Name: "go-agents", About: "the package for Go with two agents over five nodes", Nodes: 5, Agents: 2, Driver: golang, Extra: true,
		Faults: []string{kill, pause, cut, hold, flush, stepClock}},
	{Name: "set-nx-calm", About: "SET NX PX under stops and cuts", Nodes: 1, SetNX: true, Forgets: true, Faults: []string{cut, pause}},

	{Name: "set-nx-killed", About: "SET NX PX under kill -9", Nodes: 1, SetNX: true, Forgets: true, Faults: []string{kill}, Broken: true},
	{Name: "set-nx-clock", About: "SET NX PX under steps of the wall clock", Nodes: 1, SetNX: true, Forgets: true, Faults: []string{stepClock}, Broken: true},
	{Name: "unguarded", About: "restart-guard never, kill -9", Nodes: 1, GuardNever: true, Forgets: true, Faults: []string{kill}, Broken: true},
	{Name: "unguarded-promotions", About: "restart-guard never, promotions", Nodes: 1, GuardNever: true, Faults: []string{promote}, Broken: true},
	{Name: "unguarded-five", About: "five nodes with restart-guard never, all killed at once", Nodes: 5, GuardNever: true, Forgets: true, Faults: []string{killAll}, Broken: true},
	{Name: "cluster-hasty", About: "slots of a cluster move sooner than its clocks are apart", Nodes: 1, Masters: 3, Hasty: true, Faults: []string{move}, Broken: true},
	{Name: "five-minority", About: "two of five nodes are enough for a client", Nodes: 5, Flaw: minority, Faults: []string{cut, hold}, Broken: true},
	{Name: "five-one-round", About: "smaller tokens are not raised", Nodes: 5, Flaw: oneRound, Faults: []string{kill, cut, stepClock}, Broken: true},
	{Name: "five-from-answer", About: "validity counts from the answers", Nodes: 5, Flaw: fromAnswer, Faults: []string{pause, hold}, Broken: true},
	{Name: "break", About: "LOCK.BREAK under holders", Nodes: 1, Faults: []string{lockBreak}, Broken: true},
	{Name: "early", About: "leases that end 5 ms early", Nodes: 1, Early: 5, Broken: true},
}
