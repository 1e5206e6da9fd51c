package logstore

import (
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// recordKind says how the body of a record is read. The numbers are on disk: never
// reused, never renumbered. Kind 0 is invalid, so zeroed bytes are no record.
type recordKind uint8

const (
	recordEntry        recordKind = 1 // append one log entry
	recordRewrite      recordKind = 2 // a copy of a live entry, which moves there
	recordDeletePrefix recordKind = 3 // body: the new first index
	recordDeleteSuffix recordKind = 4 // body: the new last index
	recordSet          recordKind = 5 // body: key, value
	recordVote         recordKind = 6 // body: last vote term and candidate, both values
	recordHint         recordKind = 7 // body: commit index
	recordDrop         recordKind = 8 // the group is gone, empty body
	recordState        recordKind = 9 // whole state but for the entries
)

var errShortRecord = errors.New("record is too short")

// record is one decoded record header with its body, which aliases the buffer.
type record struct {
	kind  recordKind
	group uint32
	body  []byte
}

// recordAt splits the record at b[at:]; its bounds were checked before.
func recordAt(b []byte, at int) (r record, end int) {
	end = at + recordHeaderBytes + recordLength(b[at:])
	return record{
		kind:  recordKind(b[at+8]),
		group: binary.LittleEndian.Uint32(b[at+12:]),
		body:  b[at+recordHeaderBytes : end],
	}, end
}

// beginRecord appends a record header; endRecord completes it.
func beginRecord(b []byte, kind recordKind, group uint32) []byte {
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0, byte(kind), 0, 0, 0)
	return binary.LittleEndian.AppendUint32(b, group)
}

// endRecord sets the length of the record that starts at b[start:] and ends with b.
func endRecord(b []byte, start int) []byte {
	binary.LittleEndian.PutUint32(b[start:], uint32(len(b)-start-recordHeaderBytes))
	return b
}

// appendIndexRecord appends a record whose body is one index.
func appendIndexRecord(b []byte, kind recordKind, group uint32, index uint64) []byte {
	start := len(b)
	b = beginRecord(b, kind, group)
	return endRecord(binary.AppendUvarint(b, index), start)
}

// appendPairRecord appends a record whose body is two byte strings.
func appendPairRecord(b []byte, kind recordKind, group uint32, first, second []byte) []byte {
	start := len(b)
	b = beginRecord(b, kind, group)
	return endRecord(appendBytes(appendBytes(b, first), second), start)
}

// appendEntryRecord appends one log entry.
func appendEntryRecord(b []byte, group uint32, log *raft.Log) []byte {
	start := len(b)
	b = beginRecord(b, recordEntry, group)
	b = binary.AppendUvarint(b, log.Index)
	b = binary.AppendUvarint(b, log.Term)
	b = append(b, byte(log.Type))
	// Seconds and nanoseconds cover every time.Time, the zero one included.
	b = binary.AppendVarint(b, log.AppendedAt.Unix())
	b = binary.AppendUvarint(b, uint64(log.AppendedAt.Nanosecond()))
	b = appendBytes(b, log.Extensions)
	return endRecord(append(b, log.Data...), start)
}

// appendRewriteRecord appends the entry whose encoded body is given once more.
func appendRewriteRecord(b []byte, group uint32, body []byte) []byte {
	start := len(b)
	return endRecord(append(beginRecord(b, recordRewrite, group), body...), start)
}

func appendBytes(b, s []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// decodeEntry reads the body of an entry into log. Data and Extensions alias body.
func decodeEntry(body []byte, log *raft.Log) error {
	r := bodyReader{rest: body}
	log.Index = r.uvarint()
	log.Term = r.uvarint()
	log.Type = raft.LogType(r.byte())
	seconds := r.varint()
	nanos := r.uvarint()
	log.AppendedAt = time.Unix(seconds, int64(nanos)).UTC()
	log.Extensions = r.bytes()
	log.Data = r.rest
	if len(log.Data) == 0 {
		log.Data = nil
	}
	return r.err
}

// decodeEntryID reads only the index and the term of an entry.
func decodeEntryID(body []byte) (index, term uint64, err error) {
	r := bodyReader{rest: body}
	index, term = r.uvarint(), r.uvarint()
	return index, term, r.err
}

// groupImage is the durable state of a group but for its entries, as a checkpoint
// holds it. Zero indexes mean an empty log.
type groupImage struct {
	first, last, hint uint64
	stable            map[string][]byte
}

func appendStateRecord(b []byte, group uint32, s groupImage) []byte {
	start := len(b)
	b = beginRecord(b, recordState, group)
	b = binary.AppendUvarint(b, s.first)
	b = binary.AppendUvarint(b, s.last)
	b = binary.AppendUvarint(b, s.hint)
	for _, key := range slices.Sorted(maps.Keys(s.stable)) {
		b = appendBytes(appendBytes(b, []byte(key)), s.stable[key])
	}
	return endRecord(b, start)
}

func decodeState(body []byte) (groupImage, error) {
	r := bodyReader{rest: body}
	s := groupImage{first: r.uvarint(), last: r.uvarint(), hint: r.uvarint(), stable: make(map[string][]byte)}
	for r.err == nil && len(r.rest) > 0 {
		key, value := r.bytes(), r.bytes()
		s.stable[string(key)] = append([]byte{}, value...)
	}
	return s, r.err
}

// bodyReader cuts fields from the front of a record body. After the first error
// every field is zero.
type bodyReader struct {
	rest []byte
	err  error
}

func (r *bodyReader) advance(n int) bool {
	if n <= 0 || n > len(r.rest) {
		r.rest, r.err = nil, errShortRecord
		return false
	}
	r.rest = r.rest[n:]
	return true
}

func (r *bodyReader) uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if !r.advance(n) {
		return 0
	}
	return v
}

func (r *bodyReader) varint() int64 {
	v, n := binary.Varint(r.rest)
	if !r.advance(n) {
		return 0
	}
	return v
}

func (r *bodyReader) byte() byte {
	b := r.rest
	if !r.advance(1) {
		return 0
	}
	return b[0]
}

// bytes returns nil for an empty string.
func (r *bodyReader) bytes() []byte {
	n := r.uvarint()
	if n == 0 {
		return nil
	}
	b := r.rest
	if n > uint64(len(b)) || !r.advance(int(n)) {
		r.rest, r.err = nil, errShortRecord
		return nil
	}
	return b[:n:n]
}
