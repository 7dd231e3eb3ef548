package prepare

import (
	"sort"

	"palisade/judge/history"
	"palisade/judge/law"
)

// fenced is the error of a gate that refuses a token, because it has seen one that excludes this one.
const fenced = "FENCED"

func isAccess(call history.Line) bool {
	return call.Op == history.Put || call.Op == history.Get
}

// registers returns one segment for each register.
func registers(read *history.History) []Segment {
	found := map[string]*Segment{}
	var names []string
	for _, operation := range read.Operations {
		if !isAccess(operation.Call) {
			continue
		}
		segment := found[operation.Call.Key]
		if segment == nil {
			segment = &Segment{Key: operation.Call.Key, IsRegister: true}
			found[operation.Call.Key] = segment
			names = append(names, operation.Call.Key)
		}
		if op, counts := access(operation); counts {
			op.Grant.Owner = len(segment.Owners)
			segment.Owners = append(segment.Owners, operation.Call.Owner)
			segment.Ops = append(segment.Ops, op)
		}
	}
	sort.Strings(names)
	var segments []Segment
	for _, name := range names {
		segments = append(segments, *found[name])
	}
	return segments
}

// access returns the operation that an access performed, or false if it certainly performed none.
func access(operation history.Operation) (Op, bool) {
	call, answer := operation.Call, operation.Answer
	op := Op{Grant: law.Grant{Token: call.Token, Mode: mode(call.Mode), Permit: call.Permit, Limit: call.Limit}.Plain(),
		Call: call.Time, Return: answer.Time, Request: call.ID}
	if call.Op == history.Put {
		op.Kind, op.Value = Write, call.Owner
	} else {
		op.Kind, op.Value = Read, answer.Text
	}
	switch {
	case answer.Event == history.OK:
		return op, true
	case answer.Event == history.Refused && answer.Text == fenced:
		op.Kind = Fenced
		return op, true
	case answer.Event == history.Unknown:
		// The access may take effect late, or never.
		op.Kind, op.Return = Unseen, history.Never
		if call.Op == history.Get {
			op.Value = ""
		}
		return op, true
	}
	return op, false
}
