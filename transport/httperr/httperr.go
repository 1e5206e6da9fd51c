// Package httperr renders the failures of HTTP endpoints: a status and a JSON body
// {"code", "message"} whose code repeats the status.
package httperr

import (
	"encoding/json"
	"net/http"
)

type body struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// Write answers a request with status and a message for the client.
func Write(w http.ResponseWriter, status int, message string) {
	b, err := json.Marshal(body{Code: status, Message: message})
	if err != nil {
		w.WriteHeader(status)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(b) // a client that is gone needs no answer
}

// Unavailable answers 503 and tells the client to come back soon.
func Unavailable(w http.ResponseWriter, message string) {
	w.Header().Set("Retry-After", "1")
	Write(w, http.StatusServiceUnavailable, message)
}
