package command

import (
	"encoding/binary"

	"github.com/quorate/quorate/fsm/codec"
)

const putVersion = 1

// Flag bits of a put body.
const (
	putStamped   = 1 << 0
	putOverwrite = 1 << 1
	putKnown     = putStamped | putOverwrite
)

// EncodePut encodes p as a command of its own memory.
func EncodePut(p Put) Raw {
	value := p.Record.Value
	if p.Record.IsTombstone() {
		value = nil
	}
	size := 1 + 8*binary.MaxVarintLen64 +
		len(p.Map) + len(p.Key) + len(p.Record.Timestamp.NodeID) + len(p.Dedup) + len(p.Origin) + len(value)
	b := make([]byte, 0, size)
	b = append(b, putFlags(p))
	b = binary.AppendVarint(b, p.Record.Timestamp.Millis)
	b = binary.AppendVarint(b, p.Record.Timestamp.Counter)
	b = binary.AppendVarint(b, p.Record.TTLMillis)
	// The texts lie together behind their lengths, so that one conversion decodes
	// all of them.
	texts := [...]string{p.Map, p.Key, p.Record.Timestamp.NodeID, p.Dedup, p.Origin}
	for _, s := range texts {
		b = binary.AppendUvarint(b, uint64(len(s)))
	}
	for _, s := range texts {
		b = append(b, s...)
	}
	return Raw{Kind: KindPut, Version: putVersion, Body: append(b, value...)}
}

func putFlags(p Put) (flags byte) {
	if p.Stamped {
		flags |= putStamped
	}
	if p.Overwrite {
		flags |= putOverwrite
	}
	return flags
}

// DecodePut decodes what EncodePut wrote. The record's Value aliases c.Body; the
// texts share one allocation. Errors wrap ErrMalformed or ErrFormat.
func DecodePut(c Raw) (Put, error) {
	if err := checkVersion(c, putVersion); err != nil {
		return Put{}, err
	}
	r := codec.NewReader(c.Body)
	flags := r.Byte()
	p := Put{Stamped: flags&putStamped != 0, Overwrite: flags&putOverwrite != 0}
	if flags&^putKnown != 0 {
		r.Fail("unknown flags %#x", flags)
	}
	p.Record.Timestamp.Millis = r.Varint()
	p.Record.Timestamp.Counter = r.Varint()
	p.Record.TTLMillis = r.Varint()
	p.readTexts(&r)
	if err := r.Err(); err != nil {
		return Put{}, malformed("decode put", err)
	}
	if r.Len() > 0 {
		p.Record.Value = r.Rest()
	}
	if p.Record.Value != nil && p.Record.IsTombstone() {
		p.Record.Value = nil
	}
	return p, nil
}

func (p *Put) readTexts(r *codec.Reader) {
	fields := [...]*string{&p.Map, &p.Key, &p.Record.Timestamp.NodeID, &p.Dedup, &p.Origin}
	var ends [len(fields)]int
	total := 0
	for i := range fields {
		// Each length is at most what is left, so the sum cannot overflow.
		total += r.Count(1)
		ends[i] = total
	}
	texts := string(r.Take(total))
	if r.Err() != nil {
		return
	}
	start := 0
	for i, end := range ends {
		*fields[i] = texts[start:end]
		start = end
	}
}
