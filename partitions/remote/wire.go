package remote

import (
	"encoding/binary"
	"math"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/codec"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/merkle"
)

// The first byte of a request. The numbers are part of the peer protocol.
const (
	opLeaves  = 1
	opRecords = 2
	opSets    = 3 // of a leaf
	opKeys    = 4 // sets by their keys
	opChanged = 5
	opTags    = 6
	opCounter = 7
	opHorizon = 8
	opAnswer  = 9

	opAdd  = 1 // follow one subject more
	opNext = 2 // the next changes
)

// The first byte of a reply.
const (
	replyDone   = 1 // the index of the state and the answer follow
	replyAbsent = 2 // the node does not hold the group, or does not know the feed
	replyBehind = 3 // the replica did not get as far as was asked in time
)

// header begins every request for a read.
type header struct {
	op    byte
	group uint32
	// atLeast is the log index that the state must contain, waitMillis how long to wait
	// for it.
	atLeast    uint64
	waitMillis uint64
}

func (h header) appendTo(dst []byte) []byte {
	dst = binary.AppendUvarint(append(dst, h.op), uint64(h.group))
	return binary.AppendUvarint(binary.AppendUvarint(dst, h.atLeast), h.waitMillis)
}

func takeHeader(r *codec.Reader) header {
	return header{op: r.Byte(), group: takeGroup(r), atLeast: r.Uvarint(), waitMillis: r.Uvarint()}
}

// takeGroup takes a group. A number that is none must not become another one by its size.
func takeGroup(r *codec.Reader) uint32 {
	group := r.Uvarint()
	if group > math.MaxUint32 {
		r.Fail("%d is no group", group)
		return 0
	}
	return uint32(group)
}

// takeBucket takes the number of a bucket.
func takeBucket(r *codec.Reader) uint16 {
	bucket := r.Uvarint()
	if bucket >= merkle.Buckets {
		r.Fail("%d is no bucket", bucket)
		return 0
	}
	return uint16(bucket)
}

func appendFlag(dst []byte, flag bool) []byte {
	if flag {
		return append(dst, 1)
	}
	return append(dst, 0)
}

func appendStamp(dst []byte, ts protocol.Timestamp, ttlMillis int64) []byte {
	dst = binary.AppendVarint(binary.AppendVarint(dst, ts.Millis), ts.Counter)
	return binary.AppendVarint(codec.AppendText(dst, ts.NodeID), ttlMillis)
}

func takeStamp(r *codec.Reader) (ts protocol.Timestamp, ttlMillis int64) {
	ts = protocol.Timestamp{Millis: r.Varint(), Counter: r.Varint(), NodeID: r.Text()}
	return ts, r.Varint()
}

func appendRecord(dst []byte, rec *protocol.Record) []byte {
	return codec.AppendBytes(appendStamp(dst, rec.Timestamp, rec.TTLMillis), rec.Value)
}

// takeRecord takes what appendRecord appended; the record aliases the input.
func takeRecord(r *codec.Reader) (rec protocol.Record) {
	rec.Timestamp, rec.TTLMillis = takeStamp(r)
	rec.Value = takeValue(r)
	return rec
}

// takeValue takes bytes, nil if there are none.
func takeValue(r *codec.Reader) []byte {
	if b := r.Bytes(); len(b) > 0 {
		return b
	}
	return nil
}

func appendORRecord(dst []byte, rec *protocol.ORRecord) []byte {
	dst = appendStamp(codec.AppendText(dst, rec.Tag), rec.Timestamp, rec.TTLMillis)
	return codec.AppendBytes(dst, rec.Value)
}

func takeORRecord(r *codec.Reader) (rec protocol.ORRecord) {
	rec.Tag = r.Text()
	rec.Timestamp, rec.TTLMillis = takeStamp(r)
	rec.Value = takeValue(r)
	return rec
}

// minRecord is the least that a record of a set takes.
const minRecord = 6

func appendEntry(dst []byte, e *protocol.OREntry) []byte {
	dst = binary.AppendUvarint(codec.AppendText(dst, e.Key), uint64(len(e.Records)))
	for i := range e.Records {
		dst = appendORRecord(dst, &e.Records[i])
	}
	dst = binary.AppendUvarint(dst, uint64(len(e.Tombstones)))
	for _, tag := range e.Tombstones {
		dst = codec.AppendText(dst, tag)
	}
	return dst
}

func takeEntry(r *codec.Reader) protocol.OREntry {
	e := protocol.OREntry{Key: r.Text()}
	if n := r.Count(minRecord); n > 0 {
		e.Records = make([]protocol.ORRecord, n)
	}
	for i := range e.Records {
		e.Records[i] = takeORRecord(r)
	}
	if n := r.Count(1); n > 0 {
		e.Tombstones = make([]string, n)
	}
	for i := range e.Tombstones {
		e.Tombstones[i] = r.Text()
	}
	return e
}

func appendHorizon(dst []byte, h fsm.Horizon) []byte {
	dst = binary.AppendVarint(dst, h.ClosedMillis)
	return binary.AppendVarint(binary.AppendVarint(dst, h.PrunedMillis), h.CollectedMillis)
}

func takeHorizon(r *codec.Reader) fsm.Horizon {
	return fsm.Horizon{ClosedMillis: r.Varint(), PrunedMillis: r.Varint(), CollectedMillis: r.Varint()}
}

// Flag bits of a change.
const (
	changeExisted = 1 << 0
	changeAdded   = 1 << 1
	changeRemoved = 1 << 2
)

func appendChange(dst []byte, c *fsm.Change) []byte {
	var flags byte
	if c.Existed {
		flags |= changeExisted
	}
	if c.Added != nil {
		flags |= changeAdded
	}
	if c.Removed != "" {
		flags |= changeRemoved
	}
	dst = binary.AppendUvarint(append(dst, flags, byte(c.Section)), c.Index)
	dst = codec.AppendText(codec.AppendText(codec.AppendText(dst, c.Map), c.Key), c.Origin)
	switch {
	case c.Added != nil:
		return appendORRecord(dst, c.Added)
	case c.Removed != "":
		return codec.AppendText(dst, c.Removed)
	case c.Section == storage.SectionRecords:
		return codec.AppendBytes(appendRecord(dst, &c.Record), c.Old)
	default:
		return dst
	}
}

func takeChange(r *codec.Reader) (c fsm.Change) {
	flags := r.Byte()
	c.Existed, c.Section, c.Index = flags&changeExisted != 0, storage.Section(r.Byte()), r.Uvarint()
	c.Map, c.Key, c.Origin = r.Text(), r.Text(), r.Text()
	switch {
	case flags&changeAdded != 0:
		rec := takeORRecord(r)
		c.Added = &rec
	case flags&changeRemoved != 0:
		c.Removed = r.Text()
	case c.Section == storage.SectionRecords:
		c.Record, c.Old = takeRecord(r), takeValue(r)
	}
	return c
}

// subjectOf is what a change is followed by; false if it cannot be followed.
func subjectOf(c *fsm.Change) (Subject, bool) {
	switch c.Section {
	case storage.SectionRecords, storage.SectionSets:
		return Subject{Name: c.Map}, true
	case storage.SectionCounters:
		return Subject{Counter: true, Name: c.Key}, true
	default:
		return Subject{}, false
	}
}

func appendSubject(dst []byte, s Subject) []byte {
	return codec.AppendText(appendFlag(dst, s.Counter), s.Name)
}

func takeSubject(r *codec.Reader) Subject { return Subject{Counter: r.Byte() != 0, Name: r.Text()} }
