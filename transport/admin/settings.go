package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/transport/httperr"
)

// settingsDocument is the name of the replicated document of changed settings.
const settingsDocument = "settings"

// Fixed are the settings that cannot be changed while the server runs.
type Fixed struct {
	NodeID                    string `json:"nodeId"`
	DefaultOperationTimeoutMs int64  `json:"defaultOperationTimeoutMs"`
	PartitionCount            int    `json:"partitionCount"`
	Host                      string `json:"host"`
	Port                      int    `json:"port"`
	RequireAuth               bool   `json:"requireAuth"`
	MaxValueBytes             int    `json:"maxValueBytes"`
	IdleTimeoutMs             int64  `json:"idleTimeoutMs"`
	SendTimeoutMs             int64  `json:"sendTimeoutMs"`
	OutboundChannelCapacity   int    `json:"outboundChannelCapacity"`
	// MaxSockets is how many TCP connections the node takes, WebSocket connections among them,
	// whatever MaxConnections says; 0 is no bound.
	MaxSockets int `json:"maxSockets"`
}

// Runtime are the settings that can be changed, on all nodes together.
type Runtime struct {
	// LogLevel is a log filter.
	LogLevel string `json:"logLevel"`
	// GCIntervalMs is the pace of collecting tombstones.
	GCIntervalMs            int64 `json:"gcIntervalMs"`
	MaxConcurrentOperations int   `json:"maxConcurrentOperations"`
	// MaxConnections bounds the connections of a node, OperationsPerSecond the sustained
	// rate of each.
	MaxConnections      int `json:"maxConnections"`
	OperationsPerSecond int `json:"operationsPerSecond"`
}

// Change asks for other settings; what is nil stays.
type Change struct {
	LogLevel                *string `json:"logLevel,omitempty"`
	GCIntervalMs            *int64  `json:"gcIntervalMs,omitempty"`
	MaxConcurrentOperations *int64  `json:"maxConcurrentOperations,omitempty"`
	MaxConnections          *int64  `json:"maxConnections,omitempty"`
	OperationsPerSecond     *int64  `json:"operationsPerSecond,omitempty"`
}

// Settings is what GET and PUT show: the values in force on the node that answers.
type Settings struct {
	Fixed
	Runtime
	// Sources tells of each setting that can be changed whether its value comes from the
	// configuration of the node or was changed at run time.
	Sources map[string]string `json:"sources"`
	// Version counts the changes.
	Version uint64 `json:"version"`
}

// bounds of the numbers that can be changed.
var bounds = map[string][2]int64{
	"gcIntervalMs":            {1000, 24 * 3_600_000},
	"maxConcurrentOperations": {1, 1_000_000},
	"maxConnections":          {1, 10_000_000},
	"operationsPerSecond":     {1, 10_000_000},
}

const settingsFormat = 1

// storedSettings is the document.
type storedSettings struct {
	Format int    `json:"format"`
	Values Change `json:"values"`
}

// settingsState is what is in force on this node.
type settingsState struct {
	// mu protects the fields below.
	mu      sync.Mutex
	now     Runtime
	changed Change
	version uint64
}

// Follow puts the replicated settings into force on this node; it is called after each
// change of the cluster's documents.
func (h *Handler) Follow() {
	b := h.deps.Backend()
	if b == nil {
		return
	}
	h.applied.mu.Lock()
	defer h.applied.mu.Unlock()
	value, version := b.Document(settingsDocument)
	if version <= h.applied.version {
		return
	}
	changed, err := decodeSettings(value)
	if err != nil {
		h.log.Error("settings of the cluster cannot be read, the earlier ones stay in force", "version", version, "err", err)
		h.applied.version = version
		return
	}
	next := changed.on(h.cfg.Defaults)
	h.applied.version = version
	h.applied.changed, h.applied.now = changed, next
	if h.deps.Apply != nil {
		if err := h.deps.Apply(next); err != nil {
			h.log.Error("settings could not be put into force", "version", version, "err", err)
			return
		}
	}
	h.log.Info("settings in force", "version", version)
}

func decodeSettings(value []byte) (Change, error) {
	if len(value) == 0 {
		return Change{}, nil
	}
	var s storedSettings
	if err := json.Unmarshal(value, &s); err != nil {
		return Change{}, fmt.Errorf("decode settings: %w", err)
	}
	if s.Format != settingsFormat {
		return Change{}, fmt.Errorf("decode settings: format %d", s.Format)
	}
	for name, value := range s.Values.numbers() {
		if limits := bounds[name]; value != nil && (*value < limits[0] || *value > limits[1]) {
			return Change{}, fmt.Errorf("decode settings: %s is %d", name, *value)
		}
	}
	return s.Values, nil
}

// numbers are the settings that have bounds.
func (c Change) numbers() map[string]*int64 {
	return map[string]*int64{
		"gcIntervalMs": c.GCIntervalMs, "maxConcurrentOperations": c.MaxConcurrentOperations,
		"maxConnections": c.MaxConnections, "operationsPerSecond": c.OperationsPerSecond,
	}
}

// on is what is in force when c changes from.
func (c Change) on(from Runtime) Runtime {
	if c.LogLevel != nil {
		from.LogLevel = *c.LogLevel
	}
	if c.GCIntervalMs != nil {
		from.GCIntervalMs = *c.GCIntervalMs
	}
	for to, value := range map[*int]*int64{
		&from.MaxConcurrentOperations: c.MaxConcurrentOperations, &from.MaxConnections: c.MaxConnections, &from.OperationsPerSecond: c.OperationsPerSecond,
	} {
		if value != nil {
			*to = int(*value)
		}
	}
	return from
}

