package httperr

import (
	"encoding/json"
	"net/http"
)

// WriteField is Write for a request of which one field is to blame; an empty field is none.
func WriteField(w http.ResponseWriter, status int, message, field string) {
	write(w, status, body{Code: status, Message: message, Field: field})
}

func write(w http.ResponseWriter, status int, answer body) {
	b, err := json.Marshal(answer)
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
