package logstore

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the collectors of a Log. A nil *metrics collects nothing.
type metrics struct {
	registerer   prometheus.Registerer
	fsync        prometheus.Histogram
	batchEntries prometheus.Histogram
	bytes        prometheus.Counter
	segmentCount prometheus.Gauge
	skipped      *prometheus.CounterVec
}

// Reasons to keep the oldest segment.
const (
	skipLive   = "live"
	skipReader = "reader"
)

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	if r == nil {
		return nil, nil
	}
	m := &metrics{
		registerer: r,
		fsync: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "quorate_log_fsync_seconds",
			Help:    "Duration of one sync of the shared log.",
			Buckets: prometheus.ExponentialBuckets(50e-6, 2, 16),
		}),
		batchEntries: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "quorate_log_batch_entries",
			Help:    "Raft entries made durable by one sync, over all groups.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 13),
		}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "quorate_log_written_bytes_total",
			Help: "Bytes written to the shared log.",
		}),
		segmentCount: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "quorate_log_segments",
			Help: "Segment files of the shared log.",
		}),
		skipped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "service_wal_gc_skipped_total",
			Help: "New segments that were begun while the oldest one was kept: it holds entries that are needed, or is being read.",
		}, []string{"reason"}),
	}
	m.skipped.WithLabelValues(skipLive)
	m.skipped.WithLabelValues(skipReader)
	for i, c := range m.collectors() {
		if err := r.Register(c); err != nil {
			for _, done := range m.collectors()[:i] {
				r.Unregister(done)
			}
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.fsync, m.batchEntries, m.bytes, m.segmentCount, m.skipped}
}

// close takes the collectors out of the registry, so that the log can be opened
// again in the same process.
func (m *metrics) close() {
	if m == nil {
		return
	}
	for _, c := range m.collectors() {
		m.registerer.Unregister(c)
	}
}

func (m *metrics) observe(entries, bytes int, fsync time.Duration) {
	if m == nil {
		return
	}
	m.fsync.Observe(fsync.Seconds())
	m.batchEntries.Observe(float64(entries))
	m.bytes.Add(float64(bytes))
}

func (m *metrics) segments(n int) {
	if m != nil {
		m.segmentCount.Set(float64(n))
	}
}

// skip counts what keeps the oldest segment, if anything does.
func (m *metrics) skip(oldest *segment) {
	switch {
	case m == nil:
	case oldest.live.Load() > 0:
		m.skipped.WithLabelValues(skipLive).Inc()
	case oldest.readers.Load() > 0:
		m.skipped.WithLabelValues(skipReader).Inc()
	}
}

// counters count since Open.
type counters struct {
	batches, entries, bytes, rotations, rewritten atomic.Uint64
}

func (c *counters) add(entries, bytes int) {
	c.batches.Add(1)
	c.entries.Add(uint64(entries))
	c.bytes.Add(uint64(bytes))
}

// Stats is a snapshot of sizes and of counts since Open.
type Stats struct {
	// Segments is the number of segment files, Bytes their used size, LiveBytes the
	// part of it that holds present entries.
	Segments         int
	Bytes, LiveBytes int64
	// Batches counts writes, each with one fsync; Entries and WrittenBytes what they
	// carried; Rotations new segments; RewrittenBytes what was copied to free old ones.
	Batches, Entries, WrittenBytes, Rotations, RewrittenBytes uint64
}

// Stats returns the present figures. They are not one atomic cut.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	segments := len(l.segments)
	total, live := l.sizesLocked()
	l.mu.Unlock()
	return Stats{
		Segments: segments, Bytes: total, LiveBytes: live,
		Batches:        l.counters.batches.Load(),
		Entries:        l.counters.entries.Load(),
		WrittenBytes:   l.counters.bytes.Load(),
		Rotations:      l.counters.rotations.Load(),
		RewrittenBytes: l.counters.rewritten.Load(),
	}
}
