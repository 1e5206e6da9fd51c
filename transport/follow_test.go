package transport

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/transport/auth"
)

// anybody is a Verifier whose tokens are subjects; "root" is an operator.
type anybody struct{}

func (anybody) Verify(token string) (auth.Principal, error) {
	return auth.Principal{ID: token, Admin: token == "root"}, nil
}

func (anybody) Message(err error) string { return err.Error() }

func TestTokensOfRevokedSubjectsAreRefused(t *testing.T) {
	var revoked auth.Revocations
	v := verifying{Verifier: anybody{}, revoked: &revoked}
	list, err := auth.WithRevocation(nil, auth.Revocation{Subject: "ann"})
	require.NoError(t, err)
	list, err = auth.WithRevocation(list, auth.Revocation{Subject: "root"})
	require.NoError(t, err)
	document, err := auth.EncodeRevocations(list)
	require.NoError(t, err)
	_, err = v.Verify("ann")
	require.NoError(t, err)
	_, err = revoked.Update(document, 1)
	require.NoError(t, err)
	_, err = v.Verify("ann")
	require.ErrorIs(t, err, auth.ErrRefused)
	for _, token := range []string{"bob", "root"} {
		_, err = v.Verify(token)
		require.NoError(t, err)
	}
}
