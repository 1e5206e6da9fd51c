package partitions

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/raftnode"
)

// write is one call of Router.Write: its operations and what became of them.
type write struct {
	ctx context.Context
	// session learns how far the groups have come; nil if nobody reads by it.
	session *Session
	ops     []Op
	// handover is true when every operation asks for MEMORY or less: the write is
	// then over as soon as the leaders have queued it.
	handover bool
	done     chan struct{}

	// mu protects the fields below. results is written by the lanes and read by
	// the caller only after done is closed.
	mu      sync.Mutex
	results []command.Result
	left    int // parts without a verdict
	trying  int // parts under way to a leader
	begun   bool
	// mirrored tells that there is a database, which what asks for PERSISTED waits for.
	mirrored bool
	// marks are the log indexes, by group, of what asks for PERSISTED.
	marks map[uint32]uint64
	given bool // cancelled by the caller before anything was proposed
	cause error
}

// part is the share of one group in a write.
type part struct {
	write *write
	group uint32
	cmds  []raftnode.Command
	bytes int   // of the commands' bodies
	ops   []int // position in write.ops of what each command is for
	// handover: the leader's queue is enough.
	handover bool
}

func newWrite(ctx context.Context, s *Session, ops []Op) *write {
	w := &write{
		ctx: ctx, session: s, ops: ops, handover: true,
		done: make(chan struct{}), results: make([]command.Result, len(ops)),
	}
	for i := range ops {
		// Whether a fence or a guard lets an operation pass is known when it is applied.
		if l := ops[i].Level; l != protocol.LevelMemory && l != protocol.LevelFireAndForget || ops[i].Fence.Lock != "" || ops[i].Guard.On {
			w.handover = false
		}
	}
	return w
}

func (w *write) expect(parts int) {
	if w.left = parts; parts == 0 {
		close(w.done)
	}
}

// begin marks one part as under way and reports whether it may go: not when the
// caller has given up or its deadline has passed.
func (w *write) begin() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.given || w.ctx.Err() != nil {
		return false
	}
	w.trying++
	return true
}

// back returns a part that was not decided. begun says that it may have been
// appended.
func (w *write) back(begun bool, cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trying--
	w.begun = w.begun || begun
	w.cause = cause
}

// decide stores the results of one part. Of the results of an operation that has
// several, a refusal stands.
func (w *write) decide(p *part, results []command.Result) {
	if w.session != nil {
		w.session.advance(p.group, results)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trying--
	w.begun = true
	for i, op := range p.ops {
		if w.results[op].Code == 0 {
			w.results[op] = results[i]
		}
		if w.mirrored && w.ops[op].Level == protocol.LevelPersisted {
			w.mark(p.group, results[i].Index)
		}
	}
	if w.left--; w.left == 0 {
		close(w.done)
	}
}

// mark needs the lock.
func (w *write) mark(group uint32, index uint64) {
	if w.marks == nil {
		w.marks = map[uint32]uint64{}
	}
	w.marks[group] = max(w.marks[group], index)
}

// wait blocks until every part is decided. When patience ends while nothing was
// proposed, the write is withdrawn: no part of it will be proposed any more.
func (w *write) wait(ctx context.Context, patience time.Duration) error {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case <-w.done:
			return nil
		case <-ctx.Done():
			if err := w.withdraw(); err != nil {
				return err
			}
			return fmt.Errorf("%w: %w", ErrUnknown, context.Cause(ctx))
		case <-timer.C:
			if err := w.withdraw(); err != nil {
				return err
			}
			timer.Reset(100 * time.Millisecond)
		}
	}
}

// withdraw gives the write up if nothing of it can have been proposed, and returns
// ErrUnavailable then; otherwise nil.
func (w *write) withdraw() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.begun || w.trying > 0 {
		return nil
	}
	w.given = true
	if w.cause == nil {
		return ErrUnavailable
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, w.cause)
}
