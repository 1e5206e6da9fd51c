package ws

import "sync"

const (
	// bufferBytes is the size of a new pooled buffer.
	bufferBytes = 4 << 10
	// pooledBytes is the size above which a buffer is left to the collector, so
	// that a few large frames do not keep their memory for good.
	pooledBytes = 256 << 10
)

// bufferPool lends the buffers that connections need only while they receive or
// send, so that an idle connection holds none. The zero value is ready to use.
type bufferPool struct {
	free sync.Pool
}

// get returns an empty buffer.
func (p *bufferPool) get() []byte {
	if b, ok := p.free.Get().(*[]byte); ok {
		return (*b)[:0]
	}
	return make([]byte, 0, bufferBytes)
}

// put takes a buffer back; nil is ignored.
func (p *bufferPool) put(b []byte) {
	if b != nil && cap(b) <= pooledBytes {
		p.free.Put(&b)
	}
}
