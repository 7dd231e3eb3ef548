package runs

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"palisade/judge/history"
	"palisade/judge/verdict"
)

func TestRunsAreAddedUp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs.jsonl")
	read := &history.History{Header: history.Header{Plan: "five", Server: "Redis 7.0.15", Seed: 7}, Faults: []history.Line{
		{Text: "node 3: pause"}, {Text: "client 1: kill"}, {Text: "node 1: pause"}}}
	one := Of(read, verdict.Report{Requests: 1234, Grants: 5, Segments: 2}, true)
	other := Run{Plan: "calm", Server: "Valkey 9.1.2", Verdict: "illegal"}
	for _, run := range []Run{one, other} {
		if err := run.Append(path); err != nil {
			t.Fatal(err)
		}
	}
	all, err := Load([]string{path})
	if err != nil || !reflect.DeepEqual(all, []Run{one, other}) {
		t.Fatalf("%+v %v", all, err)
	}
	text := Tables(all)
	for _, row := range []string{"| Redis 7.0.15 | 1 | 1 234 | 3 | 5 | 2 |", "| `calm` | 1 | 0 | 0 | 0 | 0 |", "| **all** | 2 | 1 234 | 3 | 5 | 2 |",
		"| pause | 2 | 0 | 2 |", "Verdicts: 1 illegal, 1 legal. The second judge differs in 1 histories."} {
		if !strings.Contains(text, row) {
			t.Errorf("%s\nhas no %s", text, row)
		}
	}
}
