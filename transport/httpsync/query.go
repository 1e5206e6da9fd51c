package httpsync

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/transport/judge"
)

// cursorLife is how long a cursor may be used.
const cursorLife = 10 * time.Minute

// query answers one query with the values of its rows.
func (e *exchange) query(q *protocol.HTTPQuery, left *int) {
	if r := judge.Map(q.MapName); r.Refused() {
		e.fail(r.Code, fmt.Sprintf("%s (map %q)", r.Reason, q.MapName), q.QueryID)
		return
	}
	if err := e.confirm(q.Consistency); err != nil {
		e.consistencyFailed(err, q.QueryID)
		return
	}
	limit, offset, from := e.cfg.MaxRows, q.Offset, ""
	if q.Limit != nil {
		limit = int(min(int64(limit), *q.Limit))
	}
	if q.Cursor != "" {
		var err error
		if from, err = parseCursor(q, e.deps.Now()); err != nil {
			e.fail(protocol.CodeMalformed, err.Error(), q.QueryID)
			return
		}
		offset = 0
	}
	if offset > int64(e.cfg.MaxRows) {
		e.fail(protocol.CodeMalformed, fmt.Sprintf("offset is greater than %d, use the cursor", e.cfg.MaxRows), q.QueryID)
		return
	}
	if *left <= 0 {
		e.fail(protocol.CodeTooLarge, "results of the other queries fill the response, ask again", q.QueryID)
		return
	}
	rows, more, err := e.backend.Rows(e.ctx, e.session, q.MapName, from, limit+int(offset), *left, matcher(q.Filter))
	switch {
	case err != nil:
		e.readFailed(err, q.QueryID)
	case more && 0 < offset && len(rows) <= int(offset) && limit > 0:
		e.fail(protocol.CodeTooLarge, "offset passes over too much, use the cursor", q.QueryID)
	default:
		e.rows(q, rows[min(int(offset), len(rows)):], more, left)
	}
}

// errConsistency refuses a consistency that there is not.
var errConsistency = errors.New("consistency is unknown")

// confirm has the reads of the request show what was acknowledged before, once.
func (e *exchange) confirm(consistency string) error {
	switch {
	case consistency != "" && consistency != protocol.ConsistencyLinearizable:
		return errConsistency
	case consistency == "" || e.confirmed:
		return nil
	}
	err := e.backend.Barrier(e.ctx, e.session)
	e.confirmed = err == nil
	return err
}

func (e *exchange) consistencyFailed(err error, queryID string) {
	if errors.Is(err, errConsistency) {
		e.fail(protocol.CodeMalformed, err.Error(), queryID)
		return
	}
	e.readFailed(err, queryID)
}

// rows enters a query's result.
func (e *exchange) rows(q *protocol.HTTPQuery, rows []partitions.Row, more bool, left *int) {
	result := protocol.HTTPQueryResult{QueryID: q.QueryID, Results: make([]msgp.Raw, len(rows))}
	for i, row := range rows {
		*left -= len(row.Key) + len(row.Record.Value)
		result.Results[i] = row.Record.Value
	}
	if q.Limit != nil {
		result.HasMore = &more
	}
	if more && len(rows) > 0 {
		result.NextCursor = cursor(q, rows[len(rows)-1].Key, e.deps.Now())
	}
	e.answer.QueryResults = append(e.answer.QueryResults, result)
}

// matcher is the condition of a filter: the value is a map whose fields equal those of
// the filter. Nil admits all.
func matcher(filter msgp.Raw) func(partitions.Row) bool {
	wanted := protocol.Fields(filter)
	if len(wanted) == 0 {
		return nil
	}
	return func(row partitions.Row) bool {
		fields := protocol.Fields(row.Record.Value)
		for name, want := range wanted {
			if have, ok := fields[name]; !ok || !protocol.Equal(want, have) {
				return false
			}
		}
		return true
	}
}

// errCursor is what clients are told about a cursor that cannot be used.
var errCursor = errors.New("invalid or expired cursor")

// cursor is the place in q's rows behind key, as text: when it was made and what for,
// then the key.
func cursor(q *protocol.HTTPQuery, key string, now int64) string {
	b := binary.BigEndian.AppendUint64(nil, uint64(now))
	b = binary.BigEndian.AppendUint32(b, purpose(q))
	return base64.RawURLEncoding.EncodeToString(append(b, key...))
}

// parseCursor returns the first key behind q's cursor.
func parseCursor(q *protocol.HTTPQuery, now int64) (from string, err error) {
	b, err := base64.RawURLEncoding.DecodeString(q.Cursor)
	if err != nil || len(b) < 12 || binary.BigEndian.Uint32(b[8:]) != purpose(q) {
		return "", errCursor
	}
	made := int64(binary.BigEndian.Uint64(b))
	if now-made > cursorLife.Milliseconds() || made-now > cursorLife.Milliseconds() {
		return "", errCursor
	}
	// The least key above the last one.
	return string(b[12:]) + "\x00", nil
}

// purpose tells the cursors of queries for other rows apart.
func purpose(q *protocol.HTTPQuery) uint32 {
	return protocol.Hash(q.MapName + "\x00" + string(q.Filter))
}
