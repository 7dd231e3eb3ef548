// Package model describes a lock, and a register behind a gate, as a state and the steps that change it, in the form
// that porcupine searches.
package model

import (
	"fmt"
	"strings"

	"palisade/judge/law"
	"palisade/judge/prepare"
)

// State says who holds a key, and which tokens its grants had. Grants are ordered by owner. A State is never changed:
// each step returns a new one.
type State struct {
	Grants []law.Grant
	Tokens law.Tokens
}

// Step returns the state after an operation, and whether the law allows it.
func (state State) Step(op prepare.Op) (State, bool) {
	at, holds := state.find(op.Grant.Owner)
	switch op.Kind {
	case prepare.Acquire:
		if holds {
			return state.raise(op, at)
		}
		return state.with(op.Grant), state.admits(op.Grant) && state.Tokens.Admits(op.Grant)
	case prepare.Extend:
		if !holds {
			return state, false
		}
		return state.raise(op, at)
	case prepare.Reenter, prepare.Release:
		return state.count(op, at, holds)
	case prepare.ToShared, prepare.ToExclusive:
		return state.convert(op, at, holds)
	case prepare.Expire:
		if !holds {
			return state, false
		}
		return state.without(at), true
	case prepare.ReleaseUnseen, prepare.Free:
		return state, !holds && state.admits(op.Grant)
	case prepare.Gone:
		return state, !holds
	}
	panic(fmt.Sprintf("an operation of kind %d: add it to the model", op.Kind))
}

// raise gives the owner's grant the token of a later answer. The token never falls. Only with several nodes may it
// rise.
func (state State) raise(op prepare.Op, at int) (State, bool) {
	grant := state.Grants[at]
	if op.Grant.Token == grant.Token {
		return state, true
	}
	grant.Token = op.Grant.Token
	raised := state.replace(at, grant)
	raised.Tokens = state.Tokens.With(grant)
	return raised, op.TokenMayRise && grant.Token > state.Grants[at].Token
}

// count performs a re-entry or a release, which changes the number of holds of the owner's grant.
func (state State) count(op prepare.Op, at int, holds bool) (State, bool) {
	if !holds {
		return state, false
	}
	grant := state.Grants[at]
	expected := grant.Holds + 1
	if op.Kind == prepare.Release {
		expected = grant.Holds - 1
	}
	legal := op.HoldsUnknown || op.Holds == expected
	if op.Holds == 0 {
		return state.without(at), legal
	}
	grant.Holds = op.Holds
	return state.replace(at, grant), legal
}

func (state State) convert(op prepare.Op, at int, holds bool) (State, bool) {
	if !holds || state.Grants[at].Mode == law.Permit {
		return state, false
	}
	if op.Kind == prepare.ToShared {
		raised, legal := state.raise(op, at)
		grant := raised.Grants[at]
		grant.Mode = law.Shared
		return raised.replace(at, grant), legal
	}
	grant := state.Grants[at]
	grant.Mode, grant.Token = law.Exclusive, op.Grant.Token
	legal := len(state.Grants) == 1 && state.Tokens.Admits(grant)
	changed := state.replace(at, grant)
	changed.Tokens = state.Tokens.With(grant)
	return changed, legal
}

// find returns the index of an owner's grant.
func (state State) find(owner int) (int, bool) {
	for at, grant := range state.Grants {
		if grant.Owner == owner {
			return at, true
		}
	}
	return 0, false
}

// String names all owners that hold the lock, with their modes.
func (state State) String() string {
	var names []string
	for _, grant := range state.Grants {
		names = append(names, fmt.Sprintf("owner %d (%s)", grant.Owner, grant))
	}
	if len(names) == 0 {
		return "nobody holds it"
	}
	return "held by " + strings.Join(names, ", ")
}

// admits returns whether a new grant may exist beside all present ones.
func (state State) admits(added law.Grant) bool {
	for _, grant := range state.Grants {
		if !grant.Beside(added) {
			return false
		}
	}
	return true
}

func (state State) with(added law.Grant) State {
	grants := make([]law.Grant, 0, len(state.Grants)+1)
	at := 0
	for at < len(state.Grants) && state.Grants[at].Owner < added.Owner {
		at++
	}
	grants = append(append(append(grants, state.Grants[:at]...), added), state.Grants[at:]...)
	return State{grants, state.Tokens.With(added)}
}

func (state State) without(at int) State {
	grants := make([]law.Grant, 0, len(state.Grants))
	return State{append(append(grants, state.Grants[:at]...), state.Grants[at+1:]...), state.Tokens}
}

func (state State) replace(at int, grant law.Grant) State {
	grants := append([]law.Grant{}, state.Grants...)
	grants[at] = grant
	return State{grants, state.Tokens}
}

// equal returns whether two states are the same.
func equal(a, b State) bool {
	same := len(a.Grants) == len(b.Grants) && len(a.Tokens.Permits) == len(b.Tokens.Permits) &&
		a.Tokens.Exclusive == b.Tokens.Exclusive && a.Tokens.Shared == b.Tokens.Shared
	for at := 0; same && at < len(a.Grants); at++ {
		same = a.Grants[at] == b.Grants[at]
	}
	for at := 0; same && at < len(a.Tokens.Permits); at++ {
		same = a.Tokens.Permits[at] == b.Tokens.Permits[at]
	}
	return same
}

// hash returns the same number for equal states.
func (state State) hash() uint64 {
	hash := uint64(14695981039346656037)
	mix := func(value int64) { hash = (hash ^ uint64(value)) * 1099511628211 }
	mix(state.Tokens.Exclusive)
	mix(state.Tokens.Shared)
	for _, permit := range state.Tokens.Permits {
		mix(permit.Token)
	}
	for _, grant := range state.Grants {
		mix(int64(grant.Owner))
		mix(grant.Token)
		mix(int64(grant.Mode) + int64(grant.Holds)<<8)
	}
	return hash
}
