package ws

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"
	"go.uber.org/goleak"

	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/transport/auth"
)

// testNow is the wall clock of the servers under test, in milliseconds.
const testNow = int64(1_800_000_000_000)

// patience bounds every wait of a test for something that must come.
const patience = time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is a Server on a loopback port over a fake backend.
type fixture struct {
	*Server
	t       testing.TB
	backend *fakeBackend
	url     string
	metrics *prometheus.Registry
}

type option func(*Config, *Deps, *fakeBackend)

// start runs a Server until the test ends. Without options it has no authentication.
func start(t testing.TB, options ...option) *fixture {
	t.Helper()
	cfg := DefaultConfig()
	cfg.NodeID = "n1"
	backend := newFakeBackend()
	reg := prometheus.NewRegistry()
	deps := Deps{Logger: hclog.NewNullLogger(), Now: func() int64 { return testNow }, Registerer: reg}
	if os.Getenv("WS_TEST_LOG") != "" {
		deps.Logger = hclog.New(&hclog.LoggerOptions{Level: hclog.Trace})
	}
	for _, o := range options {
		o(&cfg, &deps, backend)
	}
	s, err := New(cfg, deps)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	httpServer := &http.Server{Handler: s, ReadHeaderTimeout: patience}
	served, ran := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(served)
		_ = httpServer.Serve(l)
	}()
	go func() {
		defer close(ran)
		backend.run()
	}()
	s.Open(backend)
	f := &fixture{Server: s, t: t, backend: backend, url: "ws://" + l.Addr().String() + "/ws", metrics: reg}
	t.Cleanup(func() {
		s.Close()
		_ = httpServer.Close()
		backend.close()
		<-served
		<-ran
	})
	return f
}

// client is a WebSocket client under the test's control.
type client struct {
	t    testing.TB
	sock *websocket.Conn
}

// dial connects without a handshake of our protocol.
func (f *fixture) dial() *client {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	sock, _, err := websocket.Dial(ctx, f.url, &websocket.DialOptions{CompressionMode: websocket.CompressionDisabled})
	require.NoError(f.t, err)
	sock.SetReadLimit(-1)
	f.t.Cleanup(func() { _ = sock.CloseNow() })
	return &client{t: f.t, sock: sock}
}

// send writes one message.
func (c *client) send(m protocol.Message) {
	c.t.Helper()
	frame, err := protocol.Append(nil, m)
	require.NoError(c.t, err)
	c.sendRaw(frame)
}

func (c *client) sendRaw(frame []byte) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	require.NoError(c.t, c.sock.Write(ctx, websocket.MessageBinary, frame))
}

// next reads one message.
func (c *client) next() protocol.Message {
	c.t.Helper()
	m, err := c.read(patience)
	require.NoError(c.t, err)
	return m
}

func (c *client) read(wait time.Duration) (protocol.Message, error) {
	frame, err := c.readFrame(wait)
	if err != nil {
		return nil, err
	}
	m, err := protocol.Decode(frame)
	// Clients have another layout for what is in a BATCH, and end with one of ours.
	if err == nil && (m.Kind() == protocol.KindBatch || m.Kind().Direction() == protocol.ClientToServer) {
		err = fmt.Errorf("server sent a %s", m.Kind())
	}
	return m, err
}

// nextFrame reads one frame as it is.
func (c *client) nextFrame() []byte {
	c.t.Helper()
	frame, err := c.readFrame(patience)
	require.NoError(c.t, err)
	return frame
}

func (c *client) readFrame(wait time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	kind, frame, err := c.sock.Read(ctx)
	if err == nil && kind != websocket.MessageBinary {
		err = fmt.Errorf("server sent a frame of kind %v", kind)
	}
	return frame, err
}

// expect reads one message, which must be of type M.
func expect[M protocol.Message](c *client) M {
	c.t.Helper()
	m := c.next()
	got, ok := m.(M)
	require.Truef(c.t, ok, "got %s: %+v", m.Kind(), m)
	return got
}

// silent requires that everything sent so far has been handled without an answer:
// the answer to a PING sent now is the next frame.
func (c *client) silent() {
	c.t.Helper()
	c.send(&protocol.Ping{Timestamp: msgp.AppendInt64(nil, 42)})
	expect[*protocol.Pong](c)
}

// expectClose reads until the server closes and returns the code; other frames are
// passed over.
func (c *client) expectClose() protocol.CloseCode {
	c.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		_, err := c.read(time.Until(deadline))
		if err == nil {
			continue
		}
		code := websocket.CloseStatus(err)
		require.NotEqualf(c.t, websocket.StatusCode(-1), code, "closed without a code: %v", err)
		return protocol.CloseCode(code)
	}
}

// eventually polls until cond holds.
func eventually(t testing.TB, cond func() bool, what string) {
	t.Helper()
	require.Eventually(t, cond, patience, 2*time.Millisecond, what)
}

func put(id, mapName, key string, value int) protocol.ClientOp {
	return protocol.ClientOp{
		ID: id, MapName: mapName, Key: key, Type: protocol.OpPut,
		Record: record(value, testNow+int64(value)), RecordPresence: protocol.Present,
	}
}

func record(value int, millis int64) protocol.Record {
	return protocol.Record{Value: msgp.AppendInt(nil, value), Timestamp: protocol.Timestamp{Millis: millis, NodeID: "client"}}
}

func tombstone(millis int64) protocol.Record {
	return protocol.Record{Timestamp: protocol.Timestamp{Millis: millis, NodeID: "client"}}
}

func batch(ops ...protocol.ClientOp) *protocol.OpBatch { return &protocol.OpBatch{Ops: ops} }

func querySub(id, mapName string) *protocol.QuerySub {
	return &protocol.QuerySub{QueryID: id, MapName: mapName}
}

// tokens is a Verifier that accepts tokens "subject" and "subject@unixMillis", and
// refuses those that begin with "bad".
type tokens struct{}

func (tokens) Verify(token string) (auth.Principal, error) {
	var subject string
	until := testNow + time.Hour.Milliseconds()
	if len(token) >= 3 && token[:3] == "bad" {
		return auth.Principal{}, fmt.Errorf("%w: it is bad", auth.ErrRefused)
	}
	for i := range len(token) {
		if token[i] == '@' {
			subject = token[:i]
			if err := json.Unmarshal([]byte(token[i+1:]), &until); err != nil {
				return auth.Principal{}, fmt.Errorf("%w: %w", auth.ErrRefused, err)
			}
			return auth.Principal{ID: subject, Roles: []string{"editor"}, ValidUntil: time.UnixMilli(until)}, nil
		}
	}
	return auth.Principal{ID: token, Roles: []string{"editor"}, ValidUntil: time.UnixMilli(until)}, nil
}

func (tokens) Message(error) string { return "credentials refused" }

func withAuth(_ *Config, d *Deps, _ *fakeBackend) { d.Verifier = tokens{} }

// login dials and authenticates.
func (f *fixture) login(token string) *client {
	f.t.Helper()
	c := f.dial()
	expect[*protocol.AuthRequired](c)
	c.send(&protocol.Auth{Token: token})
	expect[*protocol.AuthAck](c)
	return c
}
