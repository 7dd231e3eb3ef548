// Package prepare turns a history into segments that can be searched: for each key and each time span in which somebody
// held it, one list of operations.
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
	// Extend renews the grant. It succeeds only while the owner has the grant with this token.
	Extend
	// Reenter adds a hold to the owner's grant.
	Reenter
	// Release removes one hold, or all of them.
	Release
	// ToShared and ToExclusive convert a grant to another mode.
	ToShared
	ToExclusive
	// Expire ends a grant that nobody released. It takes effect at some moment after the holder stopped relying on the
	// grant.
	Expire
	// ReleaseUnseen releases a grant whose acquisition was never answered.
	ReleaseUnseen
	// Gone is the answer that this owner holds nothing.
	Gone
	// Free is the answer that this owner, which holds nothing, could acquire the lock.
	Free
	// Write and Read are accesses that passed the gate of a register. Fenced is one that the gate refused. Unseen is
	// one without an answer, so that nobody knows whether it passed.
	Write
	Read
	Fenced
	Unseen
)

// Op is an operation on one key. It took effect at one moment between Call and Return.
type Op struct {
	Kind  Kind
	Grant law.Grant
	// Holds is the number of holds that were left, as answered. If HoldsUnknown is true, the model takes it over
	// without comparing it with its own count.
	Holds        int
	HoldsUnknown bool
	// TokenMayRise is true with several nodes: the token of a grant rises when a late node joins the grant.
	TokenMayRise bool
	// Value is the value that was written or read. For a read without an answer it is empty.
	Value  string
	Call   int64
	Return int64
	// Request is the number of the history's line with the request.
	Request int64
}

// String describes the operation for people.
func (op Op) String() string {
	names := []string{"acquire", "extend", "reenter", "release", "convert to shared", "convert to exclusive", "end of the lease",
		"release of an unanswered acquire", "answer that it is not held", "answer that it is free", "write", "read", "refusal of the gate", "access without an answer"}
	return fmt.Sprintf("%s (owner %d, %s, request %d)", names[op.Kind], op.Grant.Owner, op.Grant, op.Request)
}

// Segment has the operations of one key in a time span. Nobody holds the key at either end of the span.
type Segment struct {
	Key string
	// IsRegister is true if the operations are of a register, not of a lock.
	IsRegister bool
	// Before has the tokens of all earlier segments of the key.
	Before law.Tokens
	Ops    []Op
	// Owners has the names of the owners. A grant's Owner is an index into it.
	Owners []string
}
