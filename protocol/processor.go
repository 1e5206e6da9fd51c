package protocol

import "github.com/tinylib/msgp/msgp"

// Processor names or holds the function that an entry processor runs.
type Processor struct {
	Name string `wire:"name"`
	// Code is JavaScript source; empty for a built-in.
	Code string   `wire:"code,optional"`
	Args msgp.Raw `wire:"args,optional"`
}

// EntryProcess is ENTRY_PROCESS: change one record atomically.
type EntryProcess struct {
	RequestID string    `wire:"requestId"`
	MapName   string    `wire:"mapName"`
	Key       string    `wire:"key"`
	Processor Processor `wire:"processor"`
}

// Kind implements Message.
func (*EntryProcess) Kind() Kind { return KindEntryProcess }

// Correlation is the request id.
func (m *EntryProcess) Correlation() string { return m.RequestID }

// EntryProcessBatch is ENTRY_PROCESS_BATCH: change several records, each
// atomically.
type EntryProcessBatch struct {
	RequestID string    `wire:"requestId"`
	MapName   string    `wire:"mapName"`
	Keys      []string  `wire:"keys"`
	Processor Processor `wire:"processor"`
}

// Kind implements Message.
func (*EntryProcessBatch) Kind() Kind { return KindEntryProcessBatch }

// Correlation is the request id.
func (m *EntryProcessBatch) Correlation() string { return m.RequestID }

// EntryResult is the outcome for one record.
type EntryResult struct {
	Success bool `wire:"success"`
	// Result is what the processor returned, NewValue the value it stored.
	Result   msgp.Raw `wire:"result,optional"`
	NewValue msgp.Raw `wire:"newValue,optional"`
	Error    string   `wire:"error,optional"`
}

// EntryProcessResponse is ENTRY_PROCESS_RESPONSE.
type EntryProcessResponse struct {
	RequestID string `wire:"requestId"`
	EntryResult
}

// Kind implements Message.
func (*EntryProcessResponse) Kind() Kind { return KindEntryProcessResponse }

// EntryProcessBatchResponse is ENTRY_PROCESS_BATCH_RESPONSE: one result per
// requested key.
type EntryProcessBatchResponse struct {
	RequestID string                 `wire:"requestId"`
	Results   map[string]EntryResult `wire:"results"`
}

// Kind implements Message.
func (*EntryProcessBatchResponse) Kind() Kind { return KindEntryProcessBatchResponse }
