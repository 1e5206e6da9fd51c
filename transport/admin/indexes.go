package admin

import (
	"context"
	"errors"
	"net/http"

	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/transport/judge"
	"github.com/quorate/quorate/transport/policy"
)

// indexRequest asks for an index. Type is hash or navigable.
type indexRequest struct {
	MapName   string `json:"mapName"`
	Attribute string `json:"attribute"`
	Type      string `json:"indexType"`
}

// indexBody is an index with the number of its entries on this node.
type indexBody struct {
	MapName    string `json:"mapName"`
	Attribute  string `json:"attribute"`
	Type       string `json:"indexType"`
	EntryCount int    `json:"entryCount"`
	// Incomplete: some groups are not held by this node, and not counted.
	Incomplete bool `json:"incomplete,omitempty"`
}

type indexesBody struct {
	Indexes []indexBody `json:"indexes"`
}

// The kinds of building.
const (
	backfill       = "backfill"
	startupRebuild = "startupRebuild"
)

// indexStatusBody says how far an index is built on this node.
type indexStatusBody struct {
	MapName   string `json:"mapName"`
	Attribute string `json:"attribute"`
	// Total is the keys of the map, Processed those that were looked at.
	Total     int  `json:"total"`
	Processed int  `json:"processed"`
	Done      bool `json:"done"`
	// RebuildType is backfill, or startupRebuild if the index is older than the state in
	// memory.
	RebuildType string `json:"rebuildType"`
	Incomplete  bool   `json:"incomplete,omitempty"`
}

func (h *Handler) listIndexes(w http.ResponseWriter, r *http.Request) {
	b, ok := h.backend(w)
	if !ok {
		return
	}
	list, err := definitions(b)
	if err != nil {
		h.failed(w, r, err)
		return
	}
	body := indexesBody{Indexes: make([]indexBody, len(list))}
	for i, d := range list {
		s := b.IndexStat(d)
		body.Indexes[i] = indexBody{d.MapName, d.Attribute, d.Type, s.Entries, s.Incomplete}
	}
	writeJSON(w, http.StatusOK, body)
}

// definitions are the indexes that are defined as this node follows them.
func definitions(b Backend) ([]partitions.IndexDefinition, error) {
	document, _ := b.Document(partitions.IndexDocument)
	return partitions.Indexes(document)
}

func (h *Handler) createIndex(w http.ResponseWriter, r *http.Request) {
	var request indexRequest
	if !readJSON(w, r, &request) {
		return
	}
	d := partitions.IndexDefinition{MapName: request.MapName, Attribute: request.Attribute, Type: request.Type}
	err := checkIndex(d)
	if err == nil {
		err = h.amendIndexes(w, r, func(document []byte) ([]byte, error) { return partitions.WithIndex(document, d) })
	}
	switch {
	case errors.Is(err, errNoBackend):
	case err != nil:
		h.failed(w, r, err)
	default:
		h.audit.Warn("index created", "map", d.MapName, "attribute", d.Attribute, "type", d.Type, "user", caller(r), "addr", r.RemoteAddr, "request_id", requestID(w))
		writeJSON(w, http.StatusCreated, indexBody{MapName: d.MapName, Attribute: d.Attribute, Type: d.Type})
	}
}

// checkIndex reports what of a definition is wrong.
func checkIndex(d partitions.IndexDefinition) error {
	if refusal := judge.Map(d.MapName); refusal.Refused() {
		return &policy.FieldError{Field: "mapName", Reason: refusal.Reason}
	}
	return partitions.CheckIndex(d)
}

func (h *Handler) dropIndex(w http.ResponseWriter, r *http.Request) {
	mapName, attribute := r.PathValue("map"), r.PathValue("attribute")
	err := h.amendIndexes(w, r, func(document []byte) ([]byte, error) { return partitions.WithoutIndex(document, mapName, attribute) })
	switch {
	case errors.Is(err, errNoBackend):
	case err != nil:
		h.failed(w, r, err)
	default:
		h.audit.Warn("index dropped", "map", shown(mapName), "attribute", shown(attribute), "user", caller(r), "addr", r.RemoteAddr, "request_id", requestID(w))
		w.WriteHeader(http.StatusNoContent)
	}
}

// amendIndexes replaces the definitions by what change makes of them. Of errNoBackend the
// client was told.
func (h *Handler) amendIndexes(w http.ResponseWriter, r *http.Request, change func(document []byte) ([]byte, error)) error {
	b, ok := h.backend(w)
	if !ok {
		return errNoBackend
	}
	ctx, cancel := context.WithTimeout(r.Context(), h.cfg.ChangeTimeout)
	defer cancel()
	return amend(ctx, b, partitions.IndexDocument, change)
}

func (h *Handler) indexStatus(w http.ResponseWriter, r *http.Request) {
	b, ok := h.backend(w)
	if !ok {
		return
	}
	list, err := definitions(b)
	if err != nil {
		h.failed(w, r, err)
		return
	}
	for _, d := range list {
		if d.MapName != r.PathValue("map") || d.Attribute != r.PathValue("attribute") {
			continue
		}
		s := b.IndexStat(d)
		kind := backfill
		if s.Restart {
			kind = startupRebuild
		}
		writeJSON(w, http.StatusOK, indexStatusBody{d.MapName, d.Attribute, s.Total, s.Processed, s.Done, kind, s.Incomplete})
		return
	}
	h.failed(w, r, partitions.ErrNoIndex)
}
