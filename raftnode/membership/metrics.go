package membership

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorate/quorate/fsm/system"
)

// metrics are the measurements of one Agent.
type metrics struct {
	registerer prometheus.Registerer
	pings      *prometheus.CounterVec
	changes    *prometheus.CounterVec
	members    *prometheus.GaugeVec
	table      prometheus.Gauge
}

// newMetrics registers the collectors, unless r is nil.
func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		registerer: r,
		pings: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quorate_membership_pings_total", Help: "Exchanges with other members, by result.",
		}, []string{"result"}),
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quorate_membership_changes_total", Help: "Changes to groups that this node led, by kind and result.",
		}, []string{"kind", "result"}),
		members: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "quorate_membership_members", Help: "Members of the cluster, by status.",
		}, []string{"status"}),
		table: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "quorate_membership_table_version", Help: "Version of the partition table that this node acts on.",
		}),
	}
	if r == nil {
		return m, nil
	}
	for _, c := range m.collectors() {
		if err := r.Register(c); err != nil {
			m.unregister()
			return nil, fmt.Errorf("register membership metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.pings, m.changes, m.members, m.table}
}

func (m *metrics) unregister() {
	if m.registerer == nil {
		return
	}
	for _, c := range m.collectors() {
		m.registerer.Unregister(c)
	}
}

func (m *metrics) pinged(err error) { m.pings.WithLabelValues(result(err)).Inc() }

func (m *metrics) changed(kind actionKind, err error) {
	m.changes.WithLabelValues(kind.String(), result(err)).Inc()
}

func (m *metrics) adopted(state *system.State) {
	m.table.Set(float64(state.Table.Version))
	m.members.Reset()
	for _, member := range state.Members {
		m.members.WithLabelValues(member.Status.String()).Inc()
	}
}

func result(err error) string {
	if err != nil {
		return "error"
	}
	return "ok"
}
