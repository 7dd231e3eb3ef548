package model

import (
	"fmt"
	"time"

	"github.com/anishathalye/porcupine"

	"palisade/judge/prepare"
)

// Verdict is the result of a search.
type Verdict = porcupine.CheckResult

// Search looks for an order of the operations that the law allows if they run one after the other. If there is none, it
// also returns, as text, how far the best order goes, and an operation that cannot follow.
func Search(segment prepare.Segment, limit time.Duration) (Verdict, string) {
	operations := make([]porcupine.Operation, len(segment.Ops))
	for at, op := range segment.Ops {
		operations[at] = porcupine.Operation{Input: op, Call: op.Call, Return: op.Return}
	}
	model := ofLock(segment)
	if segment.IsRegister {
		model = ofRegister()
	}
	verdict, info := porcupine.CheckOperationsVerbose(model, operations, limit)
	if verdict != porcupine.Illegal {
		return verdict, ""
	}
	return verdict, explain(segment, model, info.PartialLinearizations()[0])
}

func ofLock(segment prepare.Segment) porcupine.Model {
	return porcupine.Model{
		Init: func() interface{} { return State{Tokens: segment.Before} },
		Step: func(state, input, _ interface{}) (bool, interface{}) {
			next, legal := state.(State).Step(input.(prepare.Op))
			return legal, next
		},
		Equal: func(a, b interface{}) bool { return equal(a.(State), b.(State)) },
		Hash:  func(state interface{}) uint64 { return state.(State).hash() },
	}
}

func ofRegister() porcupine.Model {
	return porcupine.Model{
		Init: func() interface{} { return Register{} },
		Step: func(state, input, _ interface{}) (bool, interface{}) {
			next, legal := state.(Register).Step(input.(prepare.Op))
			return legal, next
		},
		Equal: func(a, b interface{}) bool {
			one, other := a.(Register), b.(Register)
			return one.Value == other.Value && equal(State{Tokens: one.Tokens}, State{Tokens: other.Tokens})
		},
		Hash: func(state interface{}) uint64 { return State{Tokens: state.(Register).Tokens}.hash() },
	}
}

// explain says as text how far an order can be found, and which operation does not fit into it.
func explain(segment prepare.Segment, model porcupine.Model, partial [][]int) string {
	var longest []int
	for _, order := range partial {
		if len(order) > len(longest) {
			longest = order
		}
	}
	placed := map[int]bool{}
	state := model.Init()
	for _, at := range longest {
		placed[at] = true
		_, state = model.Step(state, segment.Ops[at], nil)
	}
	text := fmt.Sprintf("%d of %d operations can be put in an order; then %s", len(longest), len(segment.Ops), state)
	first := -1
	for at := range segment.Ops {
		if !placed[at] && (first < 0 || segment.Ops[at].Return < segment.Ops[first].Return) {
			first = at
		}
	}
	if first >= 0 {
		text += fmt.Sprintf(", and this cannot follow: %s, owner %q", segment.Ops[first], segment.Owners[segment.Ops[first].Grant.Owner])
	}
	return text
}
