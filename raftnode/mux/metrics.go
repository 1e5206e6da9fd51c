package mux

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the measurements of one Mux. Labels have few values; peers are not
// among them.
type metrics struct {
	conns      *prometheus.GaugeVec   // open connections, by direction and what they carry
	handshakes *prometheus.CounterVec // by direction and result
	calls      *prometheus.CounterVec // calls made, by result
	callTime   prometheus.Histogram   // calls that were answered, in seconds
	served     *prometheus.CounterVec // calls of peers, by result

	registerer prometheus.Registerer
}

// newMetrics registers the metrics, if there is where.
func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		conns: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "quorate_peer_connections", Help: "Open connections between this node and others.",
		}, []string{"direction", "carries"}),
		handshakes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quorate_peer_handshakes_total", Help: "Handshakes with other nodes.",
		}, []string{"direction", "result"}),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quorate_peer_calls_total", Help: "Calls made to other nodes.",
		}, []string{"result"}),
		callTime: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "quorate_peer_call_seconds", Help: "Time from a call to its reply.",
			Buckets: prometheus.ExponentialBuckets(50e-6, 4, 10),
		}),
		served: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quorate_peer_served_total", Help: "Calls of other nodes answered.",
		}, []string{"result"}),
		registerer: r,
	}
	if r == nil {
		return m, nil
	}
	for i, c := range m.all() {
		if err := r.Register(c); err != nil {
			for _, done := range m.all()[:i] {
				r.Unregister(done)
			}
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.conns, m.handshakes, m.calls, m.callTime, m.served}
}

func (m *metrics) unregister() {
	if m.registerer == nil {
		return
	}
	for _, c := range m.all() {
		m.registerer.Unregister(c)
	}
}

// outcome names the class of an error of a call or handshake.
func outcome(err error) string {
	if err == nil {
		return "ok" // before the variables below, which are allocated
	}
	var refused *RefusedError
	var remote *RemoteError
	switch {
	case errors.As(err, &refused):
		return refused.Code.String()
	case errors.Is(err, ErrWrongSecret):
		return "wrong_secret"
	case errors.As(err, &remote):
		return "error"
	case errors.Is(err, ErrNoReply):
		return "no_reply"
	case errors.Is(err, ErrTooLarge):
		return "too_large"
	case errors.Is(err, ErrUnreachable):
		return "unreachable"
	default:
		return "failed"
	}
}
