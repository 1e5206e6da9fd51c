package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/coder/websocket"
	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/protocol"
)

// connect tries the seeds, again and again with growing pauses, until one takes the client.
// Errors: ErrRefused, or ErrUnavailable when ctx ends.
func (c *Client) connect(ctx context.Context) (*conn, error) {
	pause := c.cfg.MinBackoff
	for {
		var last error
		for _, url := range c.order() {
			cn, err := c.dial(ctx, url)
			if err == nil || errors.Is(err, ErrRefused) {
				return cn, err
			}
			if last = err; ctx.Err() != nil {
				break
			}
			c.log.Debug("seed does not answer", "url", url, "err", err)
		}
		// Half of the pause is random, so that the clients of a node do not come together.
		timer := time.NewTimer(pause/2 + rand.N(pause/2+1))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, fmt.Errorf("%w: %w: %w", ErrUnavailable, ctx.Err(), last)
		}
		pause = min(2*pause, c.cfg.MaxBackoff)
	}
}

// order is the seeds in a random order, the one that was left last at the end.
func (c *Client) order() []string {
	left := c.Status().URL
	urls := make([]string, 0, len(c.cfg.Seeds))
	for _, i := range rand.Perm(len(c.cfg.Seeds)) {
		if url := c.cfg.Seeds[i]; url != left {
			urls = append(urls, url)
		}
	}
	if len(urls) < len(c.cfg.Seeds) {
		urls = append(urls, left)
	}
	return urls
}

// dial connects to one seed and shakes hands.
func (c *Client) dial(ctx context.Context, url string) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.DialTimeout)
	defer cancel()
	token, err := c.token(ctx)
	if err != nil {
		return nil, err
	}
	sock, _, err := websocket.Dial(ctx, url, &websocket.DialOptions{HTTPClient: c.cfg.HTTPClient})
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", url, err)
	}
	sock.SetReadLimit(protocol.MaxAnswer)
	cn := newConn(c, sock, url)
	if err := cn.handshake(ctx, token); err != nil {
		cn.cancel(err)
		_ = sock.CloseNow()
		return nil, fmt.Errorf("handshake with %s: %w", url, err)
	}
	cn.renewLater(token)
	return cn, nil
}

// handshake introduces the client, and sets its clock.
func (cn *conn) handshake(ctx context.Context, token string) error {
	c := cn.client
	c.mu.Lock()
	device := c.device
	c.mu.Unlock()
	var hello protocol.Message = &protocol.Auth{Token: token, DeviceToken: device}
	if token == "" {
		hello = &protocol.DeviceHello{DeviceToken: device}
	}
	if err := cn.send(ctx, hello); err != nil {
		return err
	}
	for {
		m, err := cn.receive(ctx)
		if err != nil {
			return err
		}
		switch m := m.(type) {
		case *protocol.AuthRequired:
			if token == "" {
				return refused(protocol.CodeUnauthorized, "the server wants a token")
			}
		case *protocol.AuthFail:
			return refused(protocol.CodeUnauthorized, m.Reason)
		case *protocol.AuthAck:
			cn.node = m.ServerNodeID
			cn.keepDevice(m.DeviceToken)
			return cn.setClock(ctx)
		case *protocol.DeviceAck:
			cn.keepDevice(m.DeviceToken)
			return cn.setClock(ctx)
		}
	}
}

// keepDevice keeps the device token that the server gave, if it gave one.
func (cn *conn) keepDevice(token string) {
	c := cn.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.device == "" {
		// Another one later would make the server take repeats for new requests.
		c.device = token
	}
}

// setClock asks for the server's time, which the stamps of writes follow.
func (cn *conn) setClock(ctx context.Context) error {
	sent := time.Now()
	if err := cn.send(ctx, &protocol.Ping{Timestamp: msgp.AppendUint64(nil, 0)}); err != nil {
		return err
	}
	for {
		m, err := cn.receive(ctx)
		if err != nil {
			return err
		}
		if pong, ok := m.(*protocol.Pong); ok {
			cn.client.learnClock(pong, time.Since(sent))
			return nil
		}
	}
}

// lastWords is the error of a connection that the server closed: ErrRefused for a token that
// will not be taken again.
func (c *Client) lastWords(err error) error {
	code := websocket.CloseStatus(err)
	if code == websocket.StatusCode(protocol.CloseAuth) && c.cfg.TokenSource == nil {
		return fmt.Errorf("%w: %w", refused(protocol.CodeUnauthorized, "the server closed the connection"), err)
	}
	return err
}
