package protocol_test

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/quorate/quorate/protocol"
)

func TestDecodeRefusesFramesWithoutAMessage(t *testing.T) {
	for name, tt := range map[string]struct {
		frame any
		want  error
		field string
	}{
		"array":         {[]any{"type", "PING"}, protocol.ErrType, ""},
		"nil":           {nil, protocol.ErrType, ""},
		"no type":       {m{"timestamp": 1}, protocol.ErrMissing, "type"},
		"type is nil":   {m{"type": nil}, protocol.ErrMissing, "type"},
		"type is int":   {m{"type": 7}, protocol.ErrType, "type"},
		"type not text": {m{"type": "PI\xffNG"}, protocol.ErrText, "type"},
		"payload array": {m{"type": "QUERY_UNSUB", "payload": []any{}}, protocol.ErrType, "payload"},
		"no payload":    {m{"type": "QUERY_UNSUB"}, protocol.ErrMissing, "payload.queryId"},
	} {
		t.Run(name, func(t *testing.T) {
			msg, err := protocol.Decode(pack(t, tt.frame))
			require.Nil(t, msg)
			require.ErrorIs(t, err, tt.want)
			var de *protocol.DecodeError
			require.ErrorAs(t, err, &de)
			require.Equal(t, tt.field, de.Field)
		})
	}
}

func TestDecodeTellsUnknownKindsApart(t *testing.T) {
	for _, name := range []string{"", "ping", "NEW_IDEA", strings.Repeat("X", 1000)} {
		_, err := protocol.Decode(pack(t, m{"type": name, "payload": m{}}))
		require.ErrorIs(t, err, protocol.ErrUnknownKind)
		require.Less(t, len(err.Error()), 200)
	}
}

func TestDecodeFindsTypeAnywhere(t *testing.T) {
	b := msgp.AppendMapHeader(nil, 3)
	b = msgp.AppendMapHeader(msgp.AppendString(b, "payload"), 1)
	b = msgp.AppendString(msgp.AppendString(b, "queryId"), "q1")
	b = msgp.AppendInt(msgp.AppendString(b, "_routing"), 1)
	b = msgp.AppendString(msgp.AppendString(b, "type"), "QUERY_UNSUB")
	require.Equal(t, "q1", decodeAs[*protocol.QueryUnsub](t, b).QueryID)
	require.Equal(t, "q1", decodeAs[*protocol.QueryUnsub](t, append(b, 0xc1, 0xff)).QueryID, "with bytes after the value")
}

func TestLastOfEqualKeysCounts(t *testing.T) {
	b := msgp.AppendMapHeader(nil, 4)
	for _, kv := range [][2]string{{"type", "PING"}, {"mapName", "a"}, {"type", "SYNC_INIT"}, {"mapName", "b"}} {
		b = msgp.AppendString(msgp.AppendString(b, kv[0]), kv[1])
	}
	require.Equal(t, "b", decodeAs[*protocol.SyncInit](t, b).MapName)
}

func TestKeysThatAreNotTextAreIgnored(t *testing.T) {
	b := msgp.AppendMapHeader(nil, 4)
	b = msgp.AppendString(msgp.AppendBytes(b, []byte("type")), "PING")
	b = msgp.AppendNil(msgp.AppendArrayHeader(msgp.AppendArrayHeader(b, 1), 1))
	b = append(b, 0xc0)
	b = msgp.AppendString(msgp.AppendInt(b, 7), "x")
	b = msgp.AppendString(msgp.AppendString(b, "type"), "AUTH_REQUIRED")
	decodeAs[*protocol.AuthRequired](t, b)
}

