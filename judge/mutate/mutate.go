// Package mutate changes legal histories as a broken lock service would have answered. The judge must notice most of
// the changes.
package mutate

import (
	"math/rand"

	"palisade/judge/history"
)

// Mutation is a kind of change to one operation of a history.
type Mutation struct {
	Name string
	// Why says in which cases a changed history is still legal.
	Why string
	// Least is the smallest share of these changes that the judge must notice, in percent.
	Least int
	// Strict is true if only histories can be changed whose servers forget nothing.
	Strict bool
	// change changes the operation at this index. It may change other operations of the same key with it.
	change func(random *rand.Rand, key []history.Operation, at int)
	// may returns whether this mutation can change the operation at this index.
	may func(key []history.Operation, at int) bool
}

// Mutations has every kind of mutation except Stretch.
var Mutations = []Mutation{
	{"writer's token lowered", "it never is", 100, false, lower, isLaterWriter},
	{"owners swapped", "neither did anything that shows who held it", 70, false, swap, hasEarlier},
	{"grant moved", "nobody held it at the earlier moment", 35, false, move, isGrant},
	{"grant invented", "nobody held it then, or its holder was releasing it", 65, false, invent, isNull},
	{"release confirmed", "nobody else had got it by then", 40, false, confirm, isNullRelease},
	{"release denied", "its holder relied on it no longer", 90, true, deny, isRelease},
	{"permit renumbered", "nobody held that number", 65, false, renumber, isPermit},
	{"old token passed", "it never is", 100, false, confirm, isFenced},
	{"gate refused", "a newer token passed at the same time", 90, false, fence, isAccess},
	{"reader made writer", "no other reader was there", 75, false, makeWriter, isReader},
}

// Apply makes one change at a random operation that allows it. It returns the operations of that operation's key, or
// false if no operation allows the change.
func (mutation Mutation) Apply(random *rand.Rand, read *history.History) (*history.History, bool) {
	if mutation.Strict && !read.Header.Strict {
		return nil, false
	}
	var places []int
	keys := map[string][]history.Operation{}
	at := map[int]int{}
	for index, operation := range read.Operations {
		at[index] = len(keys[operation.Call.Key])
		keys[operation.Call.Key] = append(keys[operation.Call.Key], operation)
	}
	for index, operation := range read.Operations {
		if mutation.may(keys[operation.Call.Key], at[index]) {
			places = append(places, index)
		}
	}
	if len(places) == 0 {
		return nil, false
	}
	place := places[random.Intn(len(places))]
	key := keys[read.Operations[place].Call.Key]
	mutation.change(random, key, at[place])
	return &history.History{Header: read.Header, Operations: key}, true
}

// Stretch returns the history as a service would have produced it whose leases all end earlier than it says.
func Stretch(read *history.History, milliseconds int64) *history.History {
	stretched := &history.History{Header: read.Header, Operations: append([]history.Operation{}, read.Operations...)}
	for at := range stretched.Operations {
		call, answer := &stretched.Operations[at].Call, &stretched.Operations[at].Answer
		if answer.Until != 0 {
			answer.Until += milliseconds * 1_000_000
		}
		if call.TTL != 0 {
			call.TTL += milliseconds
		}
	}
	return stretched
}

func isGrant(key []history.Operation, at int) bool {
	return key[at].Call.Op == history.Acquire && key[at].Answer.Event == history.OK
}

// hasEarlier returns whether a grant was answered before this one was asked for.
func hasEarlier(key []history.Operation, at int) bool {
	return isGrant(key, at) && key[at].Answer.Token != 0 && earlier(key, at) >= 0
}

// isLaterWriter returns whether this grant is exclusive, and another grant was answered before it was asked for.
func isLaterWriter(key []history.Operation, at int) bool {
	return key[at].Call.Mode == "x" && hasEarlier(key, at)
}

