package command

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/quorate/quorate/fsm/codec"
	"github.com/quorate/quorate/protocol"
)

// resultFormat is the first byte of an encoded result list.
const resultFormat = 1

// minResult is the least number of bytes that one result takes.
const minResult = 4

// EncodeResults encodes a result list for the peer link.
func EncodeResults(results []Result) []byte {
	b := make([]byte, 0, 1+binary.MaxVarintLen64+len(results)*2*minResult)
	b = append(b, resultFormat)
	b = binary.AppendUvarint(b, uint64(len(results)))
	for _, res := range results {
		b = AppendResult(b, res)
	}
	return b
}

// DecodeResults decodes what EncodeResults wrote. Errors wrap ErrMalformed or
// ErrFormat; the memory is bounded by a small multiple of len(b).
func DecodeResults(b []byte) ([]Result, error) {
	r := codec.NewReader(b)
	if format := r.Byte(); r.Err() == nil && format != resultFormat {
		return nil, fmt.Errorf("decode results: %w: format %d", unknownFormat(format), format)
	}
	results := make([]Result, 0, r.Count(minResult))
	for range cap(results) {
		results = append(results, ReadResult(&r))
	}
	if err := r.End(); err != nil {
		return nil, malformed("decode results", err)
	}
	return results, nil
}

// AppendResult appends one result to dst, for formats that contain results.
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

// ReadResult takes one result off r; failures stay in r.
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
