package partitions

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/codec"
	"github.com/quorate/quorate/partitions/mirror"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/raftnode"
	"github.com/quorate/quorate/raftnode/mux"
)

// Mirror says how far the database has come with the groups that this node leads.
// *mirror.Mirror implements it.
type Mirror interface {
	// Progress waits until the database has every change of group up to index, or until
	// ctx ends, and returns how far it has come.
	Progress(ctx context.Context, group uint32, index uint64) (mirror.Progress, error)
}

// methodProgress asks the leader of a group how far the database has come.
//
//	request:  group (4 bytes, big endian), index (8 bytes, big endian)
//	response: status (1), then index (8 bytes, big endian), flags (1: not all rejected keys are listed),
//	          number of rejected keys uvarint, their maps and keys as text
const methodProgress mux.Method = 37

// maxRejected bounds the rejected keys of an answer. With more, none is known to be taken.
const maxRejected = 512

const (
	progressDone      = 0
	progressNotLeader = 1
)

// settled is what is known of the database's part in a write, by group.
type settled map[uint32]standing

// standing is mirror.Progress as it travels.
type standing struct {
	index    uint64
	partial  bool
	rejected []fsm.Name
}

func (p standing) has(op *Op) bool {
	return !p.partial && !slices.Contains(p.rejected, fsm.Name{Map: op.Map, Key: op.Key})
}

// persist waits until the database has what the operations of w that ask for it wrote.
func (r *Router) persist(ctx context.Context, w *write) (settled, error) {
	if r.deps.Mirror == nil {
		return nil, nil
	}
	var known settled
	for group, index := range w.marks {
		p, err := r.persisted(ctx, group, index)
		if err != nil {
			return nil, fmt.Errorf("%w: it is committed, and waits for the database: %w", ErrUnknown, err)
		}
		if known == nil {
			known = settled{}
		}
		known[group] = p
	}
	return known, nil
}

// persisted waits until the database has every change of group up to index.
func (r *Router) persisted(ctx context.Context, group uint32, index uint64) (standing, error) {
	q := r.queue(group)
	w := &persistWaiter{index: index, done: make(chan standing, 1)}
	if !q.join(w) {
		return standing{}, context.Canceled
	}
	select {
	case p := <-w.done:
		return p, nil
	case <-ctx.Done():
		q.leave(w)
		return standing{}, context.Cause(ctx)
	case <-r.ctx.Done():
		return standing{}, context.Cause(r.ctx)
	}
}

// persistQueue is those on this node who wait for the database to come further with a
// group. One of their questions is under way at a time, whatever their number.
type persistQueue struct {
	router *Router
	group  uint32

	// mu protects the fields below.
	mu      sync.Mutex
	waiters map[*persistWaiter]struct{}
	asking  bool
}

type persistWaiter struct {
	index uint64
	// done has room for the answer.
	done chan standing
}

func (r *Router) queue(group uint32) *persistQueue {
	r.mu.Lock()
	defer r.mu.Unlock()
	q := r.queues[group]
	if q == nil {
		q = &persistQueue{router: r, group: group, waiters: map[*persistWaiter]struct{}{}}
		r.queues[group] = q
	}
	return q
}

// join adds a waiter, and reports whether somebody asks for it: a closed Router does not.
func (q *persistQueue) join(w *persistWaiter) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiters[w] = struct{}{}
	if q.asking {
		return true
	}
	q.asking = q.router.spawn(q.ask)
	return q.asking
}

func (q *persistQueue) leave(w *persistWaiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.waiters, w)
}

// ask asks the leader until nobody waits.
func (q *persistQueue) ask() {
	for {
		index, some := q.least()
		if !some {
			return
		}
		p, err := q.router.progress(q.group, index)
		if err == nil {
			q.answer(p)
			continue
		}
		timer := time.NewTimer(retryLast)
		select {
		case <-timer.C:
		case <-q.router.ctx.Done():
			timer.Stop()
			return
		}
	}
}

