package record

import (
	"fmt"
	"math/rand"
	"time"

	"palisade/judge/history"
	"palisade/judge/resp"
)

// nodeWithin is how long each of several nodes may take to answer.
const nodeWithin = 80 * time.Millisecond

// quorum is a client of several nodes that follows docs/quorum.md. A majority grants the lock. The token is the largest
// in a majority, and counts once a majority has it. Validity counts from before the first request, less 1 % and 2 ms.
type quorum struct {
	run     *recording
	conns   []*resp.Conn
	highest int64
	// ahead is how far this client's wall clock is ahead of the true time, in microseconds.
	ahead int64
}

func newQuorum(run *recording, random *rand.Rand) *quorum {
	ahead := time.Duration(random.Intn(2*run.skew())-run.skew()) * time.Millisecond
	return &quorum{run: run, conns: make([]*resp.Conn, run.settings.Plan.Nodes), ahead: ahead.Microseconds()}
}

func (quorum *quorum) majority() int {
	if quorum.run.settings.Plan.Flaw == minority {
		return 2
	}
	return len(quorum.conns)/2 + 1
}

func (quorum *quorum) turn(*rand.Rand) {}

func (quorum *quorum) hangUp() {
	for at, conn := range quorum.conns {
		if conn != nil {
			conn.Close()
			quorum.conns[at] = nil
		}
	}
}

// askAll sends to each node the words that words returns for it, and nothing to a node without words. It waits for all
// answers. A node that does not answer has a line of the kind Unknown.
func (quorum *quorum) askAll(call history.Line, words func(node int) []string) []history.Line {
	answers := make([]history.Line, len(quorum.conns))
	done := make(chan struct{})
	for node := range quorum.conns {
		go func(node int) {
			defer func() { done <- struct{}{} }()
			answers[node] = quorum.ask(node, call, words(node))
		}(node)
	}
	for range quorum.conns {
		<-done
	}
	return answers
}

func (quorum *quorum) ask(node int, call history.Line, words []string) history.Line {
	if words == nil {
		return history.Line{Event: history.Refused}
	}
	if quorum.conns[node] == nil {
		conn, err := resp.Dial(quorum.run.proxies[node].Address(), nodeWithin)
		if err != nil {
			return history.Line{Event: history.Refused}
		}
		quorum.conns[node] = conn
	}
	answer, err := quorum.conns[node].Do(nodeWithin, words...)
	if err != nil {
		quorum.conns[node].Close()
		quorum.conns[node] = nil
		return history.Line{Event: history.Unknown}
	}
	return answered(call, answer)
}

func (quorum *quorum) do(call history.Line) history.Line {
	if call.Op == history.Acquire {
		return quorum.acquire(call)
	}
	answers := quorum.askAll(call, func(int) []string { return lockWords(call) })
	done, none := count(answers, history.OK), count(answers, history.Null)
	switch {
	case done >= quorum.majority():
		line := history.Line{Event: history.OK, Until: validOverNodes(call)}
		if call.Op == history.Convert {
			line.Token = call.Token
		}
		if call.TTL == 0 {
			line.Until = 0
		}
		return line
	case none >= quorum.majority():
		return history.Line{Event: history.Null}
	}
	return history.Line{Event: history.Unknown, Text: fmt.Sprintf("%d done, %d not held", done, none)}
}

func count(answers []history.Line, event string) int {
	counted := 0
	for _, answer := range answers {
		if answer.Event == event {
			counted++
		}
	}
	return counted
}

// acquire asks all nodes. If they grant different tokens, it asks those with smaller tokens to take the largest.
func (quorum *quorum) acquire(call history.Line) history.Line {
	proposal := time.Now().UnixMicro() + quorum.ahead
	if proposal <= quorum.highest {
		proposal = quorum.highest + 1
	}
	answers := quorum.askAll(call, func(int) []string { return append(lockWords(call), "FENCE", fmt.Sprint(proposal)) })
	var token int64
	for _, answer := range answers {
		if answer.Event == history.OK && answer.Token > token {
			token = answer.Token
		}
	}
	if token > quorum.highest {
		quorum.highest = token
	}
	got := history.Line{Event: history.OK, Token: token, Permit: call.Permit, Until: validOverNodes(call)}
	if quorum.run.settings.Plan.Flaw == fromAnswer {
		got.Until += Now() - call.Time
	}
	if count(answers, history.OK) >= quorum.majority() && quorum.raised(call, answers, token) >= quorum.majority() && Now() < got.Until {
		return got
	}
	freed := call
	freed.Op, freed.Level = history.Release, 1
	quorum.askAll(freed, func(int) []string { return lockWords(freed) })
	return history.Line{Event: history.Null, Text: fmt.Sprintf("%d granted", count(answers, history.OK))}
}

// raised asks the nodes that have a smaller token to take this one. It returns how many nodes then have this token or a
// larger one.
func (quorum *quorum) raised(call history.Line, answers []history.Line, token int64) int {
	reached := 0
	for _, answer := range answers {
		if answer.Event == history.OK && answer.Token >= token {
			reached++
		}
	}
	if reached >= quorum.majority() || quorum.run.settings.Plan.Flaw == oneRound {
		return quorum.majority()
	}
	fenced := quorum.askAll(call, func(node int) []string {
		if answers[node].Event != history.OK || answers[node].Token >= token {
			return nil
		}
		return []string{"LOCK.FENCE", call.Key, call.Owner, fmt.Sprint(token)}
	})
	for _, answer := range fenced {
		if answer.Event == history.OK && answer.Token >= token {
			reached++
		}
	}
	return reached
}
