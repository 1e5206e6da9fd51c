package ws

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/transport/judge"
)

// receiveWrite judges the operations of a CLIENT_OP or OP_BATCH and starts the task
// that brings them to the cluster. It blocks while the connection has as many tasks
// as it may, and a little while the node has.
func (c *conn) receiveWrite(w judge.Writes, size int) {
	if len(w.Ops) == 0 {
		return // there is no id to acknowledge
	}
	if len(w.Ops) > protocol.MaxBatchItems {
		c.answerInTurn(failure(protocol.CodeTooLarge, fmt.Sprintf("batch holds more than %d operations", protocol.MaxBatchItems)))
		return
	}
	p := c.srv.limits.Plan(w, c.auth.client)
	if !c.takeSlot() {
		return
	}
	if len(p.Propose) == 0 {
		c.runTask(false, func(t turn) { c.finishWrite(p, t, nil, nil) })
		return
	}
	if err := c.srv.gate.enter(c.ctx, size); err != nil {
		c.leaveSlot()
		c.srv.metrics.limit("overload")
		c.answerInTurn(failure(protocol.CodeOverloaded, err.Error()))
		return
	}
	permission := c.permission()
	c.runTask(p.Exclusive, func(t turn) {
		await(t.after)
		if permission.NeedsStored(p.Propose) {
			await(t.previous) // what the client wrote before is stored for it
		}
		verdicts, err := c.proposeWrite(p, permission)
		c.srv.gate.leave(size)
		c.finishWrite(p, t, verdicts, err)
	})
}

// runTask runs the task of a frame of writes beside the reader, in the slot that was
// taken for it. The task must close its turn's done.
func (c *conn) runTask(exclusive bool, task func(turn)) {
	t := c.turns.next(exclusive)
	c.srv.workers.Go(func() {
		defer c.leaveSlot()
		task(t)
	})
}

// takeSlot waits until the connection may have one more task; false means that it
// closes.
func (c *conn) takeSlot() bool {
	select {
	case c.slots <- struct{}{}:
		c.tasks.Add(1)
		return true
	case <-c.ctx.Done():
		return false
	}
}

func (c *conn) leaveSlot() {
	<-c.slots
	c.tasks.Done()
}

// answerInTurn sends an ERROR for a frame that may have held writes, after the
// answers to all earlier ones.
func (c *conn) answerInTurn(m *protocol.ErrorMessage) {
	if !c.takeSlot() {
		return
	}
	c.runTask(false, func(t turn) {
		defer close(t.done)
		await(t.previous)
		c.failed.Store(true)
		c.reply(m)
	})
}

// proposeWrite brings what was planned, and is permitted, to the cluster. The call
// outlives a connection that is lost: what was begun is seen through.
func (c *conn) proposeWrite(p *judge.Plan, permission judge.Permission) ([]partitions.Verdict, error) {
	ctx, cancel := context.WithDeadline(c.srv.base, p.Received.Add(p.Timeout))
	defer cancel()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", partitions.ErrUnavailable, err) // waited for its turn too long
	}
	if err := p.Permit(ctx, permission); err != nil || len(p.Propose) == 0 {
		return nil, err
	}
	return permission.Carry(ctx, c.backend, p.Propose)
}

// finishWrite answers a frame of writes when all earlier ones are answered: the
// refusals, then the acknowledgement. Without verdicts it sends an ERROR if nothing
// was applied. If that is not known it closes the connection, so that no later
// acknowledgement covers the frame, and the client sends it again.
func (c *conn) finishWrite(p *judge.Plan, t turn, verdicts []partitions.Verdict, err error) {
	defer close(t.done)
	await(t.previous)
	switch {
	case err == nil:
		p.Settle(verdicts)
		c.replyAll(p.Rejections())
		p.Itemised = p.Itemised || c.failed.Load() || c.unread.Load()
		if ack := p.Acknowledgement(verdicts); ack != nil {
			c.reply(ack)
		}
		c.countWrite(p, "ok")
	case errors.Is(err, partitions.ErrUnavailable):
		c.srv.log.Debug("write not taken", "conn", c.id, "ops", len(p.Propose), "err", err)
		c.replyAll(p.Rejections())
		c.failed.Store(true)
		c.reply(failure(protocol.CodeUnavailable, partitions.ErrUnavailable.Error()))
		c.countWrite(p, "unavailable")
	default:
		c.srv.log.Info("outcome of a write is unknown", "conn", c.id, "ops", len(p.Propose), "err", err)
		c.countWrite(p, "unknown")
		if p.Answerable {
			c.end(closeFlushed, protocol.CloseRetry, reasonUnknown)
		}
	}
}

func (c *conn) replyAll(list []protocol.Message) {
	for _, m := range list {
		c.reply(m)
	}
}

// countWrite counts the operations of a frame; outcome is that of those which were
// proposed and not refused.
func (c *conn) countWrite(p *judge.Plan, outcome string) {
	total, refused := p.Counts()
	c.srv.metrics.operations(serviceWrite, "refused", refused, 0)
	c.srv.metrics.operations(serviceWrite, outcome, total-refused, time.Since(p.Received))
}
