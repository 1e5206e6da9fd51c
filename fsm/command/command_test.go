package command_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/lock"
	"github.com/quorate/quorate/fsm/system"
	"github.com/quorate/quorate/protocol"
)

func stamps() *rapid.Generator[protocol.Timestamp] {
	return rapid.Custom(func(t *rapid.T) protocol.Timestamp {
		return protocol.Timestamp{
			Millis: rapid.Int64().Draw(t, "millis"), Counter: rapid.Int64().Draw(t, "counter"), NodeID: rapid.String().Draw(t, "node"),
		}
	})
}

func puts() *rapid.Generator[command.Put] {
	return rapid.Custom(func(t *rapid.T) command.Put {
		text := func(label string) string { return string(rapid.SliceOf(rapid.Byte()).Draw(t, label)) }
		p := command.Put{
			Map: text("map"), Key: text("key"), Dedup: text("dedup"), Origin: text("origin"),
			Stamped: rapid.Bool().Draw(t, "stamped"), Overwrite: rapid.Bool().Draw(t, "overwrite"),
		}
		p.Record.Timestamp = stamps().Draw(t, "stamp")
		p.Record.TTLMillis = rapid.Int64().Draw(t, "ttl")
		p.Record.Value = rapid.SliceOf(rapid.Byte()).Draw(t, "value")
		if p.Record.IsTombstone() {
			p.Record.Value = nil
		}
		return p
	})
}

// decodeOne sends a command through an entry and back.
func decodeOne(t interface{ Fatal(...any) }, c command.Raw) command.Raw {
	e, err := command.DecodeEntry(command.AppendEntry([]byte("front"), protocol.Timestamp{}, []command.Raw{c})[len("front"):])
	if err != nil {
		t.Fatal(err)
	}
	return e.Commands[0]
}

func TestPutsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := puts().Draw(t, "put")
		got, err := command.DecodePut(decodeOne(t, command.EncodePut(want)))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("put (-want +got):\n%s", diff)
		}
	})
}

func TestAMsgPackNilIsATombstone(t *testing.T) {
	got, err := command.DecodePut(command.EncodePut(command.Put{Record: protocol.Record{Value: []byte{0xc0}}}))
	if err != nil || got.Record.Value != nil {
		t.Errorf("record %+v, %v; want no value", got.Record, err)
	}
}

func TestEntriesReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := command.Entry{Stamp: stamps().Draw(t, "stamp")}
		for range rapid.IntRange(0, 5).Draw(t, "commands") {
			want.Commands = append(want.Commands, command.Raw{
				Kind:    command.Kind(rapid.IntRange(1, 255).Draw(t, "kind")),
				Version: rapid.Byte().Draw(t, "version"),
				Body:    rapid.SliceOf(rapid.Byte()).Draw(t, "body"),
			})
		}
		encoded := command.AppendEntry(nil, want.Stamp, want.Commands)
		got, err := command.DecodeEntry(encoded)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("entry (-want +got):\n%s", diff)
		}
		cut := rapid.IntRange(0, len(encoded)-1).Draw(t, "cut")
		if _, err := command.DecodeEntry(encoded[:cut]); !errors.Is(err, command.ErrMalformed) {
			t.Fatalf("an entry cut at %d of %d: %v, want ErrMalformed", cut, len(encoded), err)
		}
	})
}

func TestResultsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var want []command.Result
		for range rapid.IntRange(0, 5).Draw(t, "results") {
			want = append(want, command.Result{
				Index: rapid.Uint64().Draw(t, "index"), Code: protocol.Code(rapid.Uint16().Draw(t, "code")),
				Reason: rapid.String().Draw(t, "reason"), Changed: rapid.Bool().Draw(t, "changed"),
			})
		}
		got, err := command.DecodeResults(command.EncodeResults(want))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("results (-want +got):\n%s", diff)
		}
	})
}

func TestSystemCommandsReadBack(t *testing.T) {
	member := system.Member{ID: "a#1", NodeID: "a", PeerAddr: "h:1", ClientURL: "ws://h/ws", Status: system.StatusLeaving, SinceMillis: -5, Version: 9}
	base, gotMember, err := command.DecodeMemberPut(decodeOne(t, command.EncodeMemberPut(8, member)))
	if err != nil || base != 8 || gotMember != member {
		t.Errorf("member put %d, %+v, %v", base, gotMember, err)
	}
	table := system.Table{Version: 3, Groups: []system.Placement{{}, {Voters: []string{"a#1", "b#2"}, Preferred: "b#2", Leader: "a#1", LeaderTerm: 77}}}
	tableBase, gotTable, err := command.DecodeTablePut(decodeOne(t, command.EncodeTablePut(2, table)))
	if err != nil || tableBase != 2 || !cmp.Equal(gotTable, table) {
		t.Errorf("table put %d, %+v, %v", tableBase, gotTable, err)
	}
	genesis := system.Genesis{ClusterID: "c", Groups: 7, ReplicationFactor: 3, Founder: "a#1", CreatedMillis: 12}
	gotGenesis, err := command.DecodeGenesis(decodeOne(t, command.EncodeGenesis(genesis)))
	if err != nil || gotGenesis != genesis {
		t.Errorf("genesis %+v, %v", gotGenesis, err)
	}
}

