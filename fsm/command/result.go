package command

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/quorate/quorate/fsm/codec"
	"github.com/quorate/quorate/protocol"
)

// The first byte of an encoded result list: with valueFormat, each result has a Value.
const (
	resultFormat = 1
	valueFormat  = 2
)

// minResult is the least number of bytes that one result takes.
const minResult = 4

// EncodeResults encodes a result list for the peer link.
func EncodeResults(results []Result) []byte {
	b := make([]byte, 0, 1+binary.MaxVarintLen64+len(results)*2*minResult)
	values := slices.ContainsFunc(results, func(r Result) bool { return r.Value != nil })
	if values {
		b = append(b, valueFormat)
	} else {
		b = append(b, resultFormat)
	}
	b = binary.AppendUvarint(b, uint64(len(results)))
	for _, res := range results {
		b = AppendResult(b, res)
		if values {
			b = codec.AppendBytes(b, res.Value)
		}
	}
	return b
}

// DecodeResults decodes what EncodeResults wrote. Errors wrap ErrMalformed or
// ErrFormat; the memory is bounded by a small multiple of len(b).
func DecodeResults(b []byte) ([]Result, error) {
	r := codec.NewReader(b)
	format := r.Byte()
	if r.Err() == nil && format != resultFormat && format != valueFormat {
		return nil, fmt.Errorf("decode results: %w: format %d", unknownFormat(format), format)
	}
	results := make([]Result, 0, r.Count(minResult))
	for range cap(results) {
		res := ReadResult(&r)
		if format == valueFormat {
			res.Value = ReadValue(&r)
		}
		results = append(results, res)
	}
	if err := r.End(); err != nil {
		return nil, malformed("decode results", err)
	}
	return results, nil
}

// ReadValue takes the Value of a result, nil if it is empty, into memory of its own;
// failures stay in r.
func ReadValue(r *codec.Reader) []byte {
	if b := r.Bytes(); len(b) > 0 {
		return bytes.Clone(b)
	}
	return nil
}

// AppendResult appends one result without its Value to dst, for formats that contain
// results.
func AppendResult(dst []byte, res Result) []byte {
	dst = binary.AppendUvarint(dst, res.Index)
	dst = binary.AppendUvarint(dst, uint64(res.Code))
	changed := byte(0)
	if res.Changed {
		changed = 1
	}
	dst = append(dst, changed)
	return codec.AppendText(dst, res.Reason)
}

// ReadResult takes what AppendResult appended; failures stay in r.
func ReadResult(r *codec.Reader) Result {
	res := Result{Index: r.Uvarint()}
	code := r.Uvarint()
	if code > math.MaxUint16 {
		r.Fail("result code %d", code)
	}
	res.Code = protocol.Code(code)
	changed := r.Byte()
	if changed > 1 {
		r.Fail("changed flag %d", changed)
	}
	res.Changed = changed == 1
	res.Reason = r.Text()
	return res
}
