package mux

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
)

const (
	headerSize = 20
	// bodyStep is how much is allocated for a body before its bytes have come: a
	// header that lies about the size costs no more than this.
	bodyStep = 64 << 10
)

// frameKind says what a frame on a call connection is. Requests, cancels and pings
// come from the dialer, the others go to it.
type frameKind uint8

const (
	frameRequest frameKind = 1
	frameCancel  frameKind = 2 // the caller has given up
	framePing    frameKind = 3
	frameReply   frameKind = 4
	frameError   frameKind = 5
	framePong    frameKind = 6
)

// header begins a frame; size bytes of body follow it.
type header struct {
	size          uint32
	kind          frameKind
	code          uint16 // method of a request, code of an error
	id            uint64 // of the call; 0 in pings and pongs
	timeoutMillis uint32 // of a request: how long its caller waits; 0: until it cancels
}

func (h header) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, h.size)
	b = append(b, uint8(h.kind), 0)
	b = binary.BigEndian.AppendUint16(b, h.code)
	b = binary.BigEndian.AppendUint64(b, h.id)
	return binary.BigEndian.AppendUint32(b, h.timeoutMillis)
}

// frameReader reads the frames of a connection. It is used by one goroutine.
type frameReader struct {
	r       *bufio.Reader
	maxBody int
}

// next reads a header. The caller must then read or skip the body.
func (f *frameReader) next() (header, error) {
	b, err := f.r.Peek(headerSize)
	if err != nil {
		return header{}, err
	}
	h := header{
		size:          binary.BigEndian.Uint32(b),
		kind:          frameKind(b[4]),
		code:          binary.BigEndian.Uint16(b[6:]),
		id:            binary.BigEndian.Uint64(b[8:]),
		timeoutMillis: binary.BigEndian.Uint32(b[16:]),
	}
	reserved := b[5]
	if _, err := f.r.Discard(headerSize); err != nil {
		return header{}, err
	}
	switch {
	case reserved != 0 || h.kind < frameRequest || h.kind > framePong:
		return h, fmt.Errorf("%w: frame kind %d.%d", errMalformed, h.kind, reserved)
	case int64(h.size) > int64(f.maxBody):
		return h, fmt.Errorf("%w: frame of %d bytes", errMalformed, h.size)
	}
	return h, nil
}

// body reads the body of a frame into memory of its own.
func (f *frameReader) body(h header) ([]byte, error) {
	size := int(h.size)
	b := make([]byte, min(size, bodyStep))
	for read := 0; ; {
		n, err := io.ReadFull(f.r, b[read:])
		if read += n; err != nil {
			return nil, err
		}
		if read == size {
			return b, nil
		}
		grown := make([]byte, min(size, 2*read))
		copy(grown, b)
		b = grown
	}
}

// skip drops the body of a frame.
func (f *frameReader) skip(h header) error {
	_, err := f.r.Discard(int(h.size))
	return err
}
