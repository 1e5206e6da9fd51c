package judge

import (
	"time"
	"unicode/utf8"

	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/protocol"
)

// Writes is the content of a CLIENT_OP or OP_BATCH.
type Writes struct {
	Ops []protocol.ClientOp
	// Level and TimeoutMillis apply to operations without their own.
	Level         protocol.WriteConcern
	TimeoutMillis int64
}

// Limits are the bounds of what one operation may ask for. All must be positive.
type Limits struct {
	// MaxValueBytes is the size of the largest encoded value.
	MaxValueBytes int
	// Timeout is how long an operation that names no timeout may wait for its verdict,
	// and the longest timeout that one can name.
	Timeout time.Duration
}

// Plan is what becomes of the writes of one frame: what is proposed, and what is
// owed to the client for each operation.
type Plan struct {
	// Received is when the frame was judged, Timeout how long its writes may wait.
	Received time.Time
	Timeout  time.Duration
	// Propose is what goes to the cluster.
	Propose []partitions.Op
	// Exclusive: an operation is stamped by the server, so the frame keeps its
	// order among the frames of the connection.
	Exclusive bool
	// Itemised: the acknowledgement lists what it covers, because an operation asked
	// for a level, or because an earlier frame failed as a whole.
	Itemised bool
	// Answerable: at least one operation is owed a verdict or an acknowledgement.
	Answerable bool

	owed []owed // in batch order
}

// owed is the verdict that one operation will get.
type owed struct {
	id string
	// op is the operation's place in Plan.Propose, or -1 if it was refused.
	op int
	// unacknowledged operations are named by a refusal at most.
	unacknowledged bool
	refusal        Refusal
}

// Plan judges the operations of a frame one by one. client names the device in the dedup
// keys of operations that the server stamps. It does not keep w.
func (l Limits) Plan(w Writes, client string) *Plan {
	p := &Plan{
		Received: time.Now(),
		Timeout:  l.timeout(w),
		Propose:  make([]partitions.Op, 0, len(w.Ops)),
		owed:     make([]owed, 0, len(w.Ops)),
	}
	repeats := repetitions(w.Ops)
	var told map[string]bool // conflicting ids that have their Refusal
	for i := range w.Ops {
		op := &w.Ops[i]
		if repeats == nil || repeats[i] == unique {
			p.take(l, op, w.Level, client)
			continue
		}
		if repeats[i] == conflicting && !told[op.ID] {
			if told == nil {
				told = map[string]bool{}
			}
			told[op.ID] = true
			p.refuse(op.ID, Refusal{protocol.CodeMalformed, "different operations of the batch have the same id"}, false)
		}
	}
	return p
}

func (p *Plan) take(l Limits, op *protocol.ClientOp, level protocol.WriteConcern, client string) {
	if op.WriteConcern != protocol.LevelDefault {
		level = op.WriteConcern
	}
	silent := level == protocol.LevelFireAndForget
	if r := l.Op(op); r.Refused() {
		p.refuse(op.ID, r, silent)
		return
	}
	p.owed = append(p.owed, owed{id: op.ID, op: len(p.Propose), unacknowledged: silent})
	p.Propose = append(p.Propose, proposal(client, op, level))
	p.Exclusive = p.Exclusive || stampedByOrder(&p.Propose[len(p.Propose)-1])
	p.Itemised = p.Itemised || level != protocol.LevelDefault && !silent
	p.Answerable = p.Answerable || !silent
}

// refuse enters a refusal. An id that is not text was not readable: nobody could be
// told by it.
func (p *Plan) refuse(id string, r Refusal, silent bool) {
	if !utf8.ValidString(id) {
		id = ""
	}
	p.owed = append(p.owed, owed{id: id, op: -1, unacknowledged: silent, refusal: r})
	p.Answerable = true
}

// timeout is how long the writes of a frame may wait: the longest that one of its
// operations may, because they are answered together.
func (l Limits) timeout(w Writes) time.Duration {
	longest := time.Duration(0)
	for i := range w.Ops {
		millis := w.Ops[i].TimeoutMillis
		if millis == 0 {
			millis = w.TimeoutMillis
		}
		own := l.Timeout
		if millis > 0 && millis < own.Milliseconds() {
			own = time.Duration(millis) * time.Millisecond
		}
		longest = max(longest, own)
	}
	return longest
}

// Settle enters the verdicts of the cluster into what is owed.
func (p *Plan) Settle(verdicts []partitions.Verdict) {
	for i := range p.owed {
		o := &p.owed[i]
		if o.op >= 0 && verdicts[o.op].Refused() {
			o.refusal = Refusal{verdicts[o.op].Code, verdicts[o.op].Reason}
		}
	}
}

// Rejections are the OP_REJECTED frames, one per refused operation with an id.
func (p *Plan) Rejections() []protocol.Message {
	var list []protocol.Message
	for i := range p.owed {
		if o := &p.owed[i]; o.refusal.Refused() && o.id != "" {
			list = append(list, &protocol.OpRejected{OpID: o.id, Reason: o.refusal.Reason, Code: o.refusal.Code, Permanent: true})
		}
	}
	return list
}

// Acknowledgement is the OP_ACK after the Rejections, nil if no operation with an
// id is to be acknowledged: clients take LastID as a watermark, so it is never
// anything but the id of one of their operations. Results are left out only when
// every operation was accepted.
func (p *Plan) Acknowledgement(verdicts []partitions.Verdict) *protocol.OpAck {
	ack := &protocol.OpAck{}
	accepted, refused := 0, 0
	for i := range p.owed {
		o := &p.owed[i]
		if o.refusal.Refused() {
			refused++
		}
		if o.unacknowledged {
			continue
		}
		if o.id != "" {
			ack.LastID = o.id
		}
		if o.refusal.Refused() {
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
	if refused > 0 || p.Itemised {
		ack.Results = p.results(verdicts, accepted)
	}
	return ack
}

// results lists the accepted operations that have an id.
func (p *Plan) results(verdicts []partitions.Verdict, accepted int) []protocol.AckResult {
	latency := float64(time.Since(p.Received).Microseconds()) / 1000
	list := make([]protocol.AckResult, 0, accepted)
	for i := range p.owed {
		o := &p.owed[i]
		if o.refusal.Refused() || o.unacknowledged || o.id == "" {
			continue
		}
		list = append(list, protocol.AckResult{
			OpID: o.id, Success: true, AchievedLevel: verdicts[o.op].Level, LatencyMillis: latency,
		})
	}
	return list
}

// Counts returns how many operations there are and how many of them are refused so far.
func (p *Plan) Counts() (total, refused int) {
	for i := range p.owed {
		if p.owed[i].refusal.Refused() {
			refused++
		}
	}
	return len(p.owed), refused
}
