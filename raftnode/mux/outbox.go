package mux

import (
	"context"
	"sync"
)

const (
	// queueBytes is how much may wait to be written to one peer.
	queueBytes = 4 << 20
	// keepBytes is the largest buffer that is kept for the next write.
	keepBytes = 256 << 10
)

// outbox gathers the frames that wait to be written. Callers append, one writer
// takes everything at once: while it writes, what is added meanwhile travels
// together in its next write.
type outbox struct {
	mu     sync.Mutex // protects the fields down to wake
	buf    []byte     // frames in order
	spare  []byte     // the buffer that the writer does not use now
	closed bool
	room   chan struct{} // closed when the writer takes buf; nil when nobody waits

	wake chan struct{} // has a token when there may be something to write
}

func newOutbox() *outbox { return &outbox{wake: make(chan struct{}, 1)} }

// put adds a frame. When the queue is full it waits for room, and returns the
// context's error if that ends first. On any error nothing was added.
func (o *outbox) put(ctx context.Context, h header, body []byte) error {
	for {
		room, err := o.tryPut(h, body)
		if err != nil || room == nil {
			return err
		}
		select {
		case <-room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tryPut adds a frame, or returns the channel that tells when to try again.
func (o *outbox) tryPut(h header, body []byte) (<-chan struct{}, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil, errLinkClosed
	}
	if len(o.buf) > 0 && len(o.buf)+headerSize+len(body) > queueBytes {
		if o.room == nil {
			o.room = make(chan struct{})
		}
		return o.room, nil
	}
	h.size = uint32(len(body))
	if o.buf == nil {
		o.buf, o.spare = o.spare, nil
	}
	o.buf = append(h.append(o.buf), body...)
	select {
	case o.wake <- struct{}{}:
	default:
	}
	return nil, nil
}

// take returns everything that waits; done gives the buffer back.
func (o *outbox) take() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	b := o.buf
	o.buf = nil
	if o.room != nil {
		close(o.room)
		o.room = nil
	}
	return b
}

// done returns a buffer of take after its last use.
func (o *outbox) done(b []byte) {
	if cap(b) > keepBytes {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.spare = b[:0]
}

// close makes every put fail and frees those that wait.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.buf, o.spare = nil, nil
	if o.room != nil {
		close(o.room)
		o.room = nil
	}
}
