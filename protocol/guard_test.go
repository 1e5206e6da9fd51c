package protocol_test

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/protocol"
)

func nested(depth int) []byte {
	return append(bytes.Repeat([]byte{0x91}, depth), 0xc0)
}

func TestGuardMeasuresShape(t *testing.T) {
	odd := msgp.AppendNil(msgp.AppendInt(msgp.AppendMapHeader(nil, 1), 1))
	for name, tt := range map[string]struct {
		in   []byte
		want protocol.Shape
	}{
		"integer":          {[]byte{0x05}, protocol.Shape{Size: 1}},
		"map":              {pack(t, m{"a": 1}), protocol.Shape{Size: 4, Elements: 2}},
		"array of arrays":  {pack(t, []any{[]any{1, 2}, "x"}), protocol.Shape{Size: 6, Elements: 4}},
		"ext":              {[]byte{0xd4, 0, 0}, protocol.Shape{Size: 3, HasExt: true}},
		"ext8":             {[]byte{0xc7, 1, 5, 9}, protocol.Shape{Size: 4, HasExt: true}},
		"integer key":      {odd, protocol.Shape{Size: 3, Elements: 2, HasOddKey: true}},
		"odd key deep":     {append([]byte{0x92, 0x01}, odd...), protocol.Shape{Size: 5, Elements: 4, HasOddKey: true}},
		"array in map":     {pack(t, m{"a": []any{1}, "b": 2}), protocol.Shape{Size: 8, Elements: 5}},
		"trailing bytes":   {[]byte{0x01, 0x02}, protocol.Shape{Size: 1}},
		"deepest":          {nested(protocol.MaxDepth), protocol.Shape{Size: 257, Elements: 256}},
		"empty containers": {[]byte{0x92, 0x90, 0x80}, protocol.Shape{Size: 3, Elements: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := protocol.Guard(tt.in)
			require.NoError(t, err)
			require.Equal(t, tt.want, got)
		})
	}
}

func TestGuardRefuses(t *testing.T) {
	frame := pack(t, m{"type": "PING"})
	elements := msgp.AppendArrayHeader(nil, protocol.MaxElements+1)
	elements = append(elements, make([]byte, protocol.MaxElements+1)...)
	cases := map[string]struct {
		in   []byte
		want error
	}{
		"nothing":           {nil, protocol.ErrTruncated},
		"reserved byte":     {[]byte{0xc1}, protocol.ErrReserved},
		"cut frame":         {frame[:len(frame)-1], protocol.ErrTruncated},
		"map without value": {[]byte{0x82, 0xa1, 'a', 0x01, 0xa1, 'b'}, protocol.ErrTruncated},
		"nesting 257":       {nested(257), protocol.ErrDepth},
		"empty map at 257":  {append(bytes.Repeat([]byte{0x91}, 256), 0x80), protocol.ErrDepth},
		"nesting 2,000,000": {nested(2_000_000), protocol.ErrDepth},
		"too many elements": {elements, protocol.ErrElements},
		"large frame":       {make([]byte, protocol.MaxFrame+1), protocol.ErrFrameSize},
	}
	for name, lead := range map[string]byte{"bin32": 0xc6, "ext32": 0xc9, "str32": 0xdb, "array32": 0xdd, "map32": 0xdf} {
		cases["length bomb "+name] = struct {
			in   []byte
			want error
		}{[]byte{lead, 0xff, 0xff, 0xff, 0xff}, protocol.ErrTruncated}
	}
	for name, tt := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := protocol.Guard(tt.in)
			require.ErrorIs(t, err, tt.want)
			_, err = protocol.Decode(tt.in)
			require.ErrorIs(t, err, tt.want)
		})
	}
}

func TestGuardAllocatesNothing(t *testing.T) {
	big := msgp.AppendArrayHeader(nil, 1<<17)
	big = append(big, make([]byte, 1<<17)...)
	for name, in := range map[string][]byte{
		"operation":   clientOpFrame(t, nil),
		"deep":        nested(protocol.MaxDepth),
		"long list":   big,
		"long string": pack(t, string(make([]byte, 1<<20))),
	} {
		t.Run(name, func(t *testing.T) {
			require.Zero(t, testing.AllocsPerRun(10, func() {
				if _, err := protocol.Guard(in); err != nil {
					t.Fatal(err)
				}
			}))
		})
	}
}

