package client

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/quorate/quorate/protocol"
)

// token is the token to present, empty for none.
func (c *Client) token(ctx context.Context) (string, error) {
	if c.cfg.TokenSource == nil {
		return c.cfg.Token, nil
	}
	token, err := c.cfg.TokenSource(ctx)
	if err != nil {
		return "", fmt.Errorf("ask for a token: %w", err)
	}
	return token, nil
}

// renewLater has another token presented when three quarters of this one's life are over, so
// that the server does not end the connection, and with it the locks.
func (cn *conn) renewLater(token string) {
	cn.renewAt = time.Time{}
	if cn.client.cfg.TokenSource == nil {
		return
	}
	if at := expiry(token); !at.IsZero() {
		cn.renewAt = time.Now().Add(max(0, time.Until(at)) / 4 * 3)
	}
}

// renewToken is the message that presents another token, if it is time for it. A source that
// fails is asked again with the next heartbeat.
func (cn *conn) renewToken() []protocol.Message {
	if cn.renewAt.IsZero() || time.Now().Before(cn.renewAt) {
		return nil
	}
	ctx, cancel := context.WithTimeout(cn.ctx, cn.client.cfg.DialTimeout)
	defer cancel()
	token, err := cn.client.token(ctx)
	if err != nil {
		cn.client.log.Warn("the token is not renewed", "err", err)
		return nil
	}
	cn.renewLater(token)
	return []protocol.Message{&protocol.Auth{Token: token}}
}

// expiry is when a JSON Web Token expires, the zero time if it does not say so. The server
// checks it; here it is only read.
func expiry(token string) time.Time {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return time.Time{}
	}
	var claims struct {
		Expires float64 `json:"exp"`
	}
	if json.Unmarshal(text, &claims) != nil || claims.Expires == 0 {
		return time.Time{}
	}
	return time.Unix(int64(claims.Expires), 0)
}
