package without

import (
	"os"
	"path/filepath"
	"testing"
)

// If the sources change, a text may be missing that a rule's change replaces.
func TestEachRuleCanBeSwitchedOff(t *testing.T) {
	for _, rule := range Rules {
		for _, change := range rule.Changes {
			content, err := os.ReadFile(filepath.Join("../..", change.File))
			if err != nil {
				t.Errorf("%s: %v", rule.Name, err)
				continue
			}
			if _, err := change.Apply(content); err != nil {
				t.Errorf("%s: %v", rule.Name, err)
			}
		}
	}
}
