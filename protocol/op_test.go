package protocol_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/protocol"
)

func TestOperationIsReadInFull(t *testing.T) {
	op := decodeAs[*protocol.ClientOpMessage](t, clientOpFrame(t, m{
		"record":       m{"value": m{"a": 1}, "timestamp": stamp(), "ttlMs": 5000.0},
		"writeConcern": "PERSISTED", "timeout": 250, "timestamp": stamp(), "synced": false,
		"fence": m{"lock": "jobs", "token": 9.0},
	})).Op
	at := protocol.Timestamp{Millis: 1760000000123, NodeID: "9b1c"}
	require.Equal(t, protocol.ClientOp{
		ID: "7", MapName: "todos", Key: "k", Type: protocol.OpPut,
		Record:         protocol.Record{Value: pack(t, m{"a": 1}), Timestamp: at, TTLMillis: 5000},
		RecordPresence: protocol.Present, WriteConcern: protocol.LevelPersisted, TimeoutMillis: 250,
		Timestamp: at, Fence: &protocol.Fence{Lock: "jobs", Token: 9},
	}, op)
}

func TestPresenceOfRecord(t *testing.T) {
	op := m{"id": "7", "mapName": "todos", "key": "k", "record": nil}
	decode := func() protocol.ClientOp {
		return decodeAs[*protocol.ClientOpMessage](t, pack(t, m{"type": "CLIENT_OP", "payload": op})).Op
	}
	require.Equal(t, protocol.Nil, decode().RecordPresence)
	delete(op, "record")
	require.Equal(t, protocol.Absent, decode().RecordPresence)
	op["record"] = m{"value": nil}
	require.Equal(t, protocol.Present, decode().RecordPresence)
	require.True(t, decode().Record.IsTombstone())
}

func TestMalformedOperationKeepsItsIDAndNothingElseFails(t *testing.T) {
	good := m{"id": "1", "mapName": "m", "key": "k", "opType": "PUT", "record": m{"value": 1, "timestamp": stamp()}}
	with := func(changes m) m {
		return changed(m{"id": "2", "mapName": "m", "key": "k", "opType": "PUT", "record": m{"value": 1}}, changes)
	}
	for name, tt := range map[string]struct {
		op    any
		want  error
		field string
		id    string
	}{
		"no map":             {with(m{"mapName": nil}), protocol.ErrMissing, "mapName", "2"},
		"no key":             {with(m{"key": nil}), protocol.ErrMissing, "key", "2"},
		"key not UTF-8":      {with(m{"key": "\xff"}), protocol.ErrText, "key", "2"},
		"map not UTF-8":      {with(m{"mapName": "\xed\xa0\x80"}), protocol.ErrText, "mapName", "2"},
		"key is int":         {with(m{"key": 5}), protocol.ErrType, "key", "2"},
		"level unknown":      {with(m{"writeConcern": "SURE"}), protocol.ErrValue, "writeConcern", "2"},
		"negative millis":    {with(m{"timestamp": m{"millis": -5, "counter": 0, "nodeId": "n"}}), protocol.ErrRange, "timestamp.millis", "2"},
		"fraction":           {with(m{"timestamp": m{"millis": 1.5, "counter": 0, "nodeId": "n"}}), protocol.ErrRange, "timestamp.millis", "2"},
		"counter 2^53":       {with(m{"timestamp": m{"millis": 1, "counter": uint64(1 << 53), "nodeId": "n"}}), protocol.ErrRange, "timestamp.counter", "2"},
		"colon in node":      {with(m{"timestamp": m{"millis": 1, "counter": 0, "nodeId": "a:b"}}), protocol.ErrValue, "timestamp.nodeId", "2"},
		"half a timestamp":   {with(m{"record": m{"timestamp": m{"millis": 1}}}), protocol.ErrMissing, "record.timestamp.counter", "2"},
		"record is text":     {with(m{"record": "x"}), protocol.ErrType, "record", "2"},
		"ttl negative":       {with(m{"record": m{"ttlMs": -1}}), protocol.ErrRange, "record.ttlMs", "2"},
		"or record no tag":   {with(m{"orRecord": m{"timestamp": stamp()}}), protocol.ErrMissing, "orRecord.tag", "2"},
		"fence without lock": {with(m{"fence": m{"token": 1}}), protocol.ErrMissing, "fence.lock", "2"},
		"id is int":          {with(m{"id": 2}), protocol.ErrType, "id", ""},
		"not a map":          {"op", protocol.ErrType, "", ""},
		"nil":                {nil, protocol.ErrType, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			batch := decodeAs[*protocol.OpBatch](t, pack(t, m{"type": "OP_BATCH", "payload": m{"ops": []any{good, tt.op, good}}}))
			require.Len(t, batch.Ops, 3)
			require.NoError(t, batch.Ops[0].Err)
			require.Equal(t, batch.Ops[0], batch.Ops[2], "the operation after the malformed one")
			require.Equal(t, tt.id, batch.Ops[1].ID)
			var de *protocol.DecodeError
			require.ErrorAs(t, batch.Ops[1].Err, &de)
			require.ErrorIs(t, de, tt.want)
			require.Equal(t, tt.field, de.Field)
		})
	}
}

