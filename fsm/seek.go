package fsm

import (
	"fmt"

	"github.com/quorate/quorate/fsm/index"
	"github.com/quorate/quorate/fsm/query"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/protocol"
)

// MaxCandidates is how many records are looked at by an index that says nothing of their
// order; of more, a scan finds the first rows sooner.
const MaxCandidates = 16_384

// Seek is what is looked for by an index.
type Seek struct {
	Map   string
	Query *query.Query
	// After is the place behind which rows count; nil for all.
	After *query.Place
}

// Found says how records were found. The zero value: not by an index.
type Found struct {
	// Index is what was used.
	Index index.Definition
	// Ordered: the records come in the order of Query.SortedBy, as far as their ranks
	// differ, and not all may be needed.
	Ordered bool
}

// ByIndex reports whether an index was used.
func (f Found) ByIndex() bool { return f.Index.Attribute != "" }

// Seek calls begin once and then fn with records, tombstones included, until it returns
// false: all that the query admits behind After are among them. If no index serves, it
// calls nothing and says so. Otherwise as Scan.
func (m *Machine) Seek(s Seek, begin func(Found), fn func(key string, rec protocol.Record) bool) (found Found, at uint64, err error) {
	if !m.indexed(s.Map) {
		return Found{}, 0, nil
	}
	choice, w, err := m.choose(s, s.Query.Narrowings())
	if err != nil {
		return Found{}, 0, err
	}
	if choice == nil {
		m.metrics.sought(false)
		return Found{}, 0, nil
	}
	defer w.reader.Close()
	serves := choice.settle(s)
	m.metrics.sought(serves)
	if !serves {
		return Found{}, 0, nil
	}
	w.dirty, w.fn = w.over.latest(storage.SectionRecords, mapPrefix(s.Map)), fn
	found = Found{Index: choice.used, Ordered: choice.ordered}
	begin(found)
	choice.walk(w.show)
	if w.err != nil {
		return found, w.at, fmt.Errorf("seek records: %w", m.noticed(w.err))
	}
	return found, w.at, nil
}

// option is one index that may serve, with where in it.
type option struct {
	view       index.View
	definition index.Definition
	spans      []query.Span
}

// choice is how a query can be answered by indexes.
type choice struct {
	// narrow admit few records perhaps; order is in the order of the rows, if there is one.
	narrow     []option
	order      *option
	descending bool

	// What was chosen.
	ordered bool
	used    index.Definition
	view    index.View
	spans   []query.Span
}

// indexed reports whether a map has indexes.
func (m *Machine) indexed(mapName string) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return len(m.indexes[mapName]) > 0
}

// choose takes views of the indexes that may serve a query, and of the state that they are
// of; nil if there are none.
func (m *Machine) choose(s Seek, narrowings []query.Narrowing) (*choice, *walker, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	c := &choice{}
	sortedBy, descending, sorted := s.Query.SortedBy()
	spans := []query.Span{query.SpanValues, query.SpanMissing}
	for _, n := range narrowings {
		if sorted && n.Attribute == sortedBy {
			spans = n.Spans
		}
		x := m.indexLocked(s.Map, n.Attribute)
		if x == nil || !x.ready.Load() || x.Type == index.Hash && !n.Points {
			continue
		}
		c.narrow = append(c.narrow, option{x.View(), x.Definition, n.Spans})
	}
	if x := m.indexLocked(s.Map, sortedBy); sorted && !s.Query.Grouped() && x != nil && x.ready.Load() && x.Type == index.Navigable {
		c.order, c.descending = &option{x.View(), x.Definition, spans}, descending
	}
	if len(c.narrow) == 0 && c.order == nil {
		return nil, nil, nil
	}
	reader, over, at, err := m.captureLocked()
	if err != nil {
		return nil, nil, fmt.Errorf("seek records: %w", err)
	}
	return c, &walker{mapName: s.Map, over: over, reader: reader, group: m.group, at: at}, nil
}

// settle decides for the index with the fewest candidates, or the one in the order of the
// rows, and reports whether one serves.
func (c *choice) settle(s Seek) bool {
	opaque := []query.Span{query.SpanOpaque}
	if c.order != nil && c.order.view.Count(opaque, 0) > 0 {
		c.order = nil
	}
	fewest := MaxCandidates + 1
	for _, o := range c.narrow {
		if n := o.view.Count(o.spans, fewest) + o.view.Count(opaque, fewest); n < fewest {
			fewest = n
			c.used, c.view, c.spans = o.definition, o.view, append(o.spans, query.SpanOpaque)
		}
	}
	if c.order != nil && (fewest > MaxCandidates || c.used == c.order.definition) {
		c.ordered, c.used, c.view = true, c.order.definition, c.order.view
		c.spans = c.inOrder(s)
		return true
	}
	return fewest <= MaxCandidates
}

// inOrder is the spans in the order of the rows, as far as they are behind After.
func (c *choice) inOrder(s Seek) []query.Span {
	var values, missing []query.Span
	for _, span := range c.order.spans {
		if span == query.SpanMissing {
			missing = append(missing, span)
			continue
		}
		values = append(values, span)
	}
	if s.After == nil {
		return c.clip(values, missing, query.SpanValues)
	}
	switch bound := s.Query.Bound(s.After); {
	case bound == query.SpanMissing:
		return missing
	case c.descending:
		return c.clip(values, missing, query.Span{To: bound.To})
	default:
		return c.clip(values, missing, query.Span{From: bound.From, To: query.SpanValues.To})
	}
}

// clip is what lies in within of the spans of values, in the order of the rows, and the
// missing values behind them.
func (c *choice) clip(values, missing []query.Span, within query.Span) (list []query.Span) {
	for i := range values {
		span := values[i]
		if c.descending {
			span = values[len(values)-1-i]
		}
		if span = span.And(within); !span.Empty() {
			list = append(list, span)
		}
	}
	return append(list, missing...)
}

// walk calls fn with the keys of the candidates until it returns false.
func (c *choice) walk(fn func(key string) bool) {
	if !c.ordered || !c.descending {
		c.view.Ascend(c.spans, fn)
		return
	}
	c.view.Descend(c.spans, fn)
}

// walker shows the records of keys, from one state.
type walker struct {
	mapName string
	// over lies over what reader has, dirty are the records in it.
	over   dirtyView
	dirty  map[string][]byte
	reader storage.Reader
	group  uint32
	at     uint64
	fn     func(string, protocol.Record) bool
	place  []byte
	err    error
}

// show reports whether the next record is wanted.
func (w *walker) show(key string) bool {
	w.place = appendPlace(w.place[:0], w.mapName, key)
	value, changed := w.dirty[string(w.place)]
	if !changed {
		var kept []byte
		if kept, w.err = w.reader.Get(w.group, storage.Key{Section: storage.SectionRecords, Bytes: string(w.place)}); w.err != nil {
			return false
		}
		value = append([]byte(nil), kept...)
	}
	rec, err := decodeRecord(value)
	if err != nil {
		w.err = err
		return false
	}
	return w.fn(key, rec.Record)
}
