package client

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/hlc"
)

// Client is a connection to a cluster that is kept up for as long as the Client lives.
// It is safe for concurrent use.
type Client struct {
	cfg   Config
	log   *slog.Logger
	clock *hlc.Clock
	// skew is how far the server's clock is ahead of this machine's, in milliseconds.
	skew atomic.Int64
	// prefix begins the ids of requests, so that those of two runs with one device token
	// differ, and seq is the newest number in them.
	prefix string
	seq    atomic.Uint64
	// slots bounds the requests in progress.
	slots chan struct{}

	ctx    context.Context
	cancel context.CancelFunc
	// ended is closed when run has returned.
	ended chan struct{}
	// background are the renewals of locks.
	background sync.WaitGroup

	// mu protects the fields below, those of conn that say so, of calls and of streams.
	mu sync.Mutex
	// conn is the live connection, nil while there is none.
	conn   *conn
	status Status
	// final is why the client will not connect any more, nil while it will.
	final  error
	device string
	// calls are the requests that wait for an answer, by id; writes and requests are those
	// of them that wait to be sent.
	calls            map[string]*call
	writes, requests []*call
	names            map[string]*lockName
	follows          map[string]*Follow
	topics           map[string]map[*Subscription]struct{}
	watches          map[string]map[*CounterWatch]struct{}
}

// Status says how the client stands with the cluster.
type Status struct {
	// Connected: a node takes requests.
	Connected bool
	// URL is the node's, and NodeID its name as it gave it. They are kept when the
	// connection has ended.
	URL, NodeID string
	// Err is why there is no connection; nil while there is one.
	Err error
	// Final: the client will not connect again, because it was closed or its token refused.
	Final bool
}

// Open connects to one of the seeds. It returns when a node takes requests, the token is
// refused (ErrRefused), or ctx ends (ErrUnavailable). The Client lives until Close.
func Open(ctx context.Context, cfg Config) (*Client, error) {
	cfg, err := cfg.completed()
	if err != nil {
		return nil, err
	}
	if cfg.ClientID == "" {
		cfg.ClientID = random(16)
	}
	c := &Client{
		cfg: cfg, log: cfg.Logger, prefix: random(6) + "-", slots: make(chan struct{}, cfg.MaxInFlight),
		ended: make(chan struct{}), device: cfg.DeviceToken, calls: map[string]*call{}, names: map[string]*lockName{},
		follows: map[string]*Follow{}, topics: map[string]map[*Subscription]struct{}{}, watches: map[string]map[*CounterWatch]struct{}{},
	}
	c.clock = hlc.New(cfg.ClientID, func() int64 { return time.Now().UnixMilli() + c.skew.Load() })
	c.ctx, c.cancel = context.WithCancel(context.Background())
	cn, err := c.connect(ctx)
	if err != nil {
		c.cancel()
		return nil, err
	}
	c.attach(cn)
	go c.run(cn)
	return c, nil
}

// Close ends the connection and everything that waits for it: locks are lost, streams end.
// What is not decided yet stays unknown. It always returns nil; calling it again does
// nothing.
func (c *Client) Close() error {
	c.cancel()
	<-c.ended
	c.background.Wait()
	return nil
}

// Connected reports whether a node takes requests now.
func (c *Client) Connected() bool { return c.Status().Connected }

// Status returns how the client stands with the cluster now.
func (c *Client) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

// DeviceToken is what the server knows the client by again when it repeats a request. A
// program may keep it and give it to its next Client.
func (c *Client) DeviceToken() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.device
}

// run keeps the client connected until it is closed or refused.
func (c *Client) run(cn *conn) {
	defer close(c.ended)
	for {
		err := cn.serve()
		c.detach(cn, err)
		if c.ctx.Err() == nil && !errors.Is(err, ErrRefused) {
			if cn, err = c.connect(c.ctx); err == nil {
				c.attach(cn)
				continue
			}
		}
		if c.ctx.Err() != nil {
			err = ErrClosed
		}
		c.finish(err)
		return
	}
}

// attach makes cn the live connection and has everything sent that waits for one.
func (c *Client) attach(cn *conn) {
	c.mu.Lock()
	c.conn = cn
	c.status = Status{Connected: true, URL: cn.url, NodeID: cn.node}
	c.resumeStreamsLocked(cn)
	status := c.status
	c.mu.Unlock()
	c.log.Info("connected", "url", cn.url, "node", cn.node)
	c.tell(status)
}

// detach ends what belongs to a connection and queues again what outlives it.
func (c *Client) detach(cn *conn, err error) {
	c.mu.Lock()
	c.conn = nil
	c.status.Connected, c.status.Err = false, err
	status := c.status
	locks := cn.locks
	cn.locks = nil
	c.requeueLocked(cn)
	c.interruptStreamsLocked()
	c.mu.Unlock()
	for l := range locks {
		l.lose()
	}
	c.log.Info("disconnected", "url", cn.url, "err", err)
	c.tell(status)
}

// finish settles everything for good.
func (c *Client) finish(err error) {
	c.mu.Lock()
	c.final = err
	c.status.Final, c.status.Err = true, err
	status := c.status
	for _, k := range c.calls {
		c.settleLocked(k, nil, k.abandoned(err))
	}
	c.writes, c.requests = nil, nil
	c.endStreamsLocked(err)
	c.mu.Unlock()
	c.cancel()
	c.tell(status)
}

func (c *Client) tell(s Status) {
	if c.cfg.OnStatus != nil {
		c.cfg.OnStatus(s)
	}
}

// newID is the id of a new request and its place among all of them.
func (c *Client) newID() (id string, seq uint64) {
	seq = c.seq.Add(1)
	return c.prefix + strconv.FormatUint(seq, 10), seq
}

// random is the hexadecimal text of n random bytes.
func random(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails, see crypto/rand
	return hex.EncodeToString(b)
}

// learnClock takes the server's clock from the answer to a heartbeat that was sent a while
// ago. The stamps of clients decide between their writes, so they follow one clock as far as
// can be known.
func (c *Client) learnClock(m *protocol.Pong, took time.Duration) {
	if took > time.Second {
		return // it tells too little
	}
	c.skew.Store(m.ServerTime + took.Milliseconds()/2 - time.Now().UnixMilli())
}
