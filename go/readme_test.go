package locks_test

import (
	"os"
	"strings"
	"testing"
)

func TestTheReadmeHasAnExampleThatRuns(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	examples, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(readme), "```go\n")
	example, _, found := strings.Cut(rest, "```")
	if !found || !strings.Contains(string(examples), example) {
		t.Fatal("the README's example is not one of example_test.go, which runs")
	}
}
