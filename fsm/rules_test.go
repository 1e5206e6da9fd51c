package fsm_test

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestApplyImportsNothingThatDiffersBetweenReplicas keeps clocks, randomness and
// the environment out of every package that takes part in applying an entry.
func TestApplyImportsNothingThatDiffersBetweenReplicas(t *testing.T) {
	banned := []string{"time", "math/rand", "math/rand/v2", "crypto/rand", "os", "net"}
	for _, dir := range []string{".", "codec", "command", "crdt", "system"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no sources in %s: %v", dir, err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			for _, imp := range file.Imports {
				path, err := strconv.Unquote(imp.Path.Value)
				if err != nil {
					t.Fatal(err)
				}
				if slices.Contains(banned, path) {
					t.Errorf("%s imports %s: apply depends on the entries and the state alone", name, path)
				}
			}
		}
	}
}
