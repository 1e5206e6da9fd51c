package ws

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/transport/auth"
)

func named(subject string) func(auth.Principal) bool {
	return func(p auth.Principal) bool { return !p.Admin && p.ID == subject }
}

func TestConnectionsOfARevokedSubjectAreClosed(t *testing.T) {
	f, _ := guarded(t, false, allow("a", "**", "all", ""))
	first, second, other, boss := f.login("ann:"), f.login("ann:editor"), f.login("bob:"), f.login("root:")
	f.Cut(named("ann"))
	require.Equal(t, protocol.CloseAuth, first.expectClose())
	require.Equal(t, protocol.CloseAuth, second.expectClose())
	other.silent()
	boss.silent()
	f.Cut(named("nobody"))
	again := f.login("ann:")
	again.silent()
}

// late revokes the subject of a token when it was just verified.
type late struct {
	people
	s **Server
}

func (l late) Verify(token string) (auth.Principal, error) {
	p, err := l.people.Verify(token)
	(*l.s).Cut(named(p.ID))
	return p, err
}

func TestARevocationWhileATokenIsVerifiedIsNotMissed(t *testing.T) {
	var s *Server
	f := start(t, func(_ *Config, d *Deps, _ *fakeBackend) { d.Verifier = late{s: &s} })
	s = f.Server
	c := f.dial()
	expect[*protocol.AuthRequired](c)
	c.send(&protocol.Auth{Token: "ann:"})
	require.Equal(t, protocol.CloseAuth, c.expectClose())
}
