package record

import (
	"fmt"
	"math/rand"
	"strconv"
	"time"

	"palisade/judge/history"
	"palisade/judge/resp"
)

// answerWithin is how long an answer may take, beyond the wait that the request asks for.
const answerWithin = 1200 * time.Millisecond

// notSent is the text of a line for a request that was never sent.
const notSent = "not sent"

// single is a client of one node or agent, over one connection through a proxy.
type single struct {
	run   *recording
	front int
	// to is the address to connect to, if it is not that of a front.
	to   interface{ Address() string }
	conn *resp.Conn
	// failed is the last answer if it was an error, else empty. asks is true if the next request goes to a node that is
	// importing the key's slot: ASKING precedes it.
	failed string
	asks   bool
}

func (single *single) turn(random *rand.Rand) {
	single.hangUp()
	single.front = random.Intn(len(single.run.fronts))
}

func (single *single) hangUp() {
	if single.conn != nil {
		single.conn.Close()
		single.conn = nil
	}
}

func (single *single) do(call history.Line) history.Line {
	single.failed = ""
	if single.conn == nil {
		to := single.to
		if to == nil {
			to = single.run.fronts[single.front]
		}
		conn, err := resp.Dial(to.Address(), answerWithin)
		if err != nil {
			return history.Line{Event: history.Refused, Text: notSent}
		}
		single.conn = conn
	}
	if single.asks {
		if _, err := single.conn.Do(answerWithin, "ASKING"); err != nil {
			single.hangUp()
			return history.Line{Event: history.Refused, Text: notSent}
		}
	}
	words := single.words(call)
	answer, err := single.conn.Do(answerWithin+time.Duration(call.Wait)*time.Millisecond, words...)
	if err != nil {
		single.hangUp()
		return history.Line{Event: history.Unknown}
	}
	if failed, isError := answer.(resp.Error); isError {
		single.failed = string(failed)
	}
	line := answered(call, answer)
	if call.Op == history.Check && line.Event == history.OK {
		// The answer is the number of milliseconds that were left when the server answered. They are counted from when
		// the request was sent, which is earlier.
		line.Until, line.Token = call.Time+line.Token*1_000_000, 0
	}
	if single.run.settings.Plan.Agents > 0 && line.Event == history.OK && call.TTL > 0 {
		line.Until = validOverNodes(call) + line.Waited*1_000_000
	}
	return line
}

// validOverNodes returns the time until which a holder may rely on what several nodes granted: less 1 % and 2 ms.
func validOverNodes(call history.Line) int64 {
	return call.Time + call.TTL*990_000 - 2_000_000
}

func (single *single) words(call history.Line) []string {
	if single.run.settings.Plan.SetNX {
		return setNX(call)
	}
	if call.TTL > 0 {
		call.TTL -= single.run.settings.Plan.Early
	}
	return lockWords(call)
}

// lockWords returns the module's command for a request.
func lockWords(call history.Line) []string {
	switch call.Op {
	case history.Acquire:
		words := append([]string{"LOCK.ACQUIRE", call.Key, call.Owner, fmt.Sprint(call.TTL)}, modeWords(call)...)
		if call.Wait > 0 {
			words = append(words, "WAIT", fmt.Sprint(call.Wait))
		}
		if call.KeepAlive > 0 {
			words = append(words, "KEEPALIVE", fmt.Sprint(call.KeepAlive))
		}
		if call.Retry {
			words = append(words, "RETRY")
		}
		return words
	case history.Await:
		return append([]string{"LOCK.WAIT", call.Key, call.Owner, fmt.Sprint(call.Wait)}, modeWords(call)...)
	case history.Check:
		return []string{"LOCK.CHECK", call.Key, fmt.Sprint(call.Token)}
	case history.Extend:
		return []string{"LOCK.EXTEND", call.Key, call.Owner, fmt.Sprint(call.TTL)}
	case history.Reenter:
		return []string{"LOCK.REENTER", call.Key, call.Owner}
	case history.Convert:
		mode := "EXCLUSIVE"
		if call.Mode == "s" {
			mode = "SHARED"
		}
		return []string{"LOCK.CONVERT", call.Key, call.Owner, mode}
	case history.Release:
		words := []string{"LOCK.RELEASE", call.Key, call.Owner}
		if call.Level > 0 {
			words = append(words, "LEVEL", strconv.Itoa(call.Level))
		}
		return words
	case history.Put, history.Get:
		return gateWords(call)
	}
	panic("a request for " + call.Op + ": add its command")
}

// gateWords returns the command that passes the gate of a register, and sets or gets the register's value in the same
// step.
func gateWords(call history.Line) []string {
	words := []string{"LOCK.GATE", "gate " + call.Key, fmt.Sprint(call.Token)}
	switch call.Mode {
	case "s":
		words = append(words, "SHARED")
	case "p":
		words = append(words, "PERMIT", strconv.Itoa(call.Permit))
	}
	if call.Op == history.Get {
		return append(words, "COMMAND", "GET", call.Key)
	}
	return append(words, "COMMAND", "SET", call.Key, call.Owner)
}

func modeWords(call history.Line) []string {
	switch {
	case call.Mode == "s":
		return []string{"SHARED"}
	case call.Mode == "p" && call.Permit > 0:
		return []string{"LIMIT", strconv.Itoa(call.Limit), "PERMIT", strconv.Itoa(call.Permit)}
	case call.Mode == "p":
		return []string{"LIMIT", strconv.Itoa(call.Limit)}
	}
	return nil
}

// setNX returns the command for a request where the lock is SET NX PX of a plain server.
func setNX(call history.Line) []string {
	const ifMine = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return nil end "
	switch call.Op {
	case history.Acquire:
		return []string{"SET", call.Key, call.Owner, "NX", "PX", fmt.Sprint(call.TTL)}
	case history.Extend:
		return []string{"EVAL", ifMine + "redis.call('PEXPIRE', KEYS[1], ARGV[2]) return 0", "1", call.Key, call.Owner, fmt.Sprint(call.TTL)}
	}
	return []string{"EVAL", ifMine + "redis.call('DEL', KEYS[1]) return 0", "1", call.Key, call.Owner}
}

// answered turns a server's answer into a line of the history.
func answered(call history.Line, answer interface{}) history.Line {
	line := history.Line{Event: history.OK}
	switch answer := answer.(type) {
	case resp.Null:
		// A register to which nobody has written has no value.
		if call.Op != history.Get {
			line.Event = history.Null
		}
	case string:
		if call.Op == history.Get {
			line.Text = answer
		}
	case resp.Error:
		line.Event, line.Text = history.Refused, answer.Code()
	case int64:
		switch {
		case call.Op == history.Release || call.Op == history.Reenter:
			line.Holds = int(answer)
		case call.Op == history.Await && answer == 0:
			line.Event = history.Null
		case call.Op == history.Await:
			line.Permit = int(answer)
		default:
			line.Token = answer
		}
	case []interface{}:
		numbers := make([]int64, 3)
		for at := 0; at < len(answer) && at < 3; at++ {
			numbers[at], _ = answer[at].(int64)
		}
		line.Token, line.Waited, line.Permit = numbers[0], numbers[1], int(numbers[2])
	}
	return line
}
