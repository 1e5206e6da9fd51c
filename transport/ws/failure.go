package ws

import (
	"errors"
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
		e.Details = details(m.Kind(), req.Correlation(), requestID(m))
	}
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
			e.Details = details(decode.Kind, decode.Correlation, "")
		}
	}
	return e
}

// details is the map {"type": kind} with the correlation id under the name that it
// has in the messages of that kind, and with requestID. An id that is empty or not text
// names nothing.
func details(kind protocol.Kind, correlation, requestID string) msgp.Raw {
	fields := []struct{ name, text string }{{"type", kind.String()}}
	if correlation != "" && utf8.ValidString(correlation) {
		fields = append(fields, struct{ name, text string }{correlationName(kind), correlation})
	}
	if requestID != "" && utf8.ValidString(requestID) {
		fields = append(fields, struct{ name, text string }{"requestId", requestID})
	}
	b := msgp.AppendMapHeader(nil, uint32(len(fields)))
	for _, f := range fields {
		b = msgp.AppendString(msgp.AppendString(b, f.name), f.text)
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
