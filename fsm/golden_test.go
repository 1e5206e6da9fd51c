package fsm_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/lock"
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
		"database-put.v1": entry(14, ts(1_700_000_001_400, 0),
			command.EncodeDatabasePut(system.Database{Instance: "db-01", Epoch: 2, Token: 70}),
			command.EncodeDatabasePut(system.Database{Instance: "db-02", Epoch: 3})),
		"adopt.v1": entry(15, ts(1_700_000_001_500, 0),
			command.EncodeAdopt(command.Adopt{Token: 70}), command.EncodeAdopt(command.Adopt{Token: 69, Complete: true})),
		"or-remove.v1": entry(10, ts(1_700_000_001_000, 0),
			orRemove("labels", "a", client.String()), orRemove("labels", "gone", "unknown"), orRemoveHomeless("labels", "homeless")),
		"collect.v1": entry(11, ts(1_700_000_001_100, 0), command.EncodeCollect(command.Collect{
			ThroughMillis: 1_700_000_000_500, Graves: []string{goldenGrave},
		})),
		"put.v1-fenced": entry(12, ts(1_700_000_001_200, 0), fenced(command.Put{Map: "todos", Key: "f", Record: record("new", ts(1_700_000_001_200, 0))}, 7),
			fenced(command.Put{Map: "todos", Key: "f", Record: record("old", ts(1_700_000_001_201, 0))}, 6)),
		"put.v1-guarded":      entry(13, ts(1_700_000_001_300, 0), guarded("a", "", "one", 1), guarded("a", "two", "two", 2), guarded("a", "one", "two", 2), guarded("a", "one", "late", 1)),
		"or-add.v2":           entry(13, ts(1_700_000_001_300, 0), fencedAdd("labels", "f", 8, later), fencedAdd("labels", "g", 7, client)),
		"or-remove.v1-fenced": entry(14, ts(1_700_000_001_400, 0), fencedRemove("labels", "f", 9, later.String())),
		"read.v1":             entry(15, ts(1_700_000_001_500, 0), command.Raw{Kind: command.KindRead, Version: 1}),
		"read.v2":             entry(30, ts(1_700_000_003_000, 0), request(1, 1, 0), command.EncodeRead()),
		"lock.v1":             entry(16, ts(1_700_000_001_600, 0), request(1, 1, 0), request(2, 2, 15_000), request(1, 3, 0), request(2, 2, 15_000), request(3, 4, 0)),
		"lock.v2":             entry(29, ts(1_700_000_002_900, 0), requestOnce(1, 1), requestOnce(2, 2), requestOnce(2, 2), requestOnce(1, 3)),
		"cancel.v1":           entry(17, ts(1_700_000_001_700, 0), command.EncodeLockRequest(command.KindCancel, waiting(3, 4, 0)), request(3, 4, 0)),
		"renew.v1":            entry(18, ts(1_700_000_001_800, 0), byToken(command.KindRenew, 1), byToken(command.KindRenew, 9)),
		"unlock.v1":           entry(19, ts(1_700_000_001_900, 0), request(5, 9, 0), byToken(command.KindUnlock, 1), byToken(command.KindUnlock, 1), byToken(command.KindUnlock, 9)),
		"expire.v1":           entry(20, ts(1_700_000_002_000, 0), request(6, 10, 9000), byToken(command.KindExpire, 2), byToken(command.KindUnlock, 2)),
		"beat.v1":             entry(21, ts(1_700_000_002_100, 0), request(7, 11, 0), session(command.KindBeat, 0, 0)),
		"end-session.v1":      entry(22, ts(1_700_000_002_200, 0), request(8, 12, 0), request(9, 13, 0), session(command.KindEndSession, 8, 0), request(8, 14, 0)),
		"end-gateway.v1":      entry(23, ts(1_700_000_002_300, 0), request(10, 15, 0), session(command.KindEndGateway, 0, 1), session(command.KindEndGateway, 0, 23), request(11, 16, 0)),
		"counter-merge.v1": entry(24, ts(1_700_000_002_400, 0), command.EncodeCounterMerge(command.CounterMerge{
			Name: "likes", Cells: []command.Cell{{Writer: "a", Positive: 2}, {Writer: "b", Positive: 0.5, Negative: 3}},
		})),
		"raise-tokens.v1": entry(26, ts(1_700_000_002_600, 0), request(12, 17, 0), command.EncodeRaiseTokens(command.RaiseTokens{By: 1 << 32}),
			byToken(command.KindUnlock, 1), request(12, 18, 0), command.EncodeRaiseTokens(command.RaiseTokens{By: fsm.MaxToken}), request(12, 18, 0)),
		"recover.v1": entry(27, ts(1_700_000_002_700, 0),
			command.EncodeGenesis(system.Genesis{ClusterID: "c-01", Groups: 2, ReplicationFactor: 3, Founder: "n1#7f3a", CreatedMillis: 1_700_000_000_000}),
			command.EncodeMemberPut(0, member), command.EncodeTablePut(0, table),
			command.EncodeMemberPut(0, system.Member{ID: "n2#0001", NodeID: "n2", Status: system.StatusFailed, SinceMillis: 1_700_000_000_123}),
			recovery("c-01", "n1#7f3a"), recovery("c-01.2", "n3#0001"), recovery("c-01.2", "n1#7f3a"), recovery("c-01.2", "n1#7f3a"),
			command.EncodeMemberPut(2, member)),
		"counter-add.v1": entry(25, ts(1_700_000_002_500, 0), firstAdd("likes", -1.25, "id"), firstAdd("likes", -1.25, "id"), firstAdd("likes", 4, "other")),
		"counter-add.v2": entry(28, ts(1_700_000_002_800, 0), add("likes", 2, "v2"), add("likes", 2, "v2"), add("likes", 3, "v2"), add("other", 2, "v2"), firstAdd("likes", 3, "v2"),
			addIn("c-01", 2, "2"), addIn("c-01.2", 4, "3"), addIn("c-01", 2, "2")),
		"counter-merge.v2": entry(29, ts(1_700_000_002_900, 0), addIn("c-01.2", 4, "3"), counterView{"$sys/adds": 1, "$sys/adds/c-01": 2, "$sys/adds/c-01.2": 9, "a": 3}.state("c-01.2")),
		"document-put.v1": entry(26, ts(1_700_000_002_600, 0), document(0, "policies", "[]"), document(0, "policies", "[]"), document(0, "policies", "[1]"), document(1, "policies", "[2]"),
			document(0, "", "")),
	}
}

