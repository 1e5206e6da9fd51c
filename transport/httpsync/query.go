package httpsync

import (
	"fmt"

	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/transport/judge"
	"github.com/quorate/quorate/transport/policy"
)

// query answers one query with the values of its rows.
func (e *exchange) query(q *protocol.HTTPQuery, left *int) {
	ask, r := e.ask(q)
	if r.Refused() {
		e.fail(r.Code, r.Reason, q.QueryID)
		return
	}
	if err := e.confirm(q.Consistency); err != nil {
		e.readFailed(err, q.QueryID)
		return
	}
	if *left <= 0 {
		e.fail(protocol.CodeTooLarge, "results of the other queries fill the response, ask again", q.QueryID)
		return
	}
	ask.Bytes = *left
	limit, offset := ask.Rows, int(q.Offset)
	if ask.After != nil {
		offset = 0
	}
	ask.Rows += offset
	answer, err := e.backend.Answer(e.ctx, e.session, ask)
	switch {
	case err != nil:
		e.readFailed(err, q.QueryID)
	case answer.More && 0 < offset && len(answer.Rows) <= offset && limit > 0:
		e.fail(protocol.CodeTooLarge, "offset passes over too much, use the cursor", q.QueryID)
	default:
		e.rows(q, ask.Query, answer, min(offset, len(answer.Rows)), left)
	}
}

// ask judges a query: what it reads, bounds on bytes aside, or why it is refused.
func (e *exchange) ask(q *protocol.HTTPQuery) (ask partitions.Ask, refusal judge.Refusal) {
	if r := judge.Map(q.MapName); r.Refused() {
		r.Reason = fmt.Sprintf("%s (map %q)", r.Reason, q.MapName)
		return ask, r
	}
	if r := judge.Consistency(q.Consistency); r.Refused() {
		return ask, r
	}
	object, err := partitions.CompileQuery(q.Query, partitions.QueryOptions{Filter: q.Filter})
	if err != nil {
		return ask, judge.QueryFailure(err)
	}
	if q.Limit != nil {
		object.SetLimit(*q.Limit)
	}
	if q.Cursor != "" {
		object.SetCursor(q.Cursor)
	}
	after, status := e.cursors().Parse(q.MapName, object, e.deps.Now())
	switch {
	case status == protocol.CursorExpired || status == protocol.CursorInvalid:
		return ask, judge.Refusal{Code: protocol.CodeMalformed, Reason: "invalid or expired cursor"}
	case q.Offset > int64(e.cfg.MaxRows) && after == nil:
		return ask, judge.Refusal{Code: protocol.CodeMalformed, Reason: fmt.Sprintf("offset is greater than %d, use the cursor", e.cfg.MaxRows)}
	}
	ask = partitions.Ask{
		Map: q.MapName, Query: object, After: after, Rows: e.cfg.MaxRows, Explain: q.Explain,
		Visible: func(key string, value []byte) bool {
			return e.access.Allow(policy.Read, q.MapName, key, value, nil)
		},
	}
	if object.Limit() != partitions.NoLimit {
		ask.Rows = min(ask.Rows, object.Limit())
	}
	return ask, judge.Refusal{}
}

func (e *exchange) cursors() judge.Cursors {
	return judge.NewCursors(e.deps.Secret, e.backend.ClusterID())
}

// confirm has the reads of the request show what was acknowledged before, once.
func (e *exchange) confirm(consistency string) error {
	if consistency == "" || e.confirmed {
		return nil
	}
	err := e.backend.Barrier(e.ctx, e.session)
	e.confirmed = err == nil
	return err
}

// rows enters a query's result: the rows of its answer from one on.
func (e *exchange) rows(q *protocol.HTTPQuery, object *partitions.Query, answer *partitions.Answer, from int, left *int) {
	rows := answer.Rows[from:]
	result := protocol.HTTPQueryResult{QueryID: q.QueryID, Results: make([]msgp.Raw, len(rows))}
	for i, row := range rows {
		*left -= row.Size()
		result.Results[i] = object.Project(row.Record.Value)
		if q.Keys {
			result.Keys = append(result.Keys, row.Key)
		}
	}
	if q.Explain {
		whole := e.access.Scope(policy.Read, policy.Resource{Kind: policy.Map, Name: q.MapName}) == policy.Allowed
		result.Plan = judge.Explain(&answer.Plan, whole)
	}
	if object.Limit() != partitions.NoLimit {
		result.HasMore = &answer.More
	}
	if answer.More && len(rows) > 0 {
		result.NextCursor = e.cursors().Cursor(q.MapName, object, answer.Place(len(answer.Rows)-1), e.deps.Now())
	}
	e.answer.QueryResults = append(e.answer.QueryResults, result)
}