// least is the least index that is waited for. Without any, the asking ends.
func (q *persistQueue) least() (index uint64, some bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for w := range q.waiters {
		if !some || w.index < index {
			index, some = w.index, true
		}
	}
	q.asking = some
	return index, some
}

func (q *persistQueue) answer(p standing) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for w := range q.waiters {
		if w.index <= p.index {
			w.done <- p
			delete(q.waiters, w)
		}
	}
}

// progress asks the leader of group, which takes its time while the index is not reached.
func (r *Router) progress(group uint32, index uint64) (standing, error) {
	ctx, cancel := context.WithTimeout(r.ctx, r.cfg.AttemptTimeout)
	defer cancel()
	body := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(nil, group), index)
	switch leader := r.leader(group); leader {
	case "":
		return standing{}, &raftnode.NotLeaderError{Group: group}
	case r.cfg.Self:
		reply, err := r.handleProgress(ctx, mux.Peer{}, body)
		if err != nil {
			return standing{}, err
		}
		return decodeProgress(group, reply)
	default:
		reply, err := r.deps.Peers.Call(ctx, leader, methodProgress, body)
		if err != nil {
			return standing{}, fmt.Errorf("ask %s about the database: %w", leader, err)
		}
		return decodeProgress(group, reply)
	}
}

// handleProgress answers how far this node has written a group that it leads.
func (r *Router) handleProgress(ctx context.Context, _ mux.Peer, body []byte) ([]byte, error) {
	if len(body) != 12 {
		return nil, &mux.RemoteError{Code: codeUnreadable, Text: "progress request of another length"}
	}
	// Less than the caller's patience, so that it hears how far it has come.
	ctx, cancel := context.WithTimeout(ctx, r.cfg.AttemptTimeout/2)
	defer cancel()
	p, err := r.deps.Mirror.Progress(ctx, binary.BigEndian.Uint32(body), binary.BigEndian.Uint64(body[4:]))
	var notLeader *raftnode.NotLeaderError
	if errors.As(err, &notLeader) {
		return []byte{progressNotLeader}, nil
	}
	if err != nil {
		return nil, err
	}
	return encodeProgress(p), nil
}

func encodeProgress(p mirror.Progress) []byte {
	reply := binary.BigEndian.AppendUint64([]byte{progressDone}, p.Index)
	if len(p.Rejected) > maxRejected {
		return binary.AppendUvarint(append(reply, 1), 0)
	}
	reply = binary.AppendUvarint(append(reply, 0), uint64(len(p.Rejected)))
	for _, name := range p.Rejected {
		reply = codec.AppendText(codec.AppendText(reply, name.Map), name.Key)
	}
	return reply
}

func decodeProgress(group uint32, reply []byte) (standing, error) {
	if len(reply) > 0 && reply[0] == progressNotLeader {
		return standing{}, &raftnode.NotLeaderError{Group: group}
	}
	if len(reply) < 10 || reply[0] != progressDone {
		return standing{}, fmt.Errorf("progress of group %d: %w: answer of %d bytes", group, codec.ErrMalformed, len(reply))
	}
	p := standing{index: binary.BigEndian.Uint64(reply[1:]), partial: reply[9] != 0}
	rest := codec.NewReader(reply[10:])
	for range rest.Count(2) {
		p.rejected = append(p.rejected, fsm.Name{Map: rest.Text(), Key: rest.Text()})
	}
	if err := rest.End(); err != nil {
		return standing{}, fmt.Errorf("progress of group %d: %w", group, err)
	}
	return p, nil
}

// reached is the level of an accepted operation.
func (r *Router) reached(w *write, op *Op, known settled) protocol.WriteConcern {
	switch {
	case w.handover:
		return protocol.LevelMemory
	case !r.cfg.Durable:
		return protocol.LevelReplicated
	case r.deps.Mirror == nil:
		return protocol.LevelPersisted
	case op.Level != protocol.LevelPersisted:
		return protocol.LevelReplicated
	}
	for _, p := range known {
		if !p.has(op) {
			return protocol.LevelReplicated
		}
	}
	return protocol.LevelPersisted
}
