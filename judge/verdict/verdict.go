// Package verdict judges a history: it prepares the segments, searches each, and sweeps each.
package verdict

import (
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"palisade/judge/history"
	"palisade/judge/model"
	"palisade/judge/prepare"
	"palisade/judge/sweep"
)

// Limit is how long one segment is searched. After that the segment is undecided.
const Limit = 20 * time.Second

// Report is the result of judging a history.
type Report struct {
	Requests, Faults, Grants, Operations, Segments, Largest int
	// Accusations has the segments without a legal order, Swept the findings of the sweep, Undecided the segments whose
	// search took too long.
	Accusations, Swept, Undecided []string
}

// Legal returns whether every segment has a legal order, and the sweep found nothing. An undecided segment is not
// legal.
func (report Report) Legal() bool {
	return len(report.Accusations) == 0 && len(report.Swept) == 0 && len(report.Undecided) == 0
}

// Word returns the verdict as one word.
func (report Report) Word() string {
	switch {
	case len(report.Accusations) > 0:
		return "illegal"
	case len(report.Swept) > 0:
		return "contradictory"
	case len(report.Undecided) > 0:
		return "undecided"
	}
	return "legal"
}

// Of judges a history.
func Of(read *history.History) Report {
	segments := prepare.Segments(read)
	report := Report{Requests: len(read.Operations), Faults: len(read.Faults), Segments: len(segments)}
	verdicts := make([]model.Verdict, len(segments))
	texts := make([]string, len(segments))
	swept := make([][]string, len(segments))
	var workers sync.WaitGroup
	next := make(chan int)
	for worker := 0; worker < runtime.NumCPU(); worker++ {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for at := range next {
				verdicts[at], texts[at] = model.Search(segments[at], Limit)
				swept[at] = sweep.Accusations(segments[at])
			}
		}()
	}
	for at := range segments {
		next <- at
	}
	close(next)
	workers.Wait()
	for at, segment := range segments {
		report.count(segment)
		for _, text := range swept[at] {
			report.Swept = append(report.Swept, fmt.Sprintf("key %q: %s", segment.Key, text))
		}
		text := fmt.Sprintf("key %q: %s", segment.Key, texts[at])
		switch verdicts[at] {
		case porcupine.Illegal:
			report.Accusations = append(report.Accusations, text)
		case porcupine.Unknown:
			report.Undecided = append(report.Undecided, fmt.Sprintf("key %q: %d operations took longer than %s", segment.Key, len(segment.Ops), Limit))
		}
	}
	return report
}

func (report *Report) count(segment prepare.Segment) {
	report.Operations += len(segment.Ops)
	if len(segment.Ops) > report.Largest {
		report.Largest = len(segment.Ops)
	}
	for _, op := range segment.Ops {
		if op.Kind == prepare.Acquire {
			report.Grants++
		}
	}
}
