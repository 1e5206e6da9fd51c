package fsm

import (
	"fmt"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/merkle"
)

// Metrics shows what the machines of a node hold and do. What they do is counted when they
// apply an entry, so that a replay counts again. Nil counts nothing. It is safe for
// concurrent use.
type Metrics struct {
	merges, conflicts map[command.Kind]prometheus.Counter
	made, absent      prometheus.Counter
	passes, forgotten prometheus.Counter
	pruned            map[merkle.Kind]prometheus.Counter
	indexed, scanned  prometheus.Counter

	tombstones, tagBytes, through, epoch, locks *prometheus.Desc

	// mu protects machines.
	mu       sync.Mutex
	machines []*Machine
}

// tombstoneKinds are the labels of the kinds of tombstones.
var tombstoneKinds = map[merkle.Kind]string{merkle.Records: "record", merkle.Sets: "tag"}

// mergeTypes are the labels of the commands that merge something.
var mergeTypes = map[command.Kind]string{
	command.KindPut: "lww", command.KindORAdd: "or", command.KindORRemove: "or",
	command.KindCounterMerge: "counter", command.KindCounterAdd: "counter",
}

// OpenMetrics returns Metrics that are registered with r, all series at zero.
func OpenMetrics(r prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		pruned: map[merkle.Kind]prometheus.Counter{},
		merges: map[command.Kind]prometheus.Counter{}, conflicts: map[command.Kind]prometheus.Counter{},
	}
	var all []prometheus.Collector
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "service_" + name, Help: help})
		all = append(all, c)
		return c
	}
	counters := func(name, help, label string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "service_" + name, Help: help}, []string{label})
		all = append(all, c)
		return c
	}
	gauge := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("service_"+name, help, labels, nil)
	}
	m.made = counter("ormap_tombstone_bytes_total", "Bytes of the listings of tags that were removed from observed-remove maps.")
	m.passes = counter("tombstone_prune_passes_total", "Passes of collecting that reached their end, over all replicas.")
	m.absent = counter("tombstone_prune_absent_total", "Tombstones that were gone when they were to be collected.")
	m.forgotten = counter("tombstone_stale_writes_total", "Writes refused because a tombstone that was collected may have deleted what they write.")
	pruned := counters("tombstone_pruned_total", "Tombstones that were collected.", "kind")
	for kind, label := range tombstoneKinds {
		m.pruned[kind] = pruned.WithLabelValues(label)
	}
	merges := counters("crdt_merges_total", "Writes that this node's replicas merged.", "type")
	conflicts := counters("crdt_conflicts_total", "Merges that changed nothing: the state had the same or something newer.", "type")
	for kind, label := range mergeTypes {
		m.merges[kind], m.conflicts[kind] = merges.WithLabelValues(label), conflicts.WithLabelValues(label)
	}
	lookups := counters("index_lookups_total", "Looks of queries at one group's share of a map that has indexes: used one, or scanned.", "result")
	m.indexed, m.scanned = lookups.WithLabelValues("hit"), lookups.WithLabelValues("miss")

	m.tagBytes = gauge("ormap_tombstone_bytes", "Bytes of the listings of removed tags of observed-remove maps, over all replicas.")
	m.tombstones = gauge("tombstones", "Tombstones by what they are of, over all replicas.", "kind")
	m.through = gauge("tombstone_pruned_through_seconds", "Time up to which no tombstones are left in any data group, since 1970; 0 before the first pass.")
	m.epoch = gauge("tombstone_epoch_seconds", "Time of the last pass of collecting in the data group where that is longest ago, since 1970; 0 before the first one.")
	m.locks = gauge("locks_held", "Locks that are held, over all replicas.")
	for _, c := range append(all, m) {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}

func (m *Metrics) add(machine *Machine) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.machines = append(m.machines, machine)
}

func (m *Metrics) remove(machine *Machine) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.machines = slices.DeleteFunc(m.machines, func(other *Machine) bool { return other == machine })
}

// applied counts what a command did.
func (m *Metrics) applied(kind command.Kind, result command.Result) {
	switch {
	case m == nil || m.merges[kind] == nil:
	case result.Code == protocol.CodeStale:
		m.forgotten.Inc()
	case result.Code == 0:
		m.merges[kind].Inc()
		if !result.Changed {
			m.conflicts[kind].Inc()
		}
	}
}

// buried counts a new tombstone whose listing has this key.
func (m *Metrics) buried(key string) {
	if bytes := (graveTally{}).with(key, 1).tagBytes; m != nil {
		m.made.Add(float64(bytes))
	}
}

// collected counts a tombstone that is dropped, and missed one that was gone already.
func (m *Metrics) collected(kind merkle.Kind) {
	if m != nil {
		m.pruned[kind].Inc()
	}
}

func (m *Metrics) missed() {
	if m != nil {
		m.absent.Inc()
	}
}

// passed counts a pass of collecting.
func (m *Metrics) passed() {
	if m != nil {
		m.passes.Inc()
	}
}

// sought counts the way to records that a machine with indexes took.
func (m *Metrics) sought(byIndex bool) {
	switch {
	case m == nil:
	case byIndex:
		m.indexed.Inc()
	default:
		m.scanned.Inc()
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.tombstones, m.tagBytes, m.through, m.epoch, m.locks} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. It adds up what each machine keeps, and waits
// for those that are applying.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	machines := slices.Clone(m.machines)
	m.mu.Unlock()
	var graves graveTally
	var oldest *Horizon
	locks := 0
	for _, machine := range machines {
		held := machine.holding()
		graves = graves.plus(held.graves)
		locks += held.locks
		switch {
		case machine.group == SystemGroup:
		case oldest == nil:
			oldest = &held.horizon
		default:
			oldest.PrunedMillis = min(oldest.PrunedMillis, held.horizon.PrunedMillis)
			oldest.ClosedMillis = min(oldest.ClosedMillis, held.horizon.ClosedMillis)
		}
	}
	if oldest == nil {
		oldest = &Horizon{}
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	gauge(m.tombstones, float64(graves.records), tombstoneKinds[merkle.Records])
	gauge(m.tombstones, float64(graves.tags), tombstoneKinds[merkle.Sets])
	gauge(m.tagBytes, float64(graves.tagBytes))
	gauge(m.through, float64(oldest.PrunedMillis)/1000)
	gauge(m.epoch, float64(oldest.ClosedMillis)/1000)
	gauge(m.locks, float64(locks))
}

// holding is what a machine holds of what is shown.
type holding struct {
	graves  graveTally
	horizon Horizon
	locks   int
}

func (m *Machine) holding() holding {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return holding{m.graves, m.horizon, m.locks.Len()}
}
