package httpsync

import (
	"context"
	"errors"
	"fmt"

	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/transport/judge"
	"github.com/quorate/quorate/transport/policy"
)

// exchange is one request and the response to it.
type exchange struct {
	*Handler
	ctx     context.Context
	backend Backend
	session *partitions.Session
	// client names the device in the dedup keys of its operations.
	client  string
	request *protocol.HTTPSync
	answer  *protocol.HTTPSyncResponse
	// access is the client as policies see it.
	access policy.Access
	// confirmed: what is read shows all that was acknowledged before the request.
	confirmed bool
}

// run does what the request asks for: first its writes, so that it reads them.
func (e *exchange) run() {
	e.write()
	left := e.cfg.MaxDeltaBytes
	for i := range e.request.SyncMaps {
		if i == e.cfg.MaxReads {
			e.fail(protocol.CodeTooLarge, fmt.Sprintf("request asks for more than %d maps", i), "")
			break
		}
		e.delta(&e.request.SyncMaps[i], &left)
	}
	left = e.cfg.MaxResultBytes
	for i := range e.request.Queries {
		if i == e.cfg.MaxReads {
			e.fail(protocol.CodeTooLarge, fmt.Sprintf("request holds more than %d queries", i), "")
			break
		}
		q := &e.request.Queries[i]
		if e.mayRead(q.MapName, q.QueryID) {
			e.query(q, &left)
		}
	}
	for range e.request.Searches {
		e.fail(protocol.CodeNotImplemented, judge.NotImplemented+"search", "")
	}
}

// fail enters an error; context is the id of what failed, if it has one.
func (e *exchange) fail(code protocol.Code, message, context string) {
	e.answer.Errors = append(e.answer.Errors, protocol.HTTPError{Code: code, Message: message, Context: context})
}

// write brings the operations to the cluster. An operation without id is not applied,
// because nobody could be told what became of it.
func (e *exchange) write() {
	ops := make([]protocol.ClientOp, 0, len(e.request.Operations))
	maps := map[string]string{}
	for _, op := range e.request.Operations {
		if op.ID == "" {
			e.fail(protocol.CodeNotImplemented, "operation has no id", "")
			continue
		}
		maps[op.ID] = op.MapName
		ops = append(ops, op)
	}
	if len(ops) == 0 {
		return
	}
	if len(ops) > protocol.MaxBatchItems {
		e.fail(protocol.CodeTooLarge, fmt.Sprintf("request holds more than %d operations", protocol.MaxBatchItems), "")
		return
	}
	p := e.cfg.Limits.Plan(judge.Writes{Ops: ops}, e.client)
	p.Itemised = p.Itemised || len(ops) < len(e.request.Operations)
	var verdicts []partitions.Verdict
	if len(p.Propose) > 0 {
		var err error
		if verdicts, err = e.propose(p); err != nil {
			e.writeFailed(p, err)
			return
		}
	}
	p.Settle(verdicts)
	e.refusals(p, maps)
	if ack := p.Acknowledgement(verdicts); ack != nil {
		e.answer.Ack = &protocol.HTTPAck{LastID: ack.LastID, Results: ack.Results}
	}
}

func (e *exchange) propose(p *judge.Plan) ([]partitions.Verdict, error) {
	// What was begun is seen through, although the client may hang up.
	ctx, cancel := context.WithDeadline(context.WithoutCancel(e.ctx), p.Received.Add(p.Timeout))
	defer cancel()
	permission := judge.Permission{Access: e.access, Reader: e.backend, Session: e.session}
	if err := p.Permit(ctx, permission); err != nil || len(p.Propose) == 0 {
		return nil, err
	}
	return permission.Carry(ctx, e.backend, p.Propose)
}

// writeFailed says that the writes as a whole have no verdicts. Whether something was
// applied may be open; in both cases the client sends them again.
func (e *exchange) writeFailed(p *judge.Plan, err error) {
	e.log.Debug("writes have no verdicts", "ops", len(p.Propose), "err", err)
	if errors.Is(err, partitions.ErrUnavailable) {
		e.fail(protocol.CodeUnavailable, partitions.ErrUnavailable.Error(), "")
		return
	}
	e.fail(protocol.CodeUnavailable, "outcome of the operations is unknown, send them again", "")
}

// refusals enters an error for each refused operation; maps holds the map of each id.
func (e *exchange) refusals(p *judge.Plan, maps map[string]string) {
	for _, m := range p.Rejections() {
		if r, ok := m.(*protocol.OpRejected); ok {
			e.fail(r.Code, fmt.Sprintf("%s (map %q)", r.Reason, maps[r.OpID]), r.OpID)
		}
	}
}

// delta answers for one map with what was stored in it since the client's last one.
func (e *exchange) delta(m *protocol.HTTPSyncMap, left *int) {
	if r := judge.Map(m.MapName); r.Refused() {
		e.fail(r.Code, fmt.Sprintf("%s (map %q)", r.Reason, m.MapName), "")
		return
	}
	if !e.mayRead(m.MapName, "") {
		return
	}
	if *left <= 0 {
		// Nothing is sent, and the client asks again from where it is.
		e.answer.Deltas = append(e.answer.Deltas, protocol.MapDelta{MapName: m.MapName, ServerSyncTimestamp: m.LastSyncTimestamp})
		return
	}
	records, next, _, err := e.backend.Delta(e.ctx, e.session, m.MapName, m.LastSyncTimestamp, *left)
	if err != nil {
		e.readFailed(err, "")
		return
	}
	delta := protocol.MapDelta{MapName: m.MapName, Records: make([]protocol.DeltaRecord, 0, len(records)), ServerSyncTimestamp: next}
	for _, rec := range records {
		*left -= partitions.RecordSize(rec.Key, &rec.Record)
		d := protocol.DeltaRecord{Key: rec.Key, Record: rec.Record, EventType: protocol.OpPut}
		if rec.Record.IsTombstone() {
			if e.access.ScopeOf(policy.Read, m.MapName, rec.Key) == policy.Denied {
				continue
			}
			d.EventType = protocol.OpRemove
		} else if !e.access.Allow(policy.Read, m.MapName, rec.Key, rec.Record.Value, nil) {
			continue
		}
		delta.Records = append(delta.Records, d)
	}
	e.answer.Deltas = append(e.answer.Deltas, delta)
}

// readFailed enters the error of a read; context is the id of the query, if it is one.
func (e *exchange) readFailed(err error, context string) {
	e.log.Debug("read failed", "err", err)
	if r := judge.QueryFailure(err); r.Refused() {
		e.fail(r.Code, r.Reason, context)
		return
	}
	code, message := protocol.CodeInternal, "map cannot be read"
	if temporary(err) {
		code, message = protocol.CodeUnavailable, "map cannot be read now"
	}
	e.fail(code, message, context)
}

func temporary(err error) bool {
	for _, retry := range []error{partitions.ErrUnavailable, context.DeadlineExceeded, context.Canceled} {
		if errors.Is(err, retry) {
			return true
		}
	}
	return false
}
