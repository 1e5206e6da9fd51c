package raftnode

import (
	"sync"
	"sync/atomic"

	"github.com/quorate/quorate/fsm/command"
)

// entryOverhead is what the header of an entry takes, at most: format, stamp with
// a node id of 64 bytes, count.
const entryOverhead = 128

// batcher coalesces the proposals of one group into log entries. There is no
// timer: while all slots are in flight proposals gather, and a slot that becomes
// free takes everything that fits. So a lone proposal never waits, and a hundred
// of them share one entry.
type batcher struct {
	config Config
	clock  Clock
	queue  *queue
	// append hands an entry to the log, in call order, and returns how to wait for its
	// results. It calls build at most once, and may block.
	append func(build func() []byte) (wait func() ([]command.Result, error))
	// observe is told the number of commands of every entry.
	observe func(commands int)

	// slots has a token per entry in flight, and one while run waits for work.
	slots chan struct{}
	// open is the number of proposals that were accepted and not answered.
	open atomic.Int64
	// running counts the goroutines: run, and one per entry in flight.
	running sync.WaitGroup
	scratch []Command
}

func (b *batcher) start() {
	b.slots = make(chan struct{}, b.config.InFlight)
	b.queue = newQueue(b.config.QueueOps, b.config.QueueBytes)
	b.running.Go(b.run)
}

// propose queues cmds. Errors: ErrBusy, ErrTooLarge.
func (b *batcher) propose(cmds []Command) (*proposal, error) {
	p := newProposal(cmds)
	if p.bytes+entryOverhead > b.config.MaxProposalBytes {
		return nil, ErrTooLarge
	}
	if len(cmds) == 0 {
		p.answer(nil, nil)
		return p, nil
	}
	b.open.Add(1)
	if err := b.queue.push(p); err != nil {
		b.open.Add(-1)
		return nil, err
	}
	return p, nil
}

// run ends when the queue is closed.
func (b *batcher) run() {
	for {
		b.slots <- struct{}{}
		batch := b.queue.take(b.config.MaxEntryOps, b.config.MaxEntryBytes)
		if batch == nil {
			<-b.slots
			return
		}
		b.send(batch)
	}
}

// send makes one entry of the batch. The stamp is taken here, after everything
// that this node proposed before and before everything later, so stamps follow
// the log's order.
func (b *batcher) send(batch []*proposal) {
	cmds, size := b.scratch[:0], entryOverhead
	for _, p := range batch {
		cmds = append(cmds, p.cmds...)
		size += p.bytes
	}
	count := len(cmds)
	b.observe(count)
	wait := b.append(func() []byte {
		return command.AppendEntry(make([]byte, 0, size), b.clock.Reserve(count), cmds)
	})
	clear(cmds)
	b.scratch = cmds
	pending := unanswered(batch)
	b.running.Go(func() {
		results, err := wait()
		<-b.slots
		if err == nil && len(results) != count {
			// The machine had the entry before and does not know its results any more.
			results, err = nil, ErrUnknown
		}
		answerAll(pending, results, err)
		b.open.Add(-int64(len(batch)))
	})
}

// idle reports whether every accepted proposal is answered.
func (b *batcher) idle() bool { return b.open.Load() == 0 }

// refuse answers what waits, and all further proposals, as never appended.
func (b *batcher) refuse() {
	refused := b.queue.close()
	answerAll(refused, nil, ErrBusy)
	b.open.Add(-int64(len(refused)))
}

// wait blocks until the entries in flight are answered, after refuse.
func (b *batcher) wait() { b.running.Wait() }
