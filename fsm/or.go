package fsm

import (
	"slices"
	"strings"

	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/crdt"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/merkle"
)

// openSet is a set that the commands of an entry work on. It is encoded and hashed once,
// when the entry is applied: a set may be large, and have many changes in one entry.
type openSet struct {
	mapName, key string
	cell         *cell
	// before is the set as it was.
	before orSet
	orSet
	// size is that of the records as they are encoded, at most; work what hashing them
	// takes; dirty that they changed.
	size, work int
	dirty      bool
}

func (r *run) openSet(mapName, key string) (*openSet, error) {
	var scratch [256]byte
	place := appendPlace(scratch[:0], mapName, key)
	if s := r.sets[string(place)]; s != nil {
		return s, nil
	}
	c, err := r.lookup(storage.SectionSets, place)
	if err != nil {
		return nil, err
	}
	s := &openSet{mapName: strings.Clone(mapName), key: strings.Clone(key), cell: c}
	if c.value != nil {
		if s.before, err = decodeSet(c.value); err != nil {
			return nil, err
		}
		s.orSet = s.before
		s.records = slices.Clone(s.records)
		s.size = len(c.value)
		for i := range s.records {
			s.work += recordWork(&s.records[i])
		}
	}
	if r.sets == nil {
		r.sets = map[string]*openSet{}
	}
	r.sets[string(place)] = s
	return s, nil
}

// closeSet notes that a set changed.
func (r *run) closeSet(s *openSet) {
	if !s.dirty {
		s.dirty = true
		r.dirtySets = append(r.dirtySets, s)
	}
}

// closeSets stores what became of the sets of the entry, and keeps the maps' trees.
func (r *run) closeSets() {
	for _, s := range r.dirtySets {
		r.storeSet(s)
	}
	r.dirtySets = nil
	clear(r.sets)
}

func (r *run) storeSet(s *openSet) {
	s.index = r.mark.Index
	s.item = merkle.ORItem(s.key, s.records)
	keys := 0
	switch exists, existed := s.exists(), s.before.exists(); {
	case exists && !existed:
		keys = 1
	case existed && !exists:
		keys = -1
	}
	if s.exists() {
		r.set(s.cell, encodeSet(&s.orSet))
	} else {
		r.set(s.cell, nil)
	}
	r.machine.trees.update(s.mapName, merkle.Sets, merkle.BucketOf(s.key), s.before.item, s.item, keys, r.mark.Index)
}

// openTag looks a tag up.
func (r *run) openTag(mapName, tag string) (*cell, orTag, error) {
	var scratch [256]byte
	c, err := r.lookup(storage.SectionTags, appendName(scratch[:0], mapName, tag))
	if err != nil {
		return nil, orTag{}, err
	}
	t, err := decodeTag(c.value)
	return c, t, err
}

// applyORAdd merges one record into its set: a removed tag stays removed, and of
// records with one tag the newest stands.
func applyORAdd(r *run, c command.Raw) (command.Result, error) {
	add, err := command.DecodeORAdd(c)
	if err != nil {
		return command.Result{}, err
	}
	if removedKeyBytes(add.Map, add.Key, add.Record.Tag) > storage.MaxKeyBytes {
		return r.refused(protocol.CodeTooLarge, "map name, key or tag is too long"), nil
	}
	tagCell, tag, err := r.openTag(add.Map, add.Record.Tag)
	if err != nil {
		return command.Result{}, err
	}
	switch tag.state {
	case TagRemoved:
		return r.unchanged(), nil
	case TagHomeless:
		return r.unchanged(), r.house(tagCell, tag, add.Map, add.Key, add.Record.Tag)
	case TagLive:
		if tag.key != add.Key {
			return r.moveRecord(tagCell, tag, add)
		}
	default:
		if tag, err := protocol.ParseTimestamp(add.Record.Tag); r.forgotten(add.Record.Timestamp) || err == nil && r.forgotten(tag) {
			return r.refused(protocol.CodeStale, reasonForgotten), nil
		}
	}
	s, err := r.openSet(add.Map, add.Key)
	if err != nil {
		return command.Result{}, err
	}
	if !s.fits(add.Record) {
		return r.tooLarge(), nil
	}
	return r.addRecord(s, tagCell, add)
}

// fits reports whether the set may hold rec too.
func (s *openSet) fits(rec protocol.ORRecord) bool {
	size, work := s.size+recordSize(&rec), s.work+recordWork(&rec)
	if at, found := s.find(rec.Tag); found {
		size -= recordSize(&s.records[at])
		work -= recordWork(&s.records[at])
	}
	return size <= maxSetBytes && work <= protocol.MaxValueTextWork
}

func (r *run) tooLarge() command.Result {
	return r.refused(protocol.CodeTooLarge, "values of the key are too large together")
}

// drop takes the record at a place out of the set.
func (s *openSet) drop(at int) {
	s.weigh(&s.records[at], -1)
	s.records = slices.Delete(s.records, at, at+1)
}

// weigh counts a record as one more of the set, or one fewer.
func (s *openSet) weigh(rec *protocol.ORRecord, sign int) {
	s.size += sign * recordSize(rec)
	s.work += sign * recordWork(rec)
}

