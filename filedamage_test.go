package quorate_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/quorate/quorate"
	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/fsm/storage/bolt"
	"github.com/quorate/quorate/fsm/storage/writebehind"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/raftnode/logstore"
	"github.com/quorate/quorate/raftnode/mux/memnet"
)

var (
	damageRuns = flag.Int("damage.runs", 40, "how many damaged copies of a node's files are read")
	damageSeed = flag.Uint64("damage.seed", 0, "seed of the damage; 0 chooses one")
)

// damagedDir is the variable that makes the test binary read the files of a node there,
// in a process of its own.
const damagedDir = "QUORATE_DAMAGED_DIR"

// What the process says with its exit code.
const (
	readsEqual   = 0
	readsRefused = 10
	readsWrong   = 11
)

// openFiles opens a node on real files. The journal of its store is small, so that items
// are in the journals and in their places.
func openFiles(t *testing.T, dir string) (*quorate.Node, error) {
	t.Helper()
	store, err := bolt.Open(fileConfig(dir), bolt.Deps{Logger: hclog.NewNullLogger()})
	if err != nil {
		return nil, err
	}
	cfg := quorate.DefaultNodeConfig("n1")
	cfg.Mux.ListenAddr, cfg.Mux.Advertise = "n1:7000", "n1"
	cfg.Log = logConfig(dir)
	return quorate.OpenNode(cfg, quorate.NodeDeps{
		Logger: hclog.NewNullLogger(), Network: memnet.New(1).Host("n1"), Store: store,
		Physical: func() int64 { return time.Now().UnixMilli() },
	})
}

func fileConfig(dir string) bolt.Config {
	return bolt.Config{Path: filepath.Join(dir, "service.db"), JournalBytes: 20_000}
}

func logConfig(dir string) logstore.Config {
	cfg := logstore.DefaultConfig(filepath.Join(dir, "wal"))
	cfg.SegmentBytes, cfg.Prefill = 256<<10, false
	return cfg
}

// live runs a lone node on the files in dir while it writes.
func live(t *testing.T, dir, prefix string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n, err := openFiles(t, dir)
		if err != nil {
			t.Fatal(err)
		}
		s := &simNode{Node: n, ran: make(chan error, 1)}
		var ctx context.Context
		ctx, s.stop = context.WithCancel(t.Context())
		go func() { s.ran <- n.Run(ctx) }()
		s.awaitCaughtUp(t)
		for i := range 300 {
			if v, err := s.write(ctx, fmt.Sprint(prefix, i)); err != nil || v.Refused() {
				t.Fatalf("write: %+v, %v", v, err)
			}
		}
		if err := s.end(t); err != nil {
			t.Fatal(err)
		}
	})
}

// files are the contents of files by their names below a directory.
type files map[string][]byte

