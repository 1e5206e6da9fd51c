package topics

import (
	"encoding/binary"
	"fmt"

	"github.com/quorate/quorate/fsm/codec"
)

// queue is what waits for one receiver. The goroutine that sends exists while something
// waits, one batch after the other. The Service's lock protects it.
type queue struct {
	service  *Service
	send     func(messages []*Message)
	messages []*Message
	bytes    int
	running  bool
}

// messageBytes is what a message takes beside its texts and data.
const messageBytes = 64

func (m *Message) size() int {
	return messageBytes + len(m.Topic) + len(m.Data) + len(m.Publisher) + len(m.Origin)
}

// addLocked queues a message and reports whether there was room.
func (q *queue) addLocked(m *Message) bool {
	s := q.service
	if s.closed || len(q.messages) >= s.cfg.QueueMessages || len(q.messages) > 0 && q.bytes+m.size() > s.cfg.QueueBytes {
		s.lost.Add(1)
		return false
	}
	q.messages = append(q.messages, m)
	q.bytes += m.size()
	if !q.running {
		q.running = true
		s.work.Go(q.run)
	}
	return true
}

func (q *queue) run() {
	for batch := q.next(); len(batch) > 0; batch = q.next() {
		q.send(batch)
	}
}

// next takes the next batch; none means that the sending has ended.
func (q *queue) next() []*Message {
	s := q.service
	s.mu.Lock()
	defer s.mu.Unlock()
	n, bytes := 0, 0
	for n < len(q.messages) && n < s.cfg.BatchMessages {
		if bytes += q.messages[n].size(); bytes > s.cfg.BatchBytes && n > 0 {
			break
		}
		n++
	}
	if n == 0 || s.ctx.Err() != nil {
		q.running, q.messages, q.bytes = false, nil, 0
		return nil
	}
	batch := q.messages[:n:n]
	q.messages = q.messages[n:]
	for _, m := range batch {
		q.bytes -= m.size()
	}
	return batch
}

// batch is what travels together: messages that have their places, or have to be given
// them by the sequencer of group in term.
type batch struct {
	group uint32
	term  uint64
	// run and number say which batch of which run of a node this is for that sequencer.
	run      string
	number   uint64
	messages []*Message
}

// batchFormat is the first byte of every encoded batch. Format 1 had neither term nor
// number.
const batchFormat = 2

// encode encodes messages for another node.
func encode(from *batch) []byte {
	size := 32 + len(from.run)
	for _, m := range from.messages {
		size += m.size()
	}
	b := append(make([]byte, 0, size), batchFormat)
	b = binary.AppendUvarint(b, uint64(from.group))
	b = binary.AppendUvarint(b, from.term)
	b = codec.AppendText(b, from.run)
	b = binary.AppendUvarint(b, from.number)
	b = binary.AppendUvarint(b, uint64(len(from.messages)))
	for _, m := range from.messages {
		b = codec.AppendText(b, m.Topic)
		b = codec.AppendBytes(b, m.Data)
		b = codec.AppendText(b, m.Publisher)
		b = codec.AppendText(b, m.Origin)
		b = binary.AppendVarint(b, m.Millis)
		b = binary.AppendUvarint(b, uint64(m.group))
		b = binary.AppendUvarint(b, m.place.term)
		b = binary.AppendUvarint(b, m.place.number)
	}
	return b
}

// minMessage is the least number of bytes that an encoded message takes.
const minMessage = 8

// decode decodes what encode wrote. The messages alias body.
func decode(body []byte) (*batch, error) {
	r := codec.NewReader(body)
	if format := r.Byte(); r.Err() == nil && format != batchFormat {
		r.Fail("format %d", format)
	}
	into := &batch{group: uint32(r.Uvarint()), term: r.Uvarint(), run: r.Text(), number: r.Uvarint()}
	n := r.Count(minMessage)
	list := make([]Message, n)
	for i := range list {
		m := &list[i]
		m.Topic, m.Data, m.Publisher, m.Origin = r.TextView(), r.Bytes(), r.TextView(), r.TextView()
		m.Millis, m.group = r.Varint(), uint32(r.Uvarint())
		m.place = place{term: r.Uvarint(), number: r.Uvarint()}
		into.messages = append(into.messages, m)
	}
	if err := r.End(); err != nil {
		return nil, fmt.Errorf("decode messages: %w", err)
	}
	return into, nil
}
