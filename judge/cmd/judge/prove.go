package main

import (
	"fmt"
	"math/rand"
	"path/filepath"
	"time"

	"palisade/judge/history"
	"palisade/judge/mutate"
	"palisade/judge/verdict"
)

const (
	// tries is how many times each mutation is made from each history.
	tries = 25
	// seed is fixed, so that every run draws the same mutations.
	seed = 20261126
)

// prove checks the judge itself: with stored histories, and with mutations of them, it must reach the right verdicts.
func prove(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("prove takes one folder: that of the stored histories")
	}
	begun := time.Now()
	good, err := load(filepath.Join(args[0], "good"))
	if err != nil {
		return err
	}
	broken, err := load(filepath.Join(args[0], "broken"))
	if err != nil {
		return err
	}
	wrong := expect(good, false) + expect(broken, true)
	wrong += mutations(good)
	wrong += stretches(good)
	fmt.Printf("judged in %.1f s\n", time.Since(begun).Seconds())
	if wrong > 0 {
		return fmt.Errorf("%d verdicts are not what they must be", wrong)
	}
	return nil
}

// stored is a history with its name.
type stored struct {
	name string
	read *history.History
}

func load(folder string) ([]stored, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.jsonl.gz"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s has no histories: is the repository complete?", folder)
	}
	var all []stored
	for _, file := range files {
		read, err := history.Load(file)
		if err != nil {
			return nil, err
		}
		all = append(all, stored{filepath.Base(file), read})
	}
	return all, nil
}

// expect judges histories that are all legal, or all illegal if broken is true. It returns how many verdicts are wrong.
func expect(histories []stored, broken bool) int {
	wrong := 0
	for _, stored := range histories {
		if !isRight(verdict.Of(stored.read), stored.name, broken) {
			wrong++
		}
	}
	return wrong
}

// isRight prints a verdict, and returns whether it is right: illegal if broken is true, else legal.
func isRight(report verdict.Report, name string, broken bool) bool {
	fmt.Printf("%-8s %-44s %s\n", report.Word(), name, figures(report))
	word := "legal"
	if broken {
		word = "illegal"
	}
	if report.Word() != word {
		fmt.Printf("         WRONG: it must be %s\n", word)
		show(report)
	}
	return report.Word() == word
}

// mutations judges mutations of good histories. It returns how many kinds of mutations the judge notices too seldom.
func mutations(good []stored) int {
	wrong := 0
	for _, mutation := range mutate.Mutations {
		random := rand.New(rand.NewSource(seed))
		noticed, made := 0, 0
		for _, stored := range good {
			for try := 0; try < tries; try++ {
				mutated, can := mutation.Apply(random, stored.read)
				if !can {
					break
				}
				made++
				if !verdict.Of(mutated).Legal() {
					noticed++
				}
			}
		}
		share := 100 * noticed / most(made, 1)
		fmt.Printf("%-20s %4d of %4d noticed (%d %%); the rest is legal: %s\n", mutation.Name, noticed, made, share, mutation.Why)
		if share < mutation.Least || made == 0 {
			fmt.Printf("         WRONG: it must be %d %% at least\n", mutation.Least)
			wrong++
		}
	}
	return wrong
}

// stretches changes good histories so that all leases end early by some milliseconds, and judges them. It returns how
// many the judge wrongly finds legal. With several nodes a holder stops 1 % and 2 ms before its leases end, so an end
// that is less early than that is no fault. Where a client library watches the lock, the holder itself records when the
// lock has ended, so an early end is no fault either.
func stretches(good []stored) int {
	wrong := 0
	for _, milliseconds := range []int64{1, 2, 5, 20} {
		noticed := 0
		for _, stored := range good {
			header := stored.read.Header
			watches := header.Plan == "crate" || header.Plan == "campaign"
			must := header.Nodes == 1 && milliseconds >= 5 || !watches && milliseconds >= 20
			if !verdict.Of(mutate.Stretch(stored.read, milliseconds)).Legal() {
				noticed++
			} else if must {
				fmt.Printf("         WRONG: %s is legal with leases that end %d ms early\n", stored.name, milliseconds)
				wrong++
			}
		}
		fmt.Printf("leases end %2d ms early: %d of %d histories noticed\n", milliseconds, noticed, len(good))
	}
	return wrong
}

func most(a, b int) int {
	if a > b {
		return a
	}
	return b
}
