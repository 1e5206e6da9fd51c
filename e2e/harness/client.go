package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/golang-jwt/jwt/v5"

	"github.com/quorate/quorate/protocol"
)

// ErrRefused is wrapped by Dial when the token is refused.
var ErrRefused = errors.New("authentication refused")

var (
	errUndecodable = errors.New("undecodable frame from the server")
	errGone        = errors.New("connection has ended")
)

// maxSilence is how long a server may leave a request without verdict, error and
// close: its 30 s, and time for a machine that is very busy.
const maxSilence = 50 * time.Second

// ClientConfig says how a client presents itself. The zero value needs a server
// without authentication.
type ClientConfig struct {
	// Token is presented with AUTH if it is not empty.
	Token string
	// DeviceToken names the device across connections; optional.
	DeviceToken string
	// Take is shown every message after the handshake, in order, before anything else is
	// done with it; what it returns true for is not kept. It must not block. Optional.
	Take func(protocol.Message) bool
	// Silence is how long a batch may be left without an answer before that is a problem;
	// 50 s by default.
	Silence time.Duration
}

// Client is one WebSocket connection. One write and any number of queries may be in
// progress at a time. Its methods are safe for concurrent use.
type Client struct {
	conn *websocket.Conn
	// URL is where the client is connected.
	URL string
	// writing admits one write at a time, so that an ERROR names no other.
	writing sync.Mutex
	// gone is closed when the connection has ended.
	gone chan struct{}
	take func(protocol.Message) bool
	// silence is how long a batch may be left without an answer.
	silence time.Duration

	// mu protects the fields below.
	mu sync.Mutex
	// news is closed and replaced when others grows.
	news     chan struct{}
	pending  *pendingWrite
	queries  map[string]*Query
	events   []*protocol.ServerEvent
	table    *protocol.PartitionMap
	errors   []*protocol.ErrorMessage
	others   []protocol.Message
	problems []string
	closed   error // why the connection ended
}

// Token signs a token for subject with secret that is valid for an hour.
func Token(secret, subject string) (string, error) {
	claims := jwt.MapClaims{"sub": subject, "exp": time.Now().Add(time.Hour).Unix()}
	return jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString([]byte(secret))
}

// Dial connects and completes the handshake.
func Dial(ctx context.Context, url string, cfg ClientConfig) (*Client, error) {
	conn, _, err := websocket.Dial(ctx, url, nil)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", url, err)
	}
	// A QUERY_RESP may be larger than what clients may send.
	conn.SetReadLimit(protocol.MaxAnswer)
	c := &Client{conn: conn, URL: url, gone: make(chan struct{}), take: cfg.Take, news: make(chan struct{}), queries: make(map[string]*Query)}
	c.silence = cmp.Or(cfg.Silence, maxSilence)
	if err := c.handshake(ctx, cfg); err != nil {
		_ = conn.CloseNow()
		return nil, fmt.Errorf("handshake with %s: %w", url, err)
	}
	go c.read()
	return c, nil
}

func (c *Client) handshake(ctx context.Context, cfg ClientConfig) error {
	if cfg.Token == "" && cfg.DeviceToken == "" {
		return nil
	}
	var hello protocol.Message = &protocol.Auth{Token: cfg.Token, DeviceToken: cfg.DeviceToken}
	if cfg.Token == "" {
		hello = &protocol.DeviceHello{DeviceToken: cfg.DeviceToken}
	}
	if err := c.Send(ctx, hello); err != nil {
		return err
	}
	for {
		m, err := c.receive(ctx)
		if err != nil {
			return err
		}
		switch m := m.(type) {
		case *protocol.AuthAck, *protocol.DeviceAck:
			return nil
		case *protocol.AuthFail:
			return fmt.Errorf("%w: %s", ErrRefused, m.Reason)
		}
	}
}

// Send sends one message and does not wait for an answer.
func (c *Client) Send(ctx context.Context, m protocol.Message) error {
	frame, err := protocol.Append(nil, m)
	if err != nil {
		return fmt.Errorf("encode %s: %w", m.Kind(), err)
	}
	return c.SendRaw(ctx, frame)
}

