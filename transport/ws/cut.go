package ws

import (
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/transport/auth"
)

// Cut closes every connection whose client revoked names, now and from now on: one that
// authenticates meanwhile is closed too. Nothing that waits to be sent is sent; what was
// begun is seen through. It does not block. A later call replaces revoked, which must be
// safe for concurrent use.
func (s *Server) Cut(revoked func(auth.Principal) bool) {
	s.revoked.Store(&revoked)
	for _, c := range s.all() {
		s.cutIfRevoked(c)
	}
}

// cutIfRevoked closes a connection if its client is shut out, and reports whether it is.
func (s *Server) cutIfRevoked(c *conn) bool {
	revoked, caller := s.revoked.Load(), c.auth.caller.Load()
	if revoked == nil || caller == nil || !(*revoked)(auth.Principal{ID: caller.ID, Roles: caller.Roles, Admin: caller.Admin}) {
		return false
	}
	s.metrics.limit("revoked")
	c.end(closeNow, protocol.CloseAuth, reasonRevoked)
	return true
}
