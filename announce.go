package quorate

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/raftnode"
)

// newRegistry holds the metrics of the process besides those of the parts.
func newRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "service_build_info",
			Help:        "Always 1; the label is the version of the server.",
			ConstLabels: prometheus.Labels{"version": Version},
		}, func() float64 { return 1 }),
	)
	return r
}

// logLimits prints the effective limits, one line each.
func (s *Server) logLimits() {
	if s.cfg.Security.NoAuth {
		s.log.Warn("AUTHENTICATION IS OFF: everybody who reaches this node can read and change everything", "host", s.cfg.BindHost())
	}
	st := &s.cfg.Storage
	s.log.Info("memory and durability",
		"storage_backend", string(st.Backend),
		"max_ram_mb", st.Cache.MaxRAMMB,
		"high_water_pct", st.Cache.HighPercent,
		"low_water_pct", st.Cache.LowPercent,
		"interval_ms", st.Cache.Interval.Milliseconds(),
		"write_behind_enabled", st.Backend != BackendNull,
		"write_behind_interval_ms", st.WriteBehind.FlushInterval.Milliseconds(),
		"write_behind_batch_size", st.WriteBehind.BatchSize,
		"write_behind_capacity", st.WriteBehind.Capacity,
		"wal_enabled", st.Backend != BackendNull,
		"wal_dir", s.cfg.raftDir(),
	)
	if st.Backend == BackendNull {
		s.log.Info("eviction is off: with the backend null everything stays in memory, and is lost at the end")
	}
	s.log.Info("semantic search is off",
		"embedding_provider", "none", "embedding_dimension", 0, "semantic_search_enabled", false, "vectorized_maps", "")
	t := s.cfg.transportConfig()
	ws := &t.WebSocket
	s.log.Info("limits",
		"frame_bytes", protocol.MaxFrame,
		"batch_ops", protocol.MaxBatchItems,
		"value_bytes", ws.MaxValueBytes,
		"connections", ws.MaxConnections,
		"sockets", t.MaxSockets,
		"outbound_frames", ws.Connection.OutboundCapacity,
		"send_timeout_ms", ws.Connection.SendTimeout.Milliseconds(),
		"idle_timeout_ms", ws.Connection.IdleTimeout.Milliseconds(),
		"auth_timeout_ms", ws.AuthTimeout.Milliseconds(),
		"operation_timeout_ms", ws.OperationTimeout.Milliseconds(),
		"concurrent_operations", ws.MaxConcurrentOperations,
		"ops_per_second", ws.RatePerSecond,
		"shutdown_timeout_ms", drainTimeout.Milliseconds(),
	)
}

// announce prints one line when the node first can serve, until ctx ends.
func (s *Server) announce(ctx context.Context, node *Node) {
	changed, cancel := node.Agent().Subscribe()
	defer cancel()
	poll := time.NewTicker(100 * time.Millisecond)
	defer poll.Stop()
	for !node.CaughtUp() {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-poll.C: // leaders are found without a change of documents
		}
	}
	status := node.Status()
	role, term := "none", uint64(0)
	for _, g := range status.Groups {
		if g.Group == raftnode.SystemGroup {
			role, term = g.Role, g.Term
		}
	}
	s.log.Info("node is ready",
		"node", status.NodeID, "peer_addr", status.PeerAddr, "client_url", status.ClientURL, "cluster", status.ClusterID,
		"cluster_size", len(status.live()), "role", role, "term", term)
}

// live are the members that are part of the cluster now.
func (s *Status) live() []MemberStatus {
	var list []MemberStatus
	for _, m := range s.Members {
		if m.Status != "removed" {
			list = append(list, m)
		}
	}
	return list
}
