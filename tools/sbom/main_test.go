package main

import (
	"bytes"
	"os"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// TestAProgramListsItsModules reads this test itself.
func TestAProgramListsItsModules(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var first, second bytes.Buffer
	for _, w := range []*bytes.Buffer{&first, &second} {
		if err := run(self, w); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("the same program gives two texts")
	}
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(&first, cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, c := range *bom.Components {
		found[c.Name]++
		if c.Name != "std" && (c.Hashes == nil || len((*c.Hashes)[0].Value) != 64) {
			t.Errorf("%s has no hash", c.Name)
		}
	}
	for _, name := range []string{"std", "github.com/CycloneDX/cyclonedx-go"} {
		if found[name] != 1 {
			t.Errorf("%s is listed %d times", name, found[name])
		}
	}
	if refs := (*bom.Dependencies)[0].Dependencies; len(*refs) != len(*bom.Components) {
		t.Errorf("the program depends on %d of %d components", len(*refs), len(*bom.Components))
	}
	if err := run(os.DevNull, &second); err == nil {
		t.Error("no program, and no error")
	}
}

func TestSumsOfUnknownKindsAreErrors(t *testing.T) {
	for _, sum := range []string{"", "h2:AAAA", "h1:*"} {
		if h, err := hashOf(sum); err == nil {
			t.Errorf("%q gives %v", sum, h)
		}
	}
}
