package quorate_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDocumentsNameTestsThatExist looks for every test that a DESIGN.md names.
func TestDocumentsNameTestsThatExist(t *testing.T) {
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	mentioned := regexp.MustCompile("`(Test[A-Z]\\w+)`")
	exists := map[string]bool{}
	named := map[string]string{}
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") && entry.Name() != "DESIGN.md" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, found := range declared.FindAllSubmatch(text, -1) {
			exists[string(found[1])] = true
		}
		if entry.Name() == "DESIGN.md" {
			for _, found := range mentioned.FindAllSubmatch(text, -1) {
				named[string(found[1])] = path
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, path := range named {
		if !exists[name] {
			t.Errorf("%s names %s, which does not exist", path, name)
		}
	}
	if len(named) < 50 {
		t.Errorf("only %d tests are named; are the documents read?", len(named))
	}
}
