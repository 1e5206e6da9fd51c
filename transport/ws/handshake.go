package ws

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/transport/auth"
	"github.com/quorate/quorate/transport/device"
	"github.com/quorate/quorate/transport/policy"
)

// authState is who is at the other end of a connection, and until when. For the
// reader only, but for the timer.
type authState struct {
	// subject is the token's subject, empty without authentication.
	subject string
	// client names the device in dedup keys: the device token that it presented or was
	// given, within its subject; the connection before that.
	client string
	// caller is who policies judge; nil is a client without a token.
	caller atomic.Pointer[policy.Caller]
	// acked and greeted: AUTH and DEVICE_HELLO are answered once.
	acked, greeted bool

	// mu protects the fields below.
	mu      sync.Mutex
	expiry  *time.Timer
	until   time.Time
	stopped bool
}

// greet opens the conversation: with authentication the client must identify itself
// first.
func (c *conn) greet() {
	if c.srv.deps.Verifier == nil {
		c.live.Store(true)
		return
	}
	c.reply(&protocol.AuthRequired{})
}

// receiveAuth handles AUTH: the first one decides about the connection, a later one
// can only renew it, without an answer. Clients in the field send it twice and take
// a second answer as an order to send their writes again.
func (c *conn) receiveAuth(m *protocol.Auth) {
	v := c.srv.deps.Verifier
	switch {
	case v == nil && !c.auth.acked:
		c.auth.acked = true
		c.ackAuth(auth.Principal{}, m.DeviceToken)
	case v == nil:
	case c.live.Load():
		c.renew(v, m.Token)
	default:
		c.authenticate(v, m)
	}
}

func (c *conn) authenticate(v Verifier, m *protocol.Auth) {
	p, err := v.Verify(m.Token)
	if err != nil {
		c.srv.metrics.auth("refused")
		c.srv.log.Info("authentication refused", "conn", c.id, "addr", c.addr, "err", err)
		c.reply(&protocol.AuthFail{Reason: v.Message(err), Code: protocol.CodeUnauthorized})
		c.end(closeFlushed, protocol.CloseAuth, reasonAuthFailed)
		return
	}
	c.srv.metrics.auth("accepted")
	c.auth.subject = p.ID
	c.auth.caller.Store(&policy.Caller{ID: p.ID, Roles: p.Roles, Admin: p.Admin})
	if c.srv.cutIfRevoked(c) {
		return // between the verification and the moment from which Cut finds the connection
	}
	c.expireAt(p.ValidUntil)
	c.ackAuth(p, m.DeviceToken)
	c.live.Store(true)
}

func (c *conn) ackAuth(p auth.Principal, deviceToken string) {
	roles := p.Roles
	if roles == nil {
		roles = []string{}
	}
	d := c.identify(p.ID, deviceToken)
	c.reply(&protocol.AuthAck{
		ConnectionID: c.id, ServerNodeID: c.srv.cfg.NodeID, Roles: roles, UserID: p.ID, DeviceID: d.ID, DeviceToken: d.Token,
	})
}

// renew extends the life of the connection by a fresh token of the same subject, whose
// roles count from now on. One that ends before the present one changes nothing: its roles
// would outlive it.
func (c *conn) renew(v Verifier, token string) {
	p, err := v.Verify(token)
	switch {
	case err != nil:
		c.srv.log.Debug("renewal refused", "conn", c.id, "err", err)
	case p.ID != c.auth.subject || p.Admin != c.caller().Admin:
		c.srv.log.Info("renewal by another subject ignored", "conn", c.id)
	default:
		if c.expireAt(p.ValidUntil) {
			c.auth.caller.Store(&policy.Caller{ID: p.ID, Roles: p.Roles, Admin: p.Admin})
		}
	}
}

// receiveHello handles DEVICE_HELLO, which only clients without a token send.
func (c *conn) receiveHello(m *protocol.DeviceHello) {
	if c.srv.deps.Verifier != nil || c.auth.greeted {
		return
	}
	c.auth.greeted = true
	d := c.identify("", m.DeviceToken)
	c.reply(&protocol.DeviceAck{DeviceID: d.ID, DeviceToken: d.Token})
}

// identify remembers the device and returns what it is told: its id, and a token if it
// did not present one of ours. Op ids are unique per device, so taking the subject for
// the device would let the write of one device pass for the repeat of another's.
func (c *conn) identify(subject, presented string) device.Identity {
	issuer := device.New(c.srv.deps.Secret, c.backend.ClusterID())
	if id, ok := issuer.Check(subject, presented); ok {
		c.auth.client = subject + "\x00" + presented
		return device.Identity{ID: id}
	}
	d := issuer.Issue(subject)
	c.auth.client = subject + "\x00" + d.Token
	if presented != "" {
		// What it sent under that name may come again before it takes the new one.
		c.auth.client = subject + "\x00" + presented
	}
	return d
}

// expireAt closes the connection at t, unless it was already to live longer, and reports
// whether it does.
func (c *conn) expireAt(t time.Time) bool {
	a := &c.auth
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stopped || !t.After(a.until) {
		return t.Equal(a.until)
	}
	a.until = t
	left := t.Sub(time.UnixMilli(c.srv.deps.Now()))
	if a.expiry != nil {
		a.expiry.Reset(left)
		return true
	}
	a.expiry = time.AfterFunc(left, c.expire)
	return true
}

// expire closes the connection unless it was renewed while the timer ran out.
func (c *conn) expire() {
	c.auth.mu.Lock()
	left := c.auth.until.Sub(time.UnixMilli(c.srv.deps.Now()))
	if left > 0 && !c.auth.stopped {
		c.auth.expiry.Reset(left)
		c.auth.mu.Unlock()
		return
	}
	c.auth.mu.Unlock()
	c.end(closeFlushed, protocol.CloseAuth, reasonExpired)
}

// stop ends the expiry timer.
func (a *authState) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stopped = true
	if a.expiry != nil {
		a.expiry.Stop()
	}
}
