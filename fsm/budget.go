package fsm

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// BudgetConfig bounds the bytes of the items that all machines of a node hold in
// memory, as they are estimated with what the runtime adds.
type BudgetConfig struct {
	// Ceiling is never passed by items that the store holds too: the machine that takes
	// one more in gives others up first.
	Ceiling int
	// High and Low are the water marks: a Trim that finds more than High gives up what was
	// unused for the longest time, down to Low.
	High, Low int
}

// Budget is the memory for items that the machines of a node share. Items that the
// store does not hold yet are counted and never given up. It is safe for concurrent use.
type Budget struct {
	cfg BudgetConfig
	// clean and dirty are the bytes in memory; the store holds the clean ones too.
	clean, dirty atomic.Int64
	evicted      prometheus.Counter

	// mu protects machines.
	mu       sync.Mutex
	machines []*Machine
}

// NewBudget returns a budget with the water marks at its ceiling: nothing leaves before
// it must.
func NewBudget(bytes int) *Budget {
	return newBudget(BudgetConfig{Ceiling: bytes, High: bytes, Low: bytes})
}

// OpenBudget returns a budget whose metrics go to r, which may be nil.
func OpenBudget(cfg BudgetConfig, r prometheus.Registerer) (*Budget, error) {
	if cfg.Low > cfg.High || cfg.High > cfg.Ceiling || cfg.Low < 0 {
		return nil, fmt.Errorf("memory budget: water marks %d and %d below a ceiling of %d bytes", cfg.Low, cfg.High, cfg.Ceiling)
	}
	b := newBudget(cfg)
	if r == nil {
		return b, nil
	}
	for _, c := range b.collectors() {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return b, nil
}

func newBudget(cfg BudgetConfig) *Budget {
	return &Budget{cfg: cfg, evicted: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "quorate_cache_evictions_total", Help: "Items given up in memory, which the store holds.",
	})}
}

func (b *Budget) collectors() []prometheus.Collector {
	gauge := func(name, help string, value func() int64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value()) })
	}
	return []prometheus.Collector{
		b.evicted,
		gauge("quorate_cache_clean_bytes", "Bytes of items in memory that the store holds too.", b.clean.Load),
		gauge("quorate_cache_dirty_bytes", "Bytes of changed items that the store does not hold yet.", b.dirty.Load),
		gauge("quorate_cache_ceiling_bytes", "Bytes of items that are kept in memory at most.", func() int64 { return int64(b.cfg.Ceiling) }),
		gauge("quorate_cache_high_water_bytes", "Bytes above which a tick evicts.", func() int64 { return int64(b.cfg.High) }),
		gauge("quorate_cache_low_water_bytes", "Bytes down to which a tick evicts.", func() int64 { return int64(b.cfg.Low) }),
	}
}

// Used is the number of bytes of items in memory, and how many of them are of items
// that the store does not hold yet.
func (b *Budget) Used() (bytes, dirty int) {
	d := b.dirty.Load()
	return int(b.clean.Load() + d), int(d)
}

// exceeded reports whether clean items must go.
func (b *Budget) exceeded() bool { return b.clean.Load()+b.dirty.Load() > int64(b.cfg.Ceiling) }

// Trim evicts down to the low water mark if the high one is passed. Each machine gives
// up its share. It returns the number of evicted items.
func (b *Budget) Trim() (evicted int) {
	used, _ := b.Used()
	clean := b.clean.Load()
	if used <= b.cfg.High || clean == 0 {
		return 0
	}
	b.mu.Lock()
	machines := slices.Clone(b.machines)
	b.mu.Unlock()
	excess := float64(used - b.cfg.Low)
	for _, m := range machines {
		evicted += m.evict(func(own int) int { return int(excess * float64(own) / float64(clean)) })
	}
	return evicted
}

func (b *Budget) add(m *Machine) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.machines = append(b.machines, m)
}

func (b *Budget) remove(m *Machine) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.machines = slices.DeleteFunc(b.machines, func(other *Machine) bool { return other == m })
}

// evictStep is how many items leave under one lock, so that appliers do not wait long.
const evictStep = 1024

// evict gives up as many bytes of clean items as share says of those that the machine has.
func (m *Machine) evict(share func(own int) int) (evicted int) {
	m.mu.Lock()
	left := share(m.overlay.clean.bytes)
	m.mu.Unlock()
	for left > 0 {
		m.mu.Lock()
		before := m.overlay.clean.bytes
		n := 0
		for n < evictStep && left > before-m.overlay.clean.bytes && m.overlay.evictOldest() {
			n++
		}
		left -= before - m.overlay.clean.bytes
		m.mu.Unlock()
		if evicted += n; n == 0 {
			break
		}
	}
	return evicted
}
