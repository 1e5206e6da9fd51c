package httpsync

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/transport/auth"
	"github.com/quorate/quorate/transport/httperr"
	"github.com/quorate/quorate/transport/judge"
	"github.com/quorate/quorate/transport/policy"
	"github.com/quorate/quorate/transport/quota"
)

// Config tunes a Handler. Use DefaultConfig and change fields; all must be positive.
type Config struct {
	// Limits bound each operation. Its Timeout bounds the request too.
	Limits judge.Limits
	// Concurrent is how many requests are handled at a time, refused with 503 beyond. Those
	// whose body is still coming do not count.
	Concurrent int
	// MaxBodies bounds the bytes of all bodies that were read or are being read together,
	// refused with 503 beyond.
	MaxBodies int64
	// RatePerSecond and RateBurst bound the operations of one subject, or of one address
	// where there are no subjects, refused with 429 beyond. Zero RatePerSecond is no bound.
	RatePerSecond, RateBurst int
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
		MaxBodies:      128 << 20,
		RatePerSecond:  20_000,
		RateBurst:      40_000,
		MaxRows:        10_000,
		MaxReads:       1000,
		MaxDeltaBytes:  8 << 20,
		MaxResultBytes: 8 << 20,
	}
}

// Validate reports what is wrong with c, its Limits aside.
func (c Config) Validate() error {
	if c.Concurrent <= 0 || c.MaxBodies <= 0 || c.MaxRows <= 0 || c.MaxReads <= 0 || c.MaxDeltaBytes <= 0 || c.MaxResultBytes <= 0 {
		return errors.New("bounds of POST /sync must be positive")
	}
	if c.RatePerSecond < 0 || c.RatePerSecond > 0 && c.RateBurst <= 0 {
		return errors.New("the rate of POST /sync needs a positive burst")
	}
	return nil
}

// Backend is the cluster as requests use it; *partitions.Router is one.
type Backend interface {
	// NewSession returns the state of one request.
	NewSession() *partitions.Session
	// Write is as for WebSocket connections.
	Write(ctx context.Context, s *partitions.Session, ops []partitions.Op) ([]partitions.Verdict, error)
	// Stored is as for WebSocket connections.
	Stored(ctx context.Context, s *partitions.Session, op *partitions.Op) (partitions.Stored, error)
	// Delta returns what was stored in a map since an earlier one.
	Delta(ctx context.Context, s *partitions.Session, mapName string, since protocol.Timestamp, maxBytes int,
	) (records []protocol.KeyedRecord, next protocol.Timestamp, more bool, err error)
	// Answer returns the first rows of a query.
	Answer(ctx context.Context, s *partitions.Session, ask partitions.Ask) (*partitions.Answer, error)
	// ClusterID names the cluster, empty while there is none.
	ClusterID() string
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
	// Guard holds the policies. Nil allows everything.
	Guard *policy.Guard
	// Secret is that which signs the tokens of clients; empty without authentication.
	Secret []byte
	// Backend returns the cluster, nil while there is none: requests get 503 then.
	Backend func() Backend
}

// Handler serves POST /sync. It is safe for concurrent use.
type Handler struct {
	cfg   Config
	deps  Deps
	log   hclog.Logger
	slots chan struct{}
	// rate is nil for no bound.
	rate *quota.Buckets
	// operations counts the writes, deltas and queries that were asked for, and bodies the
	// bytes of the bodies that are held.
	operations, bodies atomic.Int64
}

// Operations is the number of writes, deltas and queries that were asked for since the
// start.
func (h *Handler) Operations() int64 { return h.operations.Load() }

// New returns a Handler.
func New(cfg Config, deps Deps) *Handler {
	if deps.Guard == nil {
		deps.Guard = policy.NewGuard(deps.Logger)
	}
	h := &Handler{cfg: cfg, deps: deps, log: deps.Logger.Named("httpsync"), slots: make(chan struct{}, cfg.Concurrent)}
	if cfg.RatePerSecond > 0 {
		h.rate = quota.New(float64(cfg.RatePerSecond), cfg.RateBurst)
	}
	return h
}

// SetRate changes the sustained rate of each subject. It has no effect where Config has no
// bound for it.
func (h *Handler) SetRate(operationsPerSecond int) {
	if h.rate != nil {
		h.rate.SetRate(float64(operationsPerSecond))
	}
}

// allow takes what a request asks for from the rate of its subject, and answers the request
// if that is beyond it.
func (h *Handler) allow(w http.ResponseWriter, r *http.Request, subject string, asked *protocol.HTTPSync) bool {
	if h.rate == nil {
		return true
	}
	name := "subject " + subject
	if subject == "" {
		name = "address " + quota.Address(r)
	}
	cost := max(1, len(asked.Operations)+len(asked.SyncMaps)+len(asked.Queries)+len(asked.Searches))
	ok, wait := h.rate.Take(name, cost, time.UnixMilli(h.deps.Now()))
	if !ok {
		quota.Refuse(w, wait)
	}
	return ok
}

// ServeHTTP implements http.Handler. The caller bounds the body. Statuses: 200 with a
// MsgPack body; 400 for a body that cannot be understood, 401 without a good token, 408
// for a body that comes too slowly, 413 for one over its bound, 429 beyond the rate, 503 when the node cannot
// take requests.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	principal, ok := h.authenticate(w, r)
	if !ok {
		return
	}
	backend := h.deps.Backend()
	if backend == nil {
		httperr.Unavailable(w, "server is not ready")
		return
	}
	incoming := &body{Reader: r.Body, held: &h.bodies, limit: h.cfg.MaxBodies}
	defer incoming.release()
	content, err := io.ReadAll(incoming)
	if err != nil {
		refuseBody(w, err)
		return
	}
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	default:
		httperr.Unavailable(w, "too many requests at once")
		return
	}
	answer := &protocol.HTTPSyncResponse{}
	if len(content) > 0 {
		request, err := protocol.DecodeHTTPSync(content)
		if err != nil {
			httperr.Write(w, http.StatusBadRequest, judge.DecodeText(err))
			return
		}
		if !h.allow(w, r, principal.ID, request) {
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), h.cfg.Limits.Timeout)
		defer cancel()
		e := exchange{
			Handler: h, ctx: ctx, backend: backend, session: backend.NewSession(),
			client: principal.ID + "\x00http\x00" + request.ClientID, request: request, answer: answer,
			access: policy.Access{Guard: h.deps.Guard, Caller: policy.Caller{ID: principal.ID, Roles: principal.Roles, Admin: principal.Admin}},
		}
		h.operations.Add(int64(len(request.Operations) + len(request.SyncMaps) + len(request.Queries)))
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
func (h *Handler) authenticate(w http.ResponseWriter, r *http.Request) (principal auth.Principal, ok bool) {
	if h.deps.Verifier == nil {
		return principal, true
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	message := "authentication required"
	if strings.EqualFold(scheme, "Bearer") && token != "" {
		principal, err := h.deps.Verifier.Verify(token)
		if err == nil {
			return principal, true
		}
		h.log.Info("authentication refused", "addr", r.RemoteAddr, "err", err)
		message = h.deps.Verifier.Message(err)
	}
	w.Header().Set("WWW-Authenticate", "Bearer")
	httperr.Write(w, http.StatusUnauthorized, message)
	return auth.Principal{}, false
}
