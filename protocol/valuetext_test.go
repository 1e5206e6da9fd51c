package protocol_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strconv"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/protocol"
)

func TestEqualComparesAsClientsDo(t *testing.T) {
	raw := func(v any) msgp.Raw { return pack(t, v) }
	for _, c := range []struct {
		a, b msgp.Raw
		want bool
	}{
		{nil, raw(nil), true},
		{raw(5), raw(5.0), true},
		{raw(5), raw("5"), false},
		{raw(true), raw(true), true},
		{raw(true), raw(false), false},
		{raw(false), raw(nil), false},
		{raw("a"), raw("a"), true},
		{raw("a"), raw("b"), false},
		{raw([]any{1, "x", nil}), raw([]any{1.0, "x", nil}), true},
		{raw([]any{1}), raw([]any{1, 2}), false},
		{raw(m{"a": 1, "b": m{"c": []any{}}}), raw(m{"b": m{"c": []any{}}, "a": 1.0}), true},
		{raw(m{"a": nil}), raw(m{}), false},
		{raw(m{"a": 1}), raw(m{"b": 1}), false},
		{raw([]byte{1}), raw([]byte{1}), true},
		{raw([]byte{1}), raw([]byte{2}), false},
		{msgp.AppendFloat64(nil, nan), msgp.AppendFloat64(nil, nan), false},
	} {
		require.Equal(t, c.want, protocol.Equal(c.a, c.b), "%x %x", c.a, c.b)
		require.Equal(t, c.want, protocol.Equal(c.b, c.a), "%x %x", c.b, c.a)
	}
}

var nan = func() float64 { var zero float64; return zero / zero }()

func TestABinHashesAsTheMapThatClientsMakeOfIt(t *testing.T) {
	bin := msgp.AppendBytes(nil, []byte{7, 0, 255})
	asMap := pack(t, m{"0": 7, "1": 0, "2": 255})
	require.Equal(t, string(protocol.AppendValueText(nil, asMap)), string(protocol.AppendValueText(nil, bin)))
	require.Equal(t, `{"0":7,"1":0,"2":255}`, string(protocol.AppendValueText(nil, bin)))
}

func TestABinShowsItsBytesInTheOrderOfTheTextOfTheirIndexes(t *testing.T) {
	for _, n := range []int{0, 1, 9, 10, 11, 100, 101, 1234} {
		bin, want := make([]byte, n), m{}
		for i := range bin {
			bin[i] = byte(i * 7)
			want[strconv.Itoa(i)] = bin[i]
		}
		require.Equal(t, string(protocol.AppendValueText(nil, pack(t, want))), string(protocol.AppendValueText(nil, pack(t, bin))), "%d", n)
		nested := string(protocol.AppendValueText(nil, pack(t, m{"0": 1, "10": bin, "1233": 2, "a": []any{m{"b": 1}, bin}})))
		require.Equal(t, string(protocol.AppendValueText(nil, pack(t, m{"0": 1, "10": want, "1233": 2, "a": []any{m{"b": 1}, want}}))), nested, "%d", n)
	}
}

func TestTheTextOfALargeValueTakesFewAllocations(t *testing.T) {
	list := msgp.AppendArrayHeader(nil, 1<<16)
	for range 1 << 16 {
		list = append(list, 0x91, 0xa1, 'x')
	}
	deep := append(bytes.Repeat([]byte{0x91}, 200), list...)
	for name, raw := range map[string]msgp.Raw{"bin": msgp.AppendBytes(nil, make([]byte, 1<<16)), "list": list, "deep": deep} {
		dst := make([]byte, 0, 1<<22)
		allocs := testing.AllocsPerRun(3, func() { _ = protocol.AppendValueText(dst, raw) })
		require.Less(t, allocs, 200.0, name)
	}
}

func TestTheWorkOfAValueText(t *testing.T) {
	for _, c := range []struct {
		raw  msgp.Raw
		want int
	}{
		{nil, 0},
		{pack(t, "hello"), 6},
		{pack(t, "a\nb"), 4 + 16},
		{pack(t, 5), 1 + 16},
		{pack(t, 0.5), 9 + 16 + 128},
		{pack(t, []byte{1, 2}), 4 + 4*48},
		{pack(t, []any{"a", []any{}}), 4},
		{pack(t, m{"a": "b"}), 5 + 2*256},
		{append(pack(t, "front"), pack(t, "what does not belong to it")...), 6},
	} {
		require.Equal(t, c.want, protocol.ValueTextWork(c.raw), "%x", c.raw)
	}
}

