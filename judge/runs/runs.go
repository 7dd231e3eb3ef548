// Package runs stores the results of recordings, one line for each history, and adds them up.
package runs

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"

	"palisade/judge/history"
	"palisade/judge/verdict"
)

// Run has the figures of one history, and its verdicts.
type Run struct {
	Plan    string `json:"plan"`
	Server  string `json:"server"`
	Module  string `json:"module"`
	Seed    int64  `json:"seed"`
	Seconds int    `json:"seconds"`
	Dense   bool   `json:"dense,omitempty"`

	Requests   int `json:"requests"`
	Grants     int `json:"grants"`
	Operations int `json:"operations"`
	Segments   int `json:"segments"`
	// Faults has the number of faults of each kind.
	Faults map[string]int `json:"faults"`
	// Verdict is the verdict of porcupine and the sweep. Agrees is true if the second judge says the same of each
	// segment.
	Verdict string `json:"verdict"`
	Agrees  bool   `json:"agrees"`
}

// Of returns the line of a history.
func Of(read *history.History, report verdict.Report, agrees bool) Run {
	faults := map[string]int{}
	for _, fault := range read.Faults {
		parts := strings.Split(fault.Text, ": ")
		faults[parts[len(parts)-1]]++
	}
	header := read.Header
	return Run{header.Plan, header.Server, header.Module, header.Seed, header.Seconds, header.Dense, report.Requests, report.Grants,
		report.Operations, report.Segments, faults, report.Word(), agrees}
}

// Append adds a line to a file.
func (run Run) Append(path string) error {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	return json.NewEncoder(file).Encode(run)
}

// Load reads the lines of several files.
func Load(paths []string) ([]Run, error) {
	var all []Run
	for _, path := range paths {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		lines := bufio.NewScanner(file)
		for number := 1; lines.Scan(); number++ {
			var run Run
			if err := json.Unmarshal(lines.Bytes(), &run); err != nil {
				return nil, fmt.Errorf("%s, line %d: %w", path, number, err)
			}
			all = append(all, run)
		}
	}
	return all, nil
}

// sum adds up the figures of several histories.
type sum struct {
	histories, requests, faults, grants, segments int
}

func (of *sum) add(run Run) {
	of.histories, of.requests, of.grants = of.histories+1, of.requests+run.Requests, of.grants+run.Grants
	of.segments += run.Segments
	for _, count := range run.Faults {
		of.faults += count
	}
}

func (of *sum) row(name string) string {
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s |\n", name, thousands(of.histories), thousands(of.requests), thousands(of.faults),
		thousands(of.grants), thousands(of.segments))
}

// Tables returns tables for people: the runs added up by server and by plan, and their faults by kind.
func Tables(all []Run) string {
	text := table(all, "servers", func(run Run) string { return run.Server }) + "\n" +
		table(all, "plans", func(run Run) string { return "`" + run.Plan + "`" }) + "\n" + faults(all) + "\n"
	word := map[string]int{}
	differ := 0
	for _, run := range all {
		word[run.Verdict]++
		if !run.Agrees {
			differ++
		}
	}
	return text + fmt.Sprintf("Verdicts: %s. The second judge differs in %d histories.\n", counts(word), differ)
}

func table(all []Run, head string, name func(Run) string) string {
	sums, total := map[string]*sum{}, &sum{}
	for _, run := range all {
		if sums[name(run)] == nil {
			sums[name(run)] = &sum{}
		}
		sums[name(run)].add(run)
		total.add(run)
	}
	text := "| " + head + " | histories | requests | faults | grants | segments |\n|---|--:|--:|--:|--:|--:|\n"
	for _, key := range sorted(sums) {
		text += sums[key].row(key)
	}
	return text + total.row("**all**")
}

// faults returns a table with the number of faults of each kind on each server.
func faults(all []Run) string {
	servers, kinds := map[string]map[string]int{}, map[string]int{}
	for _, run := range all {
		if servers[run.Server] == nil {
			servers[run.Server] = map[string]int{}
		}
		for kind, count := range run.Faults {
			servers[run.Server][kind] += count
			kinds[kind] += count
		}
	}
	names := sorted(servers)
	text := "| faults | " + strings.Join(names, " | ") + " | all |\n|---|" + strings.Repeat("--:|", len(names)+1) + "\n"
	for _, kind := range sorted(kinds) {
		text += "| " + kind
		for _, name := range names {
			text += " | " + thousands(servers[name][kind])
		}
		text += " | " + thousands(kinds[kind]) + " |\n"
	}
	return text
}

func counts(of map[string]int) string {
	var texts []string
	for _, key := range sorted(of) {
		texts = append(texts, fmt.Sprintf("%d %s", of[key], key))
	}
	return strings.Join(texts, ", ")
}

func sorted[T any](of map[string]T) []string {
	var keys []string
	for key := range of {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}

// thousands writes a number with a space between groups of three digits, as the documentation does.
func thousands(number int) string {
	if number < 1000 {
		return fmt.Sprint(number)
	}
	return fmt.Sprintf("%s %03d", thousands(number/1000), number%1000)
}
