package ws

import (
	"context"
	"sync"
	"time"

	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/protocol"
)

// item is one thing to send: an encoded frame, or something that the writer turns into
// frames for the query that it belongs to: a change event, which own says the client made
// itself, or the rows for a view that is to be filled. A view is what the client of the
// query holds from here on.
type item struct {
	kind  protocol.Kind
	frame []byte

	query  *query
	event  *partitions.Event
	own    bool
	answer *partitions.Answer
	filled *partitions.View
	view   *partitions.View
}

// size is how many bytes an item counts for.
func (it *item) size() int {
	if it.answer != nil {
		return it.answer.Size()
	}
	return len(it.frame)
}

const (
	// chunkItems is how many items are written to the socket at a time.
	chunkItems = 64
	// idleItems is the room for items that an idle connection keeps.
	idleItems = 16
)

// outbound is the queue of what a connection has to send, in order. It is bounded
// in frames, bytes, events and messages of topics; see ConnectionConfig. An item counts until it is
// written. The goroutine that writes exists only while there is something to do.
type outbound struct {
	cfg  ConnectionConfig
	send func(chunk []item) error // writes items to the socket; for the writer only

	// mu protects the fields below.
	mu     sync.Mutex
	queue  []item
	spare  []item // empty; takes the place of queue while the writer has that
	frames int
	bytes  int
	events int
	// messages and messageBytes count the messages of topics, which are in no other count.
	messages     int
	messageBytes int
	// space is closed when items were written; nil while nobody waits for that.
	space chan struct{}
	// writing says that the writer exists; idle, if set, is closed when it ends.
	writing bool
	idle    chan struct{}
	// refusing: no more items are taken; what waits is still sent.
	refusing bool
	// aborted is closed when nothing is sent any more.
	aborted chan struct{}
}

func newOutbound(cfg ConnectionConfig, send func([]item) error) *outbound {
	return &outbound{cfg: cfg, send: send, aborted: make(chan struct{})}
}

// put queues an answer. It waits up to SendTimeout for room and returns errSlow if
// there was none, errClosed if the connection takes no more.
func (o *outbound) put(kind protocol.Kind, frame []byte) error {
	return o.putItem(item{kind: kind, frame: frame})
}

// putItem is put for an item that is not an event.
func (o *outbound) putItem(it item) error {
	var timeout <-chan time.Time
	for {
		wait, err := o.offer(it)
		if wait == nil {
			return err
		}
		if timeout == nil {
			timer := time.NewTimer(o.cfg.SendTimeout)
			defer timer.Stop()
			timeout = timer.C
		}
		select {
		case <-wait:
		case <-timeout:
			return errSlow
		case <-o.aborted:
			return errClosed
		}
	}
}

// settle blocks until at most limit bytes wait to be sent, nothing more is taken, or
// ctx ends.
func (o *outbound) settle(ctx context.Context, limit int) {
	for {
		o.mu.Lock()
		if o.refusing || o.bytes <= limit {
			o.mu.Unlock()
			return
		}
		if o.space == nil {
			o.space = make(chan struct{})
		}
		space := o.space
		o.mu.Unlock()
		select {
		case <-space:
		case <-o.aborted:
			return
		case <-ctx.Done():
			return
		}
	}
}

// emptied blocks until no events wait to be sent, and reports whether that came before
// ctx ended.
func (o *outbound) emptied(ctx context.Context) bool {
	for {
		o.mu.Lock()
		if o.refusing || o.events == 0 {
			o.mu.Unlock()
			return true
		}
		if o.space == nil {
			o.space = make(chan struct{})
		}
		space := o.space
		o.mu.Unlock()
		select {
		case <-space:
		case <-o.aborted:
			return true
		case <-ctx.Done():
			return false
		}
	}
}

// offer queues an answer if there is room; otherwise it returns a channel that is
// closed when there may be.
func (o *outbound) offer(it item) (wait <-chan struct{}, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.refusing {
		return nil, errClosed
	}
	if o.fullLocked(it.size()) {
		if o.space == nil {
			o.space = make(chan struct{})
		}
		return o.space, nil
	}
	o.appendLocked(it)
	return nil, nil
}

