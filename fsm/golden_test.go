package fsm_test

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/fsm/system"
	"github.com/quorate/quorate/protocol"
)

// Golden files are what older builds wrote. They are never edited: a file that is
// missing is written with -create, a file that exists is only read.
var createFlag = flag.Bool("create", false, "write golden files that do not exist yet")

// goldenEntries has one entry per kind and body version, each with what apply does
// in that kind.
func goldenEntries() map[string]fsm.Entry {
	member := system.Member{
		ID: "n1#7f3a", NodeID: "n1", PeerAddr: "10.0.0.1:7700", ClientURL: "ws://10.0.0.1:8080/ws",
		Status: system.StatusActive, SinceMillis: 1_700_000_000_123,
	}
	table := system.Table{Groups: []system.Placement{
		{Voters: []string{"n1#7f3a", "n2#0001"}, Preferred: "n2#0001", Leader: "n1#7f3a", LeaderTerm: 9},
		{Voters: []string{"n1#7f3a"}},
	}}
	full := command.Put{
		Map: "todos", Key: "a/ü", Origin: "n1/c42", Dedup: "client:op-1", Stamped: true, Overwrite: true,
		Record: protocol.Record{Value: []byte{0x81, 0xa1, 'x', 1}, TTLMillis: 86_400_000},
	}
	client := protocol.Timestamp{Millis: 1_700_000_000_000, Counter: 3, NodeID: "7b0e4d52-8f3a-4c55-9d0e-1f2a3b4c5d6e"}
	later := protocol.Timestamp{Millis: 1_700_000_000_001, NodeID: "n"}
	return map[string]fsm.Entry{
		"put.v1": entry(5, ts(1_700_000_000_500, 1),
			put("todos", "a", "text", client), put("todos", "b", "", client), command.EncodePut(full), command.EncodePut(full)),
		"member-put.v1": entry(6, ts(1_700_000_000_600, 0), command.EncodeMemberPut(0, member), command.EncodeMemberPut(0, member)),
		"table-put.v1":  entry(7, ts(1_700_000_000_700, 0), command.EncodeTablePut(0, table)),
		"genesis.v1": entry(8, ts(1_700_000_000_800, 0), command.EncodeGenesis(system.Genesis{
			ClusterID: "c-01", Groups: 7, ReplicationFactor: 3, Founder: "n1#7f3a", CreatedMillis: 1_700_000_000_000,
		})),
		"or-add.v1": entry(9, ts(1_700_000_000_900, 0), orAdd("labels", "a", "red", client), orAdd("labels", "a", "blue", later)),
		"or-remove.v1": entry(10, ts(1_700_000_001_000, 0),
			orRemove("labels", "a", client.String()), orRemove("labels", "gone", "unknown"), orRemoveHomeless("labels", "homeless")),
		"collect.v1": entry(11, ts(1_700_000_001_100, 0), command.EncodeCollect(command.Collect{
			ThroughMillis: 1_700_000_000_500, Graves: []string{goldenGrave},
		})),
	}
}

// goldenGrave lists the tombstone that put.v1 leaves.
const goldenGrave = "\x00\x00\x01\x8b\xcf\xe5i\xf4\x00\x00\x00\x00\x00\x00\x00\x05\x01\x05todosb"

// describe shows an entry with what it does to an empty system group.
func describe(t *testing.T, e fsm.Entry) string {
	r := newRig(t, fsm.SystemGroup)
	results := r.apply(e)
	var b strings.Builder
	fmt.Fprintf(&b, "entry %d %d %s\n", e.Index, e.Term, hex.EncodeToString(e.Data))
	for _, res := range results[0] {
		fmt.Fprintf(&b, "result %+v\n", res)
	}
	return b.String() + r.dump("todos", "labels")
}

// golden compares got with the file, or writes the file if it is allowed.
func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	want, err := os.ReadFile(path)
	if os.IsNotExist(err) && *createFlag {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

func TestEntriesOfEveryKindReadAndApplyAsEver(t *testing.T) {
	for name, e := range goldenEntries() {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join("testdata", "log", name+".golden")
			golden(t, path, []byte(describe(t, e)))
			// What is in the file, rather than what this build encodes.
			var stored fsm.Entry
			var data string
			file, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := fmt.Sscanf(string(file), "entry %d %d %s", &stored.Index, &stored.Term, &data); err != nil {
				t.Fatal(err)
			}
			if stored.Data, err = hex.DecodeString(data); err != nil {
				t.Fatal(err)
			}
			golden(t, path, []byte(describe(t, stored)))
		})
	}
}

func TestEveryKindHasAGoldenEntry(t *testing.T) {
	for kind, name := range fsm.CommandNames() {
		if name == "" {
			if kind != 0 {
				t.Errorf("kind %d has no row", kind)
			}
			continue
		}
		if got := command.Kind(kind).String(); got != name {
			t.Errorf("kind %d is %q in the table and %q in its own words", kind, name, got)
		}
		files, _ := filepath.Glob(filepath.Join("testdata", "log", name+".v*.golden"))
		if len(files) == 0 {
			t.Errorf("no golden entry of kind %s", name)
		}
	}
}

// goldenState is a small state with something in every section.
func goldenState(t *testing.T) *rig {
	r := newRig(t, fsm.SystemGroup)
	entries := goldenEntries()
	r.apply(
		fsm.Entry{Index: 1, Term: 1, Data: []byte("configuration"), Configuration: true},
		entries["put.v1"], entries["member-put.v1"], entries["table-put.v1"], entries["genesis.v1"],
		entries["or-add.v1"], entries["or-remove.v1"], entries["collect.v1"],
	)
	r.flush()
	return r
}

func TestSnapshotsOfEveryFormatRestoreAsEver(t *testing.T) {
	const version = "v1"
	state := goldenState(t)
	path := filepath.Join("testdata", "snapshot", version)
	golden(t, path+".snapshot", state.snapshot())
	golden(t, path+".golden", []byte(state.dump("todos", "labels")))

	file, err := os.ReadFile(path + ".snapshot")
	if err != nil {
		t.Fatal(err)
	}
	r := restored(t, fsm.SystemGroup, file)
	golden(t, path+".golden", []byte(r.dump("todos", "labels")))
	if again := r.snapshot(); !bytes.Equal(again, file) {
		t.Error("the restored state gives another snapshot")
	}
}

func TestEverySectionIsInTheGoldenSnapshot(t *testing.T) {
	file, err := os.ReadFile(filepath.Join("testdata", "snapshot", "v1.snapshot"))
	if err != nil {
		t.Fatal(err)
	}
	r := restored(t, fsm.SystemGroup, file)
	reader, err := r.store.NewReader()
	r.must(err)
	defer reader.Close()
	for number, name := range fsm.SectionNames() {
		section := storage.Section(number)
		if name == "" {
			if number != 0 {
				t.Errorf("section %d has no row", number)
			}
			continue
		}
		if section.String() != name {
			t.Errorf("section %d is %q in the table and %q in its own words", number, name, section)
		}
		items := 0
		r.must(reader.Scan(fsm.SystemGroup, section, "", "", func(string, []byte) bool { items++; return true }))
		if items == 0 {
			t.Errorf("the golden snapshot has nothing of section %s", name)
		}
	}
}