func recovery(cluster, survivor string) command.Raw {
	return command.EncodeRecover(command.Recover{ClusterID: cluster, Survivor: survivor, SinceMillis: 1_700_000_002_000})
}

const goldenLock = "jobs/nightly"

func fenced(p command.Put, token uint64) command.Raw {
	p.Fence = command.Fence{Lock: goldenLock, Token: token}
	return command.EncodePut(p)
}

// guarded puts text where it expects another one.
func guarded(key, expected, text string, millis int64) command.Raw {
	p := command.Put{Map: "todos", Key: key, Record: record(text, ts(1_700_000_001_300+millis, 0)), Guard: command.GuardOf(nil)}
	if expected != "" {
		p.Guard = command.GuardOf(record(expected, protocol.Timestamp{}).Value)
	}
	return command.EncodePut(p)
}

func fencedAdd(mapName, key string, token uint64, ts protocol.Timestamp) command.Raw {
	c, _ := command.AppendORAdd(nil, command.ORAdd{
		Map: mapName, Key: key, Fence: command.Fence{Lock: goldenLock, Token: token},
		Record: protocol.ORRecord{Value: []byte{1}, Timestamp: ts, Tag: ts.String()},
	})
	return c
}

func fencedRemove(mapName, key string, token uint64, tag string) command.Raw {
	c, _ := command.AppendORRemove(nil, command.ORRemove{Map: mapName, Key: key, Tag: tag, Fence: command.Fence{Lock: goldenLock, Token: token}})
	return c
}

func waiting(session, id uint64, ttlMillis int64) command.LockRequest {
	return command.LockRequest{Name: goldenLock, Request: lock.Request{
		Session: lock.Session{Gateway: "n1/boot", Number: session}, ID: id, TTLMillis: ttlMillis,
	}}
}

// request is a request as the first version had it.
func request(session, id uint64, ttlMillis int64) command.Raw {
	c := command.EncodeLockRequest(command.KindLock, waiting(session, id, ttlMillis))
	c.Version = 1
	return c
}

func requestOnce(session, id uint64) command.Raw {
	return command.EncodeLockRequest(command.KindLock, waiting(session, id, 0))
}

func byToken(kind command.Kind, token uint64) command.Raw {
	return command.EncodeLockToken(kind, command.LockToken{Name: goldenLock, Token: token, TTLMillis: 30_000})
}

func session(kind command.Kind, number, beat uint64) command.Raw {
	return command.EncodeLockSession(kind, command.LockSession{Session: lock.Session{Gateway: "n1/boot", Number: number}, Beat: beat})
}

func add(name string, delta float64, dedup string) command.Raw {
	return command.EncodeCounterAdd(command.CounterAdd{Name: name, Delta: delta, Dedup: dedup})
}

