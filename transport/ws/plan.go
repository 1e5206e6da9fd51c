package ws

import (
	"time"
	"unicode/utf8"

	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/protocol"
)

// writes is the content of a CLIENT_OP or OP_BATCH.
type writes struct {
	ops []protocol.ClientOp
	// level and timeout, in milliseconds, apply to operations without their own.
	level   protocol.WriteConcern
	timeout int64
}

// plan is what becomes of the writes of one frame: what is proposed, and what is
// owed to the client for each operation.
type plan struct {
	received time.Time
	timeout  time.Duration
	propose  []partitions.Op
	owed     []owed // in batch order
	// exclusive: an operation is stamped by the server, so the frame keeps its
	// order among the frames of the connection.
	exclusive bool
	// itemised: the acknowledgement lists what it covers, because an operation asked
	// for a level, or because an earlier frame failed as a whole.
	itemised bool
	// answerable: at least one operation is owed a verdict or an acknowledgement.
	answerable bool
}

// owed is the verdict that one operation will get.
type owed struct {
	id string
	// op is the operation's place in plan.propose, or -1 if it was refused.
	op int
	// unacknowledged operations are named by a refusal at most.
	unacknowledged bool
	refusal        refusal
}

// plan judges the operations of a frame one by one.
func (c *conn) plan(w writes) *plan {
	p := &plan{
		received: time.Now(),
		timeout:  c.srv.timeout(w),
		propose:  make([]partitions.Op, 0, len(w.ops)),
		owed:     make([]owed, 0, len(w.ops)),
	}
	repeats := repetitions(w.ops)
	var told map[string]bool // conflicting ids that have their refusal
	for i := range w.ops {
		op := &w.ops[i]
		if repeats == nil || repeats[i] == unique {
			c.planOp(p, op, w.level)
			continue
		}
		if repeats[i] == conflicting && !told[op.ID] {
			if told == nil {
				told = map[string]bool{}
			}
			told[op.ID] = true
			p.refuse(op.ID, refusal{protocol.CodeMalformed, "different operations of the batch have the same id"}, false)
		}
	}
	return p
}

func (c *conn) planOp(p *plan, op *protocol.ClientOp, level protocol.WriteConcern) {
	if op.WriteConcern != protocol.LevelDefault {
		level = op.WriteConcern
	}
	silent := level == protocol.LevelFireAndForget
	if r := c.srv.checkOp(op); r.refused() {
		p.refuse(op.ID, r, silent)
		return
	}
	p.owed = append(p.owed, owed{id: op.ID, op: len(p.propose), unacknowledged: silent})
	p.propose = append(p.propose, c.proposal(op, level))
	p.exclusive = p.exclusive || stampedByOrder(&p.propose[len(p.propose)-1])
	p.itemised = p.itemised || level != protocol.LevelDefault && !silent
	p.answerable = p.answerable || !silent
}

// refuse enters a refusal. An id that is not text was not readable: nobody could be
// told by it.
func (p *plan) refuse(id string, r refusal, silent bool) {
	if !utf8.ValidString(id) {
		id = ""
	}
	p.owed = append(p.owed, owed{id: id, op: -1, unacknowledged: silent, refusal: r})
	p.answerable = true
}

// timeout is how long the writes of a frame may wait: the longest that one of its
// operations may, because they are answered together.
func (s *Server) timeout(w writes) time.Duration {
	longest := time.Duration(0)
	for i := range w.ops {
		millis := w.ops[i].TimeoutMillis
		if millis == 0 {
			millis = w.timeout
		}
		own := s.cfg.OperationTimeout
		if millis > 0 && millis < own.Milliseconds() {
			own = time.Duration(millis) * time.Millisecond
		}
		longest = max(longest, own)
	}
	return longest
}

// settle enters the verdicts of the cluster into what is owed.
func (p *plan) settle(verdicts []partitions.Verdict) {
	for i := range p.owed {
		o := &p.owed[i]
		if o.op >= 0 && verdicts[o.op].Refused() {
			o.refusal = refusal{verdicts[o.op].Code, verdicts[o.op].Reason}
		}
	}
}

// rejections are the OP_REJECTED frames, one per refused operation with an id.
func (p *plan) rejections() []protocol.Message {
	var list []protocol.Message
	for i := range p.owed {
		if o := &p.owed[i]; o.refusal.refused() && o.id != "" {
			list = append(list, &protocol.OpRejected{OpID: o.id, Reason: o.refusal.reason, Code: o.refusal.code, Permanent: true})
		}
	}
	return list
}

// acknowledgement is the OP_ACK after the rejections, nil if no operation with an
// id is to be acknowledged: clients take LastID as a watermark, so it is never
// anything but the id of one of their operations. Results are left out only when
// every operation was accepted.
func (p *plan) acknowledgement(verdicts []partitions.Verdict) *protocol.OpAck {
	ack := &protocol.OpAck{}
	accepted, refused := 0, 0
	for i := range p.owed {
		o := &p.owed[i]
		if o.refusal.refused() {
			refused++
		}
		if o.unacknowledged {
			continue
		}
		if o.id != "" {
			ack.LastID = o.id
		}
		if o.refusal.refused() {
			continue
		}
		level := verdicts[o.op].Level
		if accepted == 0 || level < ack.AchievedLevel {
			ack.AchievedLevel = level
		}
		accepted++
	}
	if ack.LastID == "" {
		return nil
	}
	if accepted == 0 {
		ack.AchievedLevel = protocol.LevelMemory // of no operation; the field is not optional
	}
	if refused > 0 || p.itemised {
		ack.Results = p.results(verdicts, accepted)
	}
	return ack
}

// results lists the accepted operations that have an id.
func (p *plan) results(verdicts []partitions.Verdict, accepted int) []protocol.AckResult {
	latency := float64(time.Since(p.received).Microseconds()) / 1000
	list := make([]protocol.AckResult, 0, accepted)
	for i := range p.owed {
		o := &p.owed[i]
		if o.refusal.refused() || o.unacknowledged || o.id == "" {
			continue
		}
		list = append(list, protocol.AckResult{
			OpID: o.id, Success: true, AchievedLevel: verdicts[o.op].Level, LatencyMillis: latency,
		})
	}
	return list
}
