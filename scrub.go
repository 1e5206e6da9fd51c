package quorate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/raftnode"
	"github.com/quorate/quorate/raftnode/logstore"
	"github.com/quorate/quorate/raftnode/mux"
)

// methodScrub makes a round at once: nothing to Scrubbed.
const methodScrub mux.Method = 85

// ScrubConfig paces the search for damage in what a node has on disk.
type ScrubConfig struct {
	// Interval is the time between the beginnings of two rounds over everything. Zero
	// looks only when an operator asks.
	Interval time.Duration
	// Rate is how much a round reads, in bytes a second, at most.
	Rate int
}

// DefaultScrubConfig returns a round a day at 16 MiB/s.
func DefaultScrubConfig() ScrubConfig {
	return ScrubConfig{Interval: 24 * time.Hour, Rate: 16 << 20}
}

// Scrubbed is what one round over a node's disk found.
type Scrubbed struct {
	// Bytes is how much was read.
	Bytes int64 `json:"bytes"`
	// Damage says what was found, one line for each group and one for the log. Damaged
	// states are replaced by those of other nodes from now on; the log was written anew
	// unless the line says why not.
	Damage []string `json:"damage"`
}

// scrubber reads what the node has stored, so that damage is found while others have
// what was damaged.
type scrubber struct {
	node  *Node
	pace  *rate.Limiter
	burst int
	// turn has a token while a round is under way.
	turn chan struct{}
}

func newScrubber(node *Node) *scrubber {
	perSecond := max(node.cfg.Scrub.Rate, 1<<10)
	s := &scrubber{node: node, pace: rate.NewLimiter(rate.Limit(perSecond), perSecond), burst: perSecond, turn: make(chan struct{}, 1)}
	node.mux.Handle(methodScrub, func(ctx context.Context, _ mux.Peer, _ []byte) ([]byte, error) {
		result, err := s.round(ctx)
		if err != nil {
			return nil, err
		}
		return json.Marshal(result)
	})
	return s
}

// Scrub reads and checks everything that the node has stored, at the configured rate. It
// blocks; rounds are made one at a time.
func (n *Node) Scrub(ctx context.Context) (*Scrubbed, error) { return n.scrubs.round(ctx) }

// RequestScrub has the node at addr read and check everything that it has stored.
func RequestScrub(ctx context.Context, addr, secret string) (*Scrubbed, error) {
	var result Scrubbed
	if err := ask(ctx, addr, secret, methodScrub, nil, &result); err != nil {
		return nil, err
	}
	return &result, nil
}

// run makes rounds until ctx ends.
func (s *scrubber) run(ctx context.Context) {
	if s.node.cfg.Scrub.Interval <= 0 {
		return
	}
	tick := time.NewTicker(s.node.cfg.Scrub.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if result, err := s.round(ctx); err == nil {
			s.node.log.Info("disk was read and checked", "bytes", result.Bytes, "damaged", len(result.Damage))
		} else if ctx.Err() == nil {
			s.node.log.Warn("disk was not checked to the end", "err", err)
		}
	}
}

// round reads everything once. One round at a time; others wait.
func (s *scrubber) round(ctx context.Context) (*Scrubbed, error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	result := &Scrubbed{Damage: []string{}}
	for _, g := range s.node.host.Groups() {
		bytes, err := s.group(ctx, g)
		result.Bytes += bytes
		switch {
		case errors.Is(err, storage.ErrCorrupt):
			result.Damage = append(result.Damage, fmt.Sprintf("group %d: %v", g.ID(), err))
		case errors.Is(err, fsm.ErrClosed), errors.Is(err, fsm.ErrStopped): // it ended meanwhile
		case err != nil:
			return nil, fmt.Errorf("scrub group %d: %w", g.ID(), err)
		}
	}
	for _, d := range s.node.host.Damaged() {
		if !mentioned(result.Damage, d) {
			result.Damage = append(result.Damage, fmt.Sprintf("group %d: %v", d.Group, d.Err))
		}
	}
	if err := s.log(ctx, result); err != nil {
		return nil, err
	}
	s.node.metrics.rounds.Inc()
	return result, nil
}

