package main

import (
	"fmt"

	"palisade/judge/runs"
)

// sums prints the tables of runs.
func sums(files []string) error {
	all, err := runs.Load(files)
	if err != nil {
		return err
	}
	fmt.Print(runs.Tables(all))
	return nil
}
