package prepare

import (
	"sort"

	"palisade/judge/history"
	"palisade/judge/law"
)

// Segments returns the segments of a history, ordered by key and then by time.
func Segments(read *history.History) []Segment {
	var segments []Segment
	for _, key := range keys(read) {
		for _, tenure := range key.tenures {
			tenure.expire()
		}
		segments = append(segments, key.cut()...)
	}
	return append(segments, registers(read)...)
}

// key collects the operations of one key.
type key struct {
	name    string
	owners  []string
	tenures []*tenure
}

// keys sorts operations by key and owner.
func keys(read *history.History) []*key {
	sorted := append([]history.Operation{}, read.Operations...)
	sort.SliceStable(sorted, func(a, b int) bool { return sorted[a].Call.Time < sorted[b].Call.Time })
	var list []*key
	known := map[string]*key{}
	numbers := map[[2]string]int{}
	for _, operation := range sorted {
		call := operation.Call
		if isAccess(call) {
			continue
		}
		of := known[call.Key]
		if of == nil {
			of = &key{name: call.Key}
			known[call.Key] = of
			list = append(list, of)
		}
		number, isKnown := numbers[[2]string{call.Key, call.Owner}]
		if !isKnown {
			number = len(of.owners)
			numbers[[2]string{call.Key, call.Owner}] = number
			of.owners = append(of.owners, call.Owner)
			of.tenures = append(of.tenures, &tenure{strict: read.Header.Strict, rises: read.Header.Nodes > 1})
		}
		of.tenures[number].add(operation, number)
	}
	return list
}

// cut divides the operations of a key at the times at which nobody holds or wants it.
func (key *key) cut() []Segment {
	type span struct {
		from, to int64
		ops      []Op
	}
	var spans []span
	for _, tenure := range key.tenures {
		if len(tenure.ops) == 0 {
			continue
		}
		whole := span{history.Never, 0, tenure.ops}
		for _, op := range tenure.ops {
			whole.from, whole.to = least(whole.from, op.Call), most(whole.to, op.Return)
		}
		spans = append(spans, whole)
	}
	sort.Slice(spans, func(a, b int) bool { return spans[a].from < spans[b].from })
	var segments []Segment
	var tokens law.Tokens
	for at := 0; at < len(spans); {
		segment := Segment{Key: key.name, Before: tokens, Owners: key.owners}
		for to := spans[at].to; at < len(spans) && spans[at].from <= to; at++ {
			to = most(to, spans[at].to)
			segment.Ops = append(segment.Ops, spans[at].ops...)
		}
		for _, op := range segment.Ops {
			if op.Kind == Acquire || op.Kind == ToExclusive {
				tokens = tokens.With(op.Grant)
			}
		}
		segments = append(segments, segment)
	}
	return segments
}