// control queues an item that holds no bytes and always fits.
func (o *outbound) control(it item) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.refusing {
		o.appendLocked(it)
	}
}

// push queues a frame that nobody asked for. It does not wait: without room it
// returns errSlow.
func (o *outbound) push(kind protocol.Kind, frame []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.refusing:
		return errClosed
	case o.fullLocked(len(frame)):
		return errSlow
	}
	o.appendLocked(item{kind: kind, frame: frame})
	return nil
}

// event queues a change event without waiting: without room it returns errSlow.
func (o *outbound) event(it item) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.refusing:
		return errClosed
	case o.events >= o.cfg.EventCapacity:
		return errSlow
	}
	o.appendLocked(it)
	return nil
}

// message queues the message of a topic without waiting: without room it returns errSlow.
// A batch of them arrives at once, so they do not share the room of answers.
func (o *outbound) message(frame []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.refusing:
		return errClosed
	case o.messages >= o.cfg.EventCapacity, o.messages > 0 && o.messageBytes+len(frame) > o.cfg.OutboundBytes:
		return errSlow
	}
	o.appendLocked(item{kind: protocol.KindTopicMessage, frame: frame})
	return nil
}

func (o *outbound) fullLocked(size int) bool {
	return o.frames >= o.cfg.OutboundCapacity || o.frames > 0 && o.bytes+size > o.cfg.OutboundBytes
}

func (o *outbound) appendLocked(it item) {
	o.countLocked(&it, 1)
	o.queue = append(o.queue, it)
	if !o.writing {
		o.writing = true
		go o.run()
	}
}

func (o *outbound) countLocked(it *item, n int) {
	switch {
	case it.event != nil:
		o.events += n
	case it.kind == protocol.KindTopicMessage:
		o.messages += n
		o.messageBytes += n * len(it.frame)
	default:
		o.frames += n
		o.bytes += n * it.size()
	}
}

// run writes until nothing waits. finish waits for its end.
func (o *outbound) run() {
	for batch := o.take(nil); batch != nil; batch = o.take(batch) {
		for rest := batch; len(rest) > 0; {
			chunk := rest[:min(chunkItems, len(rest))]
			rest = rest[len(chunk):]
			if err := o.send(chunk); err != nil {
				o.abort()
			}
			if !o.written(chunk) {
				break
			}
		}
	}
}

// take returns all that waits, and takes back the batch that is done. Nil means
// that the writer has ended.
func (o *outbound) take(done []item) []item {
	clear(done)
	o.mu.Lock()
	defer o.mu.Unlock()
	if done != nil {
		o.spare = done[:0]
	}
	if len(o.queue) > 0 {
		batch := o.queue
		o.queue, o.spare = o.spare, nil
		return batch
	}
	if cap(o.spare) > idleItems {
		o.spare = nil
	}
	o.queue, o.spare = o.spare, nil
	o.writing = false
	if o.idle != nil {
		close(o.idle)
		o.idle = nil
	}
	return nil
}

// written takes a chunk off the bounds and reports whether to go on.
func (o *outbound) written(chunk []item) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range chunk {
		o.countLocked(&chunk[i], -1)
	}
	if o.space != nil {
		close(o.space)
		o.space = nil
	}
	select {
	case <-o.aborted:
		return false
	default:
		return true
	}
}

// refuse takes no more items; what waits is still sent.
func (o *outbound) refuse() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.refusing = true
}

// abort drops what waits and takes no more.
func (o *outbound) abort() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.refusing = true
	o.queue = nil
	select {
	case <-o.aborted:
	default:
		close(o.aborted)
	}
}

// finish takes no more items and returns when the writer has ended: everything is
// sent, or dropped by abort. It is called once.
func (o *outbound) finish() {
	o.mu.Lock()
	o.refusing = true
	var idle chan struct{}
	if o.writing {
		idle = make(chan struct{})
		o.idle = idle
	}
	o.mu.Unlock()
	if idle != nil {
		<-idle
	}
}
