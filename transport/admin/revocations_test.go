package admin

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/transport/auth"
)

func TestSubjectsAreRevokedAndLetInAgain(t *testing.T) {
	changes := 0
	f := start(t, func(_ *Config, d *Deps) { d.Changed = func() { changes++ } })
	status, answer := f.do("GET", "/api/admin/revocations", "")
	require.Equal(t, 200, status)
	require.Empty(t, answer["revocations"])

	for _, subject := range []string{"ann", "team/bob", "ann"} {
		status, answer = f.do("POST", "/api/admin/revocations", `{"subject":"`+subject+`"}`)
		require.Equal(t, 201, status)
		require.Equal(t, subject, answer["subject"])
		require.Equal(t, "admin", answer["by"])
	}
	require.Equal(t, 3, changes, "a change is put into force before it is answered")
	list, err := auth.DecodeRevocations(f.cluster.documents[auth.RevocationsDocument])
	require.NoError(t, err)
	require.Equal(t, []auth.Revocation{{Subject: "ann", SinceMillis: testNow, By: "admin"}, {Subject: "team/bob", SinceMillis: testNow, By: "admin"}}, list)
	require.Contains(t, f.log.String(), "audit: subject revoked: subject=ann user=admin")

	status, _ = f.do("DELETE", "/api/admin/revocations/team%2Fbob", "")
	require.Equal(t, 204, status)
	_, answer = f.do("GET", "/api/admin/revocations", "")
	require.Len(t, answer["revocations"], 1)
	require.Contains(t, f.log.String(), "audit: revocation lifted: subject=team/bob")

	status, answer = f.do("POST", "/api/admin/revocations", `{"subject":""}`)
	require.Equal(t, 400, status)
	require.Equal(t, "subject", answer["field"])
	f.cluster.fail = partitions.ErrUnavailable
	status, _ = f.do("POST", "/api/admin/revocations", `{"subject":"eve"}`)
	require.Equal(t, 503, status)
}

func TestLiftingWhatWasNeverRevokedWritesNothing(t *testing.T) {
	f := start(t)
	status, _ := f.do("DELETE", "/api/admin/revocations/ann", "")
	require.Equal(t, 204, status)
	require.NotContains(t, f.cluster.documents, auth.RevocationsDocument)
}
