package record

import (
	"math/rand"
	"time"

	"palisade/judge/driver"
	"palisade/judge/history"
)

// library is a client library in a process that several workers share. The library says itself until when a lock is valid:
// the holder relies on what it is shown when it looks, and on nothing before.
type library struct {
	run     *recording
	process int
}

func (library *library) turn(random *rand.Rand) {}

func (library *library) hangUp() {}

func (library *library) do(call history.Line) history.Line {
	request := map[string]interface{}{"of": call.Owner}
	switch call.Op {
	case history.Acquire:
		does := map[string]string{"x": "lock", "s": "read", "p": "permit"}
		request = map[string]interface{}{"do": does[call.Mode], "as": call.Owner, "key": call.Key, "ttl_ms": call.TTL,
			"wait_ms": call.Wait, "answer_within_ms": 100, "extend": call.KeepAlive > 0}
		if call.Limit > 0 {
			request["limit"] = call.Limit
		}
	case history.Check:
		request["do"] = "look"
	default:
		request["do"] = call.Op
	}
	answer, err := library.run.drivers[library.process].Ask(request, answerWithin+time.Duration(call.Wait)*time.Millisecond)
	if err != nil {
		return history.Line{Event: history.Unknown}
	}
	return ofLibrary(call, answer)
}

// ofLibrary is what an answer means.
func ofLibrary(call history.Line, answer driver.Answer) history.Line {
	line := history.Line{Event: history.OK, Token: answer.Token, Permit: answer.Number}
	switch {
	case call.Op == history.Acquire && answer.Error != "":
		return history.Line{Event: history.Null, Text: answer.Error}
	case answer.Error != "":
		return history.Line{Event: history.Unknown, Text: answer.Error}
	case call.Op == history.Acquire || call.Op == history.Extend:
		line.Until = call.Time
	case call.Op == history.Check && !answer.Valid:
		line.Event = history.Null
	case call.Op == history.Check:
		line.Until = call.Time + int64(answer.ValidFor*1e6)
	case call.Op == history.Release && answer.WasHeld == nil:
		line.Event = history.Unknown
	case call.Op == history.Release && !*answer.WasHeld:
		line.Event = history.Null
	}
	return line
}
