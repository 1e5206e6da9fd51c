package logstore

import "github.com/hashicorp/raft"

// round is the fate of one batch: err is set before done is closed.
type round struct {
	done chan struct{}
	err  error
}

func (r *round) wait() error {
	<-r.done
	return r.err
}

func (r *round) finish(err error) {
	r.err = err
	close(r.done)
}

// batch is what one write makes durable: room for a frame header, then records.
type batch struct {
	buf []byte
	// logs are the entries of the entry records in buf, in their order. They belong
	// to callers that wait for the round.
	logs  []*raft.Log
	round *round
}

func newBatch() *batch {
	return &batch{buf: make([]byte, frameHeaderBytes), round: &round{done: make(chan struct{})}}
}

func (b *batch) empty() bool { return len(b.buf) == frameHeaderBytes }

// reset prepares b for the next records. A buffer that grew beyond keep is let go.
func (b *batch) reset(keep int) {
	clear(b.logs)
	b.logs = b.logs[:0]
	if cap(b.buf) > keep {
		b.buf = make([]byte, frameHeaderBytes)
	}
	b.buf = b.buf[:frameHeaderBytes]
	b.round = &round{done: make(chan struct{})}
}

// roomLocked waits until records may be added to l.pending. It gives l.mu up while
// it waits.
func (l *Log) roomLocked() error {
	for {
		if err := l.usable(); err != nil {
			return err
		}
		if l.closing {
			return ErrClosed
		}
		if len(l.pending.buf) < l.cfg.QueueBytes {
			return nil
		}
		l.space.Wait()
	}
}

// submit lets encode append records to the queue and blocks until they are
// durable. encode runs with l.mu held. If it appends nothing, submit returns at once.
func (l *Log) submit(encode func(b []byte) ([]byte, error)) error {
	r, err := l.enqueue(encode)
	if err != nil || r == nil {
		return err
	}
	return r.wait()
}

func (l *Log) enqueue(encode func(b []byte) ([]byte, error)) (*round, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.roomLocked(); err != nil {
		return nil, err
	}
	b, err := encode(l.pending.buf)
	if err != nil || len(b) == len(l.pending.buf) {
		return nil, err
	}
	l.pending.buf = b
	l.work.Signal()
	return l.pending.round, nil
}

// take removes the queued batch. With wait it blocks while there is none; it
// returns nil when there is none, and when the log has failed or is closing.
func (l *Log) take(wait bool) *batch {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.pending.empty() {
		if !wait || l.closing || l.usable() != nil {
			return nil
		}
		l.work.Wait()
	}
	if l.usable() != nil {
		return nil
	}
	b := l.pending
	l.pending, l.idle = l.idle, nil
	l.space.Broadcast()
	return b
}

// stop makes err the answer to every call from now on and fails what is queued.
// Only the first stop has an effect; it reports whether it was that.
func (l *Log) stop(err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.down.CompareAndSwap(nil, &stopped{err}) {
		return false
	}
	l.pending.round.finish(err)
	l.work.Broadcast()
	l.space.Broadcast()
	return true
}
