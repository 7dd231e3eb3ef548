package prepare

import (
	"palisade/judge/history"
	"palisade/judge/law"
)

const millisecond = int64(1_000_000)

// tenure collects what one owner did with one key, from its requests in their order.
type tenure struct {
	strict bool
	// rises is true if the tokens of a grant may rise, as they may with several nodes.
	rises bool
	ops   []Op
	// grant is the owner's present grant, as the answers show it. The owner has none while its Mode is 0.
	grant law.Grant
	// claimed is the time until which the holder relies on its grant, and answered the time of its last answer.
	claimed, answered int64
	request           int64
	// unseen is the request of an acquisition without an answer. After a conversion without an answer, lost is true:
	// nothing more is known of this owner.
	unseen       *history.Line
	lost         bool
	holdsUnknown bool
}

// add adds an operation of the owner.
func (tenure *tenure) add(operation history.Operation, owner int) {
	call, answer := operation.Call, operation.Answer
	if tenure.lost {
		return
	}
	switch call.Op {
	case history.Acquire:
		tenure.acquire(call, answer, owner)
	case history.Await:
		tenure.await(call, answer, owner)
	case history.Extend, history.Check:
		tenure.extend(call, answer)
	case history.Reenter:
		tenure.reenter(call, answer)
	case history.Release:
		tenure.release(call, answer, owner)
	case history.Convert:
		tenure.convert(call, answer)
	}
}

func (tenure *tenure) acquire(call, answer history.Line, owner int) {
	if answer.Event == history.Unknown {
		tenure.unseen = &call
	}
	if answer.Event != history.OK {
		return
	}
	grant := law.Grant{Owner: owner, Token: answer.Token, Mode: mode(call.Mode), Permit: answer.Permit, Limit: call.Limit, Holds: 1}.Plain()
	if tenure.grant.Mode != 0 && tenure.grant.Token != grant.Token {
		tenure.claimed = least(tenure.claimed, answer.Time)
		tenure.expire()
	}
	until := claim(call, answer)
	if tenure.grant.Mode != 0 {
		until = most(until, tenure.claimed)
	} else {
		tenure.holdsUnknown = false
	}
	tenure.grant, tenure.claimed, tenure.request, tenure.unseen = grant, until, call.ID, nil
	began := call.Time
	if answer.Waited > 0 {
		// The server measures Waited from the arrival of the request, in whole milliseconds.
		began = most(began, call.Time+(answer.Waited-1)*millisecond)
	}
	tenure.push(Op{Kind: Acquire, Grant: grant, Call: began, Return: answer.Time, Request: call.ID})
}

// await adds the answer of a server that this owner could acquire the lock.
func (tenure *tenure) await(call, answer history.Line, owner int) {
	if tenure.grant.Mode != 0 || answer.Event != history.OK {
		return
	}
	grant := law.Grant{Owner: owner, Mode: mode(call.Mode), Permit: answer.Permit, Limit: call.Limit}.Plain()
	tenure.push(Op{Kind: Free, Grant: grant, Call: call.Time, Return: answer.Time, Request: call.ID})
}

func (tenure *tenure) extend(call, answer history.Line) {
	switch {
	case tenure.grant.Mode == 0:
	case answer.Event == history.OK:
		tenure.claimed = most(tenure.claimed, claim(call, answer))
		if answer.Token != 0 {
			tenure.grant.Token = answer.Token
		}
		tenure.push(Op{Kind: Extend, Grant: tenure.grant, Call: call.Time, Return: answer.Time, Request: call.ID})
	case answer.Event == history.Null:
		tenure.gone(call, answer, answer.Time)
	}
}

func (tenure *tenure) reenter(call, answer history.Line) {
	switch {
	case tenure.grant.Mode == 0:
	case answer.Event == history.OK:
		tenure.push(Op{Kind: Reenter, Grant: tenure.grant, Holds: answer.Holds, HoldsUnknown: tenure.holdsUnknown,
			Call: call.Time, Return: answer.Time, Request: call.ID})
	case answer.Event == history.Null:
		tenure.gone(call, answer, answer.Time)
	case answer.Event == history.Unknown:
		tenure.holdsUnknown = true
	}
}

