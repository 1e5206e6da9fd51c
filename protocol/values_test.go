package protocol_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/protocol"
)

func TestFieldsOfValues(t *testing.T) {
	value := pack(t, m{"a": 1, "b": m{"c": "x"}, "n": nil})
	got, steps, ok := protocol.Field(value, "b")
	require.True(t, ok)
	require.Positive(t, steps)
	require.Equal(t, msgp.Raw(pack(t, m{"c": "x"})), got)
	_, _, ok = protocol.Field(value, "c")
	require.False(t, ok)
	got, _, ok = protocol.Field(value, "n")
	require.True(t, ok)
	require.True(t, protocol.IsNil(got))
	for _, none := range []msgp.Raw{nil, pack(t, 1), pack(t, []any{1})} {
		_, _, ok = protocol.Field(none, "a")
		require.False(t, ok)
	}
	// Of equal keys the last one counts; keys that are not text are passed over.
	twice := []byte{0x83, 0xa1, 'a', 1, 7, 8, 0xa1, 'a', 2}
	got, _, ok = protocol.Field(twice, "a")
	require.True(t, ok)
	require.Equal(t, msgp.Raw{2}, got)
	var names []string
	protocol.EachField(twice, func(name []byte, _ msgp.Raw) bool { names = append(names, string(name)); return true })
	require.Equal(t, []string{"a", "a"}, names)
	protocol.EachField(twice, func([]byte, msgp.Raw) bool { names = nil; return false })
	require.Nil(t, names)
}

func TestElementsOfValues(t *testing.T) {
	sum := 0.0
	require.True(t, protocol.EachItem(pack(t, []any{1, 2.5, "x"}), func(v msgp.Raw) bool {
		n, ok := protocol.Number(v)
		sum += n
		return ok
	}))
	require.Equal(t, 3.5, sum)
	require.False(t, protocol.EachItem(pack(t, m{}), nil))
	require.False(t, protocol.EachItem(nil, nil))
	text, ok := protocol.Text(pack(t, "x"))
	require.True(t, ok)
	require.Equal(t, "x", string(text))
	v, ok := protocol.Bool(pack(t, true))
	require.True(t, v && ok)
	for _, none := range []msgp.Raw{nil, pack(t, nil), {0xd4, 1, 2}} {
		require.True(t, protocol.IsNil(none))
	}
	require.False(t, protocol.IsNil(pack(t, 0)))
}

func TestSortedFormsAreEqualForEqualValues(t *testing.T) {
	for _, pair := range [][2]any{
		{1, 1.0}, {0.0, math.Copysign(0, -1)}, {m{"a": 1, "b": []any{2}}, m{"b": []any{2.0}, "a": uint8(1)}}, {nil, nil}, {"x", "x"}, {[]byte{1}, []byte{1}},
	} {
		require.Equal(t, protocol.AppendSorted(nil, pack(t, pair[0])), protocol.AppendSorted(nil, pack(t, pair[1])))
	}
	// The same map in two orders.
	require.Equal(t, protocol.AppendSorted(nil, []byte{0x82, 0xa1, 'a', 1, 0xa1, 'b', 2}), protocol.AppendSorted(nil, []byte{0x82, 0xa1, 'b', 2, 0xa1, 'a', 1}))
	different := []any{nil, 0, 1, "1", true, []any{}, m{}, m{"a": 1}, m{"a": nil}, []any{1}, []byte("1")}
	for i := range different {
		for j := range i {
			require.NotEqual(t, protocol.AppendSorted(nil, pack(t, different[i])), protocol.AppendSorted(nil, pack(t, different[j])), "%v, %v", different[i], different[j])
		}
	}
}
