package ws

// Limits are those bounds of a Server that can be changed while it runs. Zero of
// Connections means no bound.
type Limits struct {
	// ConcurrentOperations bounds the writes and queries under way, Connections the open
	// connections, OperationsPerSecond the sustained rate of each connection.
	ConcurrentOperations, Connections, OperationsPerSecond int
}

// SetLimits changes the bounds. What is beyond them already stays. A rate has no effect
// where Config has no bound for it.
func (s *Server) SetLimits(l Limits) {
	s.changing.Store(&l)
	s.gate.ops.resize(l.ConcurrentOperations)
}

// Limits returns the bounds in force.
func (s *Server) Limits() Limits { return *s.changing.Load() }

// Operations is the number of client operations that were handled since the start.
func (s *Server) Operations() int64 { return s.metrics.all.Load() }

// reached reports whether so many connections are all that there may be.
func (s *Server) reached(connections int) bool {
	limit := s.changing.Load().Connections
	return limit > 0 && connections >= limit
}
