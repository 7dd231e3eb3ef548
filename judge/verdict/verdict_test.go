package verdict

import (
	"testing"

	"palisade/judge/history"
)

// story is a history of one key. Times are milliseconds, leases 100 ms.
type story struct {
	operations []history.Operation
}

func (story *story) ask(call history.Line, from int64, answer history.Line, to int64) *story {
	const millisecond = 1_000_000
	call.ID = int64(len(story.operations) + 1)
	call.Event, call.Key, call.Time = history.Call, "k", from*millisecond
	answer.ID, answer.Time = call.ID, to*millisecond
	if answer.Event == "" {
		answer.Event = history.OK
	}
	story.operations = append(story.operations, history.Operation{Call: call, Answer: answer})
	return story
}

func (story *story) take(owner, mode string, from, to, token int64) *story {
	return story.ask(history.Line{Op: history.Acquire, Owner: owner, Mode: mode, TTL: 100}, from, history.Line{Token: token}, to)
}

func (story *story) permit(owner string, from, token int64, number, limit int) *story {
	return story.ask(history.Line{Op: history.Acquire, Owner: owner, Mode: "p", Limit: limit, TTL: 100}, from,
		history.Line{Token: token, Permit: number}, from+1)
}

func (story *story) other(op, owner string, from, to int64, answer history.Line) *story {
	return story.ask(history.Line{Op: op, Owner: owner, TTL: 100}, from, answer, to)
}

func (story *story) release(owner string, from int64, event string) *story {
	return story.other(history.Release, owner, from, from+1, history.Line{Event: event})
}

func (story *story) convert(owner, mode string, from, token int64) *story {
	return story.ask(history.Line{Op: history.Convert, Owner: owner, Mode: mode}, from, history.Line{Token: token}, from+1)
}

// access writes to a register, with the access's own name as the value, or reads it. The token passes the gate unless
// the given answer says otherwise.
func (story *story) access(op, owner, mode string, from, token int64, answer history.Line) *story {
	return story.ask(history.Line{Op: op, Owner: owner, Mode: mode, Token: token}, from, answer, from+1)
}

// begin makes an empty story.
func begin() *story { return &story{} }

var null, unknown = history.Line{Event: history.Null}, history.Line{Event: history.Unknown}

// wait is a request to be told when the lock is free.
var wait = history.Line{Op: history.Await, Owner: "b", Mode: "x", Wait: 200}

// The answers of gates.
var passed, fenced, holdsA = history.Line{}, history.Line{Event: history.Refused, Text: "FENCED"}, history.Line{Text: "a"}

func TestTheTokenOfAGrantRisesOverSeveralNodesAlone(t *testing.T) {
	for _, test := range []struct {
		nodes int
		token int64
		next  int64
		word  string
	}{{1, 6, 7, "illegal"}, {5, 6, 7, "legal"}, {5, 4, 7, "illegal"}, {5, 6, 6, "illegal"}} {
		story := begin().take("a", "x", 0, 1, 5).other("extend", "a", 50, 51, history.Line{Token: test.token}).take("b", "x", 60, 200, test.next)
		read := &history.History{Header: history.Header{Nodes: test.nodes}, Operations: story.operations}
		if report := Of(read); report.Word() != test.word {
			t.Errorf("%+v: %s", test, report.Word())
		}
	}
}