// TestHostileFramesCostLittleMemory feeds frames that declare or imply far more
// than they hold and bounds what decoding them allocates.
func TestHostileFramesCostLittleMemory(t *testing.T) {
	const mib = 1 << 20
	frame := func(kind, field string, value []byte) []byte {
		b := msgp.AppendMapHeader(nil, 2)
		b = msgp.AppendString(msgp.AppendString(b, "type"), kind)
		b = msgp.AppendMapHeader(msgp.AppendString(b, "payload"), 1)
		return append(msgp.AppendString(b, field), value...)
	}
	list := func(n int, elem byte) []byte {
		return append(msgp.AppendArrayHeader(nil, uint32(n)), bytes.Repeat([]byte{elem}, n)...)
	}
	const many = 1_000_000
	for name, in := range map[string][]byte{
		"a million ops":        frame("OP_BATCH", "ops", list(many, 0x80)),
		"most ops":             frame("OP_BATCH", "ops", list(protocol.MaxBatchOps, 0x80)),
		"a million rows":       frame("QUERY_RESP", "results", list(many, 0x80)),
		"a million events":     frame("SERVER_BATCH_EVENT", "events", list(many, 0x80)),
		"a million results":    frame("OP_ACK", "results", list(many, 0x80)),
		"a million texts":      frame("ORMAP_DIFF_REQUEST", "keys", list(many, 0xa0)),
		"a million lists":      frame("SQL_QUERY_RESP", "rows", list(many, 0x90)),
		"a million partitions": frame("PARTITION_MAP", "partitions", list(many, 0x80)),
		"a million bytes":      frame("VECTOR_SEARCH", "queryVector", list(many, 0x01)),
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, _ = protocol.Decode(in)
			runtime.ReadMemStats(&after)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(32*mib))
		})
	}
}

func TestSplitBatch(t *testing.T) {
	one, two := []byte{0x81, 0xa1, 'a', 0x01}, []byte{0xc0}
	data := protocol.AppendBatch(protocol.AppendBatch(nil, one), two)

	frames, err := protocol.SplitBatch(data)
	require.NoError(t, err)
	require.Equal(t, [][]byte{one, two}, frames)

	frames, err = protocol.SplitBatch(nil)
	require.NoError(t, err)
	require.Empty(t, frames)

	for cut := 1; cut < len(two)+4; cut++ {
		frames, err = protocol.SplitBatch(data[:len(data)-cut])
		require.ErrorIs(t, err, protocol.ErrTruncated)
		require.ErrorContains(t, err, "data[1]")
		require.Equal(t, [][]byte{one}, frames)
	}

	lie := binary.BigEndian.AppendUint32(nil, 1<<32-1)
	frames, err = protocol.SplitBatch(lie)
	require.ErrorIs(t, err, protocol.ErrTruncated)
	require.Empty(t, frames)
}

func TestSplitBatchRefusesTooManyItems(t *testing.T) {
	data := make([]byte, 4*protocol.MaxBatchItems)
	frames, err := protocol.SplitBatch(data)
	require.NoError(t, err)
	require.Len(t, frames, protocol.MaxBatchItems)

	frames, err = protocol.SplitBatch(append(data, 0, 0, 0, 0))
	require.Nil(t, frames)
	var de *protocol.DecodeError
	require.ErrorAs(t, err, &de)
	require.Equal(t, protocol.CodeTooLarge, de.Code())
}

func TestClientsTakeLongerFramesThanTheServer(t *testing.T) {
	leaf := &protocol.SyncRespLeaf{MapName: "m", Path: "000"}
	value := msgp.AppendBytes(nil, make([]byte, protocol.MaxFrame))
	leaf.Records = []protocol.KeyedRecord{{Key: "k", Record: protocol.Record{Value: value}}}
	frame, err := protocol.Append(nil, leaf)
	require.NoError(t, err)
	_, err = protocol.Decode(frame)
	require.ErrorIs(t, err, protocol.ErrFrameSize)
	m, err := protocol.DecodeAnswer(frame)
	require.NoError(t, err)
	require.Equal(t, leaf, m)

	answer := protocol.AppendHTTPSyncResponse(nil, &protocol.HTTPSyncResponse{QueryResults: []protocol.HTTPQueryResult{{
		QueryID: "q", Results: slices.Repeat([]msgp.Raw{{0xc0}}, protocol.MaxElements+1),
	}}})
	got, err := protocol.DecodeHTTPSyncResponse(answer)
	require.NoError(t, err)
	require.Len(t, got.QueryResults[0].Results, protocol.MaxElements+1)
	_, err = protocol.DecodeAnswer(make([]byte, protocol.MaxAnswer+1))
	require.ErrorIs(t, err, protocol.ErrFrameSize)
}
