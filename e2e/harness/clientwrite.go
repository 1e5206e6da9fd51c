package harness

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/e2e/model"
	"github.com/quorate/quorate/protocol"
)

// Result is what became of one batch: the outcome of each operation that asked for a
// verdict, by id.
type Result map[string]model.Outcome

// Accepted reports whether all operations were.
func (r Result) Accepted() bool {
	for _, o := range r {
		if o.Kind != model.Accepted {
			return false
		}
	}
	return true
}

// pendingWrite is a batch that waits for its answer.
type pendingWrite struct {
	// asked are the levels of the operations that have an id, by id.
	asked  map[string]protocol.WriteConcern
	lastID string
	result Result
	done   chan struct{} // closed by the reader when the batch is answered
}

// answered reports whether an acknowledgement is due: FIRE_AND_FORGET has none.
func (p *pendingWrite) answered() bool { return p.lastID != "" }

// Write sends a batch and waits for its answer. Outcomes that it does not learn,
// because the connection or ctx ends first, are model.Unknown; the connection is of
// no use then and closed. A server that stays silent is noted as a problem.
func (c *Client) Write(ctx context.Context, batch *protocol.OpBatch) Result {
	c.writing.Lock()
	defer c.writing.Unlock()
	p := newPendingWrite(batch)
	c.mu.Lock()
	c.pending = p
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.pending = nil
	}()
	if err := c.Send(ctx, batch); err != nil {
		c.Close()
		return p.result
	}
	if !p.answered() {
		return p.result
	}
	silence := time.NewTimer(c.silence)
	defer silence.Stop()
	select {
	case <-p.done:
	case <-c.gone:
	case <-ctx.Done():
		c.Close()
	case <-silence.C:
		c.mu.Lock()
		c.problemLocked("%s: no verdict, error or close for the batch up to %s within %v", c.URL, p.lastID, c.silence)
		c.mu.Unlock()
		c.Close()
	}
	// The reader changes the result no more: it is past the answer, or has ended.
	return p.result
}

func newPendingWrite(batch *protocol.OpBatch) *pendingWrite {
	p := &pendingWrite{asked: make(map[string]protocol.WriteConcern), result: make(Result), done: make(chan struct{})}
	for i := range batch.Ops {
		op := &batch.Ops[i]
		level := op.WriteConcern
		if level == protocol.LevelDefault {
			level = batch.WriteConcern
		}
		if op.ID == "" {
			continue
		}
		p.asked[op.ID] = level
		p.result[op.ID] = model.Outcome{Kind: model.Unknown}
		if level != protocol.LevelFireAndForget {
			p.lastID = op.ID
		}
	}
	return p
}

// ackLocked takes an OP_ACK for the batch in progress.
func (c *Client) ackLocked(m *protocol.OpAck) {
	p := c.pending
	if p == nil || p.lastID != m.LastID || p.finished() {
		c.problemLocked("%s: OP_ACK up to %q that nothing asked for", c.URL, m.LastID)
		return
	}
	defer close(p.done)
	if m.Results == nil {
		for id, o := range p.result {
			if p.asked[id] != protocol.LevelFireAndForget && o.Kind == model.Unknown {
				p.result[id] = model.Outcome{Kind: model.Accepted, Level: m.AchievedLevel}
			}
		}
		return
	}
	for _, r := range m.Results {
		if o, asked := p.result[r.OpID]; !asked || o.Kind != model.Unknown || !r.Success {
			c.problemLocked("%s: OP_ACK reports on %q, success %t, after %v", c.URL, r.OpID, r.Success, o)
			continue
		}
		p.result[r.OpID] = model.Outcome{Kind: model.Accepted, Level: r.AchievedLevel}
	}
	for id, o := range p.result {
		if o.Kind == model.Unknown && p.asked[id] != protocol.LevelFireAndForget {
			c.problemLocked("%s: OP_ACK up to %q without a verdict on %q", c.URL, m.LastID, id)
		}
	}
}

func (c *Client) rejectLocked(m *protocol.OpRejected) {
	p := c.pending
	if p == nil || p.finished() || m.OpID == "" {
		c.problemLocked("%s: OP_REJECTED of %q that is not in progress: %s", c.URL, m.OpID, m.Reason)
		return
	}
	if o, asked := p.result[m.OpID]; !asked || o.Kind != model.Unknown {
		c.problemLocked("%s: OP_REJECTED of %q, which has the outcome %v: %s", c.URL, m.OpID, o, m.Reason)
		return
	}
	kind := model.Refused
	if !m.Permanent {
		kind = model.NotApplied
	}
	p.result[m.OpID] = model.Outcome{Kind: kind}
}

// errorLocked gives an ERROR to the request that it names, or to the batch in
// progress if it names none.
func (c *Client) errorLocked(m *protocol.ErrorMessage) {
	about := DetailsOf(m)
	if q := c.queries[about["queryId"]]; q != nil {
		q.failLocked(fmt.Errorf("%d %s", m.Code, m.Message))
		return
	}
	p := c.pending
	if p == nil || p.finished() || (about["type"] != "" && !strings.HasSuffix(about["type"], "OP") && about["type"] != "OP_BATCH") {
		return
	}
	for id, o := range p.result {
		if o.Kind == model.Unknown {
			p.result[id] = model.Outcome{Kind: model.NotApplied}
		}
	}
	if p.answered() {
		close(p.done)
	}
}

func (p *pendingWrite) finished() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// DetailsOf returns the texts in the details of an ERROR.
func DetailsOf(m *protocol.ErrorMessage) map[string]string {
	if len(m.Details) == 0 {
		return nil
	}
	value, _, err := msgp.ReadMapStrIntfBytes(m.Details, nil)
	if err != nil {
		return nil
	}
	texts := make(map[string]string)
	for k, v := range value {
		if s, ok := v.(string); ok {
			texts[k] = s
		}
	}
	return texts
}
