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
	putFenced    = 1 << 2
	putGuarded   = 1 << 3
	putKnown     = putStamped | putOverwrite | putFenced | putGuarded
)

// EncodePut encodes p as a command of its own memory.
func EncodePut(p Put) Raw {
	c, _ := AppendPut(make([]byte, 0, PutSize(p)), p)
	return c
}

// PutSize is the room that AppendPut needs for p, at most.
func PutSize(p Put) int {
	return 1 + guardBytes + 10*binary.MaxVarintLen64 + len(p.Fence.Lock) + len(p.Map) + len(p.Key) + len(p.Record.Timestamp.NodeID) +
		len(p.Dedup) + len(p.Origin) + len(p.Record.Value)
}

// AppendPut encodes p as a command whose body lies behind what is in dst, and returns
// dst with it. The body must not be appended to.
func AppendPut(dst []byte, p Put) (c Raw, extended []byte) {
	value := p.Record.Value
	if p.Record.IsTombstone() {
		value = nil
	}
	start, b := len(dst), dst
	b = append(b, putFlags(p))
	b = appendGuard(appendFence(b, p.Fence), p.Guard)
	b = binary.AppendVarint(b, p.Record.Timestamp.Millis)
	b = binary.AppendVarint(b, p.Record.Timestamp.Counter)
	b = binary.AppendVarint(b, p.Record.TTLMillis)
	b = appendTexts(b, []string{p.Map, p.Key, p.Record.Timestamp.NodeID, p.Dedup, p.Origin})
	b = append(b, value...)
	return Raw{Kind: KindPut, Version: putVersion, Body: b[start:len(b):len(b)]}, b
}

func putFlags(p Put) (flags byte) {
	if p.Stamped {
		flags |= putStamped
	}
	if p.Overwrite {
		flags |= putOverwrite
	}
	if p.Fence.Lock != "" {
		flags |= putFenced
	}
	if p.Guard.On {
		flags |= putGuarded
	}
	return flags
}

// DecodePut decodes what EncodePut wrote. The texts and the record's Value alias
// c.Body, which must never change. Errors wrap ErrMalformed or ErrFormat.
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
	if flags&putFenced != 0 {
		p.Fence = takeFence(&r)
	}
	if flags&putGuarded != 0 {
		p.Guard = takeGuard(&r)
	}
	p.Record.Timestamp.Millis = r.Varint()
	p.Record.Timestamp.Counter = r.Varint()
	p.Record.TTLMillis = r.Varint()
	takeTexts(&r, []*string{&p.Map, &p.Key, &p.Record.Timestamp.NodeID, &p.Dedup, &p.Origin})
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

// appendFence appends a fence, nothing if there is none: the flags tell.
func appendFence(dst []byte, f Fence) []byte {
	if f.Lock == "" {
		return dst
	}
	return codec.AppendText(binary.AppendUvarint(dst, f.Token), f.Lock)
}

// takeFence takes what appendFence appended. The name aliases the input.
func takeFence(r *codec.Reader) Fence {
	f := Fence{Token: r.Uvarint(), Lock: r.TextView()}
	if f.Lock == "" {
		r.Fail("fence without a lock")
	}
	return f
}