// earlier returns the last grant that was answered before this one was asked for, or -1.
func earlier(key []history.Operation, at int) int {
	for before := at - 1; before >= 0; before-- {
		other := key[before]
		if isGrant(key, before) && other.Answer.Time < key[at].Call.Time && other.Call.Owner != key[at].Call.Owner {
			return before
		}
	}
	return -1
}

func isNull(key []history.Operation, at int) bool {
	return key[at].Call.Op == history.Acquire && key[at].Answer.Event == history.Null
}

func isNullRelease(key []history.Operation, at int) bool {
	return key[at].Call.Op == history.Release && key[at].Answer.Event == history.Null
}

func isRelease(key []history.Operation, at int) bool {
	return key[at].Call.Op == history.Release && key[at].Answer.Event == history.OK && key[at].Answer.Holds == 0
}

// isFenced returns whether a gate refused an old token.
func isFenced(key []history.Operation, at int) bool {
	return isAtGate(key, at) && key[at].Answer.Event == history.Refused && key[at].Answer.Text == "FENCED"
}

// isAccess returns whether a token passed a gate.
func isAccess(key []history.Operation, at int) bool {
	return isAtGate(key, at) && key[at].Answer.Event == history.OK
}

func isAtGate(key []history.Operation, at int) bool {
	return key[at].Call.Op == history.Put || key[at].Call.Op == history.Get
}

func isPermit(key []history.Operation, at int) bool {
	return isGrant(key, at) && key[at].Call.Mode == "p"
}

func isReader(key []history.Operation, at int) bool {
	return isGrant(key, at) && key[at].Call.Mode == "s"
}

// lower replaces a grant's token in all answers by that of an earlier grant, so that the token does not rise.
func lower(_ *rand.Rand, key []history.Operation, at int) {
	token, lowered := key[at].Answer.Token, key[earlier(key, at)].Answer.Token
	for index := range key {
		if key[index].Call.Owner == key[at].Call.Owner && key[index].Answer.Token == token {
			key[index].Answer.Token = lowered
		}
	}
}

// swap exchanges the owners of two grants.
func swap(_ *rand.Rand, key []history.Operation, at int) {
	before := earlier(key, at)
	key[before].Call.Owner, key[at].Call.Owner = key[at].Call.Owner, key[before].Call.Owner
}

// move moves a grant some milliseconds back in time.
func move(random *rand.Rand, key []history.Operation, at int) {
	by := int64(5+random.Intn(45)) * 1_000_000
	key[at].Call.Time -= by
	key[at].Answer.Time -= by
	if key[at].Answer.Until != 0 {
		key[at].Answer.Until -= by
	}
}

// invent turns an answer that the lock is not free into a grant.
func invent(_ *rand.Rand, key []history.Operation, at int) {
	key[at].Answer.Event, key[at].Answer.Permit = history.OK, key[at].Call.Permit
}

// fence turns an access that passed a gate into one that the gate refused.
func fence(_ *rand.Rand, key []history.Operation, at int) {
	key[at].Answer.Event, key[at].Answer.Text = history.Refused, "FENCED"
}

// confirm turns the answer Null of a release into success, or the refusal of a gate into an access that passed.
func confirm(_ *rand.Rand, key []history.Operation, at int) {
	key[at].Answer.Event = history.OK
}

// deny turns the success of a release that freed a lock into the answer that the lock was not held.
func deny(_ *rand.Rand, key []history.Operation, at int) {
	key[at].Answer.Event = history.Null
}

// renumber gives a permit another number within its limit.
func renumber(random *rand.Rand, key []history.Operation, at int) {
	limit := key[at].Call.Limit
	key[at].Answer.Permit = 1 + (key[at].Answer.Permit+random.Intn(limit-1))%limit
}

// makeWriter turns a shared grant into an exclusive one.
func makeWriter(_ *rand.Rand, key []history.Operation, at int) {
	key[at].Call.Mode = "x"
}
