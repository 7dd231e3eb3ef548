package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"

	"palisade/judge/history"
	"palisade/judge/law"
	"palisade/judge/model"
	"palisade/judge/mutate"
	"palisade/judge/prepare"
	"palisade/judge/verdict"
)

// exported is a segment of a history for the second judge, with the first judge's verdict.
type exported struct {
	History string         `json:"history"`
	Key     string         `json:"key"`
	Verdict string         `json:"verdict"`
	Before  []exportedLast `json:"before"`
	Ops     []exportedOp   `json:"ops"`
}

type exportedLast struct {
	Class interface{} `json:"class"`
	Token int64       `json:"token"`
}

type exportedOp struct {
	Kind         string      `json:"kind"`
	Owner        int         `json:"owner"`
	Class        interface{} `json:"class"`
	Limit        int         `json:"limit,omitempty"`
	Token        int64       `json:"token,omitempty"`
	Holds        int         `json:"holds,omitempty"`
	HoldsUnknown bool        `json:"holds_unknown,omitempty"`
	TokenMayRise bool        `json:"token_may_rise,omitempty"`
	Value        string      `json:"value,omitempty"`
	Call         int64       `json:"call"`
	Answered     int64       `json:"answered"`
}

var kinds = map[prepare.Kind]string{prepare.Acquire: "acquire", prepare.Extend: "extend", prepare.Reenter: "reenter",
	prepare.Release: "release", prepare.ToShared: "to shared", prepare.ToExclusive: "to exclusive", prepare.Expire: "expire",
	prepare.ReleaseUnseen: "release unseen", prepare.Gone: "gone", prepare.Free: "free", prepare.Write: "write", prepare.Read: "read",
	prepare.Fenced: "fenced", prepare.Unseen: "unseen"}

// export prints the segments of histories for the second judge, and those of mutations of the histories in a folder
// named good.
func export(files []string) error {
	random := rand.New(rand.NewSource(seed))
	out := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(out)
	for _, file := range files {
		read, err := history.Load(file)
		if err != nil {
			return err
		}
		name := filepath.Base(file)
		histories := map[string]*history.History{name: read}
		if filepath.Base(filepath.Dir(file)) == "good" {
			for _, mutation := range mutate.Mutations {
				for try := 0; try < tries; try++ {
					if mutated, can := mutation.Apply(random, read); can {
						histories[fmt.Sprintf("%s, %s, %d", name, mutation.Name, try)] = mutated
					}
				}
			}
			histories[name+", stretched"] = mutate.Stretch(read, 5)
		}
		for name, read := range histories {
			if err := writeSegments(encoder, name, read); err != nil {
				return err
			}
		}
	}
	return out.Flush()
}

// writeSegments writes the segments of a history with the verdict of each.
func writeSegments(encoder *json.Encoder, name string, read *history.History) error {
	for _, segment := range prepare.Segments(read) {
		if err := encoder.Encode(asExported(name, segment)); err != nil {
			return err
		}
	}
	return nil
}

func asExported(name string, segment prepare.Segment) exported {
	words := map[model.Verdict]string{"Ok": "legal", "Illegal": "illegal", "Unknown": "undecided"}
	found, _ := model.Search(segment, verdict.Limit)
	all := exported{History: name, Key: segment.Key, Verdict: words[found], Before: []exportedLast{
		{class(law.Exclusive, 0), segment.Before.Exclusive}, {class(law.Shared, 0), segment.Before.Shared}}}
	for _, permit := range segment.Before.Permits {
		all.Before = append(all.Before, exportedLast{class(law.Permit, permit.Permit), permit.Token})
	}
	for _, op := range segment.Ops {
		all.Ops = append(all.Ops, exportedOp{kinds[op.Kind], op.Grant.Owner, class(op.Grant.Mode, op.Grant.Permit), op.Grant.Limit,
			op.Grant.Token, op.Holds, op.HoldsUnknown, op.TokenMayRise, op.Value, op.Call, op.Return})
	}
	return all
}

// class returns a grant's mode in the form that the second judge reads.
func class(mode law.Mode, permit int) interface{} {
	switch mode {
	case law.Shared:
		return "reader"
	case law.Permit:
		return map[string]int{"permit": permit}
	}
	return "writer"
}
