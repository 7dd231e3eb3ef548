package without

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// left has the folders that are not copied: results of builds, and folders that no build needs.
var left = map[string]bool{"target": true, ".git": true, "node_modules": true}

// Apply returns the content of the file with the change made.
func (change Change) Apply(content []byte) ([]byte, error) {
	if found := bytes.Count(content, []byte(change.From)); found != 1 {
		return nil, fmt.Errorf("%s has %q %d times, not once: name in judge/without/rules.go what now switches the rule off", change.File, change.From, found)
	}
	return bytes.Replace(content, []byte(change.From), []byte(change.To), 1), nil
}

// Build copies the sources in root into a folder, switches the rule off there, and compiles what Builds names. It
// returns the path of the module. The other results are beside the module. Results of an earlier build are used again.
func (rule Rule) Build(root, folder string) (string, error) {
	sources := filepath.Join(folder, "sources")
	if err := rule.copy(root, sources); err != nil {
		return "", err
	}
	target, err := filepath.Abs(filepath.Join(folder, "target"))
	if err != nil {
		return "", err
	}
	cargo := exec.Command("cargo", append([]string{"build", "--quiet", "--locked"}, rule.Builds...)...)
	cargo.Dir, cargo.Env = sources, append(os.Environ(), "CARGO_TARGET_DIR="+target)
	if said, err := cargo.CombinedOutput(); err != nil {
		return "", fmt.Errorf("Palisade without %s does not compile: %w\n%s", rule.Name, err, said)
	}
	return filepath.Join(target, "debug", "libpalisade.so"), nil
}

// copy makes a copy with the changes. It does not touch files that are already the same, so that they are not compiled
// again.
func (rule Rule) copy(root, to string) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && left[entry.Name()]:
			return filepath.SkipDir
		case !entry.Type().IsRegular():
			return nil
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if content, err = rule.changed(filepath.ToSlash(name), content); err != nil {
			return err
		}
		return write(filepath.Join(to, name), content)
	})
}

// changed returns a file's content with all changes to it.
func (rule Rule) changed(file string, content []byte) ([]byte, error) {
	for _, change := range rule.Changes {
		if change.File != file {
			continue
		}
		var err error
		if content, err = change.Apply(content); err != nil {
			return nil, err
		}
	}
	return content, nil
}

func write(path string, content []byte) error {
	if present, err := os.ReadFile(path); err == nil && bytes.Equal(present, content) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	mode := fs.FileMode(0o644)
	if strings.HasPrefix(string(content), "#!") {
		mode = 0o755
	}
	return os.WriteFile(path, content, mode)
}