func TestStampAdvancesByPosition(t *testing.T) {
	e := command.Entry{Stamp: protocol.Timestamp{Millis: 5, Counter: 40, NodeID: "n"}}
	if got, want := command.Stamp(e, 3), (protocol.Timestamp{Millis: 5, Counter: 43, NodeID: "n"}); got != want {
		t.Errorf("stamp %v, want %v", got, want)
	}
}

func TestUnreadableBytesAreTypedErrors(t *testing.T) {
	head := append([]byte{1}, 0, 0, 0) // format, stamp
	count := func(n uint64) []byte { return binary.AppendUvarint(bytes.Clone(head), n) }
	entries := []struct {
		name  string
		entry []byte
		want  error
	}{
		{"empty", nil, command.ErrMalformed},
		{"zeroed", make([]byte, 100), command.ErrMalformed},
		{"newer format", []byte{2, 0, 0, 0, 0}, command.ErrFormat},
		{"kind 0", append(count(1), 0, 1, 0), command.ErrMalformed},
		{"more commands than bytes", append(count(1<<40), 1, 1, 0), command.ErrMalformed},
		{"body beyond the end", append(count(1), 1, 1, 200, 1), command.ErrMalformed},
		{"bytes left over", append(count(0), 7), command.ErrMalformed},
	}
	for _, tc := range entries {
		if _, err := command.DecodeEntry(tc.entry); !errors.Is(err, tc.want) {
			t.Errorf("entry, %s: error %v, want %v", tc.name, err, tc.want)
		}
	}
	bodies := []struct {
		name string
		raw  command.Raw
		want error
	}{
		{"version 0", command.Raw{Kind: command.KindPut}, command.ErrMalformed},
		{"newer version", command.Raw{Kind: command.KindPut, Version: 2}, command.ErrFormat},
		{"empty", command.Raw{Kind: command.KindPut, Version: 1}, command.ErrMalformed},
		{"unknown flag", command.Raw{Kind: command.KindPut, Version: 1, Body: append([]byte{0x80}, make([]byte, 20)...)}, command.ErrMalformed},
		{"texts beyond the end", command.Raw{Kind: command.KindPut, Version: 1, Body: []byte{0, 0, 0, 0, 3, 3, 3, 0, 0, 'a', 'b', 'c', 'd'}}, command.ErrMalformed},
	}
	for _, tc := range bodies {
		if _, err := command.DecodePut(tc.raw); !errors.Is(err, tc.want) {
			t.Errorf("put, %s: error %v, want %v", tc.name, err, tc.want)
		}
	}
	for name, b := range map[string][]byte{"empty": nil, "endless": {1, 0xff, 0xff, 0xff, 0xff, 0x7f}, "bad flag": {1, 1, 0, 0, 2, 0}, "wide code": {1, 1, 0, 0xff, 0xff, 0xff, 0x7f, 0, 0}} {
		if _, err := command.DecodeResults(b); !errors.Is(err, command.ErrMalformed) {
			t.Errorf("results, %s: error %v, want ErrMalformed", name, err)
		}
	}
	if _, err := command.DecodeResults([]byte{9, 0}); !errors.Is(err, command.ErrFormat) {
		t.Errorf("results of a newer format: error %v, want ErrFormat", err)
	}
}

