package auth

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func revocationsOf(t *testing.T, subjects ...string) []byte {
	var list []Revocation
	for _, s := range subjects {
		var err error
		list, err = WithRevocation(list, Revocation{Subject: s, By: "admin"})
		require.NoError(t, err)
	}
	b, err := EncodeRevocations(list)
	require.NoError(t, err)
	return b
}

func TestRevocationsNameSubjects(t *testing.T) {
	var r Revocations
	ann, bob := Principal{ID: "ann"}, Principal{ID: "bob"}
	require.False(t, r.Revoked(ann), "the zero value revokes nobody")
	changed, err := r.Update(nil, 0)
	require.NoError(t, err)
	require.False(t, changed, "there is no document")

	changed, err = r.Update(revocationsOf(t, "zoe", "ann", "ann"), 2)
	require.NoError(t, err)
	require.True(t, changed)
	require.True(t, r.Revoked(ann))
	require.False(t, r.Revoked(bob))
	require.False(t, r.Revoked(Principal{ID: "ann", Admin: true}), "an operator is not that subject")

	changed, _ = r.Update(revocationsOf(t), 1)
	require.False(t, changed, "an older version")
	require.True(t, r.Revoked(ann))
	_, _ = r.Update(revocationsOf(t), 3)
	require.False(t, r.Revoked(ann))
}

func TestRevocationsThatCannotBeReadRevokeEverybody(t *testing.T) {
	for _, bad := range []string{"{", `{"format":9}`, "[]"} {
		var r Revocations
		_, err := r.Update([]byte(bad), 1)
		require.Error(t, err, bad)
		require.True(t, r.Revoked(Principal{ID: "ann"}))
		require.False(t, r.Revoked(Principal{ID: "admin", Admin: true}), "who can mend it")
	}
}

func TestRevocationsAreBounded(t *testing.T) {
	for _, subject := range []string{"", strings.Repeat("x", MaxRevokedLength+1), "\xff"} {
		_, err := WithRevocation(nil, Revocation{Subject: subject})
		require.ErrorIs(t, err, ErrBadSubject)
	}
	_, err := EncodeRevocations(make([]Revocation, MaxRevocations+1))
	require.ErrorIs(t, err, ErrTooManyRevocations)
	list := []Revocation{{Subject: "a"}, {Subject: "b"}}
	require.Equal(t, []Revocation{{Subject: "b"}}, WithoutRevocation(list, "a"))
	require.Equal(t, list, WithoutRevocation(list, "c"))
}
