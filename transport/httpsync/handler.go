package httpsync

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/transport/auth"
	"github.com/quorate/quorate/transport/httperr"
	"github.com/quorate/quorate/transport/judge"
)

// Config tunes a Handler. Use DefaultConfig and change fields; all must be positive.
type Config struct {
	// Limits bound each operation. Its Timeout bounds the request too.
	Limits judge.Limits
	// Concurrent is how many requests are handled at a time, refused with 503 beyond.
	Concurrent int
	// MaxRows bounds the rows of one query, those passed over by an offset included.
	MaxRows int
	// MaxReads bounds the maps, and also the queries, of one request.
	MaxReads int
	// MaxDeltaBytes and MaxResultBytes are the sizes about which the deltas and the
	// query results of a response are cut; the client gets the rest with later requests.
	MaxDeltaBytes, MaxResultBytes int
}

// DefaultConfig is the configuration for production.
func DefaultConfig() Config {
	return Config{
		Limits:         judge.Limits{MaxValueBytes: 1 << 20, Timeout: 30 * time.Second},
		Concurrent:     64,
		MaxRows:        10_000,
		MaxReads:       1000,
		MaxDeltaBytes:  8 << 20,
		MaxResultBytes: 8 << 20,
	}
}

// Validate reports what is wrong with c, its Limits aside.
func (c Config) Validate() error {
	if c.Concurrent <= 0 || c.MaxRows <= 0 || c.MaxReads <= 0 || c.MaxDeltaBytes <= 0 || c.MaxResultBytes <= 0 {
		return errors.New("bounds of POST /sync must be positive")
	}
	return nil
}

// Backend is the cluster as requests use it; *partitions.Router is one.
type Backend interface {
	// NewSession returns the state of one request.
	NewSession() *partitions.Session
	// Write is as for WebSocket connections.
	Write(ctx context.Context, s *partitions.Session, ops []partitions.Op) ([]partitions.Verdict, error)
	// Delta returns what was stored in a map since an earlier one.
	Delta(ctx context.Context, s *partitions.Session, mapName string, since protocol.Timestamp, maxBytes int,
	) (records []protocol.KeyedRecord, next protocol.Timestamp, more bool, err error)
	// Rows returns live rows of a map in key order.
	Rows(ctx context.Context, s *partitions.Session, mapName, from string, limit, maxBytes int, keep func(partitions.Row) bool,
	) (rows []partitions.Row, more bool, err error)
	// Barrier has later reads of s show everything that was acknowledged to anyone before
	// the call.
	Barrier(ctx context.Context, s *partitions.Session) error
	// Now is a fresh stamp of the node's clock.
	Now() protocol.Timestamp
}

// Verifier checks the tokens of clients; *auth.Verifier is one.
type Verifier interface {
	Verify(token string) (auth.Principal, error)
	Message(err error) string
}

// Deps are the collaborators of a Handler.
type Deps struct {
	Logger hclog.Logger
	// Now is the wall clock in milliseconds since 1970; cursors age by it.
	Now func() int64
	// Verifier is nil without authentication.
	Verifier Verifier
	// Backend returns the cluster, nil while there is none: requests get 503 then.
	Backend func() Backend
}

// Handler serves POST /sync. It is safe for concurrent use.
type Handler struct {
	cfg   Config
	deps  Deps
	log   hclog.Logger
	slots chan struct{}
}

// New returns a Handler.
func New(cfg Config, deps Deps) *Handler {
	return &Handler{cfg: cfg, deps: deps, log: deps.Logger.Named("httpsync"), slots: make(chan struct{}, cfg.Concurrent)}
}

// ServeHTTP implements http.Handler. The caller bounds the body. Statuses: 200 with a
// MsgPack body; 400 for a body that cannot be understood, 401 without a good token, 408
// for a body that comes too slowly, 413 for one over its bound, 503 when the node cannot
// take requests.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	client, ok := h.authenticate(w, r)
	if !ok {
		return
	}
	backend := h.deps.Backend()
	if backend == nil {
		httperr.Unavailable(w, "server is not ready")
		return
	}
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	default:
		httperr.Unavailable(w, "too many requests at once")
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		refuseBody(w, err)
		return
	}
	answer := &protocol.HTTPSyncResponse{}
	if len(body) > 0 {
		request, err := protocol.DecodeHTTPSync(body)
		if err != nil {
			httperr.Write(w, http.StatusBadRequest, judge.DecodeText(err))
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), h.cfg.Limits.Timeout)
		defer cancel()
		e := exchange{
			Handler: h, ctx: ctx, backend: backend, session: backend.NewSession(),
			client: client + "\x00http\x00" + request.ClientID, request: request, answer: answer,
		}
		e.run()
	}
	answer.ServerHLC = backend.Now()
	w.Header().Set("Content-Type", "application/msgpack")
	_, _ = w.Write(protocol.AppendHTTPSyncResponse(nil, answer)) // a client that is gone needs no answer
}

// Drain waits until the requests under way are answered, or ctx ends. The caller sees to
// it that no more are taken.
func (h *Handler) Drain(ctx context.Context) error {
	for range cap(h.slots) {
		select {
		case h.slots <- struct{}{}:
		case <-ctx.Done():
			return fmt.Errorf("requests are still under way: %w", ctx.Err())
		}
	}
	return nil
}

// authenticate checks the bearer token, and answers the request if it is refused.
func (h *Handler) authenticate(w http.ResponseWriter, r *http.Request) (subject string, ok bool) {
	if h.deps.Verifier == nil {
		return "", true
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	message := "authentication required"
	if strings.EqualFold(scheme, "Bearer") && token != "" {
		principal, err := h.deps.Verifier.Verify(token)
		if err == nil {
			return principal.ID, true
		}
		h.log.Info("authentication refused", "addr", r.RemoteAddr, "err", err)
		message = h.deps.Verifier.Message(err)
	}
	w.Header().Set("WWW-Authenticate", "Bearer")
	httperr.Write(w, http.StatusUnauthorized, message)
	return "", false
}

// refuseBody answers a request whose body could not be read.
func refuseBody(w http.ResponseWriter, err error) {
	var tooLarge *http.MaxBytesError
	var slow interface{ Timeout() bool }
	switch {
	case errors.As(err, &tooLarge):
		httperr.Write(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("request body is larger than %d bytes", tooLarge.Limit))
	case errors.As(err, &slow) && slow.Timeout():
		httperr.Write(w, http.StatusRequestTimeout, "request body came too slowly")
	default:
		httperr.Write(w, http.StatusBadRequest, "request body could not be read")
	}
}
