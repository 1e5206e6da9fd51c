package transport

import (
	"crypto/rand"
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/quorate/quorate/transport/httperr"
)

const (
	requestIDHeader = "X-Request-Id"
	maxRequestID    = 128
)

// routes is the handler of the listener. Paths that the interface names and this
// server does not have yet answer 501, so that a client can tell them from a typing
// mistake.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	s.health.Register(mux)
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.deps.Gatherer, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))
	mux.Handle("GET /ws", s.ws)
	mux.Handle("GET /{$}", s.ws)
	mux.Handle("POST /sync", s.sync)
	for _, path := range []string{"/api/", "/admin", "/admin/"} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			httperr.Write(w, http.StatusNotImplemented, "not implemented")
		})
	}
	return s.common(mux)
}

// common does what is the same for all requests.
func (s *Server) common(mux *http.ServeMux) http.Handler {
	requests := promauto.With(s.deps.Registerer).NewCounterVec(prometheus.CounterOpts{
		Name: "service_http_requests_total", Help: "HTTP requests by route.",
	}, []string{"route"})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set(requestIDHeader, requestID(r))
		h.Set("X-Content-Type-Options", "nosniff")
		if r.ContentLength > s.cfg.MaxBodyBytes {
			h.Set("Connection", "close") // the body is not read
			httperr.Write(w, http.StatusRequestEntityTooLarge, "request body is too large")
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, s.cfg.MaxBodyBytes)
		_, route := mux.Handler(r)
		requests.WithLabelValues(route).Inc()
		if route == "" {
			s.unrouted(mux, w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// unrouted answers requests that no route takes.
func (s *Server) unrouted(mux *http.ServeMux, w http.ResponseWriter, r *http.Request) {
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		probe := r.Clone(r.Context())
		probe.Method = method
		if _, route := mux.Handler(probe); route != "" {
			w.Header().Set("Allow", method)
			httperr.Write(w, http.StatusMethodNotAllowed, "method is not allowed")
			return
		}
	}
	httperr.Write(w, http.StatusNotFound, "no such path")
}

// requestID is the id that the client gave its request, if it is printable and not
// too long, otherwise a new random UUID.
func requestID(r *http.Request) string {
	id := r.Header.Get(requestIDHeader)
	if id == "" || len(id) > maxRequestID {
		return newUUID()
	}
	for i := range len(id) {
		if id[i] <= ' ' || id[i] > '~' {
			return newUUID()
		}
	}
	return id
}

// newUUID is a random UUID, version 4 (RFC 9562 section 5.4).
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, see crypto/rand
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
