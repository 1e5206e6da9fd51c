package ws

import (
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/transport/policy"
)

// Config tunes a Server. Use DefaultConfig and change fields. All limits must be
// positive unless their comment says what zero means.
type Config struct {
	// NodeID is this node's id as AUTH_ACK shows it. Required.
	NodeID string
	// AllowedOrigins lists the origins of web pages, besides the server's own host,
	// that may connect: "scheme://host" with an optional port, or "*" for any.
	// Empty allows none.
	AllowedOrigins []string
	// MaxConnections bounds all connections of the node, MaxConnectionsPerAddress
	// those from one IP address. Zero means no bound.
	MaxConnections, MaxConnectionsPerAddress int
	// Connection tunes each connection.
	Connection ConnectionConfig

	// AuthTimeout is how long a client may take to authenticate, from its connect.
	AuthTimeout time.Duration
	// AuthFrameBytes is the size of the largest frame that is looked at before a
	// client has authenticated.
	AuthFrameBytes int

	// OperationTimeout is how long a write may wait for its verdict when the client
	// names no timeout, and the longest timeout that a client can ask for.
	OperationTimeout time.Duration
	// MaxConcurrentOperations bounds the writes and queries under way on the node,
	// and MaxInFlightBytes the frames they came in. A frame beyond waits up to
	// OverloadWait and is then refused with 429.
	MaxConcurrentOperations int
	MaxInFlightBytes        int64
	OverloadWait            time.Duration
	// RatePerSecond and RateBurst bound the operations of one connection; a frame
	// beyond is refused with 429. Zero RatePerSecond means no bound.
	RatePerSecond, RateBurst int

	// MaxValueBytes is the size of the largest encoded record value, refused with
	// 413 beyond.
	MaxValueBytes int
	// MaxRows and MaxResponseBytes bound one QUERY_RESP; what does not fit is left
	// out and the response says so.
	MaxRows, MaxResponseBytes int
	// MaxSyncRequests and MaxSyncRequestBytes bound the sync requests of one connection
	// that wait for their answers; beyond, it is closed with CloseRetry, because clients
	// do not ask again. MaxSyncMaps bounds the maps that it may sync, refused with 429.
	// MaxSyncRequestsOfAll bounds the waiting requests of
	// all connections together. ConcurrentSyncs is how many of them are read for at a
	// time; the others wait.
	MaxSyncRequests, MaxSyncRequestBytes, MaxSyncMaps, MaxSyncRequestsOfAll, ConcurrentSyncs int
	// MaxTopics bounds the topics that a connection subscribes to.
	MaxTopics int
	// MaxRequests bounds the messages about locks, and those about counters, of a connection
	// that wait for their answers, refused with 429 beyond. MaxCounters bounds the counters
	// that it follows.
	MaxRequests, MaxCounters int
	// MaxQueries bounds the live queries of one connection, refused with 429
	// beyond; MaxWindowBytes what the windows of all of them keep of their rows, refused
	// with 429 too. ConcurrentQueries is how many queries are read for at a time; the
	// others wait.
	MaxQueries        int
	MaxWindowBytes    int64
	ConcurrentQueries int
	// CloseTimeout is how long the server waits for a client to answer its Close
	// before it cuts the connection.
	CloseTimeout time.Duration
}

// ConnectionConfig tunes one connection.
type ConnectionConfig struct {
	// OutboundCapacity bounds the encoded frames that wait to be sent. An answer
	// that finds the queue full waits up to SendTimeout; then the connection is
	// closed. A push that finds it full is left out if clients can do without it, such as
	// GC_PRUNE; another one closes the connection at once.
	OutboundCapacity int
	// OutboundBytes bounds the same queue in bytes; one frame always fits.
	OutboundBytes int
	// EventCapacity bounds the change events that wait to be encoded. They are held
	// by reference, so that a burst costs a slow client little; with one too many the
	// client gets its queries anew instead. The same number of messages of topics waits beside them, in
	// OutboundBytes at most; a client without room for one misses it.
	EventCapacity int
	// SendTimeout bounds the wait for room in the queue, and each write to the
	// socket.
	SendTimeout time.Duration
	// IdleTimeout is how long a connection lives without an inbound frame.
	IdleTimeout time.Duration
	// WriteBufferSize is how many bytes of frames are gathered before they are
	// written to the socket while more are waiting. A frame that would take the
	// buffer beyond MaxWriteBufferSize is written past it.
	WriteBufferSize, MaxWriteBufferSize int
	// InFlight bounds the frames of one connection that wait for the cluster;
	// reading pauses at the bound.
	InFlight int
}

