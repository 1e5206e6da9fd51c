package transport

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/partitions/topics"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/transport/admin"
	"github.com/quorate/quorate/transport/auth"
	"github.com/quorate/quorate/transport/health"
)

func TestMain(m *testing.M) {
	// After an answer to a request that it did not read to the end, net/http lets a
	// goroutine sleep for half a second, which its Close does not wait for.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

const patience = time.Minute

// noCluster is a Backend that takes connections and nothing else.
type noCluster struct{ Backend }

func (noCluster) NewSession() *partitions.Session { return nil }

func (noCluster) ReceiveTopics(func(*topics.Message)) {}

func (noCluster) EndSession(context.Context, *partitions.Session) {}

func (noCluster) Now() protocol.Timestamp { return protocol.Timestamp{Millis: 1} }

func (noCluster) ClusterID() string { return "c" }

func (noCluster) HorizonChanged(func()) (cancel func()) { return func() {} }

func (noCluster) Document(string) ([]byte, uint64) { return nil, 0 }

func (noCluster) FreshDocuments(context.Context) error { return nil }

func (noCluster) MapNames() []string { return nil }

// oneNode is what operators see of a node alone.
type oneNode struct{}

func (oneNode) Node() admin.NodeInfo                 { return admin.NodeInfo{NodeID: "n1", Version: "v"} }
func (oneNode) Nodes(context.Context) []admin.Node   { return nil }
func (oneNode) Drain(context.Context, string) error  { return admin.ErrUnknownNode }
func (oneNode) Remove(context.Context, string) error { return admin.ErrUnknownNode }
func (oneNode) Transfer(context.Context, uint32, string) (admin.Transferred, error) {
	return admin.Transferred{}, admin.ErrUnknownGroup
}

func testDeps(t *testing.T, reg *prometheus.Registry, caughtUp func() bool) Deps {
	now := func() int64 { return 1_800_000_000_000 }
	tokens, err := auth.NewAdmin([]byte("secret"), now)
	require.NoError(t, err)
	return Deps{Logger: hclog.NewNullLogger(), Now: now, CaughtUp: caughtUp, Registerer: reg, Gatherer: reg, Tokens: tokens, Cluster: oneNode{}}
}

func (noCluster) PartitionMap() *partitions.MapInfo { return nil }
func (noCluster) MapChanged(func()) (cancel func()) { return func() {} }

type fixture struct {
	*Server
	t        *testing.T
	addr     string
	caughtUp atomic.Bool
	http     *http.Client
}

func start(t *testing.T, change func(*Config), deps ...func(*Deps)) *fixture {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Addr, cfg.WebSocket.NodeID = "127.0.0.1:0", "n1"
	if change != nil {
		change(&cfg)
	}
	reg := prometheus.NewRegistry()
	f := &fixture{t: t}
	d := testDeps(t, reg, f.caughtUp.Load)
	for _, adjust := range deps {
		adjust(&d)
	}
	s, err := New(cfg, d)
	require.NoError(t, err)
	port, err := s.Start()
	require.NoError(t, err)
	require.Positive(t, port)
	tr := &http.Transport{}
	f.Server, f.addr, f.http = s, fmt.Sprintf("127.0.0.1:%d", port), &http.Client{Transport: tr, Timeout: patience}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		require.NoError(t, s.Close())
	})
	return f
}

func (f *fixture) do(method, path string, body io.Reader, header http.Header) (*http.Response, string) {
	f.t.Helper()
	req, err := http.NewRequestWithContext(f.t.Context(), method, "http://"+f.addr+path, body)
	require.NoError(f.t, err)
	for k, v := range header {
		req.Header[k] = v
	}
	resp, err := f.http.Do(req)
	require.NoError(f.t, err)
	b, err := io.ReadAll(resp.Body)
	require.NoError(f.t, err)
	require.NoError(f.t, resp.Body.Close())
	return resp, string(b)
}

func (f *fixture) get(path string) (*http.Response, string) {
	f.t.Helper()
	return f.do(http.MethodGet, path, nil, nil)
}

func (f *fixture) dial(path string) (*websocket.Conn, int) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	sock, resp, err := websocket.Dial(ctx, "ws://"+f.addr+path, nil)
	if err == nil {
		return sock, http.StatusSwitchingProtocols
	}
	require.NotNil(f.t, resp, err)
	return nil, resp.StatusCode
}

