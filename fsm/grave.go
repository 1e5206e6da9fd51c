package fsm

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/quorate/quorate/fsm/codec"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/protocol/merkle"
)

// grave is the place of a tombstone in the order in which they came: what says where it
// is, so that collecting the oldest reads nothing else.
type grave struct {
	// millis and index are the stamp's millis and the log index of the entry that made
	// the tombstone.
	millis int64
	index  uint64
	// kind says whether name is the key of a record or the tag of a set.
	kind          merkle.Kind
	mapName, name string
}

// key is the item that lists the tombstone.
func (g grave) key() storage.Key {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 64+len(g.mapName)+len(g.name)), uint64(g.millis))
	b = binary.BigEndian.AppendUint64(b, g.index)
	b = codec.AppendText(append(b, byte(g.kind)), g.mapName)
	return storage.Key{Section: storage.SectionGraves, Bytes: string(append(b, g.name...))}
}

// graveHead is the length of the part of a grave's key before the map name.
const graveHead = 17

// parseGrave takes the key of a grave apart. The result aliases it.
func parseGrave(key string) (grave, error) {
	if len(key) < graveHead {
		return grave{}, fmt.Errorf("grave %q: %w", key, storage.ErrCorrupt)
	}
	g := grave{
		millis: int64(binary.BigEndian.Uint64([]byte(key[:8]))),
		index:  binary.BigEndian.Uint64([]byte(key[8:16])),
		kind:   merkle.Kind(key[16]),
	}
	var err error
	if g.mapName, g.name, err = splitName(key[graveHead:]); err != nil {
		return grave{}, err
	}
	if g.kind != merkle.Records && g.kind != merkle.Sets {
		return grave{}, fmt.Errorf("grave %q: %w", key, storage.ErrCorrupt)
	}
	return g, nil
}

// graveTally is how many tombstones of each kind are listed, and the bytes of the listings
// of tags. It follows from the state and is no part of it.
type graveTally struct{ records, tags, tagBytes int }

// with is t with n listings more of the key of one.
func (t graveTally) with(key string, n int) graveTally {
	if merkle.Kind(key[graveHead-1]) == merkle.Sets {
		t.tags += n
		t.tagBytes += n * (len(key) + len(listed))
	} else {
		t.records += n
	}
	return t
}

func (t graveTally) plus(other graveTally) graveTally {
	return graveTally{t.records + other.records, t.tags + other.tags, t.tagBytes + other.tagBytes}
}

// loadGrave is the row of graves in sections.
func loadGrave(s *resident, key string, value []byte) error {
	_, err := parseGrave(key)
	if err == nil && string(value) != string(listed) {
		err = fmt.Errorf("grave %q: %w", key, storage.ErrCorrupt)
	}
	if err == nil {
		s.graves = s.graves.with(key, 1)
	}
	return err
}

// Horizon is how far the tombstones of a group are collected.
type Horizon struct {
	// ClosedMillis is a time that no tombstone comes before any more.
	ClosedMillis int64
	// PrunedMillis is the time up to which no tombstones are left.
	PrunedMillis int64
	// CollectedMillis is when the newest tombstone came that was collected, 0 if none
	// was. Who was told of a later state has missed none.
	CollectedMillis int64
}

const (
	horizonFormat = 1
	horizonName   = "horizon"
)

var horizonKey = storage.Key{Section: storage.SectionGroup, Bytes: horizonName}

func encodeHorizon(h Horizon) []byte {
	b := binary.AppendVarint([]byte{horizonFormat}, h.ClosedMillis)
	b = binary.AppendVarint(b, h.PrunedMillis)
	return binary.AppendVarint(b, h.CollectedMillis)
}

// loadGroup is the row of the group's own state in sections.
func loadGroup(s *resident, key string, value []byte) error {
	r := codec.NewReader(value)
	switch format := r.Byte(); {
	case key == horizonName && format == horizonFormat:
		s.horizon = Horizon{ClosedMillis: r.Varint(), PrunedMillis: r.Varint(), CollectedMillis: r.Varint()}
	case key == tokenName && format == tokenFormat:
		if token := r.Uvarint(); !forgetsTokens {
			s.locks.RestoreFence(token)
		}
	case key == adoptedName && format == adoptedFormat:
		s.adopted = true
	default:
		r.Fail("format %d", format)
	}
	if err := r.End(); err != nil {
		return fmt.Errorf("decode %q: %w: %w", key, storage.ErrCorrupt, err)
	}
	return nil
}

// Horizon returns how far the group's tombstones are collected, as of the last applied
// entry.
func (m *Machine) Horizon() Horizon {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.horizon
}

// Graves returns the keys of the oldest tombstones that came up to throughMillis, at
// most limit of them, for a Collect. Errors as in Get.
func (m *Machine) Graves(throughMillis int64, limit int) (keys []string, err error) {
	end := string(binary.BigEndian.AppendUint64(nil, uint64(throughMillis+1)))
	err = m.look(func(l *look) error {
		dirty := m.overlay.dirtyKeys(storage.SectionGraves, "")
		err := l.reader.Scan(m.group, storage.SectionGraves, "", "", func(key string, _ []byte) bool {
			if _, changed := dirty[key]; !changed && key < end {
				keys = append(keys, key)
			}
			return key < end && len(keys) < limit
		})
		for key, exists := range dirty {
			if exists && key < end {
				keys = append(keys, key)
			}
		}
		return err
	})
	slices.Sort(keys)
	return keys[:min(len(keys), limit)], err
}
