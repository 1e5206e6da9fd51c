package model

import (
	"fmt"
	"slices"
	"sync"

	"github.com/quorate/quorate/protocol"
)

// Write is one last-write-wins operation with the client's own timestamp.
type Write struct {
	// Client and ID name the operation. The id is unique per client only.
	Client, ID string
	Map, Key   string
	// Value is unlike that of any other write; empty for a removal.
	Value     string
	Timestamp protocol.Timestamp
	Level     protocol.WriteConcern
}

// Outcome is what one send of a write came to.
type Outcome struct {
	Kind OutcomeKind
	// Level is the level of an accepted write.
	Level protocol.WriteConcern
}

// OutcomeKind says how much a client knows.
type OutcomeKind int

// The outcomes of a send.
const (
	// Unknown: neither verdict nor error; the write may have happened.
	Unknown OutcomeKind = iota
	// Accepted: acknowledged.
	Accepted
	// Refused: rejected for good.
	Refused
	// NotApplied: an error that promises that this send had no effect.
	NotApplied
)

type opKey struct{ client, id string }

// entry is the history of one operation.
type entry struct {
	Write
	pending  int // sends without an outcome yet
	unknown  bool
	accepted bool
	refused  bool
	level    protocol.WriteConcern // strongest acknowledged
}

// mayExist reports whether the write may be in the state.
func (e *entry) mayExist() bool { return e.accepted || e.unknown || e.pending > 0 }

// durable reports whether the write was acknowledged at a level that outlives the
// loss of a minority. MEMORY says only that the leader has queued it.
func (e *entry) durable() bool { return e.accepted && e.level >= protocol.LevelApplied }

// History records sends and outcomes. Its methods are safe for concurrent use.
type History struct {
	ceiling protocol.WriteConcern

	// mu protects the fields below.
	mu       sync.Mutex
	writes   map[opKey]*entry
	order    []*entry
	problems []string
}

// NewHistory returns an empty History for a cluster whose strongest level is ceiling:
// PERSISTED, or REPLICATED if nothing is kept on disk.
func NewHistory(ceiling protocol.WriteConcern) *History {
	return &History{ceiling: ceiling, writes: make(map[opKey]*entry)}
}

// Sent records a send. It must come before the bytes leave.
func (h *History) Sent(w Write) {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := opKey{w.Client, w.ID}
	e := h.writes[k]
	if e == nil {
		e = &entry{Write: w}
		h.writes[k] = e
		h.order = append(h.order, e)
	}
	if e.Write != w {
		h.problemLocked("the test sent %s of %s with two contents", w.ID, w.Client)
	}
	e.pending++
}

// Resolved records the outcome of a send.
func (h *History) Resolved(client, id string, o Outcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.writes[opKey{client, id}]
	if e == nil || e.pending == 0 {
		h.problemLocked("%s of %s has more verdicts than sends", id, client)
		return
	}
	e.pending--
	switch o.Kind {
	case Unknown:
		e.unknown = true
	case Accepted:
		e.accepted = true
		e.level = max(e.level, o.Level)
		if least := h.least(e.Level); o.Level < least {
			h.problemLocked("%s of %s asked for %q and was acknowledged at %s", id, client, e.Level, o.Level)
		}
	case Refused:
		e.refused = true
	case NotApplied:
	}
	if e.accepted && e.refused {
		h.problemLocked("%s of %s was both accepted and refused", id, client)
	}
}

// least is the weakest level that honours what was asked.
func (h *History) least(asked protocol.WriteConcern) protocol.WriteConcern {
	if asked == protocol.LevelDefault {
		return h.ceiling
	}
	return min(asked, h.ceiling)
}

// Problem records a violation that somebody else saw.
func (h *History) Problem(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.problemLocked(format, args...)
}

func (h *History) problemLocked(format string, args ...any) {
	h.problems = append(h.problems, fmt.Sprintf(format, args...))
}

// Problems are the violations recorded so far.
func (h *History) Problems() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.problems)
}

// Count counts the writes by what is known of them.
func (h *History) Count() (sent, acknowledged, unknown int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.order {
		switch {
		case e.accepted:
			acknowledged++
		case e.mayExist():
			unknown++
		}
	}
	return len(h.order), acknowledged, unknown
}
