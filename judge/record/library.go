package record

import (
	"math/rand"
	"path/filepath"
	"strings"
	"time"

	"palisade/judge/driver"
	"palisade/judge/history"
)

// libraryClient is a client library in a process that several workers share. The library itself tells for how long a
// lock is valid. The holder relies on its lock only for the times that it was told when it asked.
type libraryClient struct {
	run     *recording
	process int
}

func (client *libraryClient) turn(random *rand.Rand) {}

func (client *libraryClient) hangUp() {}

func (client *libraryClient) do(call history.Line) history.Line {
	request := map[string]interface{}{"of": call.Owner}
	switch call.Op {
	case history.Acquire:
		does := map[string]string{"x": "lock", "s": "read", "p": "permit"}
		request = map[string]interface{}{"do": does[call.Mode], "as": call.Owner, "key": call.Key, "ttl_ms": call.TTL,
			"wait_ms": call.Wait, "answer_within_ms": 100, "extend": call.KeepAlive > 0}
		if call.Limit > 0 {
			request["limit"] = call.Limit
		}
		if call.Elect {
			request["do"], request["value"] = "campaign", call.Owner
		}
	case history.Check:
		request["do"] = "look"
	default:
		request["do"] = call.Op
		if call.Elect {
			request["do"] = "resign"
		}
	}
	answer, err := client.run.drivers[client.process].Ask(request, answerWithin+time.Duration(call.Wait)*time.Millisecond)
	if err == driver.ErrNotOpen {
		return history.Line{Event: history.Refused}
	}
	if err != nil {
		return history.Line{Event: history.Unknown}
	}
	return ofLibrary(call, answer)
}

// startDrivers starts the processes of a client library. The Rust crate asks all nodes. The other packages ask an
// agent, or a single node.
func (run *recording) startDrivers() error {
	var addresses []string
	for _, front := range run.fronts[:len(run.fronts)-run.spares()] {
		addresses = append(addresses, "redis://"+front.Address())
	}
	command := map[library][]string{
		crate:  {filepath.Join(filepath.Dir(run.settings.Module), "examples/conformance")},
		python: {"target/python/bin/python", "conformance/drivers/python.py"},
		node:   {"node", "conformance/drivers/node.mjs"},
		golang: {"target/go/conformance"},
	}[run.settings.Plan.Driver]
	for number := 0; number < processes; number++ {
		address := addresses[number%len(addresses)]
		if run.settings.Plan.Driver == crate {
			address = strings.Join(addresses, " ")
		}
		started, err := driver.Start(command, address)
		if err != nil {
			return err
		}
		run.drivers = append(run.drivers, started)
	}
	return nil
}

// ofLibrary turns a driver's answer into a line of the history.
func ofLibrary(call history.Line, answer driver.Answer) history.Line {
	line := history.Line{Event: history.OK, Token: answer.Token, Permit: answer.Number}
	if call.Elect && call.Op == history.Acquire {
		line.Token = answer.Term
	}
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
