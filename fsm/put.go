package fsm

import (
	"strings"

	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/crdt"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/merkle"
)

// applyPut merges one record, once per dedup id.
func applyPut(r *run, c command.Raw) (command.Result, error) {
	put, err := command.DecodePut(c)
	if err != nil {
		return command.Result{}, err
	}
	w := &r.machine.window
	if put.Dedup == "" {
		if w.far > 0 && !put.Stamped {
			// The first time, its stamp may have been replaced.
			if res, repeated := w.find(outcomeID(put.FarDedup())); repeated {
				return res, nil
			}
		}
		return r.fencedPut(put)
	}
	id := outcomeID(put.Dedup)
	if res, repeated := w.find(id); repeated {
		return res, nil
	}
	res, err := r.fencedPut(put)
	if err != nil || res.Code == command.CodeChanged { // which is no outcome: it comes again
		return res, err
	}
	return res, r.remember(w, id, res)
}

// fencedPut merges the record of put if its fence lets it pass.
func (r *run) fencedPut(put command.Put) (command.Result, error) {
	if passes, err := r.passFence(put.Fence); err != nil || !passes {
		return r.fencedOff(), err
	}
	return r.mergeRecord(put)
}

func (r *run) mergeRecord(put command.Put) (command.Result, error) {
	var scratch [256]byte
	key := appendPlace(scratch[:0], put.Map, put.Key)
	// Proposers refuse these sizes too; a store would fail on them.
	size := 2*recordOverhead + len(put.Record.Timestamp.NodeID) + len(put.Record.Value)
	if len(put.Map)+len(put.Key)+keyOverhead > storage.MaxKeyBytes || size > storage.MaxValueBytes {
		return r.refused(protocol.CodeTooLarge, "map name, key or value is too long"), nil
	}
	c, err := r.lookup(storage.SectionRecords, key)
	if err != nil {
		return command.Result{}, err
	}
	var before stored
	var met *protocol.Record
	if c.value != nil {
		if before, err = decodeRecord(c.value); err != nil {
			return command.Result{}, err
		}
		met = &before.Record
	}
	if met == nil && !put.Stamped && !put.Record.IsTombstone() && r.forgotten(put.Record.Timestamp) {
		return r.refused(protocol.CodeStale, reasonForgotten), nil
	}
	merged, won := crdt.Merge(met, r.effective(put, met))
	// What changes nothing needs no permission: it may be a repeat of what had it.
	if won && !put.Guard.Holds(before.Value) {
		return r.refused(command.CodeChanged, "the record was changed meanwhile"), nil
	}
	r.raiseClock(merged.Timestamp)
	if !won {
		return r.unchanged(), nil
	}
	return r.changed(), r.store(c, put, merged, before)
}

// effective is the record that put asks to merge with the record that it meets:
// the writer's own, or stamped by the proposer.
func (r *run) effective(put command.Put, met *protocol.Record) protocol.Record {
	rec := put.Record
	if !put.Stamped {
		return rec
	}
	rec.Timestamp = r.stamp()
	if put.Overwrite && met != nil {
		rec.Timestamp = crdt.Above(met.Timestamp, rec.Timestamp)
	}
	return rec
}

// store makes rec, which won over before, the record in c.
func (r *run) store(c *cell, put command.Put, rec protocol.Record, before stored) error {
	existed := c.value != nil
	item := stored{Record: rec, index: r.mark.Index, item: merkle.LWWItem(put.Key, rec.Timestamp)}
	if rec.IsTombstone() {
		item.removed = r.entry.Stamp.Millis
	}
	encoded := encodeRecord(item)
	r.set(c, encoded)
	r.list(put.Map, put.Key, existed, before.item, item.item)
	if existed && before.IsTombstone() {
		if err := r.exhume(grave{before.removed, before.index, merkle.Records, put.Map, put.Key}); err != nil {
			return err
		}
	}
	if rec.IsTombstone() {
		r.dig(grave{item.removed, item.index, merkle.Records, put.Map, put.Key})
	}
	r.machine.enter(put.Map, put.Key, before.Value, rec.Value)
	if !r.collect {
		return nil
	}
	if n := len(rec.Value); n > 0 {
		rec.Value = encoded[len(encoded)-n:]
	}
	// Copies, which do not keep the log entry alive.
	rec.Timestamp.NodeID = strings.Clone(rec.Timestamp.NodeID)
	r.event(Change{
		Section: storage.SectionRecords,
		Map:     strings.Clone(put.Map),
		Key:     strings.Clone(put.Key),
		Record:  rec,
		Existed: existed && !before.IsTombstone(),
		Old:     before.Value,
		Origin:  echoTo(put),
	})
	return nil
}

// echoTo is the connection that is not told of what put stored: its own, unless the
// record has another stamp than the writer gave it, which it has to learn.
func echoTo(put command.Put) string {
	if put.Stamped && !put.Overwrite {
		return ""
	}
	return strings.Clone(put.Origin)
}

// list puts the item after in place of before in the tree of the records of a map, and
// enters a key that is new in its list of keys.
func (r *run) list(mapName, key string, existed bool, before, after uint32) {
	bucket := merkle.BucketOf(key)
	trees := &r.machine.trees
	if existed {
		trees.update(mapName, merkle.Records, bucket, before, after, 0, r.mark.Index)
		return
	}
	trees.update(mapName, merkle.Records, bucket, 0, after, 1, r.mark.Index)
	r.set(r.cell(nameKey(mapName, key)), listed)
}
