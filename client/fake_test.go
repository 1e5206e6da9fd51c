package client_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"
	"go.uber.org/goleak"

	"github.com/quorate/quorate/client"
	"github.com/quorate/quorate/protocol"
)

func TestMain(m *testing.M) {
	code := m.Run()
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			code = 1
		}
	}
	os.Exit(code)
}

// patience bounds waits for what should take milliseconds.
const patience = time.Minute

// fake is a server whose side of the conversation the test plays.
type fake struct {
	t     *testing.T
	url   string
	peers chan *peer
	// auth: the server asks for a token, and refuses all that do not begin with "good".
	auth atomic.Bool
	// held: heartbeats are left to the test from the first one behind the handshake.
	held atomic.Bool
	// away: upgrades are refused.
	away atomic.Bool
	// ahead is how far the server's clock is, in milliseconds.
	ahead atomic.Int64
	// issued counts the device tokens.
	issued atomic.Int64
}

// issue is a new device token.
func (f *fake) issue() string { return fmt.Sprint("issued ", f.issued.Add(1)) }

// peer is the server's end of one connection. It answers handshakes and heartbeats itself.
type peer struct {
	t    *testing.T
	fake *fake
	sock *websocket.Conn
	got  chan protocol.Message
	over chan struct{}
	// device is the token that the client came with.
	device string
	// deaf answers no heartbeats after the handshake.
	deaf atomic.Bool
	// held: heartbeats are left to the test.
	held atomic.Bool
}

func newFake(t *testing.T) *fake {
	f := &fake{t: t, peers: make(chan *peer, 64)}
	done := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f.away.Load() {
			http.Error(w, "away", http.StatusServiceUnavailable)
			return
		}
		sock, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		sock.SetReadLimit(protocol.MaxFrame)
		p := &peer{t: t, fake: f, sock: sock, got: make(chan protocol.Message, 4096), over: make(chan struct{})}
		p.held.Store(f.held.Load())
		go func() { // ends the connection with the test
			select {
			case <-done:
				_ = sock.CloseNow()
			case <-p.over:
			}
		}()
		if p.greet(f.auth.Load()) {
			f.peers <- p
			p.read()
		}
		close(p.over)
		_ = sock.CloseNow()
	}))
	f.url = "ws" + strings.TrimPrefix(srv.URL, "http") + "/ws"
	t.Cleanup(func() {
		close(done)
		srv.Close()
	})
	return f
}

// greet shakes hands.
func (p *peer) greet(auth bool) bool {
	if auth {
		p.send(&protocol.AuthRequired{})
	}
	m, err := p.receive()
	if err != nil {
		return false
	}
	switch m := m.(type) {
	case *protocol.Auth:
		p.device = m.DeviceToken
		if auth && !strings.HasPrefix(m.Token, "good") {
			p.send(&protocol.AuthFail{Reason: "no such token"})
			_ = p.sock.Close(websocket.StatusCode(protocol.CloseAuth), "")
			return false
		}
		p.send(&protocol.AuthAck{ConnectionID: "c", ServerNodeID: "fake", Roles: []string{}, DeviceToken: p.fake.issue()})
	case *protocol.DeviceHello:
		p.device = m.DeviceToken
		p.send(&protocol.DeviceAck{DeviceToken: p.fake.issue()})
	}
	m, err = p.receive()
	ping, ok := m.(*protocol.Ping)
	if err != nil || !ok {
		return false
	}
	p.pong(ping)
	return true
}

func (p *peer) pong(m *protocol.Ping) {
	p.send(&protocol.Pong{Timestamp: m.Timestamp, ServerTime: time.Now().UnixMilli() + p.fake.ahead.Load()})
}

func (p *peer) receive() (protocol.Message, error) {
	_, b, err := p.sock.Read(context.Background())
	if err != nil {
		return nil, err
	}
	return protocol.Decode(b)
}

func (p *peer) read() {
	for {
		m, err := p.receive()
		if err != nil {
			return
		}
		switch ping, ok := m.(*protocol.Ping); {
		case !ok || p.held.Load():
			p.got <- m
		case !p.deaf.Load():
			p.pong(ping)
		}
	}
}

func (p *peer) send(m protocol.Message) {
	b, err := protocol.Append(nil, m)
	if err != nil {
		p.t.Errorf("encode: %v", err)
	}
	_ = p.sock.Write(context.Background(), websocket.MessageBinary, b)
}

// end closes the connection with a code.
func (p *peer) end(code protocol.CloseCode) { _ = p.sock.Close(websocket.StatusCode(code), "") }

// cut ends the connection without a word.
func (p *peer) cut() { _ = p.sock.CloseNow() }

// accept waits for the next connection.
func (f *fake) accept() *peer {
	f.t.Helper()
	select {
	case p := <-f.peers:
		return p
	case <-time.After(patience):
		f.t.Fatal("no connection")
		return nil
	}
}

// next waits for the next message, which must be of type T.
func next[T protocol.Message](p *peer) T {
	p.t.Helper()
	var zero T
	select {
	case m := <-p.got:
		if got, ok := m.(T); ok {
			return got
		}
		p.t.Fatalf("got %s %+v, want %T", m.Kind(), m, zero)
	case <-time.After(patience):
		p.t.Fatalf("no %T", zero)
	}
	return zero
}

// ack accepts operations.
func (p *peer) ack(batch *protocol.OpBatch) {
	ack := &protocol.OpAck{LastID: batch.Ops[len(batch.Ops)-1].ID, AchievedLevel: protocol.LevelPersisted}
	for _, op := range batch.Ops {
		ack.Results = append(ack.Results, protocol.AckResult{OpID: op.ID, Success: true, AchievedLevel: protocol.LevelPersisted})
	}
	p.send(ack)
}

// complain sends an ERROR, whose details name things in pairs.
func (p *peer) complain(code protocol.Code, pairs ...string) {
	m := &protocol.ErrorMessage{Code: code, Message: "because"}
	if len(pairs) > 0 {
		b := msgp.AppendMapHeader(nil, uint32(len(pairs)/2))
		for _, s := range pairs {
			b = msgp.AppendString(b, s)
		}
		m.Details = b
	}
	p.send(m)
}

// open connects a client to fakes.
func open(t *testing.T, cfg client.Config, fakes ...*fake) *client.Client {
	t.Helper()
	for _, f := range fakes {
		cfg.Seeds = append(cfg.Seeds, f.url)
	}
	c, err := client.Open(within(t), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// within is the context of a call that is expected to succeed.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// begin runs a call beside the test and returns its error.
func begin(call func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- call() }()
	return done
}

func await(t *testing.T, done <-chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(patience):
		t.Fatal("the call does not return")
		return nil
	}
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
