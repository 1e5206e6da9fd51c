package ws

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/quorate/quorate/protocol"
)

// Values of the label "service".
const (
	serviceWrite = "crdt"
	serviceQuery = "query"
	serviceSync  = "sync"
	serviceLock  = "lock"

	serviceCounter = "counter"
)

// metrics are the measurements of one Server. Every series exists from the start,
// so that the first scrape is complete. Indexing by kind instead of looking labels
// up keeps the cost of counting a frame to an atomic addition.
type metrics struct {
	in, out           []prometheus.Counter // by protocol.Kind; KindInvalid is "other"
	inBytes, outBytes prometheus.Counter
	closes            map[protocol.CloseCode]prometheus.Counter
	slowConsumers     prometheus.Counter
	auths             *prometheus.CounterVec
	limits            *prometheus.CounterVec
	errors            *prometheus.CounterVec
	operationsTotal   *prometheus.CounterVec
	duration          *prometheus.HistogramVec
	// all counts the operations of all services.
	all atomic.Int64
}

func newMetrics(reg prometheus.Registerer, s *Server) *metrics {
	f := promauto.With(reg)
	gauge := func(name, help string, value func() int) {
		f.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value()) })
	}
	gauge("service_active_connections", "Open client connections.", s.Connections)
	gauge("service_operations_in_flight", "Writes and queries that wait for the cluster.", s.InFlight)
	gauge("service_query_window_bytes", "What the windows of live queries keep of their rows.", func() int { return int(s.windowBytes.Load()) })
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return f.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{closes: map[protocol.CloseCode]prometheus.Counter{}}
	messages := counter("service_ws_messages_total", "Frames by direction and type.", "direction", "type")
	m.in, m.out = byKind(messages, "in", protocol.ServerToClient), byKind(messages, "out", protocol.ClientToServer)
	traffic := counter("service_ws_bytes_total", "Bytes of frames by direction.", "direction")
	m.inBytes, m.outBytes = traffic.WithLabelValues("in"), traffic.WithLabelValues("out")
	closes := counter("service_ws_closes_total", "Closed connections by Close code; 0 when the peer went away.", "code")
	for _, code := range []protocol.CloseCode{0, protocol.CloseShutdown, protocol.CloseTooBig, protocol.CloseRetry, protocol.CloseAuth, protocol.CloseIdle} {
		m.closes[code] = closes.WithLabelValues(strconv.Itoa(int(code)))
	}
	m.slowConsumers = f.NewCounter(prometheus.CounterOpts{Name: "service_slow_consumers_total", Help: "Connections closed because the client did not keep up."})
	m.auths = counter("service_auth_total", "Authentication attempts by result.", "method", "result")
	m.limits = counter("service_ws_limits_total", "Frames and connections refused at a limit.", "limit")
	m.operationsTotal = counter("service_operations_total", "Client operations by outcome.", "service", "outcome")
	m.errors = counter("service_operation_errors_total", "Refusals and failures told to clients, by cause.", "error")
	bounds := f.NewGaugeVec(prometheus.GaugeOpts{Name: "service_limit", Help: "Bounds in force that do not change at run time."}, []string{"limit"})
	for name, value := range fixedLimits(s.cfg) {
		bounds.WithLabelValues(name).Set(float64(value))
	}
	gauge("service_limit_concurrent_operations", "Writes and queries that may be under way.", func() int { return s.Limits().ConcurrentOperations })
	gauge("service_limit_connections", "Connections that may be open.", func() int { return s.Limits().Connections })
	gauge("service_limit_operations_per_second", "Sustained rate of one connection.", func() int { return s.Limits().OperationsPerSecond })
	m.duration = f.NewHistogramVec(prometheus.HistogramOpts{
		Name: "service_operation_duration_seconds", Help: "Time from a frame's arrival to its answer.",
		Buckets: prometheus.ExponentialBuckets(0.0002, 2.5, 14),
	}, []string{"service"})
	m.zero()
	return m
}

// zero creates the series of the remaining labels.
func (m *metrics) zero() {
	for _, result := range []string{"accepted", "refused"} {
		m.auths.WithLabelValues("jwt", result)
	}
	for _, limit := range []string{"rate", "overload", "queries", "connections", "address", "origin", "syncs", "stale_push", "resync", "topics", "publish", "message_lost", "forbidden", "revoked", "requests", "windows", "locks"} {
		m.limits.WithLabelValues(limit)
	}
	for _, name := range errorNames {
		m.errors.WithLabelValues(name)
	}
	m.errors.WithLabelValues(otherError)
	outcomes := map[string][]string{
		serviceWrite: {"ok", "refused", "unavailable", "unknown"},
		serviceQuery: {"ok", "unavailable", "failed"},
		serviceSync:  {"ok", "refused", "unavailable", "failed"},
		serviceLock:  {"ok", "refused", "unknown"},

		serviceCounter: {"ok", "refused", "unavailable"},
	}
	for service, list := range outcomes {
		m.duration.WithLabelValues(service)
		for _, outcome := range list {
			m.operationsTotal.WithLabelValues(service, outcome)
		}
	}
}