func TestIntegersComeInAnyWholeFormat(t *testing.T) {
	version := func(number []byte) []byte {
		b := msgp.AppendString(msgp.AppendMapHeader(nil, 2), "type")
		b = msgp.AppendMapHeader(msgp.AppendString(msgp.AppendString(b, "PARTITION_MAP_REQUEST"), "payload"), 1)
		return append(msgp.AppendString(b, "currentVersion"), number...)
	}
	for name, number := range map[string][]byte{
		"fixint": {5}, "uint8": {0xcc, 5}, "uint16": {0xcd, 0, 5}, "uint32": {0xce, 0, 0, 0, 5},
		"uint64": {0xcf, 0, 0, 0, 0, 0, 0, 0, 5}, "int8": {0xd0, 5}, "int16": {0xd1, 0, 5}, "int32": {0xd2, 0, 0, 0, 5},
		"int64": {0xd3, 0, 0, 0, 0, 0, 0, 0, 5}, "float32": msgp.AppendFloat32(nil, 5), "float64": msgp.AppendFloat64(nil, 5),
	} {
		require.EqualValues(t, 5, decodeAs[*protocol.PartitionMapRequest](t, version(number)).CurrentVersion, name)
	}
	for name, number := range map[string][]byte{
		"fraction": msgp.AppendFloat64(nil, 5.5), "NaN": msgp.AppendFloat64(nil, math.NaN()),
		"infinity": msgp.AppendFloat64(nil, math.Inf(1)), "negative": msgp.AppendInt(nil, -1),
		"negative float": msgp.AppendFloat32(nil, -1), "2^32": msgp.AppendUint64(nil, 1<<32),
		"2^32 as float": msgp.AppendFloat64(nil, 1<<32), "2^64-1": msgp.AppendUint64(nil, math.MaxUint64),
	} {
		_, err := protocol.Decode(version(number))
		require.ErrorIs(t, err, protocol.ErrRange, name)
	}
	_, err := protocol.Decode(version(msgp.AppendString(nil, "5")))
	require.ErrorIs(t, err, protocol.ErrType)
	require.Zero(t, decodeAs[*protocol.PartitionMapRequest](t, version(msgp.AppendFloat64(nil, math.Copysign(0, -1)))).CurrentVersion)
}

func TestSafeIntegerIsTheGreatest(t *testing.T) {
	for v, ok := range map[any]bool{uint64(protocol.MaxSafeInteger): true, float64(protocol.MaxSafeInteger): true,
		uint64(protocol.MaxSafeInteger + 1): false, float64(protocol.MaxSafeInteger + 1): false} {
		_, err := protocol.Decode(pack(t, m{"type": "CLIENT_APPLY_ACK", "cursor": v}))
		require.Equal(t, ok, err == nil, "%v", v)
	}
}

func TestBinaryComesAsBinArrayOrDigitMap(t *testing.T) {
	decode := func(v any) (protocol.Message, error) {
		return protocol.Decode(pack(t, m{"type": "VECTOR_SEARCH", "payload": m{"id": "1", "mapName": "m", "k": 1, "queryVector": v}}))
	}
	for name, v := range map[string]any{
		"bin":        []byte{1, 2, 255},
		"array":      []any{1, 2.0, 255},
		"digit map":  m{"0": 1, "1": 2, "2": 255},
		"int digits": map[int]any{0: 1, 1: 2, 2: 255},
	} {
		msg, err := decode(v)
		require.NoError(t, err, name)
		require.Equal(t, protocol.Binary{1, 2, 255}, msg.(*protocol.VectorSearch).QueryVector, name)
	}
	twice := msgpack.RawMessage{0x82, 0xa1, '0', 1, 0xa1, '0', 2}
	for name, v := range map[string]any{
		"digit twice": twice, "text": "abc", "byte over 255": []any{256}, "gap": m{"0": 1, "2": 2}, "no digit": m{"a": 1}, "negative": m{"-1": 1},
	} {
		_, err := decode(v)
		var de *protocol.DecodeError
		require.ErrorAs(t, err, &de, name)
		require.True(t, strings.HasPrefix(de.Field, "payload.queryVector"), de.Field)
	}
}

