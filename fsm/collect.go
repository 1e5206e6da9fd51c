package fsm

import (
	"strings"

	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/merkle"
)

// reasonForgotten refuses a write that may repeat one from before a deletion.
const reasonForgotten = "the write is as old as deletions that are forgotten by now"

// forgotten reports whether something written at ts may have been deleted by a tombstone
// that is collected: a client that comes back after a long time sends again what was never
// acknowledged to it, and that must not bring back what others deleted meanwhile.
func (r *run) forgotten(ts protocol.Timestamp) bool {
	collected := r.machine.horizon.CollectedMillis
	return collected > 0 && ts.Millis <= collected
}

// dig lists a new tombstone.
func (r *run) dig(g grave) {
	c := r.cell(g.key())
	r.machine.metrics.buried(c.key.Bytes)
	r.enlist(c, 1, listed)
}

// enlist sets or, with n -1, deletes the listing of a tombstone.
func (r *run) enlist(c *cell, n int, value []byte) {
	r.machine.graves = r.machine.graves.with(c.key.Bytes, n)
	r.set(c, value)
}

// exhume takes a tombstone off the list.
func (r *run) exhume(g grave) error {
	key := g.key()
	c, err := r.lookup(key.Section, []byte(key.Bytes))
	if err == nil && c.value != nil {
		r.enlist(c, -1, nil)
	}
	return err
}

// applyCollect drops the listed tombstones that are still there, and moves the horizon.
func applyCollect(r *run, c command.Raw) (command.Result, error) {
	m, err := command.DecodeCollect(c)
	if err != nil {
		return command.Result{}, err
	}
	for _, key := range m.Graves {
		if err := r.collectGrave(key); err != nil {
			return command.Result{}, err
		}
	}
	h := &r.machine.horizon
	h.ClosedMillis = max(h.ClosedMillis, r.entry.Stamp.Millis)
	h.PrunedMillis = max(h.PrunedMillis, m.ThroughMillis)
	if m.ThroughMillis > 0 {
		r.machine.metrics.passed()
	}
	cell, err := r.lookup(horizonKey.Section, []byte(horizonKey.Bytes))
	if err != nil {
		return command.Result{}, err
	}
	r.set(cell, encodeHorizon(*h))
	return r.changed(), nil
}

func (r *run) collectGrave(key string) error {
	c, err := r.lookup(storage.SectionGraves, []byte(key))
	if err == nil && c.value == nil {
		r.machine.metrics.missed() // collected already, or not a tombstone any more
		return nil
	}
	if err != nil {
		return err
	}
	g, err := parseGrave(strings.Clone(key))
	if err != nil {
		return err
	}
	r.enlist(c, -1, nil)
	r.machine.metrics.collected(g.kind)
	h := &r.machine.horizon
	h.CollectedMillis = max(h.CollectedMillis, g.millis)
	if g.kind == merkle.Sets {
		return r.forgetTag(g)
	}
	return r.forgetRecord(g)
}

// forgetRecord drops the tombstone of a record. That the grave exists says that the
// tombstone does.
func (r *run) forgetRecord(g grave) error {
	c, err := r.lookup(storage.SectionRecords, appendPlace(nil, g.mapName, g.name))
	if err != nil {
		return err
	}
	rec, err := decodeRecord(c.value)
	if err != nil {
		return err
	}
	r.set(c, nil)
	r.machine.trees.update(g.mapName, merkle.Records, merkle.BucketOf(g.name), rec.item, 0, -1, r.mark.Index)
	return r.unlist(nameKey(g.mapName, g.name))
}

// forgetTag drops a removed tag, and the key that it belonged to if that has nothing
// else.
func (r *run) forgetTag(g grave) error {
	c, tag, err := r.openTag(g.mapName, g.name)
	if err != nil {
		return err
	}
	r.set(c, nil)
	if tag.state != TagRemoved {
		return nil
	}
	if err := r.unlist(removedKey(g.mapName, tag.key, g.name)); err != nil {
		return err
	}
	s, err := r.openSet(g.mapName, strings.Clone(tag.key))
	if err != nil {
		return err
	}
	s.orSet.removed--
	r.closeSet(s)
	return nil
}

// unlist deletes an item that lists something.
func (r *run) unlist(key storage.Key) error {
	c, err := r.lookup(key.Section, []byte(key.Bytes))
	if err == nil {
		r.set(c, nil)
	}
	return err
}
