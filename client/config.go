package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// The defaults of Config.
const (
	DefaultDialTimeout       = 5 * time.Second
	DefaultOperationTimeout  = 30 * time.Second
	DefaultHeartbeatInterval = 5 * time.Second
	DefaultMinBackoff        = 50 * time.Millisecond
	DefaultMaxBackoff        = 2 * time.Second
	DefaultMaxInFlight       = 1024
	DefaultStreamBuffer      = 256
)

// Config says where the cluster is and how the client behaves. Only Seeds is required.
type Config struct {
	// Seeds are the nodes to connect to, as WebSocket URLs (ws or wss) or as host:port.
	// One connection is open at a time, to any of them.
	Seeds []string
	// Token is presented to the server. TokenSource, if it is set, is asked for one instead:
	// before each connection, and on it before the token expires. Without both the server must
	// run without authentication.
	Token       string
	TokenSource func(ctx context.Context) (string, error)
	// ClientID is the node id in the timestamps of this client's writes. No two clients may
	// use one at the same time, and it must not contain ':'. Empty: a random one.
	ClientID string
	// DeviceToken is that of an earlier Client, see Client.DeviceToken. Empty: a new one.
	DeviceToken string
	// Logger gets one record per connection that comes and goes. Nil: nothing is logged.
	Logger *slog.Logger
	// OnStatus, if it is set, is called with every change of the status, one call after the
	// other. It must not block for long, nor call Close.
	OnStatus func(Status)
	// DialTimeout bounds connecting to one seed, with the handshake. Zero: 5 s.
	DialTimeout time.Duration
	// OperationTimeout bounds every call but Lock and Next, beside its context. Zero: 30 s.
	OperationTimeout time.Duration
	// HeartbeatInterval is the pace of heartbeats. A connection on which nothing came for
	// three of them is given up. Zero: 5 s. The server gives up after 60 s.
	HeartbeatInterval time.Duration
	// MinBackoff and MaxBackoff bound the pause after all seeds failed; it doubles each
	// time, and a random half of it is waited. Zero: 50 ms and 2 s.
	MinBackoff, MaxBackoff time.Duration
	// MaxInFlight is how many requests may wait for an answer; further calls block. Zero:
	// 1024.
	MaxInFlight int
	// StreamBuffer is how many changes or messages wait for the consumer of a Follow or
	// a Subscription. Zero: 256.
	StreamBuffer int
	// HTTPClient makes the upgrade request, for example with certificates of its own. Nil:
	// http.DefaultClient.
	HTTPClient *http.Client
}

// completed returns cfg with its defaults, or what is wrong with it.
func (cfg Config) completed() (Config, error) {
	if len(cfg.Seeds) == 0 {
		return cfg, errors.New("client: Config.Seeds is empty")
	}
	seeds := make([]string, len(cfg.Seeds))
	for i, seed := range cfg.Seeds {
		var err error
		if seeds[i], err = seedURL(seed); err != nil {
			return cfg, err
		}
	}
	cfg.Seeds = seeds
	if strings.Contains(cfg.ClientID, ":") {
		return cfg, errors.New("client: Config.ClientID contains ':'")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	for _, d := range []struct {
		name  string
		value *time.Duration
		zero  time.Duration
	}{
		{"DialTimeout", &cfg.DialTimeout, DefaultDialTimeout},
		{"OperationTimeout", &cfg.OperationTimeout, DefaultOperationTimeout},
		{"HeartbeatInterval", &cfg.HeartbeatInterval, DefaultHeartbeatInterval},
		{"MinBackoff", &cfg.MinBackoff, DefaultMinBackoff},
		{"MaxBackoff", &cfg.MaxBackoff, max(DefaultMaxBackoff, cfg.MinBackoff)},
	} {
		if *d.value < 0 {
			return cfg, fmt.Errorf("client: Config.%s is negative", d.name)
		}
		if *d.value == 0 {
			*d.value = d.zero
		}
	}
	for _, n := range []struct {
		name  string
		value *int
		zero  int
	}{{"MaxInFlight", &cfg.MaxInFlight, DefaultMaxInFlight}, {"StreamBuffer", &cfg.StreamBuffer, DefaultStreamBuffer}} {
		if *n.value < 0 {
			return cfg, fmt.Errorf("client: Config.%s is negative", n.name)
		}
		if *n.value == 0 {
			*n.value = n.zero
		}
	}
	return cfg, nil
}

// seedURL is the WebSocket URL of a seed.
func seedURL(seed string) (string, error) {
	text := strings.TrimSpace(seed)
	if !strings.Contains(text, "://") {
		text = "ws://" + text
	}
	u, err := url.Parse(text)
	if err != nil {
		return "", fmt.Errorf("client: seed %q: %w", seed, err)
	}
	if u.Scheme != "ws" && u.Scheme != "wss" || u.Host == "" {
		return "", fmt.Errorf("client: seed %q is neither a ws or wss URL nor host:port", seed)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/ws"
	}
	return u.String(), nil
}