func TestValuesAreMadeCanonical(t *testing.T) {
	odd := msgp.AppendMapHeader(nil, 13)
	odd = append(odd, 0x01, 0xd4, 0, 0)                    // 1: ext
	odd = append(odd, 0xff, 0x91, 0xc7, 1, 5, 9)           // -1: [ext8]
	odd = append(odd, 0xc3, 0x02)                          // true: 2
	odd = append(odd, 0xc0, 0x03)                          // nil: 3
	odd = append(msgp.AppendFloat64(odd, 0.5), 0x04)       // 0.5: 4
	odd = append(msgp.AppendFloat64(odd, 1e21), 0x05)      // 1e21: 5
	odd = append(msgp.AppendBytes(odd, []byte("b")), 0x06) // bin: 6
	odd = append(msgp.AppendString(odd, "s"), 0x07)        // "s": 7
	odd = append(msgp.AppendFloat64(odd, 1e-7), 0x08)      // 1e-7: 8
	odd = append(msgp.AppendFloat32(odd, -2), 0x09)        // -2 as float
	odd = append(msgp.AppendFloat64(odd, math.NaN()), 0x0a)
	odd = append(msgp.AppendFloat64(odd, math.Inf(-1)), 0x0b)
	odd = append(msgp.AppendUint64(odd, math.MaxUint64), 0x0c)
	frame := msgp.AppendString(msgp.AppendMapHeader(nil, 2), "type")
	frame = msgp.AppendMapHeader(msgp.AppendString(msgp.AppendString(frame, "TOPIC_PUB"), "payload"), 2)
	frame = msgp.AppendString(msgp.AppendString(frame, "topic"), "t")
	frame = append(msgp.AppendString(frame, "data"), odd...)

	pub := decodeAs[*protocol.TopicPub](t, frame)
	require.Equal(t, map[string]any{"1": nil, "-1": []any{nil}, "true": 2.0, "null": 3.0, "0.5": 4.0, "1e+21": 5.0,
		"b": 6.0, "s": 7.0, "1e-7": 8.0, "-2": 9.0, "NaN": 10.0, "-Infinity": 11.0, "18446744073709551615": 12.0}, unpack(t, pub.Data))

	bad := append(frame[:len(frame)-len(odd)], 0x81, 0x90, 0x01) // a key that is an array
	_, err := protocol.Decode(bad)
	require.ErrorIs(t, err, protocol.ErrValue)
}

func TestRawValuesKeepTheirBytes(t *testing.T) {
	data := unhex(t, "de0002a161cb4014000000000000a162c403010203") // wide header, integral float, bin
	frame := msgp.AppendString(msgp.AppendMapHeader(nil, 2), "type")
	frame = msgp.AppendMapHeader(msgp.AppendString(msgp.AppendString(frame, "TOPIC_PUB"), "payload"), 2)
	frame = msgp.AppendString(msgp.AppendString(frame, "topic"), "t")
	frame = append(msgp.AppendString(frame, "data"), data...)
	require.Equal(t, msgp.Raw(data), decodeAs[*protocol.TopicPub](t, frame).Data)
}

func TestErrorNamesPathAndCorrelation(t *testing.T) {
	_, err := protocol.Decode(pack(t, m{"type": "ORMAP_PUSH_DIFF", "payload": m{"entries": []any{
		m{"key": "a", "records": []any{}, "tombstones": []any{}},
		m{"key": "b", "records": []any{m{"value": 1, "tag": "t", "timestamp": m{"millis": -1, "counter": 0, "nodeId": "n"}}}, "tombstones": []any{}},
	}, "mapName": "labels"}}))
	var de *protocol.DecodeError
	require.ErrorAs(t, err, &de)
	require.Equal(t, protocol.DecodeError{Kind: protocol.KindORMapPushDiff, Correlation: "labels", Err: protocol.ErrRange,
		Field: "payload.entries[1].records[0].timestamp.millis"}, *de)
	require.Equal(t, "decode ORMAP_PUSH_DIFF: payload.entries[1].records[0].timestamp.millis: number is not whole or out of range", err.Error())
}

func TestInvalidUTF8IsRefused(t *testing.T) {
	for _, frame := range []m{
		{"type": "TOPIC_SUB", "payload": m{"topic": "a\xc3("}},
		{"type": "SYNC_INIT", "mapName": "\xed\xa0\xbd"},
	} {
		_, err := protocol.Decode(pack(t, frame))
		require.ErrorIs(t, err, protocol.ErrText)
	}
}