// SendRaw sends bytes as one binary frame.
func (c *Client) SendRaw(ctx context.Context, frame []byte) error {
	return c.conn.Write(ctx, websocket.MessageBinary, frame)
}

// SendText sends a text frame.
func (c *Client) SendText(ctx context.Context, text string) error {
	return c.conn.Write(ctx, websocket.MessageText, []byte(text))
}

func (c *Client) receive(ctx context.Context) (protocol.Message, error) {
	_, frame, err := c.conn.Read(ctx)
	if err != nil {
		return nil, err
	}
	m, err := protocol.DecodeAnswer(frame)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUndecodable, err)
	}
	// Clients have another layout for what is in a BATCH, and end with one of the server's.
	if m.Kind() == protocol.KindBatch || m.Kind().Direction() == protocol.ClientToServer {
		return nil, fmt.Errorf("%w: a server sends no %s", errUndecodable, m.Kind())
	}
	return m, nil
}

// read handles frames until the connection ends.
func (c *Client) read() {
	for {
		m, err := c.receive(context.Background())
		if err != nil {
			c.end(err)
			return
		}
		c.handle(m)
	}
}

func (c *Client) end(err error) {
	_ = c.conn.CloseNow()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = err
	if errors.Is(err, errUndecodable) {
		c.problemLocked("%s: %v", c.URL, err)
	}
	close(c.gone)
}

func (c *Client) handle(m protocol.Message) {
	if c.take != nil && c.take(m) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch m := m.(type) {
	case *protocol.OpAck:
		c.ackLocked(m)
	case *protocol.OpRejected:
		c.rejectLocked(m)
	case *protocol.ErrorMessage:
		c.errors = append(c.errors, m)
		c.errorLocked(m)
	case *protocol.QueryResp:
		c.responseLocked(m)
	case *protocol.QueryUpdate:
		c.updateLocked(m)
	case *protocol.ServerEvent:
		c.events = append(c.events, m)
	case *protocol.PartitionMap:
		c.table = m
	default:
		c.others = append(c.others, m)
		close(c.news)
		c.news = make(chan struct{})
	}
}

func (c *Client) problemLocked(format string, args ...any) {
	c.problems = append(c.problems, fmt.Sprintf(format, args...))
}

// Problems are breaches of the protocol that the client saw.
func (c *Client) Problems() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.problems...)
}

// Events are the SERVER_EVENTs so far, in order.
func (c *Client) Events() []*protocol.ServerEvent {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*protocol.ServerEvent(nil), c.events...)
}

// Errors are the ERRORs so far, in order.
func (c *Client) Errors() []*protocol.ErrorMessage {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*protocol.ErrorMessage(nil), c.errors...)
}

// Others are the messages so far that no other method returns, in order.
func (c *Client) Others() []protocol.Message {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]protocol.Message(nil), c.others...)
}

// PartitionMap is the latest map that the server sent, nil if it sent none.
func (c *Client) PartitionMap() *protocol.PartitionMap {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.table
}

// Gone is closed when the connection has ended.
func (c *Client) Gone() <-chan struct{} { return c.gone }

// CloseCode is the code of the server's Close frame after Gone, -1 if it sent none.
func (c *Client) CloseCode() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return int(websocket.CloseStatus(c.closed))
}

// Close ends the connection and waits for the reader.
func (c *Client) Close() {
	_ = c.conn.CloseNow()
	<-c.gone
}

// Await returns the first message from place on that match accepts, of those that have no
// list of their own, and the place behind it. It blocks until it has come; errors: the
// connection or ctx ended.
func (c *Client) Await(ctx context.Context, place int, match func(protocol.Message) bool) (m protocol.Message, next int, err error) {
	for {
		c.mu.Lock()
		others, news := c.others, c.news
		c.mu.Unlock()
		for ; place < len(others); place++ {
			if match(others[place]) {
				return others[place], place + 1, nil
			}
		}
		select {
		case <-news:
		case <-c.gone:
			return nil, place, errGone
		case <-ctx.Done():
			return nil, place, ctx.Err()
		}
	}
}
