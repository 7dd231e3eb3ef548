package main

import (
	"fmt"

	"palisade/judge/history"
)

// campaign makes a history from the journals of a fault campaign (make chaos), and judges it.
func campaign(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("campaign takes the folder of a report, and the file of the history to make")
	}
	made, err := history.FromCampaign(args[0])
	if err != nil {
		return err
	}
	if err := made.Save(args[1]); err != nil {
		return err
	}
	return check(args[1:])
}
