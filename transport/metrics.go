package transport

import (
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are the measurements of the listener.
type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	// turnedAway counts connections beyond the bound.
	turnedAway prometheus.Counter
	inFlight   atomic.Int64
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	m := &metrics{
		requests: f.NewCounterVec(prometheus.CounterOpts{
			Name: "service_http_requests_total", Help: "HTTP requests by route and status; the route is empty where there is none.",
		}, []string{"route", "status"}),
		duration: f.NewHistogramVec(prometheus.HistogramOpts{
			Name: "service_http_request_duration_seconds", Help: "Time to answer an HTTP request, by route.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 3, 10),
		}, []string{"route"}),
	}
	m.turnedAway = f.NewCounter(prometheus.CounterOpts{
		Name: "service_http_sockets_refused_total", Help: "TCP connections that were closed at once, because the listener had as many as it may have.",
	})
	f.NewGaugeFunc(prometheus.GaugeOpts{Name: "service_http_requests_in_flight", Help: "HTTP requests that are being answered, open WebSocket upgrades aside."},
		func() float64 { return float64(m.inFlight.Load()) })
	for _, op := range described() {
		route := op.Method + " " + op.Path
		if op.Path == "/" {
			route = upgrades[1]
		}
		m.requests.WithLabelValues(route, "200")
		m.duration.WithLabelValues(route)
	}
	return m
}

// begin counts a request when done is called.
func (m *metrics) begin(w http.ResponseWriter, route string) (r *recorder, done func()) {
	m.inFlight.Add(1)
	started := time.Now()
	r = &recorder{ResponseWriter: w, status: http.StatusOK}
	return r, func() {
		m.inFlight.Add(-1)
		m.requests.WithLabelValues(route, strconv.Itoa(r.status)).Inc()
		m.duration.WithLabelValues(route).Observe(time.Since(started).Seconds())
	}
}

// recorder remembers the status of an answer.
type recorder struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (r *recorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController reach the connection.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
