// Judge records histories of locks, and judges them. docs/judge.md says how.
package main

import (
	"fmt"
	"os"
)

const usage = `usage:
  judge check [-log FILE] [-again PROGRAM] FILE...
                           judges histories: fails unless all are legal; -again asks a second judge too, -log keeps the verdicts
  judge prove FOLDER       judges the stored histories: those in good/ must be legal, those in broken/ illegal, and mutations
                           of the good ones must be noticed
  judge campaign FOLDER FILE
                           makes a history of what holders relied on in a campaign (make chaos), and judges it
  judge export FILE...     prints what is searched, for a second judge (judge/rust)
  judge record [-plans good] [-seed N] [-length 1m] [-dense] [-servers redis-server] -module FILE
                           records histories on real servers, and judges them (judge record -help)
  judge sums FILE...       adds up what -log wrote
  judge without [-rules all] [-seed N] [-server redis-server]
                           switches one rule after the other off in a copy of the sources, and records until a history is
                           illegal (judge without -help)
`

func main() {
	if len(os.Args) < 2 {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	commands := map[string]func([]string) error{"campaign": campaign, "check": check, "export": export, "prove": prove, "record": recordAll, "sums": sums, "without": recordWithout}
	command, isKnown := commands[os.Args[1]]
	if !isKnown {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	if err := command(os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "judge:", err)
		os.Exit(1)
	}
}
