package protocol

import (
	"encoding/binary"
	"fmt"
)

// Batch is BATCH: several frames in one. Servers accept it and never send it.
type Batch struct {
	// Count is the sender's number of inner frames; informative, it may lie.
	Count int64 `wire:"count"`
	// Data holds the inner frames; see SplitBatch. It aliases the frame.
	Data Binary `wire:"data"`
}

// Kind implements Message.
func (*Batch) Kind() Kind { return KindBatch }

// Correlation is empty: the inner frames have their own.
func (*Batch) Correlation() string { return "" }

// batchPrefix is the size of the length in front of each inner frame.
const batchPrefix = 4

// SplitBatch cuts the data of a BATCH into its inner frames, each behind a 4-byte
// big-endian length. The frames alias data. The error is a *DecodeError: of
// ErrTooManyItems, without frames, if there are more than MaxBatchItems; of
// ErrTruncated, with the frames before it, if the last one is cut short.
func SplitBatch(data []byte) ([][]byte, error) {
	n, tail := 0, data
	for len(tail) >= batchPrefix {
		size := binary.BigEndian.Uint32(tail)
		if uint64(size) > uint64(len(tail)-batchPrefix) {
			break
		}
		tail = tail[batchPrefix+int(size):]
		if n++; n > MaxBatchItems {
			return nil, &DecodeError{Kind: KindBatch, Field: "data", Err: ErrTooManyItems}
		}
	}
	frames := make([][]byte, n)
	for i := range frames {
		end := batchPrefix + int(binary.BigEndian.Uint32(data))
		frames[i] = data[batchPrefix:end:end]
		data = data[end:]
	}
	if len(tail) > 0 {
		field := fmt.Sprintf("data[%d]", n)
		return frames, &DecodeError{Kind: KindBatch, Field: field, Err: ErrTruncated}
	}
	return frames, nil
}

// AppendBatch appends frame with its length to the data of a BATCH.
func AppendBatch(data, frame []byte) []byte {
	data = binary.BigEndian.AppendUint32(data, uint32(len(frame)))
	return append(data, frame...)
}
