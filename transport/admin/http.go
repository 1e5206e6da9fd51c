package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"

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

// readJSON reads a body into v. A field that v does not have is refused: a condition or a role
// under a name that is not known would otherwise leave a rule without it.
func readJSON(w http.ResponseWriter, r *http.Request, v any) bool {
	body, ok := readBody(w, r)
	if !ok {
		return false
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	decoder.UseNumber()
	err := decoder.Decode(v)
	if _, more := decoder.Token(); err == nil && !errors.Is(more, io.EOF) {
		err = errTrailing
	}
	return err == nil || refuseJSON(w, err)
}

// readKnownJSON is readJSON that passes over fields that v does not have.
func readKnownJSON(w http.ResponseWriter, r *http.Request, v any) bool {
	body, ok := readBody(w, r)
	if !ok {
		return false
	}
	err := json.Unmarshal(body, v)
	return err == nil || refuseJSON(w, err)
}

var errTrailing = errors.New("something follows the JSON value")

// refuseJSON answers a request whose body cannot be used; it returns false.
func refuseJSON(w http.ResponseWriter, err error) bool {
	var shape *json.UnmarshalTypeError
	unknown, isUnknown := strings.CutPrefix(err.Error(), "json: unknown field ") // it has no type
	switch {
	case isUnknown:
		httperr.WriteField(w, http.StatusBadRequest, "is no field of this request", strings.Trim(unknown, `"`))
	case errors.As(err, &shape):
		httperr.WriteField(w, http.StatusUnprocessableEntity, "the body has the wrong shape", fieldOf(shape))
	default:
		httperr.Write(w, http.StatusBadRequest, "the body is not JSON")
	}
	return false
}

// fieldOf is the field that has another shape. The names of embedded types, which are in upper
// case, are not in the body.
func fieldOf(err *json.UnmarshalTypeError) string {
	path := strings.Split(err.Field, ".")
	path = slices.DeleteFunc(path, func(name string) bool { return name != "" && name[0] >= 'A' && name[0] <= 'Z' })
	return strings.Join(path, ".")
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