// firstAdd is an addition as the first version had it.
func firstAdd(name string, delta float64, dedup string) command.Raw {
	c := add(name, delta, dedup)
	c.Version, c.Body = 1, c.Body[1:] // without life
	return c
}

func document(base uint64, name, value string) command.Raw {
	return command.EncodeDocumentPut(base, system.Document{Name: name, Value: []byte(value)})
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
		fmt.Fprintf(&b, "result {Index:%d Code:%d Reason:%s Changed:%v}", res.Index, res.Code, res.Reason, res.Changed)
		if res.Value != nil {
			fmt.Fprintf(&b, " %x", res.Value)
		}
		b.WriteString("\n")
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

// Commands that the leader lets into the log are those that its state machine applies.
func TestWhatPassesTheCheckIsApplied(t *testing.T) {
	newest := map[command.Kind]uint8{}
	for name, e := range goldenEntries() {
		entry, err := command.DecodeEntry(e.Data)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range entry.Commands {
			if err := command.Check(c); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			newest[c.Kind] = max(newest[c.Kind], c.Version)
		}
	}
	for kind := command.Kind(0); kind < command.Ignorable; kind++ {
		for _, version := range []uint8{0, newest[kind] + 1, 255} {
			c := command.Raw{Kind: kind, Version: version}
			if err := command.Check(c); !errors.Is(err, command.ErrFormat) && !errors.Is(err, command.ErrMalformed) {
				t.Errorf("%s version %d: %v", kind, version, err)
			}
		}
	}
	if err := command.Check(command.Raw{Kind: command.Ignorable + 1, Version: 9}); err != nil {
		t.Error(err)
	}
}

func TestEveryKindHasAGoldenEntry(t *testing.T) {
	for kind, name := range fsm.CommandNames() {
		if name == "" {
			// A number that no build has used yet has no name either.
			if got := command.Kind(kind).String(); kind != 0 && got != fmt.Sprintf("kind(%d)", kind) {
				t.Errorf("kind %d, %s, has no row", kind, got)
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

// goldenVersion is the present state of the snapshots: v2 has locks and counters, v3 the
// outcomes of additions in a section of their own, v4 what they were outcomes of.
const goldenVersion = "v4"

// goldenState is a small state with something in every section.
func goldenState(t *testing.T) *rig {
	r := newRig(t, fsm.SystemGroup)
	entries := goldenEntries()
	r.apply(
		fsm.Entry{Index: 1, Term: 1, Data: []byte("configuration"), Configuration: true},
		entries["put.v1"], entries["member-put.v1"], entries["table-put.v1"], entries["genesis.v1"],
		entries["or-add.v1"], entries["or-remove.v1"], entries["collect.v1"],
		entries["put.v1-fenced"], entries["lock.v1"], entries["counter-add.v1"],
		entries["counter-add.v2"],
	)
	r.flush()
	return r
}

func TestSnapshotsOfEveryFormatRestoreAsEver(t *testing.T) {
	path := filepath.Join("testdata", "snapshot")
	state := goldenState(t)
	golden(t, filepath.Join(path, goldenVersion+".snapshot"), state.snapshot())
	golden(t, filepath.Join(path, goldenVersion+".golden"), []byte(state.dump("todos", "labels")))
	for _, version := range []string{"v1", "v2", "v3", goldenVersion} {
		file, err := os.ReadFile(filepath.Join(path, version+".snapshot"))
		if err != nil {
			t.Fatal(err)
		}
		r := restored(t, fsm.SystemGroup, file)
		golden(t, filepath.Join(path, version+".golden"), []byte(r.dump("todos", "labels")))
		if again := r.snapshot(); !bytes.Equal(again, file) {
			t.Errorf("the state restored from %s gives another snapshot", version)
		}
	}
}

func TestEverySectionIsInTheGoldenSnapshot(t *testing.T) {
	file, err := os.ReadFile(filepath.Join("testdata", "snapshot", goldenVersion+".snapshot"))
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
			if number != 0 && !strings.HasPrefix(section.String(), "section(") {
				t.Errorf("%s has no row", section)
			}
			continue
		}
		if section.String() != name {
			t.Errorf("section %d is %q in the table and %q in its own words", number, name, section)
		}
		items := 0
		r.must(reader.Scan(fsm.SystemGroup, section, "", "", func(string, []byte) bool { items++; return true }))
		if items == 0 && section != storage.SectionLeaves { // derived, so not in snapshots
			t.Errorf("the golden snapshot has nothing of section %s", name)
		}
	}
}
