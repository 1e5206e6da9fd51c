// Command sbom prints the bill of materials of a Go program, in CycloneDX's JSON: the modules
// that were linked into it, as the program itself records them, and the standard library. The
// same program gives the same text.
//
//	sbom PROGRAM
package main

import (
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/url"
	"os"
	"runtime/debug"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: sbom PROGRAM")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(program string, w io.Writer) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	bom, err := materials(info)
	if err != nil {
		return err
	}
	if err := cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6); err != nil {
		return fmt.Errorf("write bill of materials: %w", err)
	}
	return nil
}

// materials lists what a program is made of. It depends on everything: which module needs
// which is not recorded in it.
func materials(info *debug.BuildInfo) (*cdx.BOM, error) {
	bom := cdx.NewBOM()
	program := component(cdx.ComponentTypeApplication, info.Main.Path, info.Main.Version)
	bom.Metadata = &cdx.Metadata{Component: &program}
	list := []cdx.Component{component(cdx.ComponentTypeLibrary, "std", goVersion(info.GoVersion))}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		c := component(cdx.ComponentTypeLibrary, m.Path, m.Version)
		if m.Sum != "" {
			hash, err := hashOf(m.Sum)
			if err != nil {
				return nil, fmt.Errorf("module %s: %w", m.Path, err)
			}
			c.Hashes = &[]cdx.Hash{hash}
		}
		list = append(list, c)
	}
	var refs []string
	for _, c := range list {
		refs = append(refs, c.BOMRef)
	}
	bom.Components = &list
	bom.Dependencies = &[]cdx.Dependency{{Ref: program.BOMRef, Dependencies: &refs}}
	return bom, nil
}

// goVersion is "1.26.0" of "go1.26.0 X:experiment".
func goVersion(text string) string {
	version, _, _ := strings.Cut(strings.TrimPrefix(text, "go"), " ")
	return version
}

func component(kind cdx.ComponentType, path, version string) cdx.Component {
	purl := "pkg:golang/" + strings.ToLower(path) + "@" + url.QueryEscape(version)
	return cdx.Component{BOMRef: purl, Type: kind, Name: path, Version: version, PackageURL: purl}
}

// hashOf is the hash of a line of go.sum, which is over a list of the module's files.
func hashOf(sum string) (cdx.Hash, error) {
	text, ok := strings.CutPrefix(sum, "h1:")
	raw, err := base64.StdEncoding.DecodeString(text)
	if !ok || err != nil {
		return cdx.Hash{}, fmt.Errorf("sum %q is of an unknown kind", sum)
	}
	return cdx.Hash{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(raw)}, nil
}