func TestProbesAnswerFromBindToClose(t *testing.T) {
	f := start(t, nil)
	status := func(path string) int { r, _ := f.get(path); return r.StatusCode }
	state := func() string {
		_, body := f.get("/health")
		var v struct{ State string }
		require.NoError(t, json.Unmarshal([]byte(body), &v))
		return v.State
	}
	require.Equal(t, 200, status("/health/live"))
	require.Equal(t, 503, status("/health/ready"))
	require.Equal(t, "starting", state())
	_, code := f.dial("/ws")
	require.Equal(t, 503, code)

	f.Open(noCluster{})
	require.Equal(t, 503, status("/healthz"), "not caught up")
	_, code = f.dial("/ws")
	require.Equal(t, 503, code)

	f.caughtUp.Store(true)
	require.Equal(t, 200, status("/health/ready"))
	require.Equal(t, 200, status("/healthz"))
	require.Equal(t, "ready", state())
	require.True(t, f.Ready())

	f.caughtUp.Store(false)
	require.Equal(t, 503, status("/health/ready"), "without a leader")
	sock, code := f.dial("/ws")
	require.Equal(t, 101, code, "clients are not turned away for that")
	ended := make(chan websocket.StatusCode)
	go func() {
		_, _, err := sock.Read(context.Background())
		ended <- websocket.CloseStatus(err)
	}()

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, f.Drain(ctx))
	require.Equal(t, websocket.StatusGoingAway, <-ended)
	require.Equal(t, 503, status("/health/ready"))
	require.Equal(t, 200, status("/health/live"))
	require.Equal(t, "draining", state())
	require.Equal(t, health.Draining, f.State())
	_, code = f.dial("/ws")
	require.Equal(t, 503, code)
	operator, err := f.deps.Tokens.Issue("admin")
	require.NoError(t, err)
	for method, path := range map[string]string{
		"POST": "/sync", "PUT": "/api/admin/settings", "DELETE": "/api/admin/policies/p",
	} {
		resp, _ := f.do(method, path, nil, http.Header{"Authorization": {"Bearer " + operator}})
		require.Equal(t, 503, resp.StatusCode, "%s %s", method, path)
		require.NotEmpty(t, resp.Header.Get("Retry-After"))
	}
	resp, _ := f.do("GET", "/api/admin/settings", nil, http.Header{"Authorization": {"Bearer " + operator}})
	require.Equal(t, 200, resp.StatusCode)
}

func TestRoutes(t *testing.T) {
	f := start(t, nil)
	f.Open(noCluster{})
	f.caughtUp.Store(true)
	cases := []struct {
		method, path string
		status       int
	}{
		{"GET", "/ws", 426},
		{"GET", "/", 426},
		{"POST", "/ws", 405},
		{"POST", "/health", 405},
		{"GET", "/metrics", 200},
		{"POST", "/sync", 200},
		{"GET", "/sync", 405},
		{"GET", "/api/status", 200},
		{"PUT", "/api/admin/settings", 401},
		{"POST", "/api/admin/settings", 405},
		{"DELETE", "/api/admin/policies/x", 401},
		{"GET", "/api/nothing", 404},
		{"GET", "/admin", 200},
		{"GET", "/admin/index.html", 200},
		{"GET", "/admin/nothing.js", 404},
		{"GET", "/admin/a/page", 200},
		{"OPTIONS", "/sync", 405},
		{"GET", "/nothing", 404},
		{"POST", "/nothing", 404},
		{"GET", "/ws/deeper", 404},
	}
	for _, c := range cases {
		resp, body := f.do(c.method, c.path, nil, nil)
		name := c.method + " " + c.path
		require.Equal(t, c.status, resp.StatusCode, name)
		require.Equal(t, "nosniff", resp.Header.Get("X-Content-Type-Options"), name)
		require.NotEmpty(t, resp.Header.Get("X-Request-Id"), name)
		if c.status >= 400 {
			var v struct {
				Code    int
				Message string
			}
			require.NoError(t, json.Unmarshal([]byte(body), &v), name)
			require.Equal(t, c.status, v.Code, name)
			require.NotEmpty(t, v.Message, name)
		}
	}
}

func TestWebSocketIsServedAtBothPaths(t *testing.T) {
	f := start(t, nil)
	f.Open(noCluster{})
	f.caughtUp.Store(true)
	for _, path := range []string{"/ws", "/"} {
		sock, code := f.dial(path)
		require.Equal(t, 101, code, path)
		ping, err := protocol.Append(nil, &protocol.Ping{})
		require.NoError(t, err)
		require.NoError(t, sock.Write(t.Context(), websocket.MessageBinary, ping))
		_, frame, err := sock.Read(t.Context())
		require.NoError(t, err)
		m, err := protocol.Decode(frame)
		require.NoError(t, err)
		require.Equal(t, protocol.KindPong, m.Kind())
		_, body := f.get("/health")
		require.Contains(t, body, `"connections":1`)
		require.NoError(t, sock.Close(websocket.StatusNormalClosure, ""))
		require.Eventually(t, func() bool { return f.ws.Connections() == 0 }, patience, time.Millisecond)
	}
	_, metrics := f.get("/metrics")
	require.Contains(t, metrics, `service_ws_messages_total{direction="in",type="PING"} 2`)
	require.Contains(t, metrics, `service_http_requests_total{route="GET /ws",status="101"} 1`)
}

