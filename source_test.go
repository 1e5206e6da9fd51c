package quorate_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// sources parses the files of every package that are not tests.
func sources(t *testing.T, each func(p listed, fset *token.FileSet, files []*ast.File)) {
	t.Helper()
	for _, p := range packages(t) {
		fset := token.NewFileSet()
		var files []*ast.File
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
		}
		each(p, fset, files)
	}
}

func TestEveryPackageHasOnePackageComment(t *testing.T) {
	sources(t, func(p listed, _ *token.FileSet, files []*ast.File) {
		comments := 0
		for _, f := range files {
			if f.Doc != nil && len(strings.TrimSpace(f.Doc.Text())) > 0 {
				comments++
			}
		}
		if len(files) > 0 && comments != 1 {
			t.Errorf("%s has %d package comments, want exactly 1", p.ImportPath, comments)
		}
	})
}

func TestEveryExportedNameHasADocComment(t *testing.T) {
	sources(t, func(p listed, fset *token.FileSet, files []*ast.File) {
		if p.Name == "main" {
			return
		}
		for _, f := range files {
			if ast.IsGenerated(f) {
				continue
			}
			for _, d := range f.Decls {
				for _, name := range undocumented(d) {
					t.Errorf("%s: %s has no doc comment", fset.Position(name.Pos()), name.Name)
				}
			}
		}
	})
}

func undocumented(d ast.Decl) []*ast.Ident {
	var names []*ast.Ident
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Doc == nil && d.Name.IsExported() && exportedReceiver(d) {
			names = append(names, d.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				if d.Doc == nil && s.Doc == nil && s.Name.IsExported() {
					names = append(names, s.Name)
				}
			case *ast.ValueSpec:
				if d.Doc == nil && s.Doc == nil && s.Comment == nil {
					names = append(names, slices.DeleteFunc(slices.Clone(s.Names), func(n *ast.Ident) bool { return !n.IsExported() })...)
				}
			}
		}
	}
	return names
}

// exportedReceiver reports whether d is a function or a method of an exported
// type.
func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	exported := false
	ast.Inspect(d.Recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && !exported {
			exported = id.IsExported()
			return false
		}
		return true
	})
	return exported
}

// TestStateMachinesReadNoClockAndNoRandomness keeps apply a function of the log:
// a replica that asked the clock would differ from the others.
func TestStateMachinesReadNoClockAndNoRandomness(t *testing.T) {
	clock := []string{"Now", "Since", "Until"}
	sources(t, func(p listed, fset *token.FileSet, files []*ast.File) {
		if folder(p.ImportPath) != "fsm" || strings.HasPrefix(p.ImportPath, module+"/fsm/storage") {
			// The store is below the state machine: how long a write took, for the
			// metrics, decides nothing about its content.
			return
		}
		for _, f := range files {
			for _, imp := range f.Imports {
				path, _ := strconv.Unquote(imp.Path.Value)
				if slices.Contains([]string{"math/rand", "math/rand/v2", "crypto/rand", "os", "net"}, path) {
					t.Errorf("%s: imports %s: apply must depend on the log alone", fset.Position(imp.Pos()), path)
				}
			}
			ast.Inspect(f, func(n ast.Node) bool {
				sel, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "time" && slices.Contains(clock, sel.Sel.Name) {
					t.Errorf("%s: time.%s: the proposer stamps, apply does not", fset.Position(n.Pos()), sel.Sel.Name)
				}
				return true
			})
		}
	})
}

// maxLines is the length above which a file needs splitting. Tables and tests may
// be longer.
const maxLines = 500

func TestFilesStayShort(t *testing.T) {
	sources(t, func(_ listed, fset *token.FileSet, files []*ast.File) {
		for _, f := range files {
			file := fset.File(f.Pos())
			if file.LineCount() > maxLines && !ast.IsGenerated(f) {
				t.Errorf("%s has %d lines, at most %d allowed", file.Name(), file.LineCount(), maxLines)
			}
		}
	})
}
