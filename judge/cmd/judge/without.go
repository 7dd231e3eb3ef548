package main

import (
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"palisade/judge/history"
	"palisade/judge/record"
	"palisade/judge/verdict"
	"palisade/judge/without"
)

// piece is the length of a history. The next history is recorded only after this one is judged.
const piece = 15 * time.Second

// absence is the verdict on servers that run without one rule.
type absence struct {
	rule without.Rule
	// seconds of recording until the first history that is not legal; 0 if there was none.
	seconds float64
	report  verdict.Report
}

// recordWithout switches rules off, one at a time. For each it records histories until one is illegal.
func recordWithout(args []string) error {
	flags := flag.NewFlagSet("without", flag.ExitOnError)
	chosen := flags.String("rules", "all", "all, or names with spaces between: "+ruleNames())
	root := flags.String("root", ".", "the folder of Palisade's sources")
	folder := flags.String("folder", "target/judge/without", "where copies are built and histories recorded")
	within := flags.Duration("within", 5*time.Minute, "how long to record until the absence of a rule counts as not noticed")
	settings := record.Settings{}
	flags.StringVar(&settings.Program, "server", "redis-server", "the program of servers")
	flags.Int64Var(&settings.Seed, "seed", time.Now().Unix(), "the seed of all choices")
	flags.StringVar(&settings.Shim, "shim", "tests/harness/wall_clock.c", "the source of the wall clock's shim")
	_ = flags.Parse(args)
	rules := without.Rules
	if *chosen != "all" {
		rules = nil
		for _, name := range strings.Fields(*chosen) {
			rule, isKnown := without.Named(name)
			if !isKnown {
				return fmt.Errorf("there is no rule %q to switch off: name some of %s", name, ruleNames())
			}
			rules = append(rules, rule)
		}
	}
	unnoticed := 0
	for _, rule := range rules {
		module, err := rule.Build(*root, *folder)
		if err != nil {
			return err
		}
		settings.Module = module
		found, err := recordUntilIllegal(rule, settings, filepath.Join(*folder, rule.Name), *within)
		if err != nil {
			return err
		}
		found.print()
		if found.seconds == 0 {
			unnoticed++
		}
	}
	if *chosen != "all" && unnoticed < len(rules) {
		return fmt.Errorf("histories without %s are illegal", *chosen)
	}
	if unnoticed > 0 {
		return fmt.Errorf("%d of %d rules can be missing without being noticed", unnoticed, len(rules))
	}
	return nil
}

func ruleNames() string {
	var all []string
	for _, rule := range without.Rules {
		all = append(all, rule.Name)
	}
	return strings.Join(all, " ")
}

func recordUntilIllegal(rule without.Rule, settings record.Settings, folder string, within time.Duration) (absence, error) {
	settings.Agent, settings.Length, settings.Dense = filepath.Join(filepath.Dir(settings.Module), "palisade"), piece, rule.IsDense()
	for _, settings.Plan = range record.Plans {
		if settings.Plan.Name == rule.Plan {
			break
		}
	}
	begun := time.Now()
	for ; time.Since(begun) < within; settings.Seed++ {
		if _, err := recordFile(&settings, folder); err != nil {
			return absence{}, err
		}
		read, err := history.Load(settings.Out)
		if err != nil {
			return absence{}, err
		}
		if report := verdict.Of(read); !report.Legal() {
			return absence{rule, time.Since(begun).Seconds(), report}, nil
		}
	}
	return absence{rule: rule}, nil
}

// print writes a row of the table in docs/judge.md, and the first accusation.
func (found absence) print() {
	if found.seconds == 0 {
		fmt.Printf("| `%s` | `%s` | legal | | |\n", found.rule.Name, found.rule.Plan)
		return
	}
	swept := "no"
	if len(found.report.Swept) > 0 {
		swept = "yes"
	}
	fmt.Printf("| `%s` | `%s` | %s | %s | %.0f |\n", found.rule.Name, found.rule.Plan, found.report.Word(), swept, found.seconds)
	show(found.report)
}
