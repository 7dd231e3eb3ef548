package main

import (
	"fmt"

	"palisade/judge/runs"
)

// sums prints tables that add up the runs in these files.
func sums(files []string) error {
	all, err := runs.Load(files)
	if err != nil {
		return err
	}
	fmt.Print(runs.Tables(all))
	return nil
}