// release adds a release. If it removes one of several holds, the holder continues to rely on its grant. Else the
// holder relies on nothing after it has sent the request, whatever the answer.
func (tenure *tenure) release(call, answer history.Line, owner int) {
	ends := answer.Event != history.OK || answer.Holds == 0
	if ends {
		if answer.Event == history.Null {
			tenure.gone(call, answer, call.Time)
		} else {
			tenure.claimed = least(tenure.claimed, call.Time)
		}
	}
	if answer.Event != history.OK {
		tenure.holdsUnknown = tenure.holdsUnknown || answer.Event == history.Unknown
		return
	}
	op := Op{Kind: Release, Grant: tenure.grant, Holds: answer.Holds, HoldsUnknown: tenure.holdsUnknown || call.Level == 1,
		Call: call.Time, Return: answer.Time, Request: call.ID}
	if tenure.grant.Mode == 0 {
		op.Grant.Owner = owner
		if unseen := tenure.unseen; unseen != nil {
			op.Kind = ReleaseUnseen
			op.Grant = law.Grant{Owner: owner, Mode: mode(unseen.Mode), Permit: unseen.Permit, Limit: unseen.Limit}.Plain()
			tenure.unseen = nil
		}
	}
	tenure.push(op)
	if ends {
		tenure.grant = law.Grant{}
	}
}

func (tenure *tenure) convert(call, answer history.Line) {
	kind := ToExclusive
	if mode(call.Mode) == law.Shared {
		kind = ToShared
	}
	switch {
	case tenure.grant.Mode == 0:
	case answer.Event == history.OK:
		tenure.grant.Mode, tenure.grant.Token = mode(call.Mode), answer.Token
		tenure.push(Op{Kind: kind, Grant: tenure.grant, Call: call.Time, Return: answer.Time, Request: call.ID})
	case answer.Event == history.Unknown:
		// From here on the holder relies on neither of the two modes.
		tenure.claimed = least(tenure.claimed, call.Time)
		tenure.lost = true
	}
}

// gone adds an answer that this owner holds nothing. If servers forget nothing, the answer must be true. Else the
// holder relies on its lock until it learns of the loss, and nobody else may hold the lock before.
func (tenure *tenure) gone(call, answer history.Line, learned int64) {
	if tenure.grant.Mode == 0 {
		return
	}
	if !tenure.strict {
		tenure.claimed = least(tenure.claimed, learned)
		return
	}
	tenure.push(Op{Kind: Gone, Grant: tenure.grant, Call: call.Time, Return: answer.Time, Request: call.ID})
}

func (tenure *tenure) push(op Op) {
	op.TokenMayRise = tenure.rises
	tenure.ops = append(tenure.ops, op)
	if op.Kind != Gone {
		tenure.answered = op.Return
	}
}

// expire ends the grant when its holder stops relying on it, but not before the owner's own last operation. A legal
// order in which the grant ends later stays legal if it ends here, so that no later end has to be searched.
func (tenure *tenure) expire() {
	if tenure.grant.Mode == 0 {
		return
	}
	tenure.push(Op{Kind: Expire, Grant: tenure.grant, Call: tenure.claimed, Return: most(tenure.claimed, tenure.answered), Request: tenure.request})
	tenure.grant = law.Grant{}
}

// claim returns the time until which a holder relies on its grant after this answer.
func claim(call, answer history.Line) int64 {
	if answer.Until != 0 {
		return answer.Until
	}
	return call.Time + (answer.Waited+call.TTL)*millisecond
}

func mode(text string) law.Mode {
	if text == "" {
		return law.Exclusive
	}
	return law.Mode(text[0])
}

func least(a, b int64) int64 {
	if a < b {
		return a
	}
	return b
}

func most(a, b int64) int64 {
	if a > b {
		return a
	}
	return b
}
