package protocol_test

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/protocol"
)

func messageType(k protocol.Kind) reflect.Type {
	return reflect.TypeOf(protocol.NewMessage(k)).Elem()
}

func TestKindTableIsComplete(t *testing.T) {
	rows := kindRows(t)
	origins := map[string]int{}
	for _, row := range rows {
		origins[row.origin]++
	}
	require.Equal(t, map[string]int{"contract": 77, "field": 16}, origins)
	require.Len(t, protocol.Kinds(), len(rows))
	for _, k := range protocol.Kinds() {
		row, ok := rows[k.String()]
		require.True(t, ok, "%s is not in testdata/kinds.txt", k)
		require.Equal(t, row.direction, k.Direction(), k)
		layout := protocol.LayoutKey(k)
		if layout == "" {
			layout = "flat"
		}
		require.Equal(t, row.layout, layout, k)
		require.Equal(t, k, protocol.NewMessage(k).Kind(), "the message allocated for %s is of another kind", k)
		parsed, ok := protocol.ParseKind(k.String())
		require.True(t, ok)
		require.Equal(t, k, parsed)
		_, isRequest := protocol.NewMessage(k).(protocol.Request)
		fromClient := k.Direction() == protocol.ClientToServer || k.Direction() == protocol.BothWays
		require.Equal(t, fromClient, isRequest, "%s: exactly what clients send is a Request", k)
	}
}

func TestNoKindHasNoNameOnTheWire(t *testing.T) {
	_, ok := protocol.ParseKind("")
	require.False(t, ok)
	require.Equal(t, "Kind(0)", protocol.KindInvalid.String())
	require.Zero(t, protocol.KindInvalid.Direction())
	_, err := protocol.Append(nil, nil)
	require.Error(t, err)
}

// body returns the map with the fields of an encoded message.
func body(t *testing.T, k protocol.Kind, frame []byte) map[string]any {
	top := unpack(t, frame).(map[string]any)
	require.Equal(t, k.String(), top["type"])
	if key := protocol.LayoutKey(k); key != "" {
		require.Len(t, top, 2)
		return top[key].(map[string]any)
	}
	delete(top, "type")
	return top
}

func TestFullMessageHasEveryDocumentedField(t *testing.T) {
	rows := kindRows(t)
	fill := &filler{rng: random(t), full: true}
	for _, k := range protocol.Kinds() {
		row := rows[k.String()]
		got := slices.Sorted(maps.Keys(body(t, k, mustAppend(t, fill.message(k)))))
		want := slices.Sorted(slices.Values(append(slices.Clone(row.required), row.optional...)))
		require.Equal(t, want, got, k)
	}
}

func TestEmptyMessageHasExactlyTheRequiredFields(t *testing.T) {
	rows := kindRows(t)
	for _, k := range protocol.Kinds() {
		fields := body(t, k, mustAppend(t, protocol.NewMessage(k)))
		delete(fields, "error") // AUTH_FAIL repeats its reason for clients
		require.ElementsMatch(t, rows[k.String()].required, slices.Collect(maps.Keys(fields)), k)
		for name, v := range fields {
			if v == nil {
				require.True(t, rows[k.String()].any[name], "%s.%s is sent as nil", k, name)
			}
		}
	}
}

func TestRoundTripOfEveryKind(t *testing.T) {
	fill := &filler{rng: random(t)}
	for _, k := range protocol.Kinds() {
		for range 50 {
			want := fill.message(k)
			frame := mustAppend(t, want)
			got, err := protocol.Decode(frame)
			require.NoError(t, err, "%s: %+v", k, want)
			require.Empty(t, diff(want, got), k)
			require.Equal(t, frame, mustAppend(t, got), "%s is not encoded the same again", k)
		}
	}
}

// framed puts fields where kind k has them.
func framed(t *testing.T, k protocol.Kind, fields map[string]any) []byte {
	if key := protocol.LayoutKey(k); key != "" {
		return pack(t, m{"type": k.String(), key: fields})
	}
	fields["type"] = k.String()
	return pack(t, fields)
}

func TestEveryRequiredFieldIsMissed(t *testing.T) {
	fill := &filler{rng: random(t), full: true}
	for _, k := range protocol.Kinds() {
		row := kindRows(t)[k.String()]
		for _, name := range row.required {
			for _, isNil := range []bool{false, true} {
				fields := body(t, k, mustAppend(t, fill.message(k)))
				if delete(fields, name); isNil {
					fields[name] = nil
				}
				msg, err := protocol.Decode(framed(t, k, fields))
				if row.any[name] {
					require.NoError(t, err, "%s without %s", k, name)
					continue
				}
				if op, ok := msg.(*protocol.ClientOpMessage); ok {
					err = op.Op.Err
				}
				require.ErrorIs(t, err, protocol.ErrMissing, "%s without %s", k, name)
				var de *protocol.DecodeError
				require.True(t, errors.As(err, &de))
				require.Contains(t, de.Field, name)
			}
		}
	}
}

func TestEveryOptionalFieldMayBeNil(t *testing.T) {
	fill := &filler{rng: random(t), full: true}
	for _, k := range protocol.Kinds() {
		for _, name := range kindRows(t)[k.String()].optional {
			fields := body(t, k, mustAppend(t, fill.message(k)))
			fields[name] = nil
			msg, err := protocol.Decode(framed(t, k, fields))
			require.NoError(t, err, "%s with nil %s", k, name)
			again := body(t, k, mustAppend(t, msg))
			if k != protocol.KindAuthFail && !(k == protocol.KindClientOp && name == "record") {
				require.NotContains(t, again, name, "%s with nil %s", k, name)
			}
		}
	}
}

func TestWrongTypeOfAnyFieldNamesIt(t *testing.T) {
	fill := &filler{rng: random(t), full: true}
	for _, k := range protocol.Kinds() {
		full := body(t, k, mustAppend(t, fill.message(k)))
		for name, v := range full {
			fields := maps.Clone(full)
			if fields[name] = any("no"); reflect.TypeOf(v).Kind() == reflect.String {
				fields[name] = []any{1}
			}
			msg, err := protocol.Decode(framed(t, k, fields))
			if op, ok := msg.(*protocol.ClientOpMessage); ok {
				err = op.Op.Err
			}
			if err == nil { // a field that takes any value
				continue
			}
			var de *protocol.DecodeError
			require.True(t, errors.As(err, &de), "%s.%s: %v", k, name, err)
			require.Contains(t, de.Error(), name)
			require.Equal(t, protocol.CodeMalformed, de.Code())
		}
	}
}