// log reads the log, and writes it anew where it is damaged.
func (s *scrubber) log(ctx context.Context, result *Scrubbed) error {
	bytes, err := s.node.wal.Scrub(ctx, s.wait)
	result.Bytes += bytes
	s.node.metrics.scrubbed.Add(float64(bytes))
	if err == nil {
		s.node.logDamage.Store(nil)
	}
	if !errors.Is(err, logstore.ErrCorrupt) {
		return err
	}
	s.node.log.Error("log is damaged", "err", err)
	s.node.metrics.damage.Inc()
	what := err.Error()
	if err := s.node.host.MendLog(ctx); err != nil {
		what = fmt.Sprintf("%s; not written anew: %v", what, err)
		s.node.logDamage.Store(&what)
	} else {
		s.node.log.Info("log was written anew")
		s.node.metrics.repairs.Inc()
		s.node.logDamage.Store(nil)
	}
	result.Damage = append(result.Damage, "log: "+what)
	return nil
}

// mentioned reports whether a round found the damage itself.
func mentioned(found []string, d raftnode.Damage) bool {
	prefix := fmt.Sprintf("group %d: ", d.Group)
	for _, line := range found {
		if len(line) >= len(prefix) && line[:len(prefix)] == prefix {
			return true
		}
	}
	return false
}

func (s *scrubber) group(ctx context.Context, g *raftnode.Group) (int64, error) {
	machine, ok := g.Machine().(interface {
		Scrub(ctx context.Context, pace func(context.Context, int) error) (int64, error)
	})
	if !ok {
		return 0, nil
	}
	bytes, err := machine.Scrub(ctx, s.wait)
	s.node.metrics.scrubbed.Add(float64(bytes))
	return bytes, err
}

// wait keeps a round to its rate.
func (s *scrubber) wait(ctx context.Context, bytes int) error {
	for bytes > 0 {
		n := min(bytes, s.burst)
		if err := s.pace.WaitN(ctx, n); err != nil {
			return err
		}
		bytes -= n
	}
	return nil
}

// nodeMetrics count what becomes of stored data.
type nodeMetrics struct {
	scrubbed, rounds, damage, repairs prometheus.Counter
	damaged, damagedLog, setAside     prometheus.GaugeFunc
}

func newNodeMetrics(n *Node) *nodeMetrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "quorate_storage_" + name, Help: help})
	}
	return &nodeMetrics{
		scrubbed: counter("scrubbed_bytes_total", "Stored bytes that were read and checked."),
		rounds:   counter("scrub_rounds_total", "Rounds over everything that is stored."),
		damage:   counter("damage_total", "States of groups, and logs, found damaged."),
		repairs:  counter("repairs_total", "Damaged states replaced by those of other nodes, and damaged logs written anew."),
		damaged: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "quorate_storage_damaged_groups", Help: "Replicas out of service because their state is damaged.",
		}, func() float64 { return float64(len(n.host.Damaged())) }),
		damagedLog: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "quorate_storage_damaged_log", Help: "1 while the log is known to be damaged.",
		}, func() float64 {
			if n.logDamage.Load() != nil {
				return 1
			}
			return 0
		}),
		setAside: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "quorate_storage_set_aside", Help: "Damaged states of groups that take space in the store.",
		}, func() float64 { return float64(n.repairs.allAside()) }),
	}
}

func (m *nodeMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.scrubbed, m.rounds, m.damage, m.repairs, m.damaged, m.damagedLog, m.setAside}
}

// register registers the metrics, unless r is nil.
func (m *nodeMetrics) register(r prometheus.Registerer) error {
	if r == nil {
		return nil
	}
	for _, c := range m.collectors() {
		if err := r.Register(c); err != nil {
			return fmt.Errorf("register storage metrics: %w", err)
		}
	}
	return nil
}

func (m *nodeMetrics) unregister(r prometheus.Registerer) {
	if r == nil {
		return
	}
	for _, c := range m.collectors() {
		r.Unregister(c)
	}
}