func TestVerdicts(t *testing.T) {
	for _, test := range []struct {
		name  string
		story *story
		word  string
		// strict marks the history as one of a server that forgets nothing.
		strict bool
	}{
		{"one after the other", begin().take("a", "x", 0, 1, 5).release("a", 10, "ok").take("b", "x", 20, 21, 6), "legal", true},
		{"two at once", begin().take("a", "x", 0, 1, 5).take("b", "x", 20, 21, 6), "illegal", false},
		{"the next at the end of a lease", begin().take("a", "x", 0, 1, 5).take("b", "x", 2, 101, 6), "legal", true},
		{"the next before the end", begin().take("a", "x", 0, 1, 5).take("b", "x", 2, 99, 6), "illegal", true},
		{"an extension is kept", begin().take("a", "x", 0, 1, 5).other("extend", "a", 50, 51, history.Line{Token: 5}).take("b", "x", 60, 149, 6), "illegal", true},
		{"an extension without an answer may be none", begin().take("a", "x", 0, 1, 5).other("extend", "a", 50, 51, unknown).take("b", "x", 60, 110, 6), "legal", true},
		{"an extension never shortens", begin().take("a", "x", 0, 1, 5).ask(history.Line{Op: "extend", Owner: "a", TTL: 5}, 50, history.Line{Token: 5}, 51).take("b", "x", 60, 90, 6), "illegal", true},
		{"a token that falls", begin().take("a", "x", 0, 1, 5).release("a", 10, "ok").take("b", "x", 20, 21, 5), "illegal", true},
		{"a token that falls much later", begin().take("a", "x", 0, 1, 5).take("b", "x", 500, 501, 4), "illegal", true},
		{"readers together, in any order of tokens", begin().take("a", "s", 0, 1, 5).take("b", "s", 10, 11, 5).take("c", "s", 20, 21, 4), "legal", true},
		{"a reader beside a writer", begin().take("a", "x", 0, 1, 5).take("b", "s", 10, 11, 6), "illegal", true},
		{"a reader with a token below a writer's", begin().take("a", "x", 0, 1, 5).release("a", 10, "ok").take("b", "s", 20, 21, 4), "illegal", true},
		{"a writer with a token below a reader's", begin().take("a", "s", 0, 1, 5).release("a", 10, "ok").take("b", "x", 20, 21, 5), "illegal", true},
		{"permits of two numbers", begin().permit("a", 0, 5, 1, 2).permit("b", 10, 5, 2, 2), "legal", true},
		{"one number twice", begin().permit("a", 0, 5, 1, 2).permit("b", 10, 6, 1, 2), "illegal", true},
		{"a number above the other's limit", begin().permit("a", 0, 5, 1, 2).permit("b", 10, 6, 3, 3), "illegal", true},
		{"a permit of one is exclusive", begin().permit("a", 0, 5, 1, 1).take("b", "x", 150, 151, 5), "illegal", true},
		{"a release without an answer", begin().take("a", "x", 0, 1, 5).release("a", 10, "unknown").take("b", "x", 12, 13, 6), "legal", true},
		{"a release that is true after a successor's grant", begin().take("a", "x", 0, 1, 5).take("b", "x", 150, 151, 6).release("a", 160, "ok"), "illegal", false},
		{"a late release that is true", begin().take("a", "x", 0, 1, 5).release("a", 150, "ok").take("b", "x", 160, 161, 6), "legal", true},
		{"not held, where nothing is forgotten", begin().take("a", "x", 0, 1, 5).release("a", 10, "null"), "illegal", true},
		{"not held, where servers forget", begin().take("a", "x", 0, 1, 5).release("a", 10, "null"), "legal", false},
		{"not held after the lease", begin().take("a", "x", 0, 1, 5).release("a", 110, "null"), "legal", true},
		{"forgotten, and granted before the holder knows", begin().take("a", "x", 0, 1, 5).take("b", "x", 10, 11, 6).other("extend", "a", 20, 21, null), "illegal", false},
		{"forgotten, and granted after the holder knows", begin().take("a", "x", 0, 1, 5).other("extend", "a", 20, 21, null).take("b", "x", 22, 23, 6), "legal", false},
		{"an acquire without an answer holds nobody up", begin().ask(history.Line{Op: "acquire", Owner: "a", Mode: "x", TTL: 100}, 0, unknown, 1).take("b", "x", 10, 11, 6), "legal", true},
		{"it can be released", begin().ask(history.Line{Op: "acquire", Owner: "a", Mode: "x", TTL: 100}, 0, unknown, 1).release("a", 10, "ok").take("b", "x", 20, 21, 6), "legal", true},
		{"but not beside a holder", begin().ask(history.Line{Op: "acquire", Owner: "a", Mode: "x", TTL: 100}, 0, unknown, 1).take("b", "x", 10, 11, 6).release("a", 20, "ok"), "illegal", true},
		{"a writer who reads on", begin().take("a", "x", 0, 1, 5).convert("a", "s", 10, 5).take("b", "s", 20, 21, 6), "legal", true},
		{"a reader who writes beside another", begin().take("a", "s", 0, 1, 5).take("b", "s", 0, 1, 6).convert("a", "x", 10, 7), "illegal", true},
		{"a reader who writes without a new token", begin().take("a", "s", 0, 1, 5).convert("a", "x", 10, 5), "illegal", true},
		{"a hold more, and one less", begin().take("a", "x", 0, 1, 5).other("reenter", "a", 10, 11, history.Line{Holds: 2}).
			other("release", "a", 20, 21, history.Line{Holds: 1}).release("a", 30, "ok").take("b", "x", 40, 41, 6), "legal", true},
		{"freed with a hold left", begin().take("a", "x", 0, 1, 5).other("reenter", "a", 10, 11, history.Line{Holds: 2}).release("a", 20, "ok"), "illegal", true},
		{"an old token at a gate", begin().access("write", "a", "x", 0, 6, passed).access("write", "b", "x", 10, 5, passed), "illegal", true},
		{"it is refused", begin().access("write", "a", "x", 0, 6, passed).access("write", "b", "x", 10, 5, fenced), "legal", true},
		{"a new one is not", begin().access("write", "a", "x", 0, 6, passed).access("write", "b", "x", 10, 7, fenced), "illegal", true},
		{"the same token again", begin().access("write", "a", "x", 0, 6, passed).access("read", "a", "x", 10, 6, holdsA), "legal", true},
		{"what was overwritten", begin().access("write", "a", "x", 0, 6, passed).access("write", "b", "x", 10, 7, passed).access("read", "c", "x", 20, 8, holdsA), "illegal", true},
		{"an old reader beside readers", begin().access("write", "a", "x", 0, 4, passed).access("read", "b", "s", 10, 6, holdsA).access("read", "c", "s", 20, 5, holdsA), "legal", true},
		{"an old reader after a writer", begin().access("write", "a", "x", 0, 6, passed).access("read", "b", "s", 10, 5, holdsA), "illegal", true},
		{"a write without an answer may have come", begin().access("write", "a", "x", 0, 6, unknown).access("write", "b", "x", 10, 5, fenced), "legal", true},
		{"or not", begin().access("write", "a", "x", 0, 6, unknown).access("write", "b", "x", 10, 5, passed), "legal", true},
		{"free, it is said, beside a holder", begin().take("a", "x", 0, 1, 5).ask(wait, 10, history.Line{}, 90), "illegal", true},
		{"free at the end of a lease", begin().take("a", "x", 0, 1, 5).ask(wait, 10, history.Line{}, 101), "legal", true},
		{"free for a reader beside another", begin().take("a", "s", 0, 1, 5).ask(history.Line{Op: "await", Owner: "b", Mode: "s", Wait: 200}, 10, history.Line{}, 20), "legal", true},
		{"not free", begin().take("a", "x", 0, 1, 5).ask(wait, 10, null, 210), "legal", true},
		{"an answer repeated", begin().take("a", "x", 0, 1, 5).take("a", "x", 10, 11, 5).take("b", "x", 20, 109, 6), "illegal", true},
		{"a repeated acquire with another token", begin().take("a", "x", 0, 1, 5).take("a", "x", 10, 11, 6).release("a", 20, "ok"), "legal", true},
	} {
		read := &history.History{Header: history.Header{Strict: test.strict}, Operations: test.story.operations}
		if report := Of(read); report.Word() != test.word {
			t.Errorf("%s: %s, not %s %v %v", test.name, report.Word(), test.word, report.Accusations, report.Swept)
		}
	}
}
