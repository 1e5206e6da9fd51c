package quorate

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// nodeCollector shows what the parts of the node know of themselves when they are asked;
// before the node is open, zeros.
type nodeCollector struct {
	server *Server

	ready, owned, pending, lag, watermark, nodes, documents, memory *prometheus.Desc
}

func newNodeCollector(s *Server) *nodeCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("service_"+name, help, labels, nil)
	}
	return &nodeCollector{
		server:    s,
		ready:     desc("ready", "1 while the readiness probe answers 200."),
		owned:     desc("partitions_owned", "Partitions whose group this node leads."),
		pending:   desc("writebehind_pending", "Records that are in the log and not yet in the store."),
		lag:       desc("replication_lag_entries", "Committed entries that this node's replicas have not applied yet, over all groups."),
		watermark: desc("wal_applied_watermark_lag", "Applied entries of a group's log that are not in the store yet; the label is the group's number, 0 that of the system group.", "partition"),
		nodes:     desc("cluster_nodes", "Members of the cluster by state, as this node sees them.", "state"),
		documents: desc("document_version", "Version of a document of the operators that this node follows.", "document"),
		memory:    desc("memory_bytes", "Memory that the process holds.", "area"),
	}
}

// Describe implements prometheus.Collector.
func (c *nodeCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.ready, c.owned, c.pending, c.lag, c.watermark, c.nodes, c.documents, c.memory} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *nodeCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	node := c.server.current()
	ready, owned, pending, lag := 0.0, 0, 0, uint64(0)
	states := map[string]int{"joining": 0, "active": 0, "suspect": 0, "leaving": 0, "failed": 0}
	versions := map[string]uint64{"policies": 0, "settings": 0}
	watermarks := map[uint32]uint64{0: 0}
	if node != nil {
		pending = node.flusher.Pending()
		status := node.Status()
		for i := range status.Groups {
			g := &status.Groups[i]
			lag += g.Lag
			watermarks[g.Group] = g.AppliedIndex - min(g.AppliedIndex, g.FlushedIndex)
		}
		for _, m := range status.live() {
			states[m.Status]++
		}
		for name := range versions {
			_, versions[name] = node.Router().Document(name)
		}
		owned = node.partitionsOwned()
	}
	if c.server.transport.Ready() {
		ready = 1
	}
	gauge(c.ready, ready)
	gauge(c.owned, float64(owned))
	gauge(c.pending, float64(pending))
	gauge(c.lag, float64(lag))
	for group, n := range watermarks {
		gauge(c.watermark, float64(n), strconv.FormatUint(uint64(group), 10))
	}
	for state, n := range states {
		gauge(c.nodes, float64(n), state)
	}
	for name, version := range versions {
		gauge(c.documents, float64(version), name)
	}
	gauge(c.memory, float64(memoryBytes()), "go")
}

// partitionsOwned counts the partitions whose group this node leads.
func (n *Node) partitionsOwned() int {
	info := n.router.PartitionMap()
	if info == nil {
		return 0
	}
	owned := 0
	for _, owner := range info.Owner {
		if owner == n.cfg.NodeID {
			owned++
		}
	}
	return owned
}
