package quorate_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/quorate/quorate"

// layers says which folder may import which, and why nothing else. The root
// package (".") and cmd build the whole; they may import every folder, and no
// folder imports them. Tests may import what their folder's imports may.
var layers = map[string]struct {
	imports []string
	reason  string
}{
	"protocol":   {nil, "the wire vocabulary knows nothing of the server"},
	"fsm":        {[]string{"protocol"}, "state machines are deterministic: no network, no cluster"},
	"raftnode":   {[]string{"protocol", "fsm"}, "raft groups carry commands; they do not know which key lives where"},
	"partitions": {[]string{"protocol", "fsm", "raftnode"}, "routing does not know sockets or tokens"},
	"search":     {[]string{"protocol", "fsm"}, "indexes feed on change events only"},
	"transport":  {[]string{"protocol", "partitions"}, "a socket reaches data through partitions only, so that every check is passed"},
	"client":     {[]string{"protocol"}, "programs that use the client must not carry the server"},
	".":          {[]string{"protocol", "fsm", "raftnode", "partitions", "search", "transport"}, "the embedding API builds everything and needs no tool"},
	"cmd":        {[]string{".", "client", "protocol", "fsm", "raftnode", "partitions", "search", "transport", "e2e"}, "the executable, which can test itself"},
	"e2e":        {[]string{"client", "protocol"}, "end-to-end tests see what a client sees"},
	"e2e/sim":    {[]string{".", "client", "protocol", "fsm", "raftnode", "partitions", "search", "transport"}, "the simulation runs the real parts"},
}

// maxEdges bounds the folder-to-folder imports of the server, the root package and
// the simulation aside.
const maxEdges = 17

type listed struct {
	ImportPath   string
	Name         string
	Dir          string
	Imports      []string
	TestImports  []string
	XTestImports []string
	GoFiles      []string
}

// packages lists the packages of the module, with those behind no build tag.
func packages(t *testing.T) []listed {
	t.Helper()
	all, err := listOnce()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	return all
}

var listOnce = sync.OnceValues(func() ([]listed, error) {
	out, err := exec.Command("go", "list", "-json", "./...").Output()
	if err != nil {
		return nil, err
	}
	var all []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
})

// folder is the layer that a package belongs to, empty for other modules.
func folder(path string) string {
	if path == module {
		return "."
	}
	rest, ok := strings.CutPrefix(path, module+"/")
	if !ok {
		return ""
	}
	if rest == "e2e/sim" || strings.HasPrefix(rest, "e2e/sim/") {
		return "e2e/sim"
	}
	top, _, _ := strings.Cut(rest, "/")
	return top
}

func TestFoldersImportOnlyTheLayersBelow(t *testing.T) {
	edges := make(map[string]bool)
	for _, p := range packages(t) {
		from := folder(p.ImportPath)
		layer, known := layers[from]
		if !known {
			t.Errorf("%s: the folder %q is not in the table of layers", p.ImportPath, from)
			continue
		}
		for _, path := range p.Imports {
			to := folder(path)
			if to == "" || to == from || (to == "e2e" && from == "e2e/sim") {
				continue
			}
			if !slices.Contains(layer.imports, to) {
				t.Errorf("%s imports %s: %s may import %v only, because %s", p.ImportPath, path, from, layer.imports, layer.reason)
			}
			if from != "." && to != "." && from != "e2e/sim" {
				edges[fmt.Sprintf("%s -> %s", from, to)] = true
			}
		}
		for _, path := range slices.Concat(p.TestImports, p.XTestImports) {
			if to := folder(path); to != "" && to != from && !below(from, to) && !(to == "e2e" && from == "e2e/sim") {
				t.Errorf("a test of %s imports %s, which does not lie below %s", p.ImportPath, path, from)
			}
		}
	}
	if len(edges) > maxEdges {
		t.Errorf("%d folder-to-folder imports, at most %d allowed: %v", len(edges), maxEdges, edges)
	}
}

// below reports whether from reaches to through allowed imports.
func below(from, to string) bool {
	for _, next := range layers[from].imports {
		if next == to || below(next, to) {
			return true
		}
	}
	return false
}

// bannedImports are modules that must not enter a layer.
var bannedImports = []struct{ folder, prefix, reason string }{
	{"protocol", "net", "the wire vocabulary does no I/O"},
	{"protocol", "os", "the wire vocabulary does no I/O"},
	{"fsm", "net", "state machines see nothing but their log"},
	{"fsm", "github.com/hashicorp/raft", "state machines do not know how entries are agreed on"},
	{"partitions", "net", "peers are reached through raftnode/mux"},
	{"transport", "github.com/hashicorp/raft", "sockets do not know how writes are agreed on"},
	{"transport", "go.etcd.io/bbolt", "sockets do not know where records lie"},
}

func TestBannedImports(t *testing.T) {
	for _, p := range packages(t) {
		for _, ban := range bannedImports {
			for _, path := range p.Imports {
				if folder(p.ImportPath) == ban.folder && (path == ban.prefix || strings.HasPrefix(path, ban.prefix+"/")) {
					t.Errorf("%s imports %s: %s", p.ImportPath, path, ban.reason)
				}
			}
		}
	}
}
