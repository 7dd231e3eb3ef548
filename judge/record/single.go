package record

import (
	"fmt"
	"strconv"
	"time"

	"palisade/judge/history"
	"palisade/judge/resp"
)

// answerWithin is how long an answer may take beyond the wait that was asked for.
const answerWithin = 1200 * time.Millisecond

// single is a client of one node, over one connection through its proxy.
type single struct {
	run  *recording
	conn *resp.Conn
}

func (single *single) hangUp() {
	if single.conn != nil {
		single.conn.Close()
		single.conn = nil
	}
}

func (single *single) do(call history.Line) history.Line {
	if single.conn == nil {
		conn, err := resp.Dial(single.run.proxies[0].Address(), answerWithin)
		if err != nil {
			return history.Line{Event: history.Refused, Text: "not sent"}
		}
		single.conn = conn
	}
	words := single.words(call)
	answer, err := single.conn.Do(answerWithin+time.Duration(call.Wait)*time.Millisecond, words...)
	if err != nil {
		single.hangUp()
		return history.Line{Event: history.Unknown}
	}
	return answered(call, answer)
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

// lockWords is the module's command for a request.
func lockWords(call history.Line) []string {
	switch call.Op {
	case history.Acquire:
		words := append([]string{"LOCK.ACQUIRE", call.Key, call.Owner, fmt.Sprint(call.TTL)}, modeWords(call)...)
		if call.Wait > 0 {
			words = append(words, "WAIT", fmt.Sprint(call.Wait))
		}
		if call.Retry {
			words = append(words, "RETRY")
		}
		return words
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
	}
	panic("a request for " + call.Op + ": add its command")
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

// setNX is the usual lock of a plain server.
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

// answered is what an answer means.
func answered(call history.Line, answer interface{}) history.Line {
	line := history.Line{Event: history.OK}
	switch answer := answer.(type) {
	case resp.Null:
		line.Event = history.Null
	case resp.Error:
		line.Event, line.Text = history.Refused, answer.Code()
	case int64:
		if call.Op == history.Release || call.Op == history.Reenter {
			line.Holds = int(answer)
		} else {
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
