package transport

import (
	"net/http"
	"slices"
	"strings"
)

// preflightLife is how long browsers remember what they may send, in seconds.
const preflightLife = "86400"

// cors tells browsers which pages may read answers, and answers their questions before
// other requests; done says that it did. Pages that are not allowed get nothing, and
// their browser keeps the answer from them.
func (s *Server) cors(w http.ResponseWriter, r *http.Request) (done bool) {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return false
	}
	h := w.Header()
	h.Add("Vary", "Origin")
	allowed := s.cfg.WebSocket.AllowedOrigins
	everybody := slices.Contains(allowed, "*")
	listed := slices.ContainsFunc(allowed, func(a string) bool { return strings.EqualFold(a, origin) })
	if listed || everybody {
		h.Set("Access-Control-Allow-Origin", origin)
		h.Set("Access-Control-Expose-Headers", requestIDHeader+", Retry-After")
		if everybody {
			h.Set("Access-Control-Allow-Origin", "*")
		} else {
			h.Set("Access-Control-Allow-Credentials", "true")
		}
	}
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	if listed || everybody {
		h.Set("Access-Control-Allow-Methods", "GET, POST, PUT, DELETE, PATCH, OPTIONS")
		h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Accept, "+requestIDHeader)
		h.Set("Access-Control-Max-Age", preflightLife)
	}
	w.WriteHeader(http.StatusNoContent)
	return true
}
