package fsm

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorate/quorate/fsm/index"
)

// Indexes is what the machines of a node index, and what builds it. It is safe for
// concurrent use. Its goroutine is Run.
type Indexes struct {
	usage index.Usage
	// wake has a token when there may be something to build.
	wake chan struct{}

	// mu protects the fields below; it comes before the locks of machines.
	mu       sync.Mutex
	machines []*Machine
	defined  []index.Definition
	// followed: definitions were given once, so that those which come now are new.
	followed bool
}

// NewIndexes returns Indexes without definitions.
func NewIndexes() *Indexes { return &Indexes{wake: make(chan struct{}, 1)} }

// OpenIndexes is NewIndexes whose metrics go to r, which may be nil.
func OpenIndexes(r prometheus.Registerer) (*Indexes, error) {
	x := NewIndexes()
	if r == nil {
		return x, nil
	}
	for _, c := range []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "quorate_index_entries", Help: "Entries of secondary indexes in memory.",
		}, func() float64 { return float64(x.usage.Entries.Load()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "quorate_index_bytes", Help: "Bytes of secondary indexes in memory.",
		}, func() float64 { return float64(x.usage.Bytes.Load()) }),
	} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return x, nil
}

// Define replaces the definitions: indexes that are not among them are dropped, new ones
// will be built by Run. It waits for machines that are applying.
func (x *Indexes) Define(list []index.Definition) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.followed && slices.Equal(x.defined, list) {
		return
	}
	restart := !x.followed
	x.defined, x.followed = slices.Clone(list), true
	for _, m := range x.machines {
		m.define(x.defined, restart)
	}
	x.Wake()
}

// Wake has Run look for something to build.
func (x *Indexes) Wake() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// add has a machine index what is defined. Of the nil Indexes, that is nothing.
func (x *Indexes) add(m *Machine) {
	if x == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.machines = append(x.machines, m)
	m.define(x.defined, true)
	x.Wake()
}

func (x *Indexes) remove(m *Machine) {
	if x == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.machines = slices.DeleteFunc(x.machines, func(other *Machine) bool { return other == m })
}

// Run builds indexes in the background until stop is closed, a page of one machine after
// the other. It is called once.
func (x *Indexes) Run(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-x.wake:
		}
		for more := true; more; {
			select {
			case <-stop:
				return
			default:
			}
			more = x.Step()
		}
	}
}

// Step builds one page of each machine that has something to build, and reports whether
// there was any. A machine whose state cannot be read is passed over. It is not called
// beside Run.
func (x *Indexes) Step() (more bool) {
	x.mu.Lock()
	machines := slices.Clone(x.machines)
	x.mu.Unlock()
	for _, m := range machines {
		built, err := m.buildPage()
		if err != nil && !errors.Is(err, ErrClosed) && !errors.Is(err, ErrStopped) {
			m.logger.Warn("indexes are not built", "err", err)
		}
		more = more || built
	}
	return more
}
