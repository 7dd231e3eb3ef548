// Package prepare makes of a history what can be searched: one list of operations for each key and each time in which
// somebody held it.
package prepare

import (
	"fmt"

	"palisade/judge/law"
)

// Kind is what an operation does to a key.
type Kind int

// The kinds.
const (
	// Acquire begins a grant, or returns the one that the owner has.
	Acquire Kind = iota
	// Extend needs the grant with this token.
	Extend
	// Reenter adds a hold.
	Reenter
	// Release gives a hold back, or all of them.
	Release
	// ToShared and ToExclusive convert a grant.
	ToShared
	ToExclusive
	// Expire ends a grant that nobody released: at some moment after its holder stopped to rely on it.
	Expire
	// ReleaseUnseen freed a grant whose acquisition was never answered.
	ReleaseUnseen
	// Gone is an answer that this owner holds nothing.
	Gone
	// Free is an answer that this owner, who holds nothing, could have the lock.
	Free
	// Write and Read passed the gate of a register, Fenced was refused there, and of Unseen nobody knows.
	Write
	Read
	Fenced
	Unseen
)

// Op is an operation on one key. It took effect at one moment between Call and Return.
type Op struct {
	Kind  Kind
	Grant law.Grant
	// Holds is how many holds were left, by the answer. It counts from the answer alone if HoldsUnknown.
	Holds        int
	HoldsUnknown bool
	// TokenMayRise: over several nodes, the token of a grant does when a late node joins.
	TokenMayRise bool
	// Value is what was written, or read. Unseen reads write nothing.
	Value  string
	Call   int64
	Return int64
	// Request is the number of the request in the history.
	Request int64
}

// String describes the operation for people.
func (op Op) String() string {
	names := []string{"acquire", "extend", "reenter", "release", "convert to shared", "convert to exclusive", "end of the lease",
		"release of an unanswered acquire", "answer that it is not held", "answer that it is free", "write", "read", "refusal of the gate", "access without an answer"}
	return fmt.Sprintf("%s (owner %d, %s, request %d)", names[op.Kind], op.Grant.Owner, op.Grant, op.Request)
}

// Segment is a time of a key at whose ends nobody holds it.
type Segment struct {
	Key string
	// IsRegister: it is what happened to a register, and not to a lock.
	IsRegister bool
	// Before has the tokens of all earlier segments.
	Before law.Tokens
	Ops    []Op
	// Owners has the names behind the numbers.
	Owners []string
}
