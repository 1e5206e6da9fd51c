package transport

import (
	"fmt"

	"github.com/quorate/quorate/transport/admin"
	"github.com/quorate/quorate/transport/auth"
	"github.com/quorate/quorate/transport/health"
	"github.com/quorate/quorate/transport/policy"
	"github.com/quorate/quorate/transport/ws"
)

// newAdmin returns the handler of what operators see and change.
func (s *Server) newAdmin() (*admin.Handler, error) {
	cfg := s.cfg.Admin
	cfg.AllowedOrigins = s.cfg.WebSocket.AllowedOrigins
	deps := admin.Deps{
		Logger: s.deps.Logger, Now: s.deps.Now, Tokens: s.deps.Tokens, Guard: s.guard, Cluster: s.deps.Cluster,
		Backend: s.document, Apply: s.apply, Check: s.deps.CheckLog, Changed: s.follow,
		Draining:   func() bool { return s.health.State() >= health.Draining },
		Registerer: s.deps.Registerer,
	}
	if s.verifier != nil {
		deps.Clients = s.verifier
	}
	return admin.New(cfg, deps, described())
}

// document returns the cluster for operators, nil while there is none.
func (s *Server) document() admin.Backend {
	if b := s.backend.Load(); b != nil {
		return *b
	}
	return nil
}

// apply puts settings into force on this node.
func (s *Server) apply(r admin.Runtime) error {
	s.ws.SetLimits(ws.Limits{ConcurrentOperations: r.MaxConcurrentOperations, Connections: r.MaxConnections, OperationsPerSecond: r.OperationsPerSecond})
	s.sync.SetRate(r.OperationsPerSecond)
	if s.deps.Apply == nil {
		return nil
	}
	return s.deps.Apply(r)
}

// verifying checks tokens, and refuses those of revoked subjects.
type verifying struct {
	ws.Verifier
	revoked *auth.Revocations
}

// Verify implements ws.Verifier.
func (v verifying) Verify(token string) (auth.Principal, error) {
	p, err := v.Verifier.Verify(token)
	if err == nil && v.revoked.Revoked(p) {
		return auth.Principal{}, fmt.Errorf("%w: the subject is revoked", auth.ErrRefused)
	}
	return p, err
}

// follow puts the policies, revocations and settings of the cluster into force as this node
// has them.
func (s *Server) follow() {
	b := s.document()
	if b == nil {
		return
	}
	s.guard.Update(b.Document(policy.DocumentName))
	changed, err := s.revoked.Update(b.Document(auth.RevocationsDocument))
	if err != nil {
		s.log.Error("revocations cannot be read, every client is refused", "err", err)
	}
	if changed {
		s.ws.Cut(s.revoked.Revoked)
	}
	s.admin.Follow()
}

// followAll does so after each change, until the Server is closed.
func (s *Server) followAll(b Backend) {
	changed := make(chan struct{}, 1)
	cancel := b.MapChanged(func() {
		select {
		case changed <- struct{}{}:
		default: // what is due shows later changes too
		}
	})
	defer cancel()
	for {
		s.follow()
		select {
		case <-changed:
		case <-s.stop:
			return
		}
	}
}

// caughtUp reports whether the node can serve at present. What it has caught up with
// includes policies: no client is served before they are in force.
func (s *Server) caughtUp() bool {
	if s.deps.CaughtUp != nil && !s.deps.CaughtUp() {
		return false
	}
	s.follow()
	return true
}

// Operations is the number of client operations that were handled since the start.
func (s *Server) Operations() int64 { return s.ws.Operations() + s.sync.Operations() }

// Connections is the number of open client connections.
func (s *Server) Connections() int { return s.ws.Connections() }