// FuzzDecodeEntry feeds arbitrary bytes through every decoder that a committed
// entry reaches.
func FuzzDecodeEntry(f *testing.F) {
	f.Add([]byte{})
	f.Add(command.AppendEntry(nil, protocol.Timestamp{Millis: 1, NodeID: "n"}, []command.Raw{
		command.EncodePut(command.Put{Map: "m", Key: "k", Record: protocol.Record{Value: []byte{1}}}),
		command.EncodeMemberPut(1, system.Member{ID: "a#1"}),
		command.EncodeTablePut(1, system.Table{Groups: []system.Placement{{Voters: []string{"a"}}}}),
		command.EncodeGenesis(system.Genesis{ClusterID: "c"}), orAdd(command.ORAdd{Map: "m", Key: "k", Record: protocol.ORRecord{Tag: "t"}}),
		orRemove(command.ORRemove{Map: "m", Tag: "t", Homeless: true}), command.EncodeCollect(command.Collect{ThroughMillis: 7, Graves: []string{"a", ""}}),
		command.EncodeDocumentPut(3, system.Document{Name: "settings", Version: 3, Value: []byte("{}")}),
		command.EncodeRead(), command.EncodeLockRequest(command.KindLock, command.LockRequest{Name: "l", Request: lock.Request{Session: lock.Session{Gateway: "g", Number: 1}, ID: 2, TTLMillis: 3}}),
		command.EncodeLockToken(command.KindRenew, command.LockToken{Name: "l", Token: 1, Lease: 2, TTLMillis: 3}),
		command.EncodeLockSession(command.KindBeat, command.LockSession{Session: lock.Session{Gateway: "g"}, Beat: 1}),
		command.EncodeCounterMerge(command.CounterMerge{Name: "c", Cells: []command.Cell{{Writer: "a", Positive: 1}, {Writer: "b", Negative: 0.5}}}),
		command.EncodeCounterAdd(command.CounterAdd{Name: "c", Delta: -1, Dedup: "d"}),
		command.EncodeCounterAdd(command.CounterAdd{Life: "l", Name: "c", Delta: -1, Dedup: "d"}),
		command.EncodeCounterMerge(command.CounterMerge{Life: "l", Name: "c", Cells: []command.Cell{{Writer: "a", Positive: 1}}}),
		command.EncodeRaiseTokens(command.RaiseTokens{By: 1 << 32}), command.EncodeRecover(command.Recover{ClusterID: "c", Survivor: "a#1", SinceMillis: 7}),
		command.EncodeDatabasePut(system.Database{Instance: "i", Epoch: 1, Token: 2}), command.EncodeAdopt(command.Adopt{Token: 7, Complete: true}),
		command.EncodePut(command.Put{Map: "m", Key: "k", Fence: command.Fence{Lock: "l", Token: 7}}),
		orAdd(command.ORAdd{Map: "m", Key: "k", Fence: command.Fence{Lock: "l", Token: 7}}), orRemove(command.ORRemove{Map: "m", Tag: "t", Fence: command.Fence{Lock: "l", Token: 7}}),
	}))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := command.DecodeEntry(b)
		if err != nil {
			if !errors.Is(err, command.ErrMalformed) && !errors.Is(err, command.ErrFormat) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		again, err := command.DecodeEntry(command.AppendEntry(nil, e.Stamp, e.Commands))
		if err != nil || !cmp.Equal(e, again, cmpopts.EquateEmpty()) {
			t.Fatalf("entry does not read back: %v", err)
		}
		for _, c := range e.Commands {
			decodeBody(t, c)
		}
	})
}

