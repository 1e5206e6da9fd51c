package writebehind

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the measurements of one Flusher.
type metrics struct {
	pending  prometheus.GaugeFunc // dirty items
	items    prometheus.Counter   // items written
	seconds  prometheus.Histogram // time of a transaction
	failures prometheus.Counter   // failed writes; the first one is the last
}

// newMetrics registers the metrics, if there is where.
func newMetrics(r prometheus.Registerer, pending func() int) (*metrics, error) {
	m := &metrics{
		pending: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "quorate_writebehind_pending", Help: "Changed items that the store does not hold yet.",
		}, func() float64 { return float64(pending()) }),
		items: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "quorate_writebehind_items_total", Help: "Items written to the store.",
		}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "quorate_writebehind_flush_seconds", Help: "Time of one transaction of the store.",
			Buckets: prometheus.ExponentialBuckets(100e-6, 4, 10),
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "quorate_writebehind_failures_total", Help: "Failed transactions of the store.",
		}),
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.pending, m.items, m.seconds, m.failures} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}
