package quorate

import (
	"errors"
	"fmt"
	"io"

	"github.com/quorate/quorate/fsm"
)

// read returns what follows offset, none at the end. The reader may ask again for what
// it was sent last.
func (x *export) read(offset int64) ([]byte, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.closed:
		return nil, fsm.ErrClosed
	case offset == x.offset && x.last != nil:
		return x.last, nil
	case offset != x.offset+int64(len(x.last)):
		return nil, fmt.Errorf("offset %d does not follow what was read", offset)
	}
	chunk := make([]byte, exportChunk)
	n, err := io.ReadFull(x.snapshot, chunk)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, fmt.Errorf("read snapshot: %w", err)
	}
	x.offset, x.last = offset, chunk[:n]
	return x.last, nil
}

func (x *export) close() error {
	x.idle.Stop()
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return nil
	}
	x.closed = true
	return x.snapshot.Close()
}
