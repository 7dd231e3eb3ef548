package history

import (
	"os"
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

func TestAJournalOfTheCampaignIsWhatItsHolderReliedOn(t *testing.T) {
	folder := t.TempDir()
	journal := `{"Asked":{"at":9,"key":3,"waits":true,"took_us":4,"answer":"held"}}
{"Event":{"at":10,"key":3,"who":{"client":1,"acquisition":2},"what":{"Held":{"since":5,"until":90,"token":7,"mode":{"Permit":{"number":2,"limit":3}}}}}}
{"Event":{"at":20,"key":3,"who":{"client":1,"acquisition":2},"what":{"Extended":{"until":95,"token":8}}}}
{"Event":{"at":25,"key":3,"who":{"client":1,"acquisition":2},"what":{"Wrote":{"token":8,"mode":"Exclusive"}}}}
{"Event":{"at":30,"key":3,"who":{"client":1,"acquisition":2},"what":"Ended"}}
`
	if err := os.WriteFile(filepath.Join(folder, "client-1-life-1.jsonl"), []byte(journal), 0o644); err != nil {
		t.Fatal(err)
	}
	read, err := FromCampaign(folder)
	if err != nil {
		t.Fatal(err)
	}
	call := Line{Event: Call, Key: "3", Owner: "1.2"}
	expected := []Operation{{call, Line{Event: OK, Time: 10000, Permit: 2, Token: 7, Until: 90000}},
		{call, Line{Event: OK, Time: 20000, Token: 8, Until: 95000}}, {call, Line{Event: Unknown, Time: Never}}}
	for at, op := range []string{Acquire, Check, Release} {
		expected[at].Call.Op, expected[at].Call.ID, expected[at].Call.Time = op, int64(at+1), []int64{5000, 20000, 30000}[at]
		if at < 2 {
			expected[at].Answer.ID = int64(at + 1)
		}
	}
	expected[0].Call.Mode, expected[0].Call.Limit = "p", 3
	if !reflect.DeepEqual(read.Operations, expected) {
		t.Errorf("%+v is not %+v", read.Operations, expected)
	}
}
