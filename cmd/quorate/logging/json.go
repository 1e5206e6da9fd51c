package logging

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// event is the JSON shape of one log line.
type event struct {
	Timestamp string                     `json:"timestamp"`
	Level     string                     `json:"level"`
	Target    string                     `json:"target"`
	Fields    map[string]json.RawMessage `json:"fields"`
	NodeID    string                     `json:"node_id,omitempty"`
}

// jsonWriter turns the JSON lines of hclog into events. hclog writes one line per
// call, and never concurrently.
type jsonWriter struct {
	out    io.Writer
	nodeID string
}

// Write implements io.Writer.
func (w *jsonWriter) Write(p []byte) (int, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(p, &fields); err != nil {
		return 0, fmt.Errorf("reshape log line: %w", err)
	}
	e := event{
		Timestamp: take(fields, "@timestamp"),
		Level:     strings.ToUpper(take(fields, "@level")),
		Target:    take(fields, "@module"),
		NodeID:    w.nodeID,
		Fields:    fields,
	}
	if e.Target == "" {
		e.Target = program
	}
	fields["message"] = fields["@message"]
	delete(fields, "@message")
	var line bytes.Buffer
	enc := json.NewEncoder(&line)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(e); err != nil {
		return 0, fmt.Errorf("reshape log line: %w", err)
	}
	if _, err := w.out.Write(line.Bytes()); err != nil {
		return 0, err
	}
	return len(p), nil
}

// take removes a string field.
func take(fields map[string]json.RawMessage, key string) string {
	var text string
	if raw, ok := fields[key]; ok {
		// hclog writes these as strings; anything else reads as empty.
		_ = json.Unmarshal(raw, &text)
		delete(fields, key)
	}
	return text
}