func TestCounterStateTakesBothSpellings(t *testing.T) {
	for name, tt := range map[string]struct {
		state    m
		pos, neg map[string]float64
	}{
		"long":      {m{"positive": m{"a": 2}, "negative": m{"b": 1.5}}, map[string]float64{"a": 2}, map[string]float64{"b": 1.5}},
		"short":     {m{"p": m{"a": 2}}, map[string]float64{"a": 2}, map[string]float64{}},
		"both":      {m{"p": m{"a": 2, "c": 9}, "positive": m{"a": 3, "c": 4}}, map[string]float64{"a": 3, "c": 9}, map[string]float64{}},
		"no halves": {m{}, map[string]float64{}, map[string]float64{}},
	} {
		msg := decodeAs[*protocol.CounterSync](t, pack(t, m{"type": "COUNTER_SYNC", "payload": m{"name": "c", "state": tt.state}}))
		require.Equal(t, protocol.CounterState{Positive: tt.pos, Negative: tt.neg}, msg.State, name)
	}
	for _, cell := range []any{-1, math.NaN(), math.Inf(1), "1"} {
		_, err := protocol.Decode(pack(t, m{"type": "COUNTER_SYNC", "payload": m{"name": "c", "state": m{"p": m{"a": cell}}}}))
		require.Error(t, err, "%v", cell)
	}
	sent := body(t, protocol.KindCounterUpdate, mustAppend(t, &protocol.CounterUpdate{Name: "c",
		State: protocol.CounterState{Positive: map[string]float64{"a": 1}}}))
	require.Equal(t, map[string]any{"p": map[string]any{"a": 1.0}, "n": map[string]any{},
		"positive": map[string]any{"a": 1.0}, "negative": map[string]any{}}, sent["state"])
}

func TestPingIsEchoedAsSent(t *testing.T) {
	for _, number := range [][]byte{{5}, msgp.AppendFloat64(nil, 1760000000123), msgp.AppendUint64(nil, 1<<63)} {
		frame := append(msgp.AppendString(msgp.AppendString(msgp.AppendString(msgp.AppendMapHeader(nil, 2), "type"), "PING"), "timestamp"), number...)
		ping := decodeAs[*protocol.Ping](t, frame)
		require.Equal(t, msgp.Raw(number), ping.Timestamp)
		pong := decodeAs[*protocol.Pong](t, mustAppend(t, &protocol.Pong{Timestamp: ping.Timestamp, ServerTime: 9}))
		require.Equal(t, ping.Timestamp, pong.Timestamp)
	}
	require.Empty(t, decodeAs[*protocol.Ping](t, pack(t, m{"type": "PING"})).Timestamp)
	_, err := protocol.Decode(pack(t, m{"type": "PING", "timestamp": []any{1}}))
	require.ErrorIs(t, err, protocol.ErrType)
}

func TestResultsOfAnAckAreAbsentOrEmpty(t *testing.T) {
	for results, present := range map[int]bool{-1: false, 0: true} {
		ack := &protocol.OpAck{LastID: "1", AchievedLevel: protocol.LevelPersisted}
		if present {
			ack.Results = make([]protocol.AckResult, results)
		}
		fields := body(t, protocol.KindOpAck, mustAppend(t, ack))
		_, ok := fields["results"]
		require.Equal(t, present, ok)
		require.Equal(t, present, decodeAs[*protocol.OpAck](t, mustAppend(t, ack)).Results != nil)
	}
}

func TestFieldsOfTheQueryObjectAreTheFallback(t *testing.T) {
	decode := func(fields any) []string {
		return decodeAs[*protocol.QuerySub](t, pack(t, m{"type": "QUERY_SUB", "payload": m{"queryId": "q", "mapName": "m",
			"fields": fields, "query": m{"fields": []any{"inner"}}}})).Fields
	}
	require.Equal(t, []string{"inner"}, decode(nil))
	require.Equal(t, []string{"outer"}, decode([]any{"outer"}))
}

func TestQueryMustBeAMap(t *testing.T) {
	_, err := protocol.Decode(pack(t, m{"type": "QUERY_SUB", "payload": m{"queryId": "q", "mapName": "m", "query": []any{}}}))
	require.ErrorIs(t, err, protocol.ErrType)
	require.ErrorContains(t, err, "payload.query")
}
