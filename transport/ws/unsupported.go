package ws

import (
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/transport/judge"
)

// receiveUnsupported answers a message of a feature that this server does not have.
// Where clients wait for a response of a certain type they get that type with its
// error, because an ERROR settles nothing for them. What has no answer in the
// protocol, and what only servers send, is passed over.
func (c *conn) receiveUnsupported(m protocol.Message) {
	if answer := unsupported(m); answer != nil {
		c.reply(answer)
	}
}

// unsupported is the answer to m, nil for silence.
func unsupported(m protocol.Message) protocol.Message {
	text := judge.NotImplemented + m.Kind().String()
	switch m := m.(type) {
	case *protocol.SQLQuery:
		return &protocol.SQLQueryResp{QueryID: m.QueryID, Error: text, Code: protocol.CodeFeatureDisabled}
	case *protocol.Search:
		return &protocol.SearchResp{RequestID: m.RequestID, Error: text}
	case *protocol.SearchSub:
		return &protocol.SearchResp{RequestID: m.SubscriptionID, Error: text}
	case *protocol.VectorSearch:
		return &protocol.VectorSearchResp{ID: m.ID, Error: text}
	case *protocol.HybridSearch:
		return &protocol.HybridSearchResp{RequestID: m.RequestID, Error: text}
	case *protocol.HybridSearchSub:
		return &protocol.HybridSearchResp{RequestID: m.SubscriptionID, Error: text}
	case *protocol.EntryProcess:
		return &protocol.EntryProcessResponse{RequestID: m.RequestID, EntryResult: protocol.EntryResult{Error: text}}
	case *protocol.EntryProcessBatch:
		if len(m.Keys) > protocol.MaxBatchItems { // the answer is larger than the question
			return failureOf(m, protocol.CodeTooLarge, "too many keys")
		}
		results := make(map[string]protocol.EntryResult, len(m.Keys))
		for _, key := range m.Keys {
			results[key] = protocol.EntryResult{Error: text}
		}
		return &protocol.EntryProcessBatchResponse{RequestID: m.RequestID, Results: results}
	case *protocol.RegisterResolver:
		return &protocol.RegisterResolverResponse{RequestID: m.RequestID, Error: text}
	case *protocol.UnregisterResolver:
		return &protocol.UnregisterResolverResponse{RequestID: m.RequestID, Error: text}
	case *protocol.ListResolvers: // none can be registered
		return &protocol.ListResolversResponse{RequestID: m.RequestID}
	default:
		if silent(m.Kind()) {
			return nil
		}
		return failureOf(m, protocol.CodeNotImplemented, text)
	}
}

// silent reports whether messages of a kind are never answered: the protocol has no
// answer for them, or clients do not send them.
func silent(kind protocol.Kind) bool {
	switch kind {
	case protocol.KindQuerySyncInit, protocol.KindHybridQuerySubscribe, protocol.KindHybridQueryUnsubscribe,
		protocol.KindClientApplyAck, protocol.KindSearchUnsub, protocol.KindHybridSearchUnsub,
		protocol.KindTopicUnsub, protocol.KindJournalUnsubscribe:
		return true
	default:
		return kind.Direction() != protocol.ClientToServer
	}
}
