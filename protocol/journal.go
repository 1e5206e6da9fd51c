package protocol

import "github.com/tinylib/msgp/msgp"

// JournalEventType says what a journal entry records.
type JournalEventType string

// The journal event types.
const (
	JournalPut    JournalEventType = "PUT"
	JournalUpdate JournalEventType = "UPDATE"
	JournalDelete JournalEventType = "DELETE"
)

// JournalEntry is one change in the event journal.
type JournalEntry struct {
	// Sequence is a decimal integer.
	Sequence      string           `wire:"sequence"`
	Type          JournalEventType `wire:"type"`
	MapName       string           `wire:"mapName"`
	Key           string           `wire:"key"`
	Value         msgp.Raw         `wire:"value,optional"`
	PreviousValue msgp.Raw         `wire:"previousValue,optional"`
	Timestamp     Timestamp        `wire:"timestamp"`
	// NodeID repeats Timestamp.NodeID.
	NodeID   string   `wire:"nodeId"`
	Metadata msgp.Raw `wire:"metadata,optional"`
}

// JournalSubscribe is JOURNAL_SUBSCRIBE: follow the journal.
type JournalSubscribe struct {
	// RequestID is also the subscription id.
	RequestID string `wire:"requestId"`
	// FromSequence asks for retained events from there on, inclusive.
	FromSequence string `wire:"fromSequence,optional"`
	// MapName and Types filter; empty passes all.
	MapName string             `wire:"mapName,optional"`
	Types   []JournalEventType `wire:"types,optional"`
}

// Kind implements Message.
func (*JournalSubscribe) Kind() Kind { return KindJournalSubscribe }

// Correlation is the request id.
func (m *JournalSubscribe) Correlation() string { return m.RequestID }

// JournalUnsubscribe is JOURNAL_UNSUBSCRIBE. It has no answer.
type JournalUnsubscribe struct {
	SubscriptionID string `wire:"subscriptionId"`
}

// Kind implements Message.
func (*JournalUnsubscribe) Kind() Kind { return KindJournalUnsubscribe }

// Correlation is the subscription id.
func (m *JournalUnsubscribe) Correlation() string { return m.SubscriptionID }

// JournalEvent is JOURNAL_EVENT: one entry, for a subscriber.
type JournalEvent struct {
	JournalEntry
}

// Kind implements Message.
func (*JournalEvent) Kind() Kind { return KindJournalEvent }

// JournalRead is JOURNAL_READ: read retained entries.
type JournalRead struct {
	RequestID string `wire:"requestId"`
	// FromSequence is the first entry to read.
	FromSequence string `wire:"fromSequence"`
	// Limit is the number of entries; absent is 100.
	Limit   *int64 `wire:"limit,optional"`
	MapName string `wire:"mapName,optional"`
}

// Kind implements Message.
func (*JournalRead) Kind() Kind { return KindJournalRead }

// Correlation is the request id.
func (m *JournalRead) Correlation() string { return m.RequestID }

// JournalReadResponse is JOURNAL_READ_RESPONSE.
type JournalReadResponse struct {
	RequestID string         `wire:"requestId"`
	Events    []JournalEntry `wire:"events"`
	HasMore   bool           `wire:"hasMore"`
}

// Kind implements Message.
func (*JournalReadResponse) Kind() Kind { return KindJournalReadResponse }
