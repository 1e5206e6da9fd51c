package protocol_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/protocol"
)

func TestWriteConcernsAreOrderedAndNamed(t *testing.T) {
	names := []string{"", "FIRE_AND_FORGET", "MEMORY", "APPLIED", "REPLICATED", "PERSISTED"}
	for i, name := range names {
		w, err := protocol.ParseWriteConcern(name)
		require.NoError(t, err)
		require.Equal(t, protocol.WriteConcern(i), w, "the order is the strength")
		require.Equal(t, name, w.String())
	}
	_, err := protocol.ParseWriteConcern("memory")
	require.Error(t, err)
	require.Equal(t, "WriteConcern(9)", protocol.WriteConcern(9).String())
}

func TestTemporaryCodes(t *testing.T) {
	for code, temporary := range map[protocol.Code]bool{
		protocol.CodeMalformed: false, protocol.CodeForbidden: false, protocol.CodeStale: false,
		protocol.CodeTooLarge: false, protocol.CodeNotImplemented: false,
		protocol.CodeOverloaded: true, protocol.CodeInternal: true, protocol.CodeUnavailable: true,
	} {
		require.Equal(t, temporary, code.Temporary(), "%d", code)
	}
}

func TestNodeIDsBeyondASCIIAreOrderedByCodeUnit(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{
		{"é", "é", 0}, {"e", "é", -1}, {"é", "z", 1}, {"é", "éa", -1}, {"\uffff", "😀", 1}, {"a\x01", "a", 1}, {"\xff", "\xfe", 1},
	} {
		require.Equal(t, tt.want, protocol.CompareNodeIDs(tt.a, tt.b), "%q against %q", tt.a, tt.b)
		require.Equal(t, -tt.want, protocol.CompareNodeIDs(tt.b, tt.a), "%q against %q", tt.b, tt.a)
	}
}
