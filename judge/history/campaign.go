package history

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"
)

const microsecond = 1000

// journalLine is a line that a process of `make chaos` wrote. Only those events are read that the campaign's referee
// judges too.
type journalLine struct {
	Event *struct {
		At  int64 `json:"at"`
		Key int   `json:"key"`
		Who struct {
			Client      int `json:"client"`
			Acquisition int `json:"acquisition"`
		} `json:"who"`
		What json.RawMessage `json:"what"`
	} `json:"Event"`
}

// occurrence is what happened to a holder, as in the journal: the end of a claim is a word, everything else an object.
type occurrence struct {
	Held *struct {
		Since int64           `json:"since"`
		Until int64           `json:"until"`
		Token int64           `json:"token"`
		Mode  json.RawMessage `json:"mode"`
	} `json:"Held"`
	Extended *struct {
		Until int64 `json:"until"`
		Token int64 `json:"token"`
	} `json:"Extended"`
}

// FromCampaign makes a history of what the clients of a fault campaign relied on, from the journals in its folder. A holder
// that ends its claim becomes a RELEASE without an answer.
func FromCampaign(folder string) (*History, error) {
	files, err := filepath.Glob(filepath.Join(folder, "client-*-life-*.jsonl"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s has no journals: name the folder of a campaign's report (target/chaos)", folder)
	}
	made := &History{Header: Header{Format: Format, Nodes: 5, Server: "see report.md", Lock: "palisade", Plan: "campaign"}}
	for _, file := range files {
		if err := made.addJournal(file); err != nil {
			return nil, err
		}
	}
	sort.SliceStable(made.Operations, func(a, b int) bool { return made.Operations[a].Call.Time < made.Operations[b].Call.Time })
	return made, nil
}

func (history *History) addJournal(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	scanner := bufio.NewScanner(file)
	scanner.Buffer(nil, longestLine)
	for scanner.Scan() {
		var line journalLine
		if err := json.Unmarshal(scanner.Bytes(), &line); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if line.Event == nil {
			continue
		}
		call := Line{Event: Call, ID: int64(len(history.Operations) + 1), Time: line.Event.At * microsecond,
			Key: fmt.Sprint(line.Event.Key), Owner: fmt.Sprintf("%d.%d", line.Event.Who.Client, line.Event.Who.Acquisition)}
		if operation, is := asOperation(call, line.Event.What); is {
			history.Operations = append(history.Operations, operation)
		}
	}
	return scanner.Err()
}

// asOperation returns the operation that a journal's event shows, or false for an access to the register.
func asOperation(call Line, what json.RawMessage) (Operation, bool) {
	answer := Line{ID: call.ID, Event: OK, Time: call.Time}
	if string(what) == `"Ended"` {
		call.Op = Release
		return Operation{call, Line{Event: Unknown, Time: Never}}, true
	}
	var happened occurrence
	if json.Unmarshal(what, &happened) != nil {
		return Operation{}, false
	}
	switch {
	case happened.Held != nil:
		call.Op, call.Time = Acquire, happened.Held.Since*microsecond
		call.Mode, call.Limit, answer.Permit = mode(happened.Held.Mode)
		answer.Token, answer.Until = happened.Held.Token, happened.Held.Until*microsecond
	case happened.Extended != nil:
		call.Op = Check
		answer.Token, answer.Until = happened.Extended.Token, happened.Extended.Until*microsecond
	default:
		return Operation{}, false
	}
	return Operation{call, answer}, true
}

// mode reads from a journal in which mode a lock is held.
func mode(text json.RawMessage) (letter string, limit, number int) {
	var permit struct {
		Permit struct {
			Number int `json:"number"`
			Limit  int `json:"limit"`
		} `json:"Permit"`
	}
	switch {
	case string(text) == `"Shared"`:
		return "s", 0, 0
	case json.Unmarshal(text, &permit) == nil:
		return "p", permit.Permit.Limit, permit.Permit.Number
	}
	return "x", 0, 0
}
