package ws

import (
	"errors"
	"time"
	"unicode/utf8"

	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/transport/judge"
)

// failure is an ERROR about no message in particular.
func failure(code protocol.Code, text string) *protocol.ErrorMessage {
	return &protocol.ErrorMessage{Code: code, Message: text}
}

// failureOf is an ERROR about m, whose details name it the way its sender can
// recognise it: by type, and by correlation id where it has one.
func failureOf(m protocol.Message, code protocol.Code, text string) *protocol.ErrorMessage {
	e := failure(code, text)
	if req, ok := m.(protocol.Request); ok {
		e.Details = details(m.Kind(), req.Correlation(), requestID(m), 0)
	}
	return e
}

// laterFailureOf is failureOf a message that can be sent again after a while.
func laterFailureOf(m protocol.Message, code protocol.Code, text string, wait time.Duration) *protocol.ErrorMessage {
	e := failureOf(m, code, text)
	correlation := ""
	if req, ok := m.(protocol.Request); ok {
		correlation = req.Correlation()
	}
	e.Details = details(m.Kind(), correlation, requestID(m), max(1, wait.Milliseconds()))
	return e
}

// requestID is the id of one addition to a counter, which the counter's name alone does
// not tell from others; "" for everything else.
func requestID(m protocol.Message) string {
	if add, ok := m.(*protocol.CounterSync); ok {
		return add.RequestID
	}
	return ""
}

// decodeFailure is the ERROR about a frame that cannot be understood.
func decodeFailure(err error) *protocol.ErrorMessage {
	e := failure(protocol.CodeMalformed, judge.DecodeText(err))
	var decode *protocol.DecodeError
	if errors.As(err, &decode) {
		e.Code = decode.Code()
		if decode.Kind != protocol.KindInvalid {
			e.Details = details(decode.Kind, decode.Correlation, "", 0)
		}
	}
	return e
}

// details is the map {"type": kind} with the correlation id under the name that it
// has in the messages of that kind, with requestID, and with the time after which to send
// the message again. An id that is empty or not text names nothing, and no time is 0.
func details(kind protocol.Kind, correlation, requestID string, retryMillis int64) msgp.Raw {
	fields := []struct {
		name string
		raw  []byte
	}{{"type", msgp.AppendString(nil, kind.String())}}
	add := func(name string, raw []byte) {
		fields = append(fields, struct {
			name string
			raw  []byte
		}{name, raw})
	}
	if correlation != "" && utf8.ValidString(correlation) {
		add(correlationName(kind), msgp.AppendString(nil, correlation))
	}
	if requestID != "" && utf8.ValidString(requestID) {
		add("requestId", msgp.AppendString(nil, requestID))
	}
	if retryMillis > 0 {
		add("retryAfterMs", msgp.AppendInt64(nil, retryMillis))
	}
	b := msgp.AppendMapHeader(nil, uint32(len(fields)))
	for _, f := range fields {
		b = append(msgp.AppendString(b, f.name), f.raw...)
	}
	return msgp.Raw(b)
}

// correlationName is the field in which messages of a kind carry what
// Request.Correlation returns.
func correlationName(kind protocol.Kind) string {
	switch kind {
	case protocol.KindQuerySub, protocol.KindQueryUnsub, protocol.KindQuerySyncInit, protocol.KindSQLQuery:
		return "queryId"
	case protocol.KindSearchSub, protocol.KindSearchUnsub, protocol.KindHybridSearchSub, protocol.KindHybridSearchUnsub,
		protocol.KindHybridQuerySubscribe, protocol.KindHybridQueryUnsubscribe, protocol.KindJournalUnsubscribe:
		return "subscriptionId"
	case protocol.KindSyncInit, protocol.KindMerkleReqBucket, protocol.KindORMapSyncInit, protocol.KindORMapMerkleReqBucket,
		protocol.KindORMapDiffRequest, protocol.KindORMapPushDiff:
		return "mapName"
	case protocol.KindTopicSub, protocol.KindTopicUnsub, protocol.KindTopicPub:
		return "topic"
	case protocol.KindCounterRequest, protocol.KindCounterSync:
		return "name"
	case protocol.KindVectorSearch, protocol.KindClientOp:
		return "id"
	default:
		return "requestId"
	}
}
