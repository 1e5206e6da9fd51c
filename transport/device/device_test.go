package device

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestATokenIsKnownByEveryNodeOfItsClusterAndByNobodyElse(t *testing.T) {
	issuer := New([]byte("secret"), "c1")
	d := issuer.Issue("user")
	require.NotEqual(t, d, issuer.Issue("user"))
	id, ok := New([]byte("secret"), "c1").Check("user", d.Token)
	require.True(t, ok)
	require.Equal(t, d.ID, id)
	for name, other := range map[string]*Issuer{"another secret": New([]byte("x"), "c1"), "another cluster": New([]byte("secret"), "c2"), "no secret": New(nil, "c1")} {
		_, ok := other.Check("user", d.Token)
		require.False(t, ok, name)
	}
	for _, token := range []string{"", ".", d.ID, d.ID + ".", d.ID + ".00", d.Token + "0", "x" + d.Token} {
		_, ok := issuer.Check("user", token)
		require.False(t, ok, token)
	}
	_, ok = issuer.Check("another user", d.Token)
	require.False(t, ok)
}
