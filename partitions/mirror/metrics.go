package mirror

import (
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the measurements of one Mirror.
type metrics struct {
	rows     prometheus.Counter
	seconds  prometheus.Histogram
	failures *prometheus.CounterVec

	// mu protects failing: the class of the last failure of a group since its last success.
	mu      sync.Mutex
	failing map[uint32]string
}

// classes are those of postgres.Class.
var classes = []string{"foreign", "back", "deposed", "conflict", "timeout", "refused", "unreachable"}

func newMetrics(r prometheus.Registerer, m *Mirror) (*metrics, error) {
	x := &metrics{
		failing: map[uint32]string{},
		rows: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "quorate_relational_rows_total", Help: "Rows written to the database.",
		}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "quorate_relational_transaction_seconds", Help: "Time of one transaction of the database.",
			Buckets: prometheus.ExponentialBuckets(1e-3, 4, 9),
		}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quorate_relational_failures_total", Help: "Failed transactions of the database, by class.",
		}, []string{"class"}),
	}
	for _, class := range classes {
		x.failures.WithLabelValues(class)
	}
	if r == nil {
		return x, nil
	}
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	for _, c := range []prometheus.Collector{
		x.rows, x.seconds, x.failures,
		gauge("quorate_relational_pending", "Changed keys that wait for the database.", func() float64 { return float64(m.Pending()) }),
		gauge("quorate_relational_rejected", "Keys whose rows the database refuses.", func() float64 { return float64(m.rejected()) }),
		gauge("quorate_relational_available", "1 while the database takes what is written.", func() float64 {
			if x.available() {
				return 1
			}
			return 0
		}),
	} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return x, nil
}

// failure counts a failure, and reports whether it is another one than the last.
func (x *metrics) failure(group uint32, class string) bool {
	x.failures.WithLabelValues(class).Inc()
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.failing[group] == class {
		return false
	}
	x.failing[group] = class
	return true
}

// success ends the failures of a group, and reports whether there were any.
func (x *metrics) success(group uint32) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	_, failed := x.failing[group]
	delete(x.failing, group)
	return failed
}

// forget ends the failures of a group that this node does not lead.
func (x *metrics) forget(group uint32) { x.success(group) }

func (x *metrics) available() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.failing) == 0
}