func TestRequestIDsAreKeptOrMade(t *testing.T) {
	f := start(t, nil)
	resp, _ := f.do("GET", "/health", nil, http.Header{"X-Request-Id": {"abc-123"}})
	require.Equal(t, "abc-123", resp.Header.Get("X-Request-Id"))
	for _, bad := range []string{"", "two words", strings.Repeat("x", 200), "naïve"} {
		resp, _ := f.do("GET", "/health", nil, http.Header{"X-Request-Id": {bad}})
		require.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, resp.Header.Get("X-Request-Id"))
	}
}

func TestLargeBodiesAreRefused(t *testing.T) {
	f := start(t, nil)
	resp, _ := f.do("POST", "/sync", bytes.NewReader(make([]byte, 2<<20+1)), nil)
	require.Equal(t, http.StatusRequestEntityTooLarge, resp.StatusCode)
}

// TestConnectionsThatSayNothingAreBounded has clients that only connect.
func TestConnectionsThatSayNothingAreBounded(t *testing.T) {
	f := start(t, func(c *Config) { c.MaxSockets = 5 })
	f.Open(noCluster{})
	f.caughtUp.Store(true)
	sock, code := f.dial("/ws")
	require.Equal(t, 101, code)
	ping, err := protocol.Append(nil, &protocol.Ping{})
	require.NoError(t, err)
	answered := func() {
		require.NoError(t, sock.Write(t.Context(), websocket.MessageBinary, ping))
		_, _, err = sock.Read(t.Context())
		require.NoError(t, err)
	}
	answered() // so it is counted
	idle := make([]net.Conn, 4)
	for i := range idle {
		var err error
		idle[i], err = net.Dial("tcp", f.addr)
		require.NoError(t, err)
	}
	// The system connects before the server accepts, so that the next one is told by a close.
	refused, err := net.Dial("tcp", f.addr)
	require.NoError(t, err)
	require.NoError(t, refused.SetReadDeadline(time.Now().Add(patience)))
	_, err = refused.Read(make([]byte, 1))
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, refused.Close())
	answered()

	for _, c := range idle {
		require.NoError(t, c.Close())
	}
	require.Eventually(t, func() bool { return f.plain.Load() == 0 }, patience, time.Millisecond)
	resp, _ := f.get("/health/live")
	require.Equal(t, 200, resp.StatusCode)
	require.InDelta(t, 1, testutil.ToFloat64(f.metrics.turnedAway), 0)
	require.NoError(t, sock.Close(websocket.StatusNormalClosure, ""))
	require.Eventually(t, func() bool { return f.ws.Connections() == 0 }, patience, time.Millisecond)
}

func TestHeadsAreBoundedInTimeAndSize(t *testing.T) {
	f := start(t, func(c *Config) { c.HeaderTimeout = 100 * time.Millisecond; c.MaxHeaderBytes = 4096 })
	drip, err := net.Dial("tcp", f.addr)
	require.NoError(t, err)
	defer drip.Close()
	_, err = drip.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n"))
	require.NoError(t, err)
	require.NoError(t, drip.SetReadDeadline(time.Now().Add(patience)))
	_, err = io.ReadAll(drip)
	require.NoError(t, err, "the server hangs up")

	fat, err := net.Dial("tcp", f.addr)
	require.NoError(t, err)
	defer fat.Close()
	require.NoError(t, fat.SetDeadline(time.Now().Add(patience)))
	_, err = fat.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("a", 10_000) + "\r\n\r\n"))
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(fat), nil)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, resp.StatusCode)
}

func TestStartNamesAnAddressInUse(t *testing.T) {
	f := start(t, nil)
	cfg := DefaultConfig()
	cfg.Addr, cfg.WebSocket.NodeID = f.addr, "n2"
	reg := prometheus.NewRegistry()
	s, err := New(cfg, testDeps(t, reg, nil))
	require.NoError(t, err)
	_, err = s.Start()
	require.ErrorContains(t, err, f.addr)
	require.NoError(t, s.Close())
}

func TestConfigReportsAllProblems(t *testing.T) {
	_, err := New(Config{}, Deps{Logger: hclog.NewNullLogger(), Now: func() int64 { return 0 }})
	for _, part := range []string{"listen address", "header timeout", "node id"} {
		require.ErrorContains(t, err, part)
	}
}
