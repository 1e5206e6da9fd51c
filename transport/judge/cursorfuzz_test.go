package judge

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/protocol"
)

// FuzzCursor holds that a text is a valid cursor only if it is signed, and that what is
// signed, too, is refused or names a place of the query. The bytes are read three times:
// as the text, as what is signed, and as the place of a cursor that is right otherwise.
// The cursor of a record that consists of them names its place.
func FuzzCursor(f *testing.F) {
	cursors, queries := NewCursors([]byte("secret"), "c1"), fuzzedQueries(f)
	const now = 1_800_000_000_000
	f.Add([]byte{})
	f.Add([]byte{cursorFormat})
	f.Add([]byte{0xdb, 0xff, 0xff, 0xff, 0xff, 'k'})
	f.Add(append([]byte{0xa1, 'k', 1, 0xcb, 0x7f, 0xf8}, make([]byte, 6)...)) // a place at NaN
	for _, q := range queries {
		for _, v := range []map[string]any{{}, {"n": 7, "s": "text"}, {"n": true, "s": []any{1}}} {
			value, err := msgp.AppendIntf(nil, v)
			require.NoError(f, err)
			place := q.Place("k", value)
			text := cursors.Cursor("m", q, &place, now)
			signed, err := base64.RawURLEncoding.DecodeString(text)
			require.NoError(f, err)
			f.Add([]byte(text))
			f.Add(signed[:len(signed)-cursorTag])
			f.Add(q.AppendPlace(nil, &place))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, q := range queries {
			shape := q.Shape()
			head := append(binary.BigEndian.AppendUint64([]byte{cursorFormat}, now), shape[:]...)
			requireCursor(t, cursors, q, string(b), now)
			requireCursor(t, cursors, q, signed(cursors, b), now)
			requireCursor(t, cursors, q, signed(cursors, append(head, b...)), now)
			requirePlace(t, cursors, q, b, now)
		}
	})
}

// fuzzedQueries have no, one and two values in their places.
func fuzzedQueries(f *testing.F) (queries []*partitions.Query) {
	f.Helper()
	for _, object := range []map[string]any{
		{}, {"sort": map[string]any{"n": "desc"}},
		{"sort": []any{map[string]any{"field": "s", "direction": "asc"}, map[string]any{"field": "n", "direction": "desc"}}},
	} {
		queries = append(queries, compile(f, object))
	}
	return queries
}

func signed(c Cursors, b []byte) string {
	return base64.RawURLEncoding.EncodeToString(append(b[:len(b):len(b)], c.sign("m", b)...))
}

// requirePlace names the place of a record with key and fields of b, and reads it back.
func requirePlace(t *testing.T, c Cursors, q *partitions.Query, b []byte, now int64) {
	t.Helper()
	value := msgp.AppendString(msgp.AppendString(msgp.AppendMapHeader(nil, 2), "s"), string(b))
	number := math.Float64frombits(binary.LittleEndian.Uint64(append(b[:len(b):len(b)], make([]byte, 8)...)))
	place := q.Place(string(b), msgp.AppendFloat64(msgp.AppendString(value, "n"), number))
	text := c.Cursor("m", q, &place, now)
	if text == "" {
		require.Greater(t, place.Size(), maxCursor/2)
		return
	}
	q.SetCursor(text)
	back, status := c.Parse("m", q, now)
	require.Equal(t, protocol.CursorValid, status)
	require.Zero(t, q.Compare(&place, back))
}

// requireCursor reads text as the cursor of q. A valid one is signed by c, young enough and
// takes no more memory than its text explains, and its place reads back as itself.
func requireCursor(t *testing.T, c Cursors, q *partitions.Query, text string, now int64) {
	t.Helper()
	q.SetCursor(text)
	place, status := c.Parse("m", q, now)
	if status != protocol.CursorValid {
		require.Nil(t, place)
		require.Contains(t, []protocol.CursorStatus{protocol.CursorNone, protocol.CursorInvalid, protocol.CursorExpired}, status)
		require.Equal(t, text == "", status == protocol.CursorNone)
		return
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	require.NoError(t, err)
	b, tag := raw[:len(raw)-cursorTag], raw[len(raw)-cursorTag:]
	require.Equal(t, c.sign("m", b), tag)
	millis := int64(binary.BigEndian.Uint64(b[1:]))
	require.LessOrEqual(t, now-millis, cursorLife.Milliseconds())
	require.LessOrEqual(t, place.Size(), 32+2*40+len(text))
	require.Zero(t, q.Compare(place, place))
	again := c.Cursor("m", q, place, millis)
	if again == "" {
		require.Greater(t, len(q.AppendPlace(nil, place)), maxCursor-cursorHead-1)
		return
	}
	q.SetCursor(again)
	back, status := c.Parse("m", q, now)
	require.Equal(t, protocol.CursorValid, status)
	require.Zero(t, q.Compare(place, back))
	require.Equal(t, again, c.Cursor("m", q, back, millis))
	q.SetCursor(again)
	_, status = c.Parse("m2", q, now)
	require.Equal(t, protocol.CursorInvalid, status)
}
