package without

import (
	"os"
	"path/filepath"
	"testing"
)

// A change of the sources may move the text that switches a rule off.
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
