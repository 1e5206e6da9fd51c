package auth

import (
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"
)

func TestOnlyItsOwnTokensOpenTheAdminPlane(t *testing.T) {
	now := int64(1_800_000_000_000)
	clock := func() int64 { return now }
	secret := []byte(strings.Repeat("s", 32))
	admin, err := NewAdmin(secret, clock)
	require.NoError(t, err)
	token, err := admin.Issue("ops")
	require.NoError(t, err)
	p, err := admin.Verify(token)
	require.NoError(t, err)
	require.Equal(t, Principal{ID: "ops", Roles: []string{"admin"}, Admin: true, ValidUntil: time.UnixMilli(now).Add(8 * time.Hour)}, p)

	peer, err := NewAdmin(secret, clock)
	require.NoError(t, err)
	_, err = peer.Verify(token)
	require.NoError(t, err, "every node of the cluster takes it")

	claims := jwt.MapClaims{"sub": "eve", "roles": []string{"admin"}, "aud": "admin", "exp": now/1000 + 60}
	forged, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(secret)
	require.NoError(t, err)
	none, err := jwt.NewWithClaims(jwt.SigningMethodNone, claims).SignedString(jwt.UnsafeAllowNoneSignatureType)
	require.NoError(t, err)
	wide, err := jwt.NewWithClaims(jwt.SigningMethodHS512, claims).SignedString(admin.key)
	require.NoError(t, err)
	foreign, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"sub": "eve", "aud": "client", "exp": now/1000 + 60}).SignedString(admin.key)
	require.NoError(t, err)
	nameless, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"aud": "admin", "exp": now/1000 + 60}).SignedString(admin.key)
	require.NoError(t, err)
	eternal, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"sub": "eve", "aud": "admin"}).SignedString(admin.key)
	require.NoError(t, err)
	for _, bad := range []string{forged, none, wide, foreign, nameless, eternal, "", token + "=", token[:len(token)-2], strings.Repeat("a", 1<<20)} {
		_, err := admin.Verify(bad)
		require.ErrorIs(t, err, ErrRefused)
	}

	clients, err := New(Config{Secret: secret, Leeway: time.Minute, MaxTokenBytes: 16 << 10}, Deps{Logger: hclog.NewNullLogger(), Now: clock, Admin: admin})
	require.NoError(t, err)
	p, err = clients.Verify(token)
	require.NoError(t, err)
	require.True(t, p.Admin)
	p, err = clients.Verify(forged)
	require.NoError(t, err)
	require.False(t, p.Admin, "a client's token makes no operator")

	now += (8 * time.Hour).Milliseconds()
	_, err = admin.Verify(token)
	require.ErrorIs(t, err, ErrRefused)
}

func TestWithoutASecretTokensAreThoseOfOneNode(t *testing.T) {
	clock := func() int64 { return 1_800_000_000_000 }
	a, err := NewAdmin(nil, clock)
	require.NoError(t, err)
	b, err := NewAdmin(nil, clock)
	require.NoError(t, err)
	token, err := a.Issue("ops")
	require.NoError(t, err)
	_, err = b.Verify(token)
	require.ErrorIs(t, err, ErrRefused)
}
