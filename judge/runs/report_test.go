package runs

import (
	"os"
	"strings"
	"testing"
)

func TestTheReportHasTheSumsOfTheRuns(t *testing.T) {
	all, err := Load([]string{"../histories/runs.jsonl"})
	if err != nil {
		t.Fatal(err)
	}
	report, err := os.ReadFile("../../docs/report.md")
	if err != nil {
		t.Fatal(err)
	}
	if text := Tables(all); !strings.Contains(string(report), text) {
		t.Errorf("docs/report.md has other tables than judge sums judge/histories/runs.jsonl prints:\n%s", text)
	}
}