func TestIDIsFoundBehindAFault(t *testing.T) {
	b := msgp.AppendString(msgp.AppendMapHeader(nil, 2), "type")
	b = msgp.AppendMapHeader(msgp.AppendString(msgp.AppendString(b, "CLIENT_OP"), "payload"), 2)
	b = msgp.AppendInt(msgp.AppendString(b, "key"), 1)
	b = msgp.AppendString(msgp.AppendString(b, "id"), "42")
	msg := decodeAs[*protocol.ClientOpMessage](t, b)
	require.ErrorIs(t, msg.Op.Err, protocol.ErrType)
	require.Equal(t, "42", msg.Correlation())
}

func TestBatchIsRefusedAsAWhole(t *testing.T) {
	tooMany := make([]any, protocol.MaxBatchOps+1)
	for name, tt := range map[string]struct {
		payload any
		want    error
		code    protocol.Code
	}{
		"no ops":      {m{}, protocol.ErrMissing, protocol.CodeMalformed},
		"ops a map":   {m{"ops": m{}}, protocol.ErrType, protocol.CodeMalformed},
		"odd level":   {m{"ops": []any{}, "writeConcern": "X"}, protocol.ErrValue, protocol.CodeMalformed},
		"too many":    {m{"ops": tooMany}, protocol.ErrTooManyItems, protocol.CodeTooLarge},
		"odd timeout": {m{"ops": []any{}, "timeout": "soon"}, protocol.ErrType, protocol.CodeMalformed},
	} {
		_, err := protocol.Decode(pack(t, m{"type": "OP_BATCH", "payload": tt.payload}))
		var de *protocol.DecodeError
		require.ErrorAs(t, err, &de, name)
		require.ErrorIs(t, de, tt.want, name)
		require.Equal(t, tt.code, de.Code(), name)
	}
}

func TestShapeDecidesWhereTheTypeIsAbsent(t *testing.T) {
	for name, tt := range map[string]struct {
		op   protocol.ClientOp
		want protocol.OpType
	}{
		"nothing":         {protocol.ClientOp{}, protocol.OpPut},
		"record":          {protocol.ClientOp{RecordPresence: protocol.Present}, protocol.OpPut},
		"nil record":      {protocol.ClientOp{RecordPresence: protocol.Nil}, protocol.OpRemove},
		"or record":       {protocol.ClientOp{ORRecord: new(protocol.ORRecord)}, protocol.OpORAdd},
		"or tag":          {protocol.ClientOp{ORTag: "t"}, protocol.OpORRemove},
		"type first":      {protocol.ClientOp{Type: protocol.OpPut, RecordPresence: protocol.Nil}, protocol.OpPut},
		"unknown is kept": {protocol.ClientOp{Type: "MELT"}, "MELT"},
	} {
		require.Equal(t, tt.want, tt.op.EffectiveType(), name)
		require.Equal(t, name != "unknown is kept", tt.op.EffectiveType().Known(), name)
	}
}

