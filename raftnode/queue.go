package raftnode

import "sync"

// queue holds the proposals that wait for their entry, in order of arrival. When
// it is full, new ones are refused; none is ever dropped.
type queue struct {
	maxOps, maxBytes int

	mu         sync.Mutex // protects the fields below
	list       []*proposal
	head       int // list[:head] was taken
	ops, bytes int
	closed     bool

	// ready has a token when proposals may be waiting. Closed with the queue.
	ready chan struct{}
}

func newQueue(maxOps, maxBytes int) *queue {
	return &queue{maxOps: maxOps, maxBytes: maxBytes, ready: make(chan struct{}, 1)}
}

// push appends p, or refuses with ErrBusy when the queue is full or closed.
func (q *queue) push(p *proposal) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	tooMany := q.ops > 0 && q.ops+len(p.cmds) > q.maxOps
	if q.closed || tooMany || q.bytes+p.bytes > q.maxBytes {
		return ErrBusy
	}
	q.list = append(q.list, p)
	q.ops += len(p.cmds)
	q.bytes += p.bytes
	select {
	case q.ready <- struct{}{}:
	default:
	}
	return nil
}

// take removes the oldest proposals that fit together into maxOps commands and
// maxBytes bytes, but at least one, and blocks until there is one. It returns nil
// when the queue is closed. For one consumer.
func (q *queue) take(maxOps, maxBytes int) []*proposal {
	for {
		if batch := q.tryTake(maxOps, maxBytes); batch != nil {
			return batch
		}
		if _, open := <-q.ready; !open {
			return nil
		}
	}
}

func (q *queue) tryTake(maxOps, maxBytes int) []*proposal {
	q.mu.Lock()
	defer q.mu.Unlock()
	waiting := q.list[q.head:]
	n, ops, bytes := 0, 0, 0
	for _, p := range waiting {
		if n > 0 && (ops+len(p.cmds) > maxOps || bytes+p.bytes > maxBytes) {
			break
		}
		n, ops, bytes = n+1, ops+len(p.cmds), bytes+p.bytes
	}
	if n == 0 {
		return nil
	}
	batch := append([]*proposal(nil), waiting[:n]...)
	clear(waiting[:n])
	q.head += n
	if q.head == len(q.list) {
		q.list, q.head = q.list[:0], 0
	}
	q.ops -= ops
	q.bytes -= bytes
	return batch
}

// close refuses further proposals, ends take, and returns those that waited.
func (q *queue) close() []*proposal {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil
	}
	q.closed = true
	close(q.ready)
	rest := q.list[q.head:]
	q.list, q.head, q.ops, q.bytes = nil, 0, 0, 0
	return rest
}

// waiting returns the number of commands in the queue.
func (q *queue) waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.ops
}