func loadFiles(t *testing.T, dir string) files {
	t.Helper()
	f := files{}
	for _, pattern := range []string{"service.db", "wal/*.wal"} {
		names, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			rel, err := filepath.Rel(dir, name)
			if err != nil {
				t.Fatal(err)
			}
			if f[rel], err = os.ReadFile(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	return f
}

// store writes the files into a new directory, without the zeros at their ends.
func (f files) store(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, "wal"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range f {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, bytes.TrimRight(content, "\x00"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, int64(len(content))); err != nil {
			t.Fatal(err)
		}
	}
}

// dump is what the files say: records by group and key, and log entries.
func dump(dir string) (map[string]string, error) {
	found := map[string]string{}
	store, err := bolt.Open(fileConfig(dir), bolt.Deps{Logger: hclog.NewNullLogger()})
	if err != nil {
		return nil, err
	}
	defer store.Close()
	wal, err := logstore.Open(logConfig(dir), logstore.Deps{})
	if err != nil {
		return nil, err
	}
	defer wal.Close()
	flusher, err := writebehind.New(writebehind.DefaultConfig(), writebehind.Deps{Logger: hclog.NewNullLogger(), Store: store})
	if err != nil {
		return nil, err
	}
	var damage error
	for _, group := range allGroups {
		err := dumpGroup(found, store, flusher, wal.Group(group), group)
		if errors.Is(err, storage.ErrCorrupt) {
			found[fmt.Sprintf("%d is damaged", group)] = ""
		}
		damage = errors.Join(damage, err)
	}
	return found, damage
}

func dumpGroup(found map[string]string, store storage.Store, flusher *writebehind.Flusher, log *logstore.GroupLog, group uint32) error {
	machine, err := fsm.Open(fsm.DefaultConfig(group), fsm.Deps{Logger: hclog.NewNullLogger(), Store: store, Flusher: flusher})
	if err != nil {
		return err
	}
	defer machine.Close()
	index, digest := machine.Digest()
	found[fmt.Sprintf("%d state", group)] = fmt.Sprint(index, digest, machine.Cluster().Members)
	_, err = machine.Scan("m", "", func(key string, rec protocol.Record) bool {
		found[fmt.Sprintf("%d record %s", group, key)] = fmt.Sprint(rec)
		return true
	})
	if err != nil {
		return err
	}
	first, err := log.FirstIndex()
	if err != nil {
		return err
	}
	last, err := log.LastIndex()
	if err != nil {
		return err
	}
	found[fmt.Sprintf("%d log", group)] = fmt.Sprint(first, last)
	var entry raft.Log
	for at := max(first, 1); at <= last; at++ {
		if err := log.GetLog(at, &entry); err != nil {
			return err
		}
		found[fmt.Sprintf("%d entry %d", group, at)] = fmt.Sprintf("%d %d %x", entry.Term, entry.Type, entry.Data)
	}
	return nil
}

// TestReadDamagedFiles is the process that reads damaged files; alone it does nothing.
func TestReadDamagedFiles(t *testing.T) {
	dir := os.Getenv(damagedDir)
	if dir == "" {
		return
	}
	var want map[string]string
	text, err := os.ReadFile(filepath.Join(dir, "want"))
	if err == nil {
		err = json.Unmarshal(text, &want)
	}
	if err != nil {
		t.Fatal(err)
	}
	node, err := openFiles(t, dir)
	if err == nil {
		err = node.Close(t.Context())
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(readsRefused)
	}
	found, err := dump(dir)
	for key, value := range found {
		if _, damaged := found[key[:1]+" is damaged"]; !damaged && value != want[key] {
			fmt.Printf("%s is %.200q, want %.200q\n", key, value, want[key])
			os.Exit(readsWrong)
		}
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(readsRefused)
	}
	if len(found) != len(want) {
		fmt.Printf("%d things, want %d\n", len(found), len(want))
		os.Exit(readsWrong)
	}
	os.Exit(readsEqual)
}

// damageKinds change one file; used is how much of it is not zeros at its end.
var damageKinds = []struct {
	name   string
	change func(rnd *rand.Rand, content []byte, used int) []byte
}{
	{"flip", func(rnd *rand.Rand, content []byte, used int) []byte {
		content[rnd.IntN(used)] ^= 1 << rnd.IntN(8)
		return content
	}},
	{"flip", func(rnd *rand.Rand, content []byte, used int) []byte {
		content[rnd.IntN(used)] ^= 1 << rnd.IntN(8)
		return content
	}},
	{"flip", func(rnd *rand.Rand, content []byte, used int) []byte {
		content[rnd.IntN(used)] ^= 1 << rnd.IntN(8)
		return content
	}},
	{"truncate", func(rnd *rand.Rand, content []byte, used int) []byte { return content[:rnd.IntN(used)] }},
	{"zero", func(rnd *rand.Rand, content []byte, used int) []byte {
		at := rnd.IntN(used) &^ 511
		clear(content[at:min(at+512<<rnd.IntN(4), len(content))])
		return content
	}},
	{"swap", func(rnd *rand.Rand, content []byte, used int) []byte {
		const page = 4096
		pages := max(used/page, 1)
		a, b := rnd.IntN(pages)*page, rnd.IntN(pages)*page
		first := bytes.Clone(content[a:min(a+page, len(content))])
		copy(content[a:], content[b:min(b+page, len(content))])
		copy(content[b:], first)
		return content
	}},
}

// TestDamagedFilesAreNeverReadWrong damages copies of a node's files and opens each in a
// process of its own: it reads what was there, or it refuses, a group or the whole.
func TestDamagedFilesAreNeverReadWrong(t *testing.T) {
	seed := *damageSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed: -damage.seed=%d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	live(t, dir, "first")
	old := loadFiles(t, dir)
	live(t, dir, "second")
	whole := loadFiles(t, dir)
	want, err := dump(dir)
	if err != nil {
		t.Fatal(err)
	}
	names := slices.Sorted(maps.Keys(whole))
	outcomes := map[string]int{}
	for run := range *damageRuns {
		name, kind := names[run%2*rnd.IntN(len(names))], damageKinds[rnd.IntN(len(damageKinds))]
		broken := maps.Clone(whole)
		broken[name] = kind.change(rnd, bytes.Clone(whole[name]), len(bytes.TrimRight(whole[name], "\x00")))
		outcomes[kind.name+" "+readCopy(t, broken, want, fmt.Sprintf("run %d: %s of %s", run, kind.name, name))]++
	}
	if got := readCopy(t, whole, want, "undamaged"); got != "read" {
		t.Errorf("undamaged files are %s", got)
	}
	mixed := maps.Clone(whole)
	for name := range mixed {
		if strings.HasPrefix(name, "wal") {
			delete(mixed, name)
		}
	}
	if got := readCopy(t, mixed, want, "log removed"); got != "refused" {
		t.Errorf("a store without its log is %s", got)
	}
	for name := range old {
		if name != "service.db" {
			mixed[name] = old[name]
		}
	}
	if got := readCopy(t, mixed, want, "old log"); got != "refused" {
		t.Errorf("a store beside a log of an earlier life is %s", got)
	}
	t.Log(cmp.Diff(map[string]int{}, outcomes))
}

// readCopy opens the files in a process of its own and says what became of it.
func readCopy(t *testing.T, f files, want map[string]string, what string) string {
	t.Helper()
	dir := t.TempDir()
	f.store(t, dir)
	text, err := json.Marshal(want)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "want"), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^TestReadDamagedFiles$")
	cmd.Env = append(os.Environ(), damagedDir+"="+dir)
	out, err := cmd.CombinedOutput()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	switch code := cmd.ProcessState.ExitCode(); code {
	case readsEqual:
		return "read"
	case readsRefused:
		return "refused"
	case readsWrong:
		t.Errorf("%s: wrong: %s", what, out)
		return "wrong"
	default:
		t.Logf("%s: the process died: %v: %.300s", what, err, out)
		return "died"
	}
}
