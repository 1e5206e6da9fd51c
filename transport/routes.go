package transport

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"strings"

	"github.com/klauspost/compress/gzhttp"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/quorate/quorate/transport/admin"
	"github.com/quorate/quorate/transport/httperr"
	"github.com/quorate/quorate/transport/ws"
)

const (
	requestIDHeader = "X-Request-Id"
	maxRequestID    = 128
)

// methods are those that some route takes.
var methods = []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete}

// upgrades are the routes of WebSocket connections, which leave HTTP.
var upgrades = []string{"GET /ws", "GET /{$}"}

// described are the routes besides those of package admin, as the description of the
// interface shows them.
func described() []admin.Operation {
	const text, binary = "text/plain", "application/msgpack"
	list := []admin.Operation{
		{Method: "GET", Path: "/health", Summary: "State, uptime and connections of the node", MediaType: "application/json"},
		{Method: "GET", Path: "/health/live", Summary: "200 while the process is alive"},
		{Method: "GET", Path: "/health/ready", Summary: "200 while the node can serve", Failures: []int{503}},
		{Method: "GET", Path: "/healthz", Summary: "As /health/ready", Failures: []int{503}},
		{Method: "GET", Path: "/metrics", Summary: "Metrics in the text format of Prometheus", MediaType: text},
		{Method: "POST", Path: "/sync", Summary: "Writes, deltas and queries of a client in one request", MediaType: binary, Failures: []int{400, 401, 403, 408, 413, 429, 503}},
	}
	for _, path := range []string{"/ws", "/"} {
		list = append(list, admin.Operation{
			Method: "GET", Path: path, Summary: "Upgrade to a WebSocket connection", Status: http.StatusSwitchingProtocols, Failures: []int{403, 426, 503},
		})
	}
	return list
}

// table is a ServeMux that remembers what it takes.
type table struct {
	*http.ServeMux
	patterns []string
}

// Handle registers a route.
func (t *table) Handle(pattern string, h http.Handler) {
	t.patterns = append(t.patterns, pattern)
	t.ServeMux.Handle(pattern, h)
}

// routes is the handler of the listener.
func (s *Server) routes() http.Handler {
	mux := &table{ServeMux: http.NewServeMux()}
	s.health.Register(mux)
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.deps.Gatherer, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))
	for _, route := range upgrades {
		mux.Handle(route, s.underOwnNames(s.ws))
	}
	mux.Handle("POST /sync", s.underOwnNames(s.fromOwnPages(s.sync)))
	s.admin.Register(mux)
	s.patterns = mux.patterns
	return s.common(mux.ServeMux)
}

// fromOwnPages refuses requests that pages of foreign origins send without asking first.
func (s *Server) fromOwnPages(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !ws.OriginAllowed(r, s.cfg.WebSocket.AllowedOrigins) {
			httperr.Write(w, http.StatusForbidden, "origin is not allowed")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// underOwnNames refuses pages that reached a server without authentication on this machine under
// a name of their own, which DNS led here: to the browser they and the server are one host.
func (s *Server) underOwnNames(next http.Handler) http.Handler {
	if !s.cfg.Admin.Open {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		nameless := &http.Request{Header: r.Header}
		if !admin.LocalHost(r.Host) && !ws.OriginAllowed(nameless, s.cfg.WebSocket.AllowedOrigins) {
			httperr.Write(w, http.StatusForbidden, "without authentication pages may use addresses and localhost only")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// common does what is the same for all requests.
func (s *Server) common(mux *http.ServeMux) http.Handler {
	plain := http.Handler(mux)
	compressed := gzhttp.GzipHandler(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set(requestIDHeader, requestID(r))
		h.Set("X-Content-Type-Options", "nosniff")
		if s.cfg.TLS != nil {
			h.Set("Strict-Transport-Security", "max-age=31536000")
		}
		if s.cors(w, r) {
			return
		}
		if r.ContentLength > s.cfg.MaxBodyBytes {
			h.Set("Connection", "close") // the body is not read
			httperr.Write(w, http.StatusRequestEntityTooLarge, "request body is too large")
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, s.cfg.MaxBodyBytes)
		_, route := mux.Handler(r)
		recorder, done := s.metrics.begin(w, route)
		defer done()
		switch {
		case route == "":
			unrouted(mux, recorder, r)
		case route == upgrades[0] || route == upgrades[1] || route == "GET /metrics": // which compresses by itself
			plain.ServeHTTP(recorder, r)
		default:
			compressed.ServeHTTP(recorder, r)
		}
	})
}

// unrouted answers requests that no route takes.
func unrouted(mux *http.ServeMux, w http.ResponseWriter, r *http.Request) {
	var allowed []string
	for _, method := range methods {
		probe := r.Clone(r.Context())
		probe.Method = method
		if _, route := mux.Handler(probe); route != "" {
			allowed = append(allowed, method)
		}
	}
	if allowed != nil {
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		httperr.Write(w, http.StatusMethodNotAllowed, "method is not allowed")
		return
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
