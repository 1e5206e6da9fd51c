// Package live fans committed changes out to subscriptions. A Hub takes the
// change stream of every group that the node holds and hands each change to the
// subscriptions of its map, in log order per group. Delivery never blocks the
// state machine: a subscription that cannot keep up ends with a gap notice, so
// that its client is resynced instead of being left behind silently.
package live

import (
	"sync"
	"sync/atomic"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/protocol"
)

// Event is one committed change of a map. Events of one key arrive in log order.
type Event struct {
	Map, Key string
	// Record is the stored record after the change; a tombstone for a deletion.
	Record protocol.Record
	// Added is the record that an observed-remove map has got or changed, Removed the tag
	// of one that it lost; with either of them there is no Record.
	Added   *protocol.ORRecord
	Removed string
	// Existed reports whether a live record was there before.
	Existed bool
	// Group and Index place the change in the log.
	Group uint32
	Index uint64
}

// Sink receives the events of one subscription. Its methods are called from one
// goroutine at a time, must not block and must not call back into the Hub.
type Sink interface {
	// Event takes one change and reports whether it could. After false the
	// subscription is over, and the sink sees to it that its client resyncs.
	Event(e *Event) bool
	// Gap says that changes were lost and the subscription is over; the client
	// must be resynced.
	Gap()
}

const (
	// inboxBatches bounds the change batches that wait for the dispatcher.
	inboxBatches = 4096
	// bufferEvents bounds the events that a subscription holds back while its
	// snapshot is taken.
	bufferEvents = 4096
)

// Hub distributes changes to subscriptions. Construct it with NewHub, run one Run.
type Hub struct {
	inbox chan *fsm.Changes
	// overflow is set when the inbox was full: the next dispatch ends every
	// subscription with a gap.
	overflow atomic.Bool
	subs     atomic.Int64

	// mu protects maps and the sets in it.
	mu   sync.RWMutex
	maps map[string]map[*Subscription]struct{}
}

// NewHub returns an empty Hub.
func NewHub() *Hub {
	return &Hub{inbox: make(chan *fsm.Changes, inboxBatches), maps: map[string]map[*Subscription]struct{}{}}
}

// Publish takes the changes of one apply. It never blocks: when the dispatcher is
// too far behind, every subscription is ended with a gap. It is the OnChange hook
// of the state machines and safe for concurrent use.
func (h *Hub) Publish(c *fsm.Changes) {
	if !h.Listening() {
		return
	}
	select {
	case h.inbox <- c:
	default:
		h.overflow.Store(true)
	}
}

// Listening reports whether there are subscriptions. It is the Listening hook of the
// state machines and safe for concurrent use.
func (h *Hub) Listening() bool { return h.subs.Load() > 0 }

// Run dispatches until done is closed.
func (h *Hub) Run(done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case c := <-h.inbox:
			if h.overflow.Swap(false) || c.Reset {
				h.gapAll()
				continue
			}
			h.dispatch(c)
		}
	}
}

func (h *Hub) dispatch(c *fsm.Changes) {
	for i := range c.List {
		ch := &c.List[i]
		if ch.Section != storage.SectionRecords && ch.Section != storage.SectionSets {
			continue
		}
		subs := h.subscriptions(ch.Map)
		if len(subs) == 0 {
			continue
		}
		e := &Event{
			Map: ch.Map, Key: ch.Key, Record: ch.Record, Added: ch.Added, Removed: ch.Removed, Existed: ch.Existed,
			Group: c.Group, Index: ch.Index,
		}
		for _, s := range subs {
			if ch.Origin == "" || ch.Origin != s.origin {
				s.take(e)
			}
		}
	}
}

// subscriptions is a copy of the set of mapName, so that sinks run without h.mu.
func (h *Hub) subscriptions(mapName string) []*Subscription {
	h.mu.RLock()
	defer h.mu.RUnlock()
	set := h.maps[mapName]
	if len(set) == 0 {
		return nil
	}
	subs := make([]*Subscription, 0, len(set))
	for s := range set {
		subs = append(subs, s)
	}
	return subs
}

func (h *Hub) gapAll() {
	h.mu.RLock()
	var subs []*Subscription
	for _, set := range h.maps {
		for s := range set {
			subs = append(subs, s)
		}
	}
	h.mu.RUnlock()
	for _, s := range subs {
		s.gap()
	}
}

// Subscribe registers sink for the changes of mapName, except those written by
// origin. Events are held back until Release. Close must be called in the end.
func (h *Hub) Subscribe(mapName, origin string, sink Sink) *Subscription {
	s := &Subscription{hub: h, mapName: mapName, origin: origin, sink: sink, holding: true}
	h.mu.Lock()
	defer h.mu.Unlock()
	set := h.maps[mapName]
	if set == nil {
		set = map[*Subscription]struct{}{}
		h.maps[mapName] = set
	}
	set[s] = struct{}{}
	h.subs.Add(1)
	return s
}

// Subscription is one registration at a Hub.
type Subscription struct {
	hub             *Hub
	mapName, origin string
	sink            Sink

	// mu protects the fields below and serialises the calls of sink.
	mu      sync.Mutex
	holding bool
	held    []*Event
	// seen is the log index per group up to which the snapshot already contains
	// every change.
	seen map[uint32]uint64
	over bool
}

// Map is the name of the subscribed map.
func (s *Subscription) Map() string { return s.mapName }

// Covered records that the snapshot holds every change of group up to index.
// Call it before Release.
func (s *Subscription) Covered(group uint32, index uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen == nil {
		s.seen = map[uint32]uint64{}
	}
	s.seen[group] = max(s.seen[group], index)
}

// Release starts delivery: first the events held back that the snapshot does not
// contain, then everything as it comes. The caller has queued the snapshot for its
// client before.
func (s *Subscription) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holding = false
	held := s.held
	s.held = nil
	for _, e := range held {
		s.deliverLocked(e)
	}
}

// Close ends the subscription; the sink is not called after it returned. It is
// safe to call more than once.
func (s *Subscription) Close() {
	s.hub.mu.Lock()
	if set := s.hub.maps[s.mapName]; set != nil {
		if _, ok := set[s]; ok {
			delete(set, s)
			s.hub.subs.Add(-1)
			if len(set) == 0 {
				delete(s.hub.maps, s.mapName)
			}
		}
	}
	s.hub.mu.Unlock()
	s.mu.Lock()
	s.over = true
	s.held = nil
	s.mu.Unlock()
}

func (s *Subscription) take(e *Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.holding {
		s.deliverLocked(e)
		return
	}
	if s.over {
		return
	}
	if len(s.held) == bufferEvents {
		s.gapLocked()
		return
	}
	s.held = append(s.held, e)
}

func (s *Subscription) deliverLocked(e *Event) {
	if s.over || e.Index <= s.seen[e.Group] {
		return
	}
	if !s.sink.Event(e) {
		s.over = true
	}
}

func (s *Subscription) gap() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gapLocked()
}

func (s *Subscription) gapLocked() {
	if s.over {
		return
	}
	s.over = true
	s.held = nil
	s.sink.Gap()
}
