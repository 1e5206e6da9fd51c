// Package httperr renders the failures of HTTP endpoints: a status and a JSON body
// {"code", "message"} whose code repeats the status, with "field" where one field of the
// request is to blame.
package httperr

import "net/http"

type body struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Field   string `json:"field,omitempty"`
}

// Write answers a request with status and a message for the client.
func Write(w http.ResponseWriter, status int, message string) {
	write(w, status, body{Code: status, Message: message})
}

// Unavailable answers 503 and tells the client to come back soon.
func Unavailable(w http.ResponseWriter, message string) {
	w.Header().Set("Retry-After", "1")
	Write(w, http.StatusServiceUnavailable, message)
}