// byKind makes one counter per kind that may come in a direction; the others share
// "other".
func byKind(vec *prometheus.CounterVec, direction string, foreign protocol.Direction) []prometheus.Counter {
	other := vec.WithLabelValues(direction, "other")
	kinds := protocol.Kinds()
	list := make([]prometheus.Counter, len(kinds)+1)
	for i := range list {
		list[i] = other
	}
	for _, kind := range kinds {
		if d := kind.Direction(); d != foreign && d != protocol.NodeToNode && int(kind) < len(list) {
			list[kind] = vec.WithLabelValues(direction, kind.String())
		}
	}
	return list
}

func (m *metrics) received(kind protocol.Kind, size int) {
	m.in[kind].Inc()
	m.inBytes.Add(float64(size))
}

func (m *metrics) sent(kind protocol.Kind, size int) {
	m.out[kind].Inc()
	m.outBytes.Add(float64(size))
}

func (m *metrics) closed(code protocol.CloseCode) { m.closes[code].Inc() }
func (m *metrics) auth(result string)             { m.auths.WithLabelValues("jwt", result).Inc() }
func (m *metrics) limit(name string)              { m.limits.WithLabelValues(name).Inc() }

// errorNames name the codes that clients are told, and otherError every other.
var errorNames = map[protocol.Code]string{
	protocol.CodeMalformed: "malformed", protocol.CodeForbidden: "forbidden", protocol.CodeStale: "stale", protocol.CodeTooLarge: "too_large",
	protocol.CodeOverloaded: "overloaded", protocol.CodeInternal: "internal", protocol.CodeNotImplemented: "not_implemented", protocol.CodeUnavailable: "unavailable",
}

const otherError = "other"

// failed counts an answer that is a refusal or a failure.
func (m *metrics) failed(answer protocol.Message) {
	code := protocol.Code(0)
	switch answer := answer.(type) {
	case *protocol.ErrorMessage:
		code = answer.Code
	case *protocol.OpRejected:
		code = answer.Code
	default:
		return
	}
	name, known := errorNames[code]
	if !known {
		name = otherError
	}
	m.errors.WithLabelValues(name).Inc()
}

// fixedLimits are the bounds that do not change while the server runs.
func fixedLimits(c Config) map[string]int64 {
	return map[string]int64{
		"frame_bytes": protocol.MaxFrame, "frame_bytes_before_auth": int64(c.AuthFrameBytes), "batch_items": protocol.MaxBatchItems,
		"value_bytes": int64(c.MaxValueBytes), "connections_per_address": int64(c.MaxConnectionsPerAddress), "in_flight_bytes": c.MaxInFlightBytes,
		"frames_in_flight_per_connection": int64(c.Connection.InFlight), "queries_per_connection": int64(c.MaxQueries),
		"topics_per_connection": int64(c.MaxTopics), "counters_per_connection": int64(c.MaxCounters), "outbound_frames": int64(c.Connection.OutboundCapacity),
		"rows_per_response": int64(c.MaxRows), "rate_burst": int64(c.RateBurst),
		"nesting": int64(protocol.MaxDepth), "syncs_per_connection": int64(c.MaxSyncRequests), "sync_maps_per_connection": int64(c.MaxSyncMaps),
		"requests_per_connection": int64(c.MaxRequests), "lock_lease_ms": maxLease.Milliseconds(), "auth_timeout_ms": c.AuthTimeout.Milliseconds(),
		"idle_timeout_ms": c.Connection.IdleTimeout.Milliseconds(), "send_timeout_ms": c.Connection.SendTimeout.Milliseconds(),
		"operation_timeout_ms": c.OperationTimeout.Milliseconds(), "write_buffer_bytes": int64(c.Connection.WriteBufferSize),
		"write_buffer_bytes_most": int64(c.Connection.MaxWriteBufferSize), "query_window_bytes": c.MaxWindowBytes,
	}
}

// operations counts n operations of a service that ended alike after took.
func (m *metrics) operations(service, outcome string, n int, took time.Duration) {
	if n == 0 {
		return
	}
	m.all.Add(int64(n))
	m.operationsTotal.WithLabelValues(service, outcome).Add(float64(n))
	if took > 0 {
		m.duration.WithLabelValues(service).Observe(took.Seconds())
	}
}