func decodeBody(t *testing.T, c command.Raw) {
	var err error
	switch c.Kind {
	case command.KindMemberPut:
		_, _, err = command.DecodeMemberPut(c)
	case command.KindTablePut:
		_, _, err = command.DecodeTablePut(c)
	case command.KindGenesis:
		_, err = command.DecodeGenesis(c)
	case command.KindDocumentPut:
		var base uint64
		var m system.Document
		base, m, err = command.DecodeDocumentPut(c)
		readsBack(t, err, m, func() (any, error) {
			_, again, err := command.DecodeDocumentPut(command.EncodeDocumentPut(base, m))
			return again, err
		})
	case command.KindCollect:
		var m command.Collect
		if m, err = command.DecodeCollect(c); err == nil {
			if again, err := command.DecodeCollect(command.EncodeCollect(m)); err != nil || !cmp.Equal(m, again, cmpopts.EquateEmpty()) {
				t.Fatalf("collect does not read back: %v", err)
			}
		}
	case command.KindORAdd:
		var a command.ORAdd
		if a, err = command.DecodeORAdd(c); err == nil {
			if again, err := command.DecodeORAdd(orAdd(a)); err != nil || !cmp.Equal(a, again, cmpopts.EquateEmpty()) {
				t.Fatalf("or-add does not read back: %v", err)
			}
		}
	case command.KindORRemove:
		var m command.ORRemove
		if m, err = command.DecodeORRemove(c); err == nil {
			if again, err := command.DecodeORRemove(orRemove(m)); err != nil || again != m {
				t.Fatalf("or-remove does not read back: %v", err)
			}
		}
	case command.KindRead:
		err = command.CheckRead(c)
	case command.KindDatabasePut:
		var d system.Database
		d, err = command.DecodeDatabasePut(c)
		readsBack(t, err, d, func() (any, error) { return command.DecodeDatabasePut(command.EncodeDatabasePut(d)) })
	case command.KindAdopt:
		var a command.Adopt
		a, err = command.DecodeAdopt(c)
		readsBack(t, err, a, func() (any, error) { return command.DecodeAdopt(command.EncodeAdopt(a)) })
	case command.KindLock, command.KindCancel:
		var m command.LockRequest
		m, err = command.DecodeLockRequest(c)
		readsBack(t, err, m, func() (any, error) { return command.DecodeLockRequest(command.EncodeLockRequest(c.Kind, m)) })
	case command.KindUnlock, command.KindExpire, command.KindRenew:
		var m command.LockToken
		m, err = command.DecodeLockToken(c)
		readsBack(t, err, m, func() (any, error) { return command.DecodeLockToken(command.EncodeLockToken(c.Kind, m)) })
	case command.KindEndSession, command.KindBeat, command.KindEndGateway:
		var m command.LockSession
		m, err = command.DecodeLockSession(c)
		readsBack(t, err, m, func() (any, error) { return command.DecodeLockSession(command.EncodeLockSession(c.Kind, m)) })
	case command.KindCounterMerge:
		var m command.CounterMerge
		m, err = command.DecodeCounterMerge(c)
		readsBack(t, err, m, func() (any, error) { return command.DecodeCounterMerge(command.EncodeCounterMerge(m)) })
	case command.KindCounterAdd:
		var m command.CounterAdd
		m, err = command.DecodeCounterAdd(c)
		readsBack(t, err, m, func() (any, error) { return command.DecodeCounterAdd(command.EncodeCounterAdd(m)) })
	case command.KindRaiseTokens:
		var m command.RaiseTokens
		m, err = command.DecodeRaiseTokens(c)
		readsBack(t, err, m, func() (any, error) { return command.DecodeRaiseTokens(command.EncodeRaiseTokens(m)) })
	case command.KindRecover:
		var m command.Recover
		m, err = command.DecodeRecover(c)
		readsBack(t, err, m, func() (any, error) { return command.DecodeRecover(command.EncodeRecover(m)) })
	default:
		var p command.Put
		if p, err = command.DecodePut(c); err == nil {
			again, err := command.DecodePut(command.EncodePut(p))
			if err != nil || !cmp.Equal(p, again) {
				t.Fatalf("put does not read back: %v", err)
			}
		}
	}
	if err != nil && !errors.Is(err, command.ErrMalformed) && !errors.Is(err, command.ErrFormat) {
		t.Fatalf("untyped error %v", err)
	}
}

// readsBack holds that what was decoded without an error is decoded as equal again.
func readsBack(t *testing.T, err error, m any, again func() (any, error)) {
	t.Helper()
	if err != nil {
		return
	}
	if back, err := again(); err != nil || !cmp.Equal(m, back, cmpopts.EquateEmpty()) {
		t.Fatalf("%+v reads back as %+v: %v", m, back, err)
	}
}

func orAdd(a command.ORAdd) command.Raw {
	c, _ := command.AppendORAdd(nil, a)
	return c
}

func orRemove(m command.ORRemove) command.Raw {
	c, _ := command.AppendORRemove(nil, m)
	return c
}

func FuzzDecodeResults(f *testing.F) {
	f.Add(command.EncodeResults([]command.Result{{Index: 3, Code: 409, Reason: "stale"}, {Changed: true}}))
	f.Add(command.EncodeResults([]command.Result{{Index: 3}, {Index: 4, Value: []byte{1, 2}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		typed := func(err error) {
			if err != nil && !errors.Is(err, command.ErrMalformed) && !errors.Is(err, command.ErrFormat) {
				t.Fatalf("untyped error %v", err)
			}
		}
		results, err := command.DecodeResults(b)
		if typed(err); err != nil {
			return
		}
		for _, res := range results {
			_, err := command.DecodeOutcome(res.Value)
			typed(err)
			_, err = command.DecodeGreatestToken(res.Value)
			typed(err)
			_, err = command.DecodeTotal(res.Value)
			typed(err)
		}
		again, err := command.DecodeResults(command.EncodeResults(results))
		if err != nil || !cmp.Equal(results, again, cmpopts.EquateEmpty()) {
			t.Fatalf("results do not read back: %v", err)
		}
	})
}

func BenchmarkDecodePut(b *testing.B) {
	raw := command.EncodePut(command.Put{Map: "todos", Key: "key-1", Origin: "n1/c1", Record: protocol.Record{
		Value: make([]byte, 100), Timestamp: protocol.Timestamp{Millis: 1, NodeID: "7b0e4d52-8f3a-4c55-9d0e-1f2a3b4c5d6e"},
	}})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := command.DecodePut(raw); err != nil {
			b.Fatal(err)
		}
	}
}
