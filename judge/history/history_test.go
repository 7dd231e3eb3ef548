package history

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

const header = `{"format":1,"nodes":1,"server":"Redis 7.0.15","lock":"palisade","seed":1,"seconds":1}` + "\n"

func TestAHistoryIsReadAsItWasWritten(t *testing.T) {
	for _, name := range []string{"h.jsonl", "h.jsonl.gz"} {
		path := filepath.Join(t.TempDir(), name)
		written := &History{Header: Header{Format: Format, Nodes: 5, Seed: 7}, Operations: []Operation{
			{Line{ID: 1, Time: 10, Event: Call, Op: Acquire, Key: "k", Owner: "a", Mode: "x", TTL: 100}, Line{ID: 1, Time: 20, Event: OK, Token: 5}},
			{Line{ID: 2, Time: 15, Event: Call, Op: Acquire, Key: "k", Owner: "b", Mode: "x", TTL: 100}, Line{Time: Never, Event: Unknown}},
		}, Faults: []Line{{Time: 12, Event: Fault, Text: "kill"}}}
		if err := written.Save(path); err != nil {
			t.Fatal(err)
		}
		read, err := Load(path)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(read, written) {
			t.Errorf("%s: %+v is not %+v", name, read, written)
		}
	}
}

func TestADamagedHistoryIsRefused(t *testing.T) {
	for text, says := range map[string]string{
		"{}\n":                             "no header",
		header + "{\"i\":1,\n":             "no JSON",
		header + `{"i":1,"t":5,"ev":"ok"}`: "not open",
		header + `{"i":1,"t":5,"ev":"call"}` + "\n" + `{"i":1,"t":6,"ev":"call"}`: "was not answered yet",
	} {
		if _, err := Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