// FuzzValueText holds that any guarded value has a text, which for lists and maps is
// JSON and not much longer than its work, and that every value without NaN equals itself.
func FuzzValueText(f *testing.F) {
	addFrames(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		shape, err := protocol.Guard(b)
		if err != nil {
			return
		}
		raw := msgp.Raw(b[:shape.Size])
		text := protocol.AppendValueText([]byte("front"), raw)
		require.True(t, bytes.HasPrefix(text, []byte("front")))
		text = text[len("front"):]
		require.LessOrEqual(t, len(text), 4+2*protocol.ValueTextWork(raw))
		switch msgp.NextType(raw) {
		case msgp.MapType, msgp.ArrayType, msgp.BinType:
			if utf8.Valid(text) {
				require.True(t, json.Valid(text), "%s", text)
			}
		}
		if !bytes.ContainsAny(raw, "\xca\xcb") && !shape.HasExt {
			require.True(t, protocol.Equal(raw, raw), "%x", raw)
		}
		_ = protocol.Fields(raw)
	})
}

// FuzzDecodeHTTPSync holds that any body of POST /sync is refused with a typed error, or
// encodes to one with the same meaning.
func FuzzDecodeHTTPSync(f *testing.F) {
	addFrames(f)
	limit := int64(3)
	f.Add(protocol.AppendHTTPSync(nil, &protocol.HTTPSync{
		ClientID: "c", Operations: []protocol.ClientOp{{ID: "1", MapName: "m", Key: "k", RecordPresence: protocol.Present}},
		SyncMaps: []protocol.HTTPSyncMap{{MapName: "m"}}, Queries: []protocol.HTTPQuery{{QueryID: "q", MapName: "m", Limit: &limit}},
		Searches: []protocol.HTTPSearch{{SearchID: "s", MapName: "m", Query: "q"}},
	}))
	f.Fuzz(func(t *testing.T, body []byte) {
		request, err := protocol.DecodeHTTPSync(body)
		if err != nil {
			var de *protocol.DecodeError
			require.ErrorAs(t, err, &de)
			return
		}
		for i := range request.Operations {
			if request.Operations[i].Err != nil {
				return
			}
		}
		first := protocol.AppendHTTPSync(nil, request)
		again, err := protocol.DecodeHTTPSync(first)
		require.NoError(t, err, "own body %x", first)
		require.Equal(t, first, protocol.AppendHTTPSync(nil, again))
	})
}

// FuzzDecodeHTTPSyncResponse is FuzzDecodeHTTPSync for the answer, which clients read.
func FuzzDecodeHTTPSyncResponse(f *testing.F) {
	addFrames(f)
	f.Add(protocol.AppendHTTPSyncResponse(nil, &protocol.HTTPSyncResponse{
		Ack:    &protocol.HTTPAck{LastID: "1", Results: []protocol.AckResult{{OpID: "1"}}},
		Deltas: []protocol.MapDelta{{MapName: "m", Records: []protocol.DeltaRecord{{Key: "k", EventType: protocol.OpPut}}}},
	}))
	f.Fuzz(func(t *testing.T, body []byte) {
		answer, err := protocol.DecodeHTTPSyncResponse(body)
		if err != nil {
			var de *protocol.DecodeError
			require.ErrorAs(t, err, &de)
			return
		}
		first := protocol.AppendHTTPSyncResponse(nil, answer)
		again, err := protocol.DecodeHTTPSyncResponse(first)
		require.NoError(t, err, "own body %x", first)
		require.Equal(t, first, protocol.AppendHTTPSyncResponse(nil, again))
	})
}

func TestALeafMadeRecordByRecordIsTheMessage(t *testing.T) {
	want := &protocol.SyncRespLeaf{MapName: "m", Path: "872"}
	frame := protocol.NewLeafFrame("m", "872", 0)
	for i := range 20 {
		rec := protocol.Record{Value: pack(t, i), Timestamp: protocol.Timestamp{Millis: int64(i + 1), NodeID: "n"}, TTLMillis: int64(i)}
		want.Records = append(want.Records, protocol.KeyedRecord{Key: "k", Record: rec})
		frame.Add("k", rec)
	}
	got, err := protocol.Decode(frame.Frame())
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.Len(t, frame.Frame(), frame.Len())
	empty, err := protocol.Decode(protocol.NewLeafFrame("m", "872", 0).Frame())
	require.NoError(t, err)
	require.Empty(t, empty.(*protocol.SyncRespLeaf).Records)
}

func TestTextsAreOrderedByUTF16Units(t *testing.T) {
	ordered := []string{"", "a", "a\x00", "ab", "b", "é", "\ud7ff", "\U00010000", "\U0010ffff", "\ue000", "\ufffd", "\uffff"}
	for i, a := range ordered {
		for j, b := range ordered {
			require.Equal(t, cmp.Compare(i, j), protocol.CompareText("x"+a, "x"+b), "%q %q", a, b)
		}
	}
	require.Equal(t, 1, protocol.CompareText("\xff", "\xfe"), "what is not text has an order too")
}
