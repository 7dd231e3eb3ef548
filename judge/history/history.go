// Package history reads and writes what clients asked of a lock service, and what it answered: JSON lines, one before
// each request and one after its answer. docs/judge.md describes the form.
package history

import "math"

// Format is the version of the file format.
const Format = 1

// Never stands for the time of an answer that did not come.
const Never = math.MaxInt64

// The kinds of lines.
const (
	Call    = "call"    // a request that is about to leave
	OK      = "ok"      // it was done
	Null    = "null"    // the server answered Null
	Refused = "refused" // the server answered an error, and changed nothing
	Unknown = "unknown" // no answer came
	Fault   = "fault"   // what the recorder did to the servers, for people
)

// The operations that a client can request.
const (
	Acquire = "acquire"
	Extend  = "extend"
	Release = "release"
	Reenter = "reenter"
	Convert = "convert"
	Check   = "check"
	// Await waits until this owner could acquire the lock. It does not acquire the lock.
	Await = "await"
	// Put and Get access a register behind a gate (docs/fencing.md), with the token of a lock.
	Put = "write"
	Get = "read"
)

// Header is the first line of a history.
type Header struct {
	Format   int               `json:"format"`
	Nodes    int               `json:"nodes"`
	Server   string            `json:"server"`
	Module   string            `json:"module,omitempty"`
	Lock     string            `json:"lock"`
	Plan     string            `json:"plan,omitempty"`
	Seed     int64             `json:"seed"`
	Seconds  int               `json:"seconds"`
	Strict   bool              `json:"strict,omitempty"`
	Dense    bool              `json:"dense,omitempty"`
	Settings map[string]string `json:"settings,omitempty"`
}

// Line is a request, an answer or a fault. Times are nanoseconds of the boot clock, durations milliseconds.
type Line struct {
	Process int    `json:"p,omitempty"`
	Worker  int    `json:"w,omitempty"`
	ID      int64  `json:"i,omitempty"`
	Time    int64  `json:"t"`
	Event   string `json:"ev"`

	// Fields of a request.
	Op    string `json:"op,omitempty"`
	Key   string `json:"key,omitempty"`
	Owner string `json:"owner,omitempty"`
	Mode  string `json:"mode,omitempty"`
	Limit int    `json:"limit,omitempty"`
	TTL   int64  `json:"ttl,omitempty"`
	Wait  int64  `json:"wait,omitempty"`
	Retry bool   `json:"retry,omitempty"`
	Level int    `json:"level,omitempty"`
	// KeepAlive is how long the server itself extends the lease while the connection is open, in milliseconds.
	KeepAlive int64 `json:"keepalive,omitempty"`
	// Elect is true if the lock elects a leader: the holder leads, and the token is its term.
	Elect bool `json:"elect,omitempty"`

	// Fields of a request or of an answer.
	Permit int   `json:"permit,omitempty"`
	Token  int64 `json:"token,omitempty"`

	// Fields of an answer.
	Waited int64 `json:"waited,omitempty"`
	Holds  int   `json:"holds,omitempty"`
	// Until is the time until which the holder relies on its lock. It is 0 where that time is call + waited + ttl.
	Until int64  `json:"until,omitempty"`
	Text  string `json:"text,omitempty"`
}

// Operation is a request with its answer.
type Operation struct {
	Call   Line
	Answer Line
}

// History is a recording.
type History struct {
	Header     Header
	Operations []Operation
	Faults     []Line
}
