package judge

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/protocol"
)

func TestRefusals(t *testing.T) {
	limits := Limits{MaxValueBytes: 1 << 20, Timeout: time.Second}
	good := protocol.ClientOp{
		ID: "1", MapName: "m", Key: "k", Type: protocol.OpPut, RecordPresence: protocol.Present,
		Record: protocol.Record{Value: []byte{1}, Timestamp: protocol.Timestamp{Millis: 1, NodeID: "c"}},
	}
	with := func(change func(*protocol.ClientOp)) protocol.ClientOp {
		op := good
		change(&op)
		return op
	}
	name := func(n string) protocol.ClientOp { return with(func(o *protocol.ClientOp) { o.MapName = n }) }
	add := func(rec protocol.ORRecord) protocol.ClientOp {
		return protocol.ClientOp{ID: "1", MapName: "m", Key: "k", ORRecord: &rec}
	}
	cases := []struct {
		name string
		op   protocol.ClientOp
		code protocol.Code
	}{
		{"good", good, 0},
		{"map name with everything clients use", name("Org-1/users_2.x:y é 😀"), 0},
		{"map name at the bound", name(strings.Repeat("m", 255)), 0},
		{"empty key", with(func(o *protocol.ClientOp) { o.Key = "" }), 0},
		{"key at the bound", with(func(o *protocol.ClientOp) { o.Key = strings.Repeat("k", 1024) }), 0},
		{"key with a NUL and dots", with(func(o *protocol.ClientOp) { o.Key = "a\x00/../b" }), 0},
		{"value at the bound", with(func(o *protocol.ClientOp) { o.Record.Value = msgp.AppendBytes(nil, make([]byte, 1<<20-5)) }), 0},
		{"remove of a large record", with(func(o *protocol.ClientOp) {
			o.Type, o.Record.Value = protocol.OpRemove, msgp.AppendBytes(nil, make([]byte, 1<<20))
		}), 0},

		{"undecodable", protocol.ClientOp{ID: "1", Err: &protocol.DecodeError{Field: "record", Err: protocol.ErrType}}, 400},
		{"long id", with(func(o *protocol.ClientOp) { o.ID = strings.Repeat("1", 256) }), 400},
		{"no map name", name(""), 400},
		{"long map name", name(strings.Repeat("m", 256)), 400},
		{"huge map name", name(strings.Repeat("m", 1<<20)), 400},
		{"control character in the map name", name("a\nb"), 400},
		{"NUL in the map name", name("a\x00b"), 400},
		{"invalid UTF-8 in the map name", name("a\xff"), 400},
		{"long key", with(func(o *protocol.ClientOp) { o.Key = strings.Repeat("k", 1025) }), 400},
		{"huge key", with(func(o *protocol.ClientOp) { o.Key = strings.Repeat("k", 1<<20) }), 400},
		{"invalid UTF-8 in the key", with(func(o *protocol.ClientOp) { o.Key = "\xc3\x28" }), 400},
		{"long node id", with(func(o *protocol.ClientOp) { o.Record.Timestamp.NodeID = strings.Repeat("n", 256) }), 400},
		{"long node id of the operation", with(func(o *protocol.ClientOp) { o.Timestamp.NodeID = strings.Repeat("n", 256) }), 400},
		{"put without record", with(func(o *protocol.ClientOp) { o.RecordPresence = protocol.Absent }), 400},
		{"put of nil", with(func(o *protocol.ClientOp) { o.RecordPresence = protocol.Nil }), 400},
		{"nothing at all", protocol.ClientOp{ID: "1", MapName: "m", Key: "k"}, 400},
		{"reserved $sys", name("$sys/members"), 403},
		{"reserved in capitals", name("$SyS/members"), 403},
		{"reserved single", name("_Service_x"), 403},
		{"reserved double", name("__SERVICE_"), 403},
		{"value too large", with(func(o *protocol.ClientOp) { o.Record.Value = msgp.AppendBytes(nil, make([]byte, 1<<20)) }), 413},
		{"unknown type", with(func(o *protocol.ClientOp) { o.Type = "DELETE" }), 422},
		{"add without record", with(func(o *protocol.ClientOp) { o.Type = protocol.OpORAdd }), 400},
		{"add without tag", protocol.ClientOp{ID: "1", MapName: "m", Key: "k", ORRecord: &protocol.ORRecord{}}, 400},
		{"add with a long tag", add(protocol.ORRecord{Tag: strings.Repeat("t", 513)}), 400},
		{"add with a tag that is not text", add(protocol.ORRecord{Tag: "\xff"}), 400},
		{"add with a long node id", add(protocol.ORRecord{Tag: "t", Timestamp: protocol.Timestamp{NodeID: strings.Repeat("n", 256)}}), 400},
		{"add of a large value", add(protocol.ORRecord{Tag: "t", Value: msgp.AppendBytes(nil, make([]byte, 1<<20))}), 413},
		{"add of a bin that is long as text", add(protocol.ORRecord{Tag: "t", Value: msgp.AppendBytes(nil, make([]byte, 1<<20-5))}), 413},
		{"add of a text at the bound", add(protocol.ORRecord{Tag: "t", Value: msgp.AppendString(nil, strings.Repeat("x", 1<<20-5))}), 0},
		{"remove without tag", with(func(o *protocol.ClientOp) { o.Type = protocol.OpORRemove }), 400},
		{"inferred add", add(protocol.ORRecord{Tag: "t"}), 0},
		{"inferred remove of a tag", protocol.ClientOp{ID: "1", MapName: "m", Key: "k", ORTag: "t"}, 0},
		{"fenced", with(func(o *protocol.ClientOp) { o.Fence = &protocol.Fence{Lock: "jobs/a-1", Token: 1} }), 0},
		{"fenced by nothing", with(func(o *protocol.ClientOp) { o.Fence = &protocol.Fence{Token: 1} }), 400},
		{"fenced by a long name", with(func(o *protocol.ClientOp) { o.Fence = &protocol.Fence{Lock: strings.Repeat("l", 257)} }), 400},
		{"fenced by an odd name", with(func(o *protocol.ClientOp) { o.Fence = &protocol.Fence{Lock: "a b"} }), 400},
		{"not reserved", name("service_x"), 0},
		{"not reserved either", name("$system/"), 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := limits.Op(&c.op)
			require.Equal(t, c.code, r.Code, r.Reason)
			require.Equal(t, c.code != 0, r.Reason != "")
		})
	}
}
