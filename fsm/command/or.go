package command

import (
	"encoding/binary"

	"github.com/quorate/quorate/fsm/codec"
	"github.com/quorate/quorate/protocol"
)

// orVersion is the version of both bodies; an or-add of version fencedAddVersion begins
// with a fence.
const (
	orVersion        = 1
	fencedAddVersion = 2
)

// Flag bits of an or-remove: its key is not known; a fence follows.
const (
	orHomeless = 1 << 0
	orFenced   = 1 << 1
)

// ORAdd adds one record to an observed-remove map under its tag.
type ORAdd struct {
	Map, Key string
	// Record is kept exactly as the writer made it.
	Record protocol.ORRecord
	// Origin and Fence are as in Put.
	Origin string
	Fence  Fence
}

// ORRemove removes one tag from an observed-remove map, for good.
type ORRemove struct {
	Map, Tag string
	// Key is the key that held the tag as the writer knows it. With Homeless it is not
	// known, and Key is empty.
	Key      string
	Homeless bool
	// Origin and Fence are as in Put.
	Origin string
	Fence  Fence
}

// AppendORAdd is AppendPut for a.
func AppendORAdd(dst []byte, a ORAdd) (c Raw, extended []byte) {
	rec, b := &a.Record, dst
	version := uint8(orVersion)
	if a.Fence.Lock != "" {
		version, b = fencedAddVersion, appendFence(b, a.Fence)
	}
	b = binary.AppendVarint(b, rec.Timestamp.Millis)
	b = binary.AppendVarint(b, rec.Timestamp.Counter)
	b = binary.AppendVarint(b, rec.TTLMillis)
	b = appendTexts(b, []string{a.Map, a.Key, rec.Timestamp.NodeID, rec.Tag, a.Origin})
	b = append(b, rec.Value...)
	return Raw{Kind: KindORAdd, Version: version, Body: b[len(dst):len(b):len(b)]}, b
}

// DecodeORAdd decodes what AppendORAdd wrote. Texts and value alias c.Body, which must
// never change. Errors wrap ErrMalformed or ErrFormat.
func DecodeORAdd(c Raw) (ORAdd, error) {
	if err := checkVersion(c, fencedAddVersion); err != nil {
		return ORAdd{}, err
	}
	r := codec.NewReader(c.Body)
	var a ORAdd
	if c.Version == fencedAddVersion {
		a.Fence = takeFence(&r)
	}
	rec := &a.Record
	rec.Timestamp.Millis, rec.Timestamp.Counter, rec.TTLMillis = r.Varint(), r.Varint(), r.Varint()
	takeTexts(&r, []*string{&a.Map, &a.Key, &rec.Timestamp.NodeID, &rec.Tag, &a.Origin})
	if err := r.Err(); err != nil {
		return ORAdd{}, malformed("decode or-add", err)
	}
	if r.Len() > 0 {
		rec.Value = r.Rest()
	}
	return a, nil
}

// AppendORRemove is AppendPut for m.
func AppendORRemove(dst []byte, m ORRemove) (c Raw, extended []byte) {
	flags, b := byte(0), dst
	if m.Homeless {
		flags = orHomeless
	}
	if m.Fence.Lock != "" {
		flags |= orFenced
	}
	b = appendTexts(appendFence(append(b, flags), m.Fence), []string{m.Map, m.Key, m.Tag, m.Origin})
	return Raw{Kind: KindORRemove, Version: orVersion, Body: b[len(dst):len(b):len(b)]}, b
}

// DecodeORRemove decodes what AppendORRemove wrote; see DecodeORAdd.
func DecodeORRemove(c Raw) (ORRemove, error) {
	if err := checkVersion(c, orVersion); err != nil {
		return ORRemove{}, err
	}
	r := codec.NewReader(c.Body)
	flags := r.Byte()
	m := ORRemove{Homeless: flags&orHomeless != 0}
	if flags&^(orHomeless|orFenced) != 0 {
		r.Fail("unknown flags %#x", flags)
	}
	if flags&orFenced != 0 {
		m.Fence = takeFence(&r)
	}
	takeTexts(&r, []*string{&m.Map, &m.Key, &m.Tag, &m.Origin})
	if err := r.End(); err != nil {
		return ORRemove{}, malformed("decode or-remove", err)
	}
	return m, nil
}
