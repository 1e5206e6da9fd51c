package judge

import (
	"encoding/base64"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/protocol"
)

func compile(t testing.TB, v map[string]any) *partitions.Query {
	t.Helper()
	raw, err := msgp.AppendIntf(nil, v)
	require.NoError(t, err)
	q, err := partitions.CompileQuery(raw, partitions.QueryOptions{})
	require.NoError(t, err)
	return q
}

func TestCursorsHaveFourStates(t *testing.T) {
	cursors, sort := NewCursors([]byte("secret"), "c1"), map[string]any{"n": "desc"}
	q := compile(t, map[string]any{"sort": sort})
	value, err := msgp.AppendIntf(nil, map[string]any{"n": 7})
	require.NoError(t, err)
	last := q.Place("k", value)
	const now = 1_800_000_000_000
	text := cursors.Cursor("m", q, &last, now)
	damaged := []byte(text)
	damaged[40] ^= 1
	raw, err := base64.RawURLEncoding.DecodeString(text)
	require.NoError(t, err)
	life := cursorLife.Milliseconds()
	for name, tc := range map[string]struct {
		by      Cursors
		mapName string
		query   map[string]any
		text    string
		at      int64
		status  protocol.CursorStatus
	}{
		"none":          {cursors, "m", map[string]any{"sort": sort}, "", now, protocol.CursorNone},
		"fresh":         {cursors, "m", map[string]any{"sort": sort}, text, now, protocol.CursorValid},
		"other page":    {cursors, "m", map[string]any{"sort": sort, "limit": 5, "fields": []any{"n"}}, text, now, protocol.CursorValid},
		"other node":    {NewCursors([]byte("secret"), "c1"), "m", map[string]any{"sort": sort}, text, now - 1000, protocol.CursorValid},
		"last moment":   {cursors, "m", map[string]any{"sort": sort}, text, now + life, protocol.CursorValid},
		"late":          {cursors, "m", map[string]any{"sort": sort}, text, now + life + 1, protocol.CursorExpired},
		"late, other":   {cursors, "m", map[string]any{}, text, now + life + 1, protocol.CursorExpired},
		"other query":   {cursors, "m", map[string]any{"sort": sort, "where": map[string]any{"n": 1}}, text, now, protocol.CursorInvalid},
		"other order":   {cursors, "m", map[string]any{}, text, now, protocol.CursorInvalid},
		"other map":     {cursors, "m2", map[string]any{"sort": sort}, text, now, protocol.CursorInvalid},
		"other secret":  {NewCursors([]byte("other"), "c1"), "m", map[string]any{"sort": sort}, text, now, protocol.CursorInvalid},
		"other cluster": {NewCursors([]byte("secret"), "c2"), "m", map[string]any{"sort": sort}, text, now, protocol.CursorInvalid},
		"damaged":       {cursors, "m", map[string]any{"sort": sort}, string(damaged), now, protocol.CursorInvalid},
		"cut":           {cursors, "m", map[string]any{"sort": sort}, base64.RawURLEncoding.EncodeToString(raw[:20]), now, protocol.CursorInvalid},
		"nonsense":      {cursors, "m", map[string]any{"sort": sort}, "no cursor!", now, protocol.CursorInvalid},
	} {
		if tc.text != "" {
			tc.query["cursor"] = tc.text
		}
		q := compile(t, tc.query)
		place, status := tc.by.Parse(tc.mapName, q, tc.at)
		require.Equal(t, tc.status, status, name)
		if status == protocol.CursorValid {
			require.Zero(t, q.Compare(place, &last), name)
		} else {
			require.Nil(t, place, name)
		}
	}
	large := q.Place(string(make([]byte, maxCursor)), nil)
	require.Empty(t, cursors.Cursor("m", q, &large, now))
}

func TestQueryFailures(t *testing.T) {
	for code, object := range map[protocol.Code]map[string]any{
		protocol.CodeMalformed:      {"limit": -1},
		protocol.CodeTooLarge:       {"fields": make([]any, 0), "predicate": map[string]any{"op": "like", "attribute": "a", "value": string(make([]byte, 5000))}},
		protocol.CodeNotImplemented: {"predicate": map[string]any{"op": "match"}},
	} {
		raw, err := msgp.AppendIntf(nil, object)
		require.NoError(t, err)
		_, err = partitions.CompileQuery(raw, partitions.QueryOptions{})
		require.Equal(t, code, QueryFailure(err).Code, err)
	}
	require.False(t, QueryFailure(partitions.ErrUnavailable).Refused())
	require.False(t, QueryFailure(nil).Refused())
}
