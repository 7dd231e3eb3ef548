// Package sweep compares grants that were certainly held with other grants. It does not search for an order, so it
// overlooks faults that only a search can find. It is a second opinion, and says in words what is wrong.
package sweep

import (
	"fmt"
	"sort"

	"palisade/judge/law"
	"palisade/judge/prepare"
)

// held is a grant, from its answer until its holder stops relying on it.
type held struct {
	grant    law.Grant
	from, to int64
	called   int64
	request  int64
}

// Accusations returns, as text, what certainly violates exclusion or the order of tokens.
func Accusations(segment prepare.Segment) []string {
	if segment.IsRegister {
		return stale(segment)
	}
	grants := collect(segment)
	return append(overlaps(segment, grants), falls(segment, grants)...)
}

// collect returns the grants with the time spans in which they were certainly held. A converted grant has one span for
// each mode.
func collect(segment prepare.Segment) []held {
	open := map[int]held{}
	var all []held
	end := func(owner int, at int64) {
		if grant, isOpen := open[owner]; isOpen {
			grant.to = at
			all = append(all, grant)
			delete(open, owner)
		}
	}
	// The operations of one owner are in the order of their time.
	for _, op := range segment.Ops {
		owner := op.Grant.Owner
		switch op.Kind {
		case prepare.Acquire:
			if _, repeats := open[owner]; !repeats {
				open[owner] = held{grant: op.Grant, from: op.Return, called: op.Call, request: op.Request}
			}
		case prepare.ToShared, prepare.ToExclusive:
			end(owner, op.Call)
			open[owner] = held{grant: op.Grant, from: op.Return, called: op.Call, request: op.Request}
		case prepare.Release:
			if op.Holds == 0 {
				end(owner, op.Call)
			}
		case prepare.Expire:
			end(owner, op.Call)
		}
	}
	return all
}

// overlaps finds pairs of grants that exclude each other, and were both held at the same moment.
func overlaps(segment prepare.Segment, grants []held) []string {
	sort.Slice(grants, func(a, b int) bool { return grants[a].from < grants[b].from })
	var found []string
	var active []held
	for _, grant := range grants {
		kept := active[:0]
		for _, other := range active {
			if other.to <= grant.from {
				continue
			}
			kept = append(kept, other)
			if other.to > grant.from && grant.to > grant.from && !other.grant.Beside(grant.grant) && other.grant.Owner != grant.grant.Owner {
				found = append(found, fmt.Sprintf("two holders for %.1f ms at least: %s and %s",
					float64(least(other.to, grant.to)-grant.from)/1e6, name(segment, other), name(segment, grant)))
			}
		}
		active = append(kept, grant)
	}
	return found
}

// falls finds grants whose token is not above those of all grants that were answered before they were asked for.
func falls(segment prepare.Segment, grants []held) []string {
	asked := append([]held{}, grants...)
	sort.Slice(asked, func(a, b int) bool { return asked[a].called < asked[b].called })
	sort.Slice(grants, func(a, b int) bool { return grants[a].from < grants[b].from })
	var found []string
	tokens, answered := segment.Before, 0
	for _, grant := range asked {
		for answered < len(grants) && grants[answered].from < grant.called {
			tokens = tokens.With(grants[answered].grant)
			answered++
		}
		// A conversion to shared keeps its token.
		keeps := grant.grant.Mode == law.Shared && grant.grant.Token == tokens.Exclusive
		if !tokens.Admits(grant.grant) && !keeps {
			found = append(found, fmt.Sprintf("a token that is not above all earlier ones (%+v): %s", tokens, name(segment, grant)))
		}
	}
	return found
}

// stale finds accesses that passed a gate too late: before they were asked for, an access with a token that excludes
// theirs was answered.
func stale(segment prepare.Segment) []string {
	var found []string
	tokens := law.Tokens{}
	var asked, answered []prepare.Op
	for _, op := range segment.Ops {
		if op.Kind == prepare.Write || op.Kind == prepare.Read {
			asked, answered = append(asked, op), append(answered, op)
		}
	}
	sort.Slice(asked, func(a, b int) bool { return asked[a].Call < asked[b].Call })
	sort.Slice(answered, func(a, b int) bool { return answered[a].Return < answered[b].Return })
	next := 0
	for _, op := range asked {
		for ; answered[next].Return < op.Call; next++ {
			tokens = tokens.With(answered[next].Grant)
		}
		if !tokens.Pass(op.Grant) {
			found = append(found, fmt.Sprintf("an old token passed the gate, which had seen %+v: %q (%s, request %d)",
				tokens, segment.Owners[op.Grant.Owner], op.Grant, op.Request))
		}
	}
	return found
}

func name(segment prepare.Segment, grant held) string {
	return fmt.Sprintf("%q (%s, request %d)", segment.Owners[grant.grant.Owner], grant.grant, grant.request)
}

func least(a, b int64) int64 {
	if a < b {
		return a
	}
	return b
}