// with is c after another change.
func (c Change) with(next Change) Change {
	if next.LogLevel != nil {
		c.LogLevel = next.LogLevel
	}
	for _, f := range []struct{ to, from **int64 }{
		{&c.GCIntervalMs, &next.GCIntervalMs}, {&c.MaxConcurrentOperations, &next.MaxConcurrentOperations},
		{&c.MaxConnections, &next.MaxConnections}, {&c.OperationsPerSecond, &next.OperationsPerSecond},
	} {
		if *f.from != nil {
			*f.to = *f.from
		}
	}
	return c
}

// sources tells where the values come from.
func (c Change) sources() map[string]string {
	list := map[string]string{}
	for name, set := range map[string]bool{
		"logLevel": c.LogLevel != nil, "gcIntervalMs": c.GCIntervalMs != nil, "maxConcurrentOperations": c.MaxConcurrentOperations != nil,
		"maxConnections": c.MaxConnections != nil, "operationsPerSecond": c.OperationsPerSecond != nil,
	} {
		list[name] = "configuration"
		if set {
			list[name] = "runtime"
		}
	}
	return list
}

func (h *Handler) settings() Settings {
	h.applied.mu.Lock()
	defer h.applied.mu.Unlock()
	return Settings{Fixed: h.cfg.Fixed, Runtime: h.applied.now, Sources: h.applied.changed.sources(), Version: h.applied.version}
}

// SetPort tells the settings which port was bound.
func (h *Handler) SetPort(port int) { h.cfg.Fixed.Port = port }

func (h *Handler) getSettings(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, h.settings())
}

func (h *Handler) putSettings(w http.ResponseWriter, r *http.Request) {
	body, ok := readBody(w, r)
	if !ok {
		return
	}
	change, field, reason := h.parseChange(body)
	if reason != "" {
		httperr.WriteField(w, http.StatusBadRequest, reason, field)
		return
	}
	b, ok := h.backend(w)
	if !ok {
		return
	}
	if change == (Change{}) {
		writeJSON(w, http.StatusOK, h.settings())
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), h.cfg.ChangeTimeout)
	defer cancel()
	err := amend(ctx, b, settingsDocument, func(value []byte) ([]byte, error) {
		now, err := decodeSettings(value)
		if err != nil {
			return nil, err
		}
		return json.Marshal(storedSettings{Format: settingsFormat, Values: now.with(change)})
	})
	if err != nil {
		h.failed(w, r, err)
		return
	}
	h.Follow()
	h.audit.Info("settings changed", "user", caller(r), "addr", r.RemoteAddr, "request_id", requestID(w), "change", string(body))
	writeJSON(w, http.StatusOK, h.settings())
}

// conflictPause is the first pause before a change is tried again on what others wrote.
const conflictPause = 20 * time.Millisecond

// amend replaces a document by what change makes of it, also when others change it at the
// same time. change is shown what was committed before the request: where it changes nothing,
// nothing is proposed by which a node that lags behind would find out.
func amend(ctx context.Context, b Backend, name string, change func(value []byte) ([]byte, error)) error {
	const attempts = 10
	if err := b.FreshDocuments(ctx); err != nil {
		return err
	}
	for attempt := 1; ; attempt++ {
		value, version := b.Document(name)
		next, err := change(value)
		if err != nil {
			return err
		}
		if bytes.Equal(next, value) {
			return nil
		}
		_, err = b.PutDocument(ctx, name, version, next)
		if !errors.Is(err, partitions.ErrConflict) || attempt == attempts {
			return err
		}
		// Somebody was faster, and this node does not follow what he wrote yet.
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Duration(attempt) * conflictPause):
		}
	}
}

// parseChange reads a change, or says which field is wrong and why.
func (h *Handler) parseChange(body []byte) (c Change, field, reason string) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil || fields == nil {
		return c, "", "the body must be a JSON object"
	}
	known := jsonNames(Runtime{})
	fixed := jsonNames(Fixed{})
	names := make([]string, 0, len(fields))
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		switch {
		case slices.Contains(fixed, name):
			return c, name, "cannot be changed while the server runs"
		case !slices.Contains(known, name):
			return c, name, "is no setting"
		}
	}
	for _, name := range names {
		if raw := fields[name]; string(raw) == "null" {
			continue
		} else if reason := h.parseSetting(&c, name, raw); reason != "" {
			if name != "logLevel" {
				name = "" // the interface names the field for these two cases only
			}
			return c, name, reason
		}
	}
	return c, "", ""
}

// parseSetting reads one setting into c.
func (h *Handler) parseSetting(c *Change, name string, raw json.RawMessage) (reason string) {
	if name == "logLevel" {
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return "must be a text"
		}
		if h.deps.Check != nil {
			if err := h.deps.Check(text); err != nil {
				return err.Error()
			}
		}
		c.LogLevel = &text
		return ""
	}
	var n float64
	limits := bounds[name]
	if err := json.Unmarshal(raw, &n); err != nil || n != math.Trunc(n) || n < float64(limits[0]) || n > float64(limits[1]) {
		return fmt.Sprintf("%s must be a whole number from %d to %d", name, limits[0], limits[1])
	}
	whole := int64(n)
	switch name {
	case "gcIntervalMs":
		c.GCIntervalMs = &whole
	case "maxConcurrentOperations":
		c.MaxConcurrentOperations = &whole
	case "maxConnections":
		c.MaxConnections = &whole
	default:
		c.OperationsPerSecond = &whole
	}
	return ""
}
