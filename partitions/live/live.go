// Package live fans committed changes out to subscriptions. A Hub takes the
// change stream of every group that the node holds and hands each change to the
// subscriptions of its map, in log order per group. Delivery never blocks the
// state machine: a subscription that cannot keep up ends with a gap notice, so
// that its client is resynced instead of being left behind silently.
package live

import (
	"sync"
	"sync/atomic"

	"github.com/tinylib/msgp/msgp"

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
	// Existed reports whether a live record was there before, and Old is its value.
	Existed bool
	Old     msgp.Raw
	// Group and Index place the change in the log.
	Group uint32
	Index uint64
	// Seq numbers the events of a Hub.
	Seq uint64
}

// Sink receives the events of one subscription. Its methods are called from one
// goroutine at a time, must not block and must not call back into the Hub.
type Sink interface {
	// Event takes one change and reports whether it could; own says that the
	// subscription's origin made it. After false the subscription is over, and the sink
	// sees to it that its client resyncs.
	Event(e *Event, own bool) bool
	// Gap says that changes were lost and the subscription is over; the client
	// must be resynced.
	Gap()
}

const (
	// inboxBatches bounds the change batches that wait for the dispatcher.
	inboxBatches = 4096
	// bufferEvents bounds the events that a subscription holds back while its
	// snapshot is taken: about a second of writes to a busy map.
	bufferEvents = 32_768
)

// Hub distributes changes to subscriptions. Construct it with NewHub, run one Run.
type Hub struct {
	inbox chan *fsm.Changes
	// overflow is set when the inbox was full: the next dispatch ends every
	// subscription with a gap.
	overflow atomic.Bool
	subs     atomic.Int64
	shown    shown

	// seq and scratch are for the dispatcher.
	seq     uint64
	scratch []*Subscription

	// mu protects the fields below and the audiences in maps.
	mu   sync.RWMutex
	maps map[string]*audience
	taps map[*tap]struct{}
}

// NewHub returns an empty Hub.
func NewHub() *Hub {
	return &Hub{inbox: make(chan *fsm.Changes, inboxBatches), maps: map[string]*audience{}}
}

// Publish takes the changes of one apply. It never blocks: when the dispatcher is
// too far behind, every subscription is ended with a gap. It is the OnChange hook
// of the state machines and safe for concurrent use.
func (h *Hub) Publish(c *fsm.Changes) {
	if !h.Listening() {
		return
	}
	h.Show(c.Group, c.Index)
	select {
	case h.inbox <- c:
	default:
		h.overflow.Store(true)
	}
}

// Listening reports whether there are subscriptions or taps. It is the Listening hook of the
// state machines and safe for concurrent use.
func (h *Hub) Listening() bool { return h.subs.Load() > 0 }

// Run dispatches until done is closed.
func (h *Hub) Run(done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case c := <-h.inbox:
			if h.overflow.Swap(false) {
				c = &fsm.Changes{Reset: true}
			}
			h.tap(c)
			if c.Reset {
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
		if !h.Follows(ch.Map) {
			continue
		}
		h.seq++
		e := &Event{
			Map: ch.Map, Key: ch.Key, Record: ch.Record, Added: ch.Added, Removed: ch.Removed, Existed: ch.Existed, Old: ch.Old,
			Group: c.Group, Index: ch.Index, Seq: h.seq,
		}
		for _, s := range h.concerned(e) {
			if own := ch.Origin != "" && ch.Origin == s.origin; !own || s.want.Own {
				s.take(e, own)
			}
		}
	}
}

// Follows reports whether there is a subscription of a map.
func (h *Hub) Follows(mapName string) bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.maps[mapName] != nil
}

// concerned is the subscriptions that e may concern, until the next call; sinks run
// without h.mu.
func (h *Hub) concerned(e *Event) []*Subscription {
	h.mu.RLock()
	defer h.mu.RUnlock()
	clear(h.scratch)
	h.scratch = h.scratch[:0]
	a := h.maps[e.Map]
	switch {
	case a == nil:
	case e.Added != nil || e.Removed != "":
		a.each(func(s *Subscription) { h.scratch = append(h.scratch, s) })
	default:
		h.scratch = a.concerned(h.scratch, e)
	}
	return h.scratch
}

func (h *Hub) gapAll() {
	h.mu.RLock()
	var subs []*Subscription
	for _, a := range h.maps {
		a.each(func(s *Subscription) { subs = append(subs, s) })
	}
	h.mu.RUnlock()
	for _, s := range subs {
		s.gap()
	}
}

// Subscribe registers sink for the changes of mapName that want asks for; origin is whose
// changes are its own. Events are held back until Release. Close must be called in the end.
func (h *Hub) Subscribe(mapName, origin string, want Interest, sink Sink) *Subscription {
	s := &Subscription{hub: h, mapName: mapName, origin: origin, want: want, sink: sink, holding: true}
	h.mu.Lock()
	defer h.mu.Unlock()
	a := h.maps[mapName]
	if a == nil {
		a = newAudience()
		h.maps[mapName] = a
	}
	a.add(s)
	h.subs.Add(1)
	return s
}

// Subscription is one registration at a Hub.
type Subscription struct {
	hub             *Hub
	mapName, origin string
	want            Interest
	sink            Sink

	// mu protects the fields below and serialises the calls of sink.
	mu      sync.Mutex
	holding bool
	held    []heldEvent
	// seen is the log index per group up to which the snapshot already contains
	// every change.
	seen map[uint32]uint64
	over bool
}

type heldEvent struct {
	*Event
	own bool
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
		s.deliverLocked(e.Event, e.own)
	}
}

// Close ends the subscription; the sink is not called after it returned. It is
// safe to call more than once.
func (s *Subscription) Close() {
	s.hub.mu.Lock()
	if a := s.hub.maps[s.mapName]; a != nil && a.has(s) {
		a.remove(s)
		s.hub.subs.Add(-1)
		if a.size == 0 {
			delete(s.hub.maps, s.mapName)
		}
	}
	s.hub.mu.Unlock()
	s.mu.Lock()
	s.over = true
	s.held = nil
	s.mu.Unlock()
}

func (s *Subscription) take(e *Event, own bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.holding {
		s.deliverLocked(e, own)
		return
	}
	if s.over {
		return
	}
	if len(s.held) == bufferEvents {
		s.gapLocked()
		return
	}
	s.held = append(s.held, heldEvent{e, own})
}

func (s *Subscription) deliverLocked(e *Event, own bool) {
	if s.over || e.Index <= s.seen[e.Group] {
		return
	}
	if !s.sink.Event(e, own) {
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
