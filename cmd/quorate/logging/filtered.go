package logging

import (
	"encoding"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
)

// filtered is a logger that asks the filter for each event, by its own name.
type filtered struct {
	hclog.Logger
	levels *Levels
}

func (f filtered) enabled(level hclog.Level) bool {
	name := f.Name()
	if name == "" {
		name = program
	}
	return level >= f.levels.filter.Load().Level(name)
}

// Log implements hclog.Logger.
func (f filtered) Log(level hclog.Level, msg string, args ...any) {
	if f.enabled(level) {
		f.Logger.Log(level, msg, texts(args)...)
	}
}

// texts is args with the values that say what they are as text in place of those that JSON would
// show as their insides, or as a bare number. Durations stay numbers, for who computes with them.
func texts(args []any) []any {
	copied := false
	for i, arg := range args {
		switch arg.(type) {
		case time.Duration, time.Time, error, json.Marshaler, encoding.TextMarshaler:
			continue
		}
		if _, ok := arg.(fmt.Stringer); !ok {
			continue
		}
		if !copied {
			args, copied = slices.Clone(args), true
		}
		args[i] = fmt.Sprint(arg)
	}
	return args
}

// Trace implements hclog.Logger.
func (f filtered) Trace(msg string, args ...any) { f.Log(hclog.Trace, msg, args...) }

// Debug implements hclog.Logger.
func (f filtered) Debug(msg string, args ...any) { f.Log(hclog.Debug, msg, args...) }

// Info implements hclog.Logger.
func (f filtered) Info(msg string, args ...any) { f.Log(hclog.Info, msg, args...) }

// Warn implements hclog.Logger.
func (f filtered) Warn(msg string, args ...any) { f.Log(hclog.Warn, msg, args...) }

// Error implements hclog.Logger.
func (f filtered) Error(msg string, args ...any) { f.Log(hclog.Error, msg, args...) }

// IsTrace implements hclog.Logger.
func (f filtered) IsTrace() bool { return f.enabled(hclog.Trace) }

// IsDebug implements hclog.Logger.
func (f filtered) IsDebug() bool { return f.enabled(hclog.Debug) }

// IsInfo implements hclog.Logger.
func (f filtered) IsInfo() bool { return f.enabled(hclog.Info) }

// IsWarn implements hclog.Logger.
func (f filtered) IsWarn() bool { return f.enabled(hclog.Warn) }

// IsError implements hclog.Logger.
func (f filtered) IsError() bool { return f.enabled(hclog.Error) }

// With implements hclog.Logger.
func (f filtered) With(args ...any) hclog.Logger { return filtered{f.Logger.With(args...), f.levels} }

// Named implements hclog.Logger.
func (f filtered) Named(name string) hclog.Logger {
	return filtered{f.Logger.Named(name), f.levels}
}

// ResetNamed implements hclog.Logger.
func (f filtered) ResetNamed(name string) hclog.Logger {
	return filtered{f.Logger.ResetNamed(name), f.levels}
}

// SetLevel implements hclog.Logger. The filter alone decides.
func (f filtered) SetLevel(hclog.Level) {}

// GetLevel implements hclog.Logger.
func (f filtered) GetLevel() hclog.Level {
	for _, level := range []hclog.Level{hclog.Trace, hclog.Debug, hclog.Info, hclog.Warn, hclog.Error} {
		if f.enabled(level) {
			return level
		}
	}
	return hclog.Off
}

// StandardLogger implements hclog.Logger.
func (f filtered) StandardLogger(opts *hclog.StandardLoggerOptions) *log.Logger {
	return log.New(f.StandardWriter(opts), "", 0)
}

// StandardWriter implements hclog.Logger. Lines are events of the forced level.
func (f filtered) StandardWriter(opts *hclog.StandardLoggerOptions) io.Writer {
	level := hclog.Info
	if opts != nil && opts.ForceLevel != hclog.NoLevel {
		level = opts.ForceLevel
	}
	return lineEvents{f, level}
}

// lineEvents turns written lines into events.
type lineEvents struct {
	log   filtered
	level hclog.Level
}

// Write implements io.Writer.
func (l lineEvents) Write(p []byte) (int, error) {
	text := string(p)
	for len(text) > 0 && (text[len(text)-1] == '\n' || text[len(text)-1] == '\r') {
		text = text[:len(text)-1]
	}
	l.log.Log(l.level, text)
	return len(p), nil
}
