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

// openSet is a set that a command works on.
type openSet struct {
	mapName, key string
	cell         *cell
	// before is the set as it was.
	before orSet
	orSet
}

func (r *run) openSet(mapName, key string) (*openSet, error) {
	var scratch [256]byte
	c, err := r.lookup(storage.SectionSets, appendPlace(scratch[:0], mapName, key))
	if err != nil {
		return nil, err
	}
	s := &openSet{mapName: mapName, key: key, cell: c}
	if c.value == nil {
		return s, nil
	}
	if s.before, err = decodeSet(c.value); err != nil {
		return nil, err
	}
	s.orSet = s.before
	s.records = slices.Clone(s.records)
	return s, nil
}

// closeSet stores what became of a set, and keeps the map's tree.
func (r *run) closeSet(s *openSet) {
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
	r.machine.trees.of(s.mapName, merkle.Sets).Update(merkle.BucketOf(s.key), s.before.item, s.item, keys, r.mark.Index)
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
	case tagRemoved:
		return r.unchanged(), nil
	case tagHomeless:
		return r.unchanged(), r.house(tagCell, tag, add.Map, add.Key, add.Record.Tag)
	case tagLive:
		if tag.key != add.Key {
			return r.moveRecord(tagCell, tag, add)
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
	size := len(rec.Tag) + len(rec.Value)
	for i := range s.records {
		if s.records[i].Tag != rec.Tag {
			size += len(s.records[i].Tag) + len(s.records[i].Value)
		}
	}
	return size <= maxSetBytes
}

func (r *run) tooLarge() command.Result {
	return r.refused(protocol.CodeTooLarge, "values of the key are too large together")
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
	switch {
	case !found:
		s.records = slices.Insert(s.records, at, add.Record)
		r.set(tagCell, encodeTag(orTag{state: tagLive, key: add.Key}))
	default:
		s.records[at] = add.Record
	}
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
	other.records = slices.Delete(other.records, at, at+1)
	r.closeSet(other)
	r.removed(add.Map, other.key, add.Record.Tag, add.Origin)
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
	gone := orTag{state: tagRemoved, key: rem.Key, index: r.mark.Index, removed: r.entry.Stamp.Millis}
	switch tag.state {
	case tagRemoved:
		return r.unchanged(), nil
	case tagHomeless:
		if rem.Homeless {
			return r.unchanged(), nil
		}
		return r.changed(), r.house(tagCell, tag, rem.Map, rem.Key, rem.Tag)
	}
	if passes, err := r.passFence(rem.Fence); err != nil || !passes {
		return r.fencedOff(), err
	}
	switch tag.state {
	case tagLive:
		gone.key = strings.Clone(tag.key)
	default:
		if rem.Homeless {
			gone.state, gone.key = tagHomeless, ""
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
		s.records = slices.Delete(s.records, at, at+1)
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
	tag.state, tag.key = tagRemoved, key
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
