package logstore

import (
	"errors"
	"fmt"
)

// errSequence is wrapped by records that cannot follow the state before them.
var errSequence = errors.New("record does not fit the log before it")

// applyLocked changes the durable state by one record that lies at loc. Recovery
// and the writer use the same code, so a recovered log equals the one that was
// lost with the process.
func (g *GroupLog) applyLocked(r record, loc location) error {
	switch r.kind {
	case recordEntry:
		return g.applyEntry(r.body, loc)
	case recordRewrite:
		return g.applyRewrite(r.body, loc)
	case recordDeletePrefix, recordDeleteSuffix, recordHint:
		return g.applyIndex(r)
	case recordSet:
		return g.applySet(r.body)
	case recordVote:
		return g.applyVote(r.body)
	case recordDrop:
		g.applyDrop()
		return nil
	default:
		return fmt.Errorf("%w: kind %d", errSequence, r.kind)
	}
}

func (g *GroupLog) applyEntry(body []byte, loc location) error {
	index, term, err := decodeEntryID(body)
	if err != nil {
		return err
	}
	if last := g.index.last(); index == 0 || last != 0 && index != last+1 {
		return fmt.Errorf("%w: entry %d after %d", errSequence, index, last)
	}
	loc.term = term
	g.index.add(index, loc)
	return nil
}

func (g *GroupLog) applyRewrite(body []byte, loc location) error {
	index, term, err := decodeEntryID(body)
	if err != nil {
		return err
	}
	old := g.index.at(index)
	if old == nil || old.seg != nil && old.term != term {
		return fmt.Errorf("%w: copy of entry %d, term %d", errSequence, index, term)
	}
	loc.term = term
	g.index.move(index, loc)
	return nil
}

func (g *GroupLog) applyIndex(r record) error {
	body := bodyReader{rest: r.body}
	index := body.uvarint()
	if body.err != nil {
		return body.err
	}
	first, last := g.index.first, g.index.last()
	switch {
	case r.kind == recordHint:
		g.durableHint = index
	case r.kind == recordDeletePrefix && first < index && index <= last+1:
		if index > last {
			g.truncations++
		}
		g.index.dropBefore(index)
		g.cache.dropBefore(index)
	case r.kind == recordDeleteSuffix && first <= index && index < last:
		g.truncations++
		g.index.dropAfter(index)
		g.cache.dropAfter(index)
		g.durableHint = min(g.durableHint, index)
	default:
		return fmt.Errorf("%w: deletion at %d in %d to %d", errSequence, index, first, last)
	}
	return nil
}

func (g *GroupLog) applySet(body []byte) error {
	r := bodyReader{rest: body}
	key, value := r.bytes(), r.bytes()
	if r.err == nil {
		g.put(string(key), value)
	}
	return r.err
}

func (g *GroupLog) applyVote(body []byte) error {
	r := bodyReader{rest: body}
	term, candidate := r.bytes(), r.bytes()
	if r.err == nil {
		g.put(keyLastVoteTerm, term)
		g.put(keyLastVoteCand, candidate)
	}
	return r.err
}

// put keeps a copy: value lies in a buffer that is used again.
func (g *GroupLog) put(key string, value []byte) {
	g.stable[key] = append([]byte{}, value...)
}

func (g *GroupLog) applyDrop() {
	g.truncations++
	g.index.clear()
	g.cache.clear()
	clear(g.stable)
	g.durableHint = 0
	g.heldVoteTerm = nil
}

// restore sets the state that the checkpoint of the oldest segment gives. Where the
// entries lie is not known yet: they are found in later segments or are deleted there.
func (g *GroupLog) restore(s groupImage) error {
	if (s.first == 0) != (s.last == 0) || s.last < s.first {
		return fmt.Errorf("%w: checkpoint of entries %d to %d", errSequence, s.first, s.last)
	}
	if s.first != 0 {
		g.index = entryIndex{first: s.first, locs: make([]location, s.last-s.first+1)}
	}
	g.stable = s.stable
	g.durableHint = s.hint
	return nil
}
