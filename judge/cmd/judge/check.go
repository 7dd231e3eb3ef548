package main

import (
	"fmt"
	"time"

	"palisade/judge/history"
	"palisade/judge/verdict"
)

// shown is how many accusations of a history are printed.
const shown = 3

// check judges files.
func check(files []string) error {
	illegal := 0
	for _, file := range files {
		read, err := history.Load(file)
		if err != nil {
			return err
		}
		begun := time.Now()
		report := verdict.Of(read)
		fmt.Printf("%-13s %s: %s, in %.1f s\n", report.Word(), file, figures(report), time.Since(begun).Seconds())
		show(report)
		if !report.Legal() {
			illegal++
		}
	}
	if illegal > 0 {
		return fmt.Errorf("%d of %d histories are not legal", illegal, len(files))
	}
	return nil
}

func figures(report verdict.Report) string {
	return fmt.Sprintf("%d requests, %d grants, %d operations in %d segments (the largest %d)",
		report.Requests, report.Grants, report.Operations, report.Segments, report.Largest)
}

func show(report verdict.Report) {
	for _, list := range [][]string{report.Accusations, report.Swept, report.Undecided} {
		for at, text := range list {
			if at == shown {
				fmt.Printf("    and %d more\n", len(list)-shown)
				break
			}
			fmt.Println("    " + text)
		}
	}
}
