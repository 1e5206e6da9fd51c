package remote

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/codec"
)

// feedKey names the feed of one group for one node. A later one takes its place.
type feedKey struct {
	node  string
	group uint32
}

// outflow is what waits at a holder for one follower. Server.mu protects it.
type outflow struct {
	key feedKey
	id  string
	// subjects has the number of the edit that added each one.
	subjects map[Subject]uint64
	// waiting are encoded changes of so many bytes; over says that some are missing.
	waiting [][]byte
	bytes   int
	over    bool
	// wake has a token after waiting or over changed.
	wake chan struct{}
	// expiry forgets the feed of a node that asks for nothing more.
	expiry *time.Timer
}

// Close forgets all feeds.
func (s *Server) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, flow := range s.feeds {
		s.forgetLocked(flow)
	}
}

// HandleFollow answers a request of a Client on node about what it follows. The error
// means that the request cannot be read.
func (s *Server) HandleFollow(ctx context.Context, node string, body []byte) ([]byte, error) {
	r := codec.NewReader(body)
	op, group, id, number := r.Byte(), takeGroup(&r), r.Text(), r.Uvarint()
	key := feedKey{node, group}
	switch op {
	case opAdd:
		subject := takeSubject(&r)
		if err := r.End(); err != nil {
			return nil, err
		}
		return s.add(key, id, number, subject)
	case opNext:
		drops := make([]drop, r.Count(3))
		for i := range drops {
			drops[i] = drop{r.Uvarint(), takeSubject(&r)}
		}
		if err := r.End(); err != nil {
			return nil, err
		}
		return s.next(ctx, key, id, time.Duration(min(number, maxWaitMillis))*time.Millisecond, drops)
	default:
		return nil, fmt.Errorf("%w: unknown kind %d of a request to follow", codec.ErrMalformed, op)
	}
}

// add takes a subject into a feed; the first one makes the feed. The index in the answer
// is asked for only when changes are listened to already, so all later ones come.
func (s *Server) add(key feedKey, id string, edit uint64, subject Subject) ([]byte, error) {
	replica, held := s.deps.Replica(key.group)
	if !held || !s.enter(key, id, edit, subject) {
		return []byte{replyAbsent}, nil
	}
	index, _ := replica.Applied()
	return binary.AppendUvarint([]byte{replyDone}, index), nil
}

func (s *Server) enter(key feedKey, id string, edit uint64, subject Subject) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	flow := s.feeds[key]
	if flow == nil || flow.id != id {
		if edit != 1 || s.closed {
			return false
		}
		if flow != nil {
			s.forgetLocked(flow)
		}
		flow = s.openLocked(key, id)
	}
	flow.expiry.Reset(s.cfg.Silence)
	if _, known := flow.subjects[subject]; flow.over || !known && len(flow.subjects) >= s.cfg.FeedSubjects {
		return false
	}
	flow.subjects[subject] = max(edit, flow.subjects[subject])
	return true
}

func (s *Server) openLocked(key feedKey, id string) *outflow {
	flow := &outflow{key: key, id: id, subjects: map[Subject]uint64{}, wake: make(chan struct{}, 1)}
	flow.expiry = time.AfterFunc(s.cfg.Silence, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.feeds[key] == flow {
			s.forgetLocked(flow)
		}
	})
	if s.untap == nil {
		s.untap = s.deps.Tap(s.take)
	}
	s.feeds[key] = flow
	return flow
}

// forgetLocked ends a feed. Its follower hears of it when it asks for the next changes.
func (s *Server) forgetLocked(flow *outflow) {
	flow.expiry.Stop()
	flow.lose()
	delete(s.feeds, flow.key)
	if len(s.feeds) == 0 && s.untap != nil {
		s.untap()
		s.untap = nil
	}
}

// take queues changes for those who follow them.
func (s *Server) take(c *fsm.Changes) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, flow := range s.feeds {
		switch {
		case c.Reset && (c.Group == 0 || c.Group == flow.key.group):
			flow.lose()
		case c.Group == flow.key.group && !flow.over:
			flow.takeAll(c, s.cfg.FeedBytes)
		}
	}
}

func (flow *outflow) takeAll(c *fsm.Changes, maxBytes int) {
	for i := range c.List {
		subject, known := subjectOf(&c.List[i])
		if _, wanted := flow.subjects[subject]; !known || !wanted {
			continue
		}
		b := appendChange(nil, &c.List[i])
		flow.waiting, flow.bytes = append(flow.waiting, b), flow.bytes+len(b)
		if flow.bytes > maxBytes && len(flow.waiting) > 1 {
			flow.lose()
			return
		}
	}
	if len(flow.waiting) > 0 {
		flow.signal()
	}
}

// lose notes that changes are missing.
func (flow *outflow) lose() {
	flow.over, flow.waiting, flow.bytes = true, nil, 0
	flow.signal()
}

func (flow *outflow) signal() {
	select {
	case flow.wake <- struct{}{}:
	default:
	}
}

// next answers with the changes that wait, and waits for the first for some time. A node
// that does not hold the group any more hears nothing new, and says so.
func (s *Server) next(ctx context.Context, key feedKey, id string, patience time.Duration, drops []drop) ([]byte, error) {
	s.mu.Lock()
	flow := s.feeds[key]
	if flow == nil || flow.id != id {
		s.mu.Unlock()
		return []byte{replyAbsent}, nil
	}
	flow.expiry.Reset(s.cfg.Silence)
	flow.drop(drops)
	s.mu.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for waiting := true; waiting; {
		if reply, over := s.waitingOf(flow); over {
			return []byte{replyAbsent}, nil
		} else if len(reply) > 1 {
			return reply, nil
		}
		select {
		case <-flow.wake:
		case <-timer.C:
			waiting = false
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if _, held := s.deps.Replica(key.group); !held {
		return []byte{replyAbsent}, nil
	}
	return []byte{replyDone}, nil
}

// waitingOf takes about a page of what waits.
func (s *Server) waitingOf(flow *outflow) (reply []byte, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	reply = []byte{replyDone}
	for len(flow.waiting) > 0 && len(reply) < s.cfg.PageBytes {
		reply = append(reply, flow.waiting[0]...)
		flow.bytes -= len(flow.waiting[0])
		flow.waiting[0] = nil
		flow.waiting = flow.waiting[1:]
	}
	return reply, flow.over
}

// drop forgets subjects, unless they were added again since.
func (flow *outflow) drop(drops []drop) {
	for _, d := range drops {
		if flow.subjects[d.subject] < d.edit {
			delete(flow.subjects, d.subject)
		}
	}
}