func TestEffectiveRecord(t *testing.T) {
	at, opAt := protocol.Timestamp{Millis: 1, NodeID: "n"}, protocol.Timestamp{Millis: 2, NodeID: "n"}
	value := msgp.Raw{0x01}
	for name, tt := range map[string]struct {
		op   protocol.ClientOp
		want protocol.Record
	}{
		"put":                 {protocol.ClientOp{Type: protocol.OpPut, Record: protocol.Record{Value: value, Timestamp: at}, Timestamp: opAt}, protocol.Record{Value: value, Timestamp: at}},
		"stamp of operation":  {protocol.ClientOp{Type: protocol.OpPut, Record: protocol.Record{Value: value}, Timestamp: opAt}, protocol.Record{Value: value, Timestamp: opAt}},
		"no stamp":            {protocol.ClientOp{Type: protocol.OpPut, Record: protocol.Record{Value: value}}, protocol.Record{Value: value}},
		"remove has no value": {protocol.ClientOp{Type: protocol.OpRemove, Record: protocol.Record{Value: value, Timestamp: at}}, protocol.Record{Timestamp: at}},
	} {
		require.Equal(t, tt.want, tt.op.EffectiveRecord(), name)
	}
}

func TestRecordCodecRoundTrips(t *testing.T) {
	rec := protocol.Record{Value: pack(t, m{"a": []any{1}}), Timestamp: protocol.Timestamp{Millis: 5, Counter: 6, NodeID: "n"}, TTLMillis: 7}
	b := protocol.AppendRecord(nil, rec)
	got, rest, err := protocol.ReadRecord(append(b, 0x99))
	require.NoError(t, err)
	require.Equal(t, rec, got)
	require.Equal(t, []byte{0x99}, rest)

	tomb := protocol.AppendRecord(nil, protocol.Record{})
	require.Equal(t, map[string]any{"value": nil, "timestamp": map[string]any{"millis": 0.0, "counter": 0.0, "nodeId": ""}}, unpack(t, tomb))

	for cut := range b {
		_, _, err := protocol.ReadRecord(b[:cut])
		require.Error(t, err, "cut at %d", cut)
	}
	_, _, err = protocol.ReadRecord([]byte{0xdf, 0xff, 0xff, 0xff, 0xff})
	require.ErrorIs(t, err, protocol.ErrTruncated)
	_, _, err = protocol.ReadTimestamp(pack(t, m{"millis": 1, "counter": 1}))
	require.ErrorIs(t, err, protocol.ErrMissing)
}

func TestRecordVisibility(t *testing.T) {
	rec := protocol.Record{Timestamp: protocol.Timestamp{Millis: 100}, TTLMillis: 50}
	require.False(t, rec.Expired(150), "at equality it is visible")
	require.True(t, rec.Expired(151))
	rec.TTLMillis = 0
	require.False(t, rec.Expired(1<<50))
	require.True(t, protocol.Record{Value: msgp.Raw{0xc0}}.IsTombstone())
	require.False(t, protocol.Record{Value: msgp.Raw{0xc2}}.IsTombstone())
}

func TestDecodingAllocatesLittle(t *testing.T) {
	at := m{"millis": 1760000000123.0, "counter": 3, "nodeId": strings.Repeat("n", 36)}
	op := m{"id": "1234", "mapName": "todos", "opType": "PUT", "key": "item-1", "synced": false,
		"record": m{"value": m{"text": "x"}, "timestamp": at}, "timestamp": at}
	one := pack(t, m{"type": "CLIENT_OP", "payload": op})
	require.LessOrEqual(t, testing.AllocsPerRun(20, func() { decodeAs[*protocol.ClientOpMessage](t, one) }), 6.0)

	ops := make([]any, 100)
	for i := range ops {
		ops[i] = op
	}
	batch := pack(t, m{"type": "OP_BATCH", "payload": m{"ops": ops}})
	allocs := testing.AllocsPerRun(20, func() { decodeAs[*protocol.OpBatch](t, batch) })
	require.LessOrEqual(t, allocs, 2.5*float64(len(ops)), "operations of one batch share map name and node id")
}
