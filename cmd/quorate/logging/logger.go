// Package logging builds the server's logger: hclog with the filter syntax and
// the JSON shape that tools around servers of this protocol expect.
package logging

import (
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
)

// program names the root logger's target in JSON and in filters.
const program = "quorate"

// Config says what is logged and how.
type Config struct {
	// Filter is an expression as ParseFilter reads it.
	Filter string
	// JSON selects one JSON object per line instead of text.
	JSON bool
	// NodeID is added to every JSON object. Empty means none.
	NodeID string
	// Out receives whole lines, one per Write.
	Out io.Writer
}

// Levels is the filter of a tree of loggers, which can be changed while they are used. It
// is safe for concurrent use.
type Levels struct {
	filter atomic.Pointer[Filter]
}

// Set puts a filter expression into force, or says why it cannot be read.
func (l *Levels) Set(text string) error {
	filter, err := ParseFilter(text)
	if err != nil {
		return err
	}
	l.filter.Store(&filter)
	return nil
}

// Check says why a filter expression cannot be read.
func (l *Levels) Check(text string) error {
	_, err := ParseFilter(text)
	return err
}

// New returns the root logger and its filter. A filter that cannot be read is replaced by
// info, and one warning is logged.
func New(cfg Config) (hclog.Logger, *Levels) {
	levels := &Levels{}
	levels.filter.Store(&Filter{fallback: hclog.Info})
	err := levels.Set(cfg.Filter)
	out := cfg.Out
	if cfg.JSON {
		out = &jsonWriter{out: cfg.Out, nodeID: cfg.NodeID}
	}
	logger := filtered{levels: levels, Logger: hclog.New(&hclog.LoggerOptions{
		Level:              hclog.Trace,
		Output:             out,
		JSONFormat:         cfg.JSON,
		JSONEscapeDisabled: true,
		TimeFormat:         "2006-01-02T15:04:05.000000Z07:00",
		TimeFn:             func() time.Time { return time.Now().UTC() },
	})}
	if err != nil {
		logger.Warn("log filter cannot be read, using info", "err", err)
	}
	return logger, levels
}

// LineWriter makes whole writes to one stream exclude each other, so that lines of
// different writers do not mix. It is safe for concurrent use.
type LineWriter struct {
	mu  sync.Mutex // protects out
	out io.Writer
}

// NewLineWriter returns a LineWriter on out.
func NewLineWriter(out io.Writer) *LineWriter { return &LineWriter{out: out} }

// Write implements io.Writer.
func (w *LineWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.out.Write(p)
}
