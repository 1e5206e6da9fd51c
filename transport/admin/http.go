package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/transport/auth"
	"github.com/quorate/quorate/transport/httperr"
	"github.com/quorate/quorate/transport/policy"
)

func withCaller(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, callerKey{}, name)
}

// requestID is the id of the request that w answers.
func requestID(w http.ResponseWriter) string { return w.Header().Get("X-Request-Id") }

func writeJSON(w http.ResponseWriter, status int, body any) {
	b, err := json.Marshal(body)
	if err != nil {
		httperr.Write(w, http.StatusInternalServerError, "the answer cannot be encoded")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(b) // a client that is gone needs no answer
}

// readBody reads a JSON body, and answers the request if there is none.
func readBody(w http.ResponseWriter, r *http.Request) (body []byte, ok bool) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		httperr.Write(w, http.StatusUnsupportedMediaType, "the body must be application/json")
		return nil, false
	}
	body, err := io.ReadAll(r.Body)
	var tooLarge *http.MaxBytesError
	var slow interface{ Timeout() bool }
	switch {
	case err == nil:
		return body, true
	case errors.As(err, &tooLarge):
		httperr.Write(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("request body is larger than %d bytes", tooLarge.Limit))
	case errors.As(err, &slow) && slow.Timeout():
		httperr.Write(w, http.StatusRequestTimeout, "request body came too slowly")
	default:
		httperr.Write(w, http.StatusBadRequest, "request body could not be read")
	}
	return nil, false
}

// readJSON reads a body into v; fields that v does not have are passed over.
func readJSON(w http.ResponseWriter, r *http.Request, v any) bool {
	body, ok := readBody(w, r)
	if !ok {
		return false
	}
	err := json.Unmarshal(body, v)
	var shape *json.UnmarshalTypeError
	switch {
	case err == nil:
		return true
	case errors.As(err, &shape):
		httperr.WriteField(w, http.StatusUnprocessableEntity, "the body has the wrong shape", shape.Field)
	default:
		httperr.Write(w, http.StatusBadRequest, "the body is not JSON")
	}
	return false
}

// failed answers a request that could not be carried out.
func (h *Handler) failed(w http.ResponseWriter, r *http.Request, err error) {
	h.log.Info("request failed", "method", r.Method, "path", r.URL.Path, "request_id", requestID(w), "err", err)
	var field *policy.FieldError
	var node *NodeError
	var index *partitions.IndexError
	switch {
	case errors.As(err, &node):
		httperr.Write(w, http.StatusBadGateway, node.Error())
	case errors.As(err, &field):
		httperr.WriteField(w, http.StatusBadRequest, field.Reason, field.Field)
	case errors.Is(err, auth.ErrBadSubject), errors.Is(err, auth.ErrTooManyRevocations):
		httperr.WriteField(w, http.StatusBadRequest, err.Error(), "subject")
	case errors.As(err, &index):
		httperr.WriteField(w, http.StatusBadRequest, index.Reason, index.Field)
	case errors.Is(err, ErrUnknownNode), errors.Is(err, ErrUnknownGroup), errors.Is(err, partitions.ErrNoIndex):
		httperr.Write(w, http.StatusNotFound, err.Error())
	case errors.Is(err, partitions.ErrIndexUnsupported):
		httperr.Write(w, http.StatusNotImplemented, err.Error())
	case errors.Is(err, partitions.ErrConflict), errors.Is(err, ErrNoTransfer), errors.Is(err, partitions.ErrIndexExists), errors.Is(err, partitions.ErrTooManyIndexes):
		httperr.Write(w, http.StatusConflict, err.Error())
	case errors.Is(err, partitions.ErrUnavailable):
		httperr.Unavailable(w, "the cluster cannot take changes now, nothing was changed")
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), errors.Is(err, partitions.ErrUnknown):
		httperr.Write(w, http.StatusGatewayTimeout, "the outcome is not known, look again")
	default:
		httperr.Write(w, http.StatusInternalServerError, "the request failed")
	}
}
