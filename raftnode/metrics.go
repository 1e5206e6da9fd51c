package raftnode

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"
)

// groupCounters count what happens in one replica.
type groupCounters struct {
	elected, leaderChanges, replaced, installed atomic.Int64

	// The leader that was counted last. Only supervise uses them.
	leader     ServerID
	leaderTerm uint64
}

// metrics exposes a Host. Values that a group knows anyway are read when they are
// asked for.
type metrics struct {
	host       *Host
	registerer prometheus.Registerer
	commands   *prometheus.HistogramVec
	stalled    *prometheus.Desc
	group      []groupMetric
}

// groupMetric is a value of every running group.
type groupMetric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(g *Group) float64
}

func newMetrics(h *Host) *metrics {
	m := &metrics{
		host:       h,
		registerer: h.deps.Registerer,
		commands: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "quorate_raft_entry_commands",
			Help:    "Commands per proposed log entry.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 9),
		}, []string{"group"}),
		stalled: prometheus.NewDesc("quorate_raft_log_stalled",
			"1 while the log hangs and no leadership is exercised.", nil, nil),
		group: groupMetrics(),
	}
	if m.registerer != nil {
		m.registerer.MustRegister(m)
	}
	return m
}

func groupMetrics() []groupMetric {
	one := func(kind prometheus.ValueType, name, help string, value func(g *Group) float64) groupMetric {
		return groupMetric{prometheus.NewDesc("quorate_raft_"+name, help, []string{"group"}, nil), kind, value}
	}
	gauge, counter := prometheus.GaugeValue, prometheus.CounterValue
	return []groupMetric{
		one(gauge, "term", "Current term.", func(g *Group) float64 { return float64(g.instance().raft.CurrentTerm()) }),
		one(gauge, "leader", "1 while this replica leads.", func(g *Group) float64 { return oneIf(g.instance().raft.State() == raft.Leader) }),
		one(gauge, "ready", "1 while this replica accepts proposals.", func(g *Group) float64 { return oneIf(g.IsLeader()) }),
		one(gauge, "commit_index", "Last entry known to be committed.", func(g *Group) float64 { return float64(g.instance().raft.CommitIndex()) }),
		one(gauge, "applied_index", "Last entry in the state.", func(g *Group) float64 { return float64(g.raiseApplied()) }),
		one(gauge, "flushed_index", "Last entry in the durable state.", func(g *Group) float64 { return float64(g.machine.Flushed().Index) }),
		one(gauge, "queued_commands", "Commands that wait for an entry.", func(g *Group) float64 { return float64(g.batcher.queue.waiting()) }),
		one(counter, "elections_won_total", "Terms that this replica led.", func(g *Group) float64 { return float64(g.counters.elected.Load()) }),
		one(counter, "leader_changes_total", "Changes of leader or term seen.", func(g *Group) float64 { return float64(g.counters.leaderChanges.Load()) }),
		one(counter, "instances_replaced_total", "Raft instances replaced because they were stuck.", func(g *Group) float64 { return float64(g.counters.replaced.Load()) }),
		one(counter, "snapshots_installed_total", "Snapshots received and restored.", func(g *Group) float64 { return float64(g.counters.installed.Load()) }),
		one(counter, "apply_busy_seconds_total", "Time spent applying entries; its rate is the saturation of the apply loop.",
			func(g *Group) float64 { return time.Duration(g.applier.busyNanos.Load()).Seconds() }),
	}
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	m.commands.Describe(ch)
	ch <- m.stalled
	for _, gm := range m.group {
		ch <- gm.desc
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	m.commands.Collect(ch)
	ch <- prometheus.MustNewConstMetric(m.stalled, prometheus.GaugeValue, oneIf(m.host.stalled.Load()))
	for _, g := range m.host.Groups() {
		label := groupLabel(g.id)
		for _, gm := range m.group {
			ch <- prometheus.MustNewConstMetric(gm.desc, gm.kind, gm.value(g), label)
		}
	}
}

// entry returns what counts the commands of the entries of a group.
func (m *metrics) entry(group uint32) func(commands int) {
	histogram := m.commands.WithLabelValues(groupLabel(group))
	return func(commands int) { histogram.Observe(float64(commands)) }
}

func (m *metrics) close() {
	if m.registerer != nil {
		m.registerer.Unregister(m)
	}
}

func groupLabel(group uint32) string { return strconv.FormatUint(uint64(group), 10) }