// DefaultConfig is the configuration for production, without NodeID.
func DefaultConfig() Config {
	return Config{
		MaxConnections:           65_536,
		MaxConnectionsPerAddress: 16_384,
		Connection:               DefaultConnectionConfig(),
		AuthTimeout:              10 * time.Second,
		AuthFrameBytes:           64 << 10,
		OperationTimeout:         30 * time.Second,
		MaxConcurrentOperations:  1000,
		MaxInFlightBytes:         256 << 20,
		OverloadWait:             time.Second,
		RatePerSecond:            20_000,
		RateBurst:                40_000,
		MaxValueBytes:            1 << 20,
		MaxRows:                  10_000,
		MaxResponseBytes:         32 << 20,
		MaxQueries:               64,
		MaxWindowBytes:           256 << 20,
		ConcurrentQueries:        16,
		MaxSyncRequests:          65_536,
		MaxSyncRequestBytes:      8 << 20,
		MaxSyncMaps:              1024,
		MaxTopics:                1024,
		MaxRequests:              1024,
		MaxCounters:              1024,
		MaxSyncRequestsOfAll:     1 << 20,
		ConcurrentSyncs:          16,
		CloseTimeout:             2 * time.Second,
	}
}

// DefaultConnectionConfig is the part of DefaultConfig for each connection.
func DefaultConnectionConfig() ConnectionConfig {
	return ConnectionConfig{
		OutboundCapacity:   256,
		OutboundBytes:      8 << 20,
		EventCapacity:      4096,
		SendTimeout:        5 * time.Second,
		IdleTimeout:        time.Minute,
		WriteBufferSize:    128 << 10,
		MaxWriteBufferSize: 512 << 10,
		InFlight:           32,
	}
}

// Validate reports all problems of c at once.
func (c Config) Validate() error {
	var errs []error
	positive := func(name string, v int64) {
		if v <= 0 {
			errs = append(errs, fmt.Errorf("%s must be positive, not %d", name, v))
		}
	}
	if c.NodeID == "" {
		errs = append(errs, errors.New("node id is missing"))
	}
	positive("auth timeout", int64(c.AuthTimeout))
	positive("auth frame bytes", int64(c.AuthFrameBytes))
	positive("operation timeout", int64(c.OperationTimeout))
	positive("concurrent operations", int64(c.MaxConcurrentOperations))
	positive("overload wait", int64(c.OverloadWait))
	positive("value bytes", int64(c.MaxValueBytes))
	positive("rows", int64(c.MaxRows))
	positive("response bytes", int64(c.MaxResponseBytes))
	positive("queries", int64(c.MaxQueries))
	positive("window bytes", c.MaxWindowBytes)
	positive("concurrent queries", int64(c.ConcurrentQueries))
	positive("sync requests", int64(c.MaxSyncRequests))
	positive("sync request bytes", int64(c.MaxSyncRequestBytes))
	positive("sync maps", int64(c.MaxSyncMaps))
	positive("topics", int64(c.MaxTopics))
	positive("requests", int64(c.MaxRequests))
	positive("counters", int64(c.MaxCounters))
	positive("sync requests of all connections", int64(c.MaxSyncRequestsOfAll))
	positive("concurrent syncs", int64(c.ConcurrentSyncs))
	positive("close timeout", int64(c.CloseTimeout))
	positive("outbound capacity", int64(c.Connection.OutboundCapacity))
	positive("outbound bytes", int64(c.Connection.OutboundBytes))
	positive("event capacity", int64(c.Connection.EventCapacity))
	positive("send timeout", int64(c.Connection.SendTimeout))
	positive("idle timeout", int64(c.Connection.IdleTimeout))
	positive("write buffer size", int64(c.Connection.WriteBufferSize))
	positive("frames in flight", int64(c.Connection.InFlight))
	if c.Connection.MaxWriteBufferSize < c.Connection.WriteBufferSize {
		errs = append(errs, errors.New("maximum write buffer size is below the write buffer size"))
	}
	if c.MaxInFlightBytes < protocol.MaxFrame {
		errs = append(errs, fmt.Errorf("bytes in flight must have room for one frame of %d", protocol.MaxFrame))
	}
	if c.RatePerSecond < 0 || c.RatePerSecond > 0 && c.RateBurst <= 0 {
		errs = append(errs, errors.New("a rate needs a positive burst"))
	}
	for _, o := range c.AllowedOrigins {
		if _, ok := parseOrigin(o); !ok && o != anyOrigin {
			errs = append(errs, fmt.Errorf("allowed origin %q is not scheme://host[:port]", o))
		}
	}
	return errors.Join(errs...)
}

// Deps are the collaborators of a Server. Logger and Now are required.
type Deps struct {
	Logger hclog.Logger
	// Now is the wall clock in milliseconds since 1970. It is shown in PONG and
	// PARTITION_MAP and decides which records have expired.
	Now func() int64
	// Verifier checks tokens. Nil switches authentication off: every connection is
	// anonymous from its first frame.
	Verifier Verifier
	// Secret is that which signs the tokens of users; it takes part in those of devices.
	// Empty without authentication.
	Secret []byte
	// Guard holds the policies. Nil allows everything.
	Guard *policy.Guard
	// Accepting reports whether new connections are taken. Nil takes all.
	Accepting func() bool
	// Registerer takes the metrics. Nil keeps them unregistered.
	Registerer prometheus.Registerer
}
