package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"palisade/judge/history"
	"palisade/judge/record"
	"palisade/judge/runs"
	"palisade/judge/verdict"
)

// recordAll records a history for each plan and each server, and judges it.
func recordAll(args []string) error {
	flags := flag.NewFlagSet("record", flag.ExitOnError)
	programs := flags.String("servers", "redis-server", "the programs of servers, with spaces between")
	chosen := flags.String("plans", "good", "good, broken, extra, all, or names with spaces between: "+names())
	out := flags.String("out", ".", "the folder of the histories")
	kept := keeping{}
	kept.flags(flags)
	settings := record.Settings{}
	flags.BoolVar(&settings.Dense, "dense", false, "whether faults and leases are short, and faults many")
	flags.StringVar(&settings.Module, "module", "", "the path of the module")
	flags.Int64Var(&settings.Seed, "seed", time.Now().Unix(), "the seed of all choices")
	flags.DurationVar(&settings.Length, "length", time.Minute, "how long each is")
	flags.StringVar(&settings.Shim, "shim", "tests/harness/wall_clock.c", "the source of the wall clock's shim")
	_ = flags.Parse(args)
	module, err := filepath.Abs(settings.Module)
	if err != nil {
		return err
	}
	settings.Module, settings.Agent = module, filepath.Join(filepath.Dir(module), "palisade")
	if !isFile(module) {
		return fmt.Errorf("there is no module %s: build it (make build), and name it with -module", module)
	}
	kept.out = *out
	wrong := 0
	for _, settings.Program = range strings.Fields(*programs) {
		for _, settings.Plan = range record.Plans {
			if !chooses(*chosen, settings.Plan) {
				continue
			}
			right, err := recordOne(settings, kept)
			if err != nil {
				return err
			}
			if !right {
				wrong++
			}
		}
	}
	if wrong > 0 {
		return fmt.Errorf("%d verdicts are not what they must be: docs/judge.md says how to read one", wrong)
	}
	return nil
}

func isFile(path string) bool {
	found, err := os.Stat(path)
	return err == nil && found.Mode().IsRegular()
}

func names() string {
	var all []string
	for _, plan := range record.Plans {
		all = append(all, plan.Name)
	}
	return strings.Join(all, " ")
}

func chooses(chosen string, plan record.Plan) bool {
	for _, word := range strings.Fields(chosen) {
		kind := "good"
		switch {
		case plan.Broken:
			kind = "broken"
		case plan.Extra:
			kind = "extra"
		}
		if word == "all" || word == plan.Name || word == kind {
			return true
		}
	}
	return false
}

// keeping says which verdicts and histories are kept, and where.
type keeping struct {
	out, log, again string
}

func (kept *keeping) flags(flags *flag.FlagSet) {
	flags.StringVar(&kept.log, "log", "", "a file that gets a line for each history; of new ones, only the wrong ones are kept then")
	flags.StringVar(&kept.again, "again", "", "the program of the second judge, which judges each history too")
}

// keep asks the second judge, if there is one, and writes the line of a history. It returns false if the two judges
// differ.
func (kept *keeping) keep(name string, read *history.History, report verdict.Report) (bool, error) {
	agrees := kept.again != ""
	if agrees {
		if err := judgeAgain(kept.again, name, read); err != nil {
			fmt.Println(err)
			agrees = false
		}
	}
	if kept.log != "" {
		if err := runs.Of(read, report, agrees).Append(kept.log); err != nil {
			return false, err
		}
	}
	return agrees || kept.again == "", nil
}

// recordOne records one history and judges it. It returns whether the verdict is right: illegal for a plan with Broken,
// else legal.
func recordOne(settings record.Settings, kept keeping) (bool, error) {
	name, err := recordFile(&settings, kept.out)
	if err != nil {
		return false, err
	}
	read, err := history.Load(settings.Out)
	if err != nil {
		return false, err
	}
	report := verdict.Of(read)
	agrees, err := kept.keep(name, read, report)
	right := isRight(report, name, settings.Plan.Broken) && agrees
	if err != nil || !right || kept.log == "" {
		return right, err
	}
	return right, os.Remove(settings.Out)
}

// judgeAgain asks the second judge about a history.
func judgeAgain(program, name string, read *history.History) error {
	var segments bytes.Buffer
	if err := writeSegments(json.NewEncoder(&segments), name, read); err != nil {
		return err
	}
	second := exec.Command(program, "one")
	second.Stdin = &segments
	if said, err := second.CombinedOutput(); err != nil {
		return fmt.Errorf("the second judge says of %s: %w: %s", name, err, said)
	}
	return nil
}

// recordFile records a history in a folder, and returns the file's name. If the recording fails, it leaves the servers'
// data in place.
func recordFile(settings *record.Settings, out string) (string, error) {
	dense := map[bool]string{true: "-dense"}[settings.Dense]
	name := fmt.Sprintf("%s%s-%s-%d.jsonl.gz", settings.Plan.Name, dense, filepath.Base(settings.Program), settings.Seed)
	settings.Out = filepath.Join(out, name)
	if err := os.MkdirAll(out, 0o755); err != nil {
		return name, err
	}
	var err error
	if settings.Folder, err = os.MkdirTemp("", "palisade-judge-"); err != nil {
		return name, err
	}
	if err := record.Run(*settings); err != nil {
		return name, fmt.Errorf("%s: %w (the servers' data is in %s)", name, err, settings.Folder)
	}
	return name, os.RemoveAll(settings.Folder)
}
