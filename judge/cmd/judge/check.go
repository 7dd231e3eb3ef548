package main

import (
	"flag"
	"fmt"
	"time"

	"palisade/judge/history"
	"palisade/judge/verdict"
)

// shown is the largest number of accusations that are printed for one history.
const shown = 3

// check judges the histories in files.
func check(args []string) error {
	flags := flag.NewFlagSet("check", flag.ExitOnError)
	kept := keeping{}
	kept.flags(flags)
	_ = flags.Parse(args)
	files := flags.Args()
	illegal, all := 0, verdict.Report{}
	for _, file := range files {
		read, err := history.Load(file)
		if err != nil {
			return err
		}
		begun := time.Now()
		report := verdict.Of(read)
		fmt.Printf("%-13s %s: %s, in %.1f s\n", report.Word(), file, figures(report), time.Since(begun).Seconds())
		show(report)
		all.Requests, all.Faults, all.Grants = all.Requests+report.Requests, all.Faults+report.Faults, all.Grants+report.Grants
		all.Operations, all.Segments = all.Operations+report.Operations, all.Segments+report.Segments
		if all.Largest < report.Largest {
			all.Largest = report.Largest
		}
		agrees, err := kept.keep(file, read, report)
		if err != nil {
			return err
		}
		if !report.Legal() || !agrees {
			illegal++
		}
	}
	fmt.Printf("%d histories: %s\n", len(files), figures(all))
	if illegal > 0 {
		return fmt.Errorf("%d of %d histories are not legal, or the judges differ", illegal, len(files))
	}
	return nil
}

func figures(report verdict.Report) string {
	return fmt.Sprintf("%d requests, %d faults, %d grants; %d operations in %d segments (the largest %d)",
		report.Requests, report.Faults, report.Grants, report.Operations, report.Segments, report.Largest)
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