// addRecord puts the record of add into s, unless one with its tag is there that is
// not older. What changes nothing needs to pass no fence: it may be a repeat.
func (r *run) addRecord(s *openSet, tagCell *cell, add command.ORAdd) (command.Result, error) {
	at, found := s.find(add.Record.Tag)
	if found && !crdt.Wins(s.records[at].Timestamp, add.Record.Timestamp) {
		return r.unchanged(), nil
	}
	if passes, err := r.passFence(add.Fence); err != nil || !passes {
		return r.fencedOff(), err
	}
	if found {
		s.weigh(&s.records[at], -1)
		s.records[at] = add.Record
	} else {
		s.records = slices.Insert(s.records, at, add.Record)
		r.set(tagCell, encodeTag(orTag{state: TagLive, key: add.Key}))
	}
	s.weigh(&add.Record, 1)
	r.added(add)
	r.closeSet(s)
	return r.changed(), nil
}

// moveRecord handles a record whose tag another key of the map carries, which breaks
// the rule that tags are unique. So that the order of arrival does not decide, the
// newer record stands, of equal ones that of the smaller key.
func (r *run) moveRecord(tagCell *cell, tag orTag, add command.ORAdd) (command.Result, error) {
	s, err := r.openSet(add.Map, add.Key)
	if err != nil {
		return command.Result{}, err
	}
	other, err := r.openSet(add.Map, strings.Clone(tag.key))
	if err != nil {
		return command.Result{}, err
	}
	at, _ := other.find(add.Record.Tag)
	order := add.Record.Timestamp.Compare(other.records[at].Timestamp)
	if order < 0 || order == 0 && add.Key > other.key {
		return r.unchanged(), nil
	}
	if !s.fits(add.Record) {
		return r.tooLarge(), nil
	}
	if passes, err := r.passFence(add.Fence); err != nil || !passes {
		return r.fencedOff(), err
	}
	other.drop(at)
	r.closeSet(other)
	// The tag is not removed: who hears of the new record keeps the old one until it syncs.
	return r.addRecord(s, tagCell, add)
}

// applyORRemove removes a tag from the map, whichever key carries it, for good.
func applyORRemove(r *run, c command.Raw) (command.Result, error) {
	rem, err := command.DecodeORRemove(c)
	if err != nil {
		return command.Result{}, err
	}
	if removedKeyBytes(rem.Map, rem.Key, rem.Tag) > storage.MaxKeyBytes {
		return r.refused(protocol.CodeTooLarge, "map name, key or tag is too long"), nil
	}
	tagCell, tag, err := r.openTag(rem.Map, rem.Tag)
	if err != nil {
		return command.Result{}, err
	}
	gone := orTag{state: TagRemoved, key: rem.Key, index: r.mark.Index, removed: r.entry.Stamp.Millis}
	switch tag.state {
	case TagRemoved:
		return r.unchanged(), nil
	case TagHomeless:
		if rem.Homeless {
			return r.unchanged(), nil
		}
		return r.changed(), r.house(tagCell, tag, rem.Map, rem.Key, rem.Tag)
	}
	if passes, err := r.passFence(rem.Fence); err != nil || !passes {
		return r.fencedOff(), err
	}
	switch tag.state {
	case TagLive:
		gone.key = strings.Clone(tag.key)
	default:
		if rem.Homeless {
			gone.state, gone.key = TagHomeless, ""
			r.set(tagCell, encodeTag(gone))
			r.dig(grave{gone.removed, gone.index, merkle.Sets, rem.Map, rem.Tag})
			return r.changed(), nil
		}
	}
	r.set(tagCell, encodeTag(gone))
	r.dig(grave{gone.removed, gone.index, merkle.Sets, rem.Map, rem.Tag})
	return r.changed(), r.bury(rem, gone.key)
}

// bury moves a tag from the records of its key to the removed ones.
func (r *run) bury(rem command.ORRemove, key string) error {
	s, err := r.openSet(rem.Map, key)
	if err != nil {
		return err
	}
	if at, found := s.find(rem.Tag); found {
		s.drop(at)
		r.removed(rem.Map, key, rem.Tag, rem.Origin)
	}
	s.orSet.removed++
	r.set(r.cell(removedKey(rem.Map, key, rem.Tag)), listed)
	r.closeSet(s)
	return nil
}

// house gives a removed tag without a key the one that has become known, so that
// clients which hold its record under that key hear of the removal.
func (r *run) house(tagCell *cell, tag orTag, mapName, key, tagText string) error {
	tag.state, tag.key = TagRemoved, key
	r.set(tagCell, encodeTag(tag))
	return r.bury(command.ORRemove{Map: mapName, Tag: tagText}, key)
}

// removedKeyBytes is a length that no item key of a tag is above.
func removedKeyBytes(mapName, key, tag string) int {
	return keyOverhead + len(mapName) + len(key) + len(tag)
}

// added and removed record the changes of a set. What they keep is copied, so that the
// log entry is not kept alive.
func (r *run) added(add command.ORAdd) {
	if !r.collect {
		return
	}
	rec := add.Record
	rec.Tag, rec.Value = strings.Clone(rec.Tag), slices.Clone(rec.Value)
	rec.Timestamp.NodeID = strings.Clone(rec.Timestamp.NodeID)
	r.event(Change{
		Section: storage.SectionSets, Map: strings.Clone(add.Map), Key: strings.Clone(add.Key),
		Added: &rec, Origin: strings.Clone(add.Origin),
	})
}

func (r *run) removed(mapName, key, tag, origin string) {
	r.event(Change{
		Section: storage.SectionSets, Map: strings.Clone(mapName), Key: strings.Clone(key),
		Removed: strings.Clone(tag), Origin: strings.Clone(origin),
	})
}
