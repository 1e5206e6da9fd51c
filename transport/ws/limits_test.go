package ws

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/protocol"
)

func TestPingIsEchoedWithTheServersTime(t *testing.T) {
	f := start(t)
	c := f.dial()
	for _, ts := range []msgp.Raw{msgp.AppendFloat64(nil, 1767225600000), msgp.AppendInt64(nil, -3), nil} {
		c.send(&protocol.Ping{Timestamp: ts})
		require.Equal(t, &protocol.Pong{Timestamp: ts, ServerTime: testNow}, expect[*protocol.Pong](c))
	}
}

func TestUndecodableFramesAreToldAtMostOnceASecond(t *testing.T) {
	f := start(t)
	c := f.dial()
	for range 5 {
		c.sendRaw([]byte{0xc1})
	}
	require.Equal(t, protocol.CodeMalformed, expect[*protocol.ErrorMessage](c).Code)
	c.silent()
}

func TestUndecodableMessageNamesItselfWhereItCan(t *testing.T) {
	f := start(t)
	c := f.dial()
	// QUERY_SUB without a map name.
	b := msgp.AppendMapHeader(nil, 2)
	b = msgp.AppendString(msgp.AppendString(b, "type"), "QUERY_SUB")
	b = msgp.AppendMapHeader(msgp.AppendString(b, "payload"), 2)
	b = msgp.AppendString(msgp.AppendString(b, "queryId"), "q9")
	b = msgp.AppendMapHeader(msgp.AppendString(b, "query"), 0)
	c.sendRaw(b)
	e := expect[*protocol.ErrorMessage](c)
	require.Equal(t, map[string]any{"type": "QUERY_SUB", "queryId": "q9"}, detailsOf(t, e))
}

func TestUnknownTypesTextFramesAndForeignTypesAreIgnored(t *testing.T) {
	f := start(t)
	c := f.dial()
	unknown := msgp.AppendString(msgp.AppendString(msgp.AppendMapHeader(nil, 1), "type"), "FROM_THE_FUTURE")
	c.sendRaw(unknown)
	require.NoError(t, c.sock.Write(t.Context(), websocket.MessageText, []byte(`{"type":"PING"}`)))
	require.NoError(t, c.sock.Write(t.Context(), websocket.MessageText, nil))
	c.send(&protocol.OpAck{LastID: "1"})
	c.send(&protocol.ClusterSubUnregister{SubscriptionID: "s"})
	c.silent()
}

func TestFrameAtTheBoundIsReadAndOneBeyondCloses(t *testing.T) {
	f := start(t)
	c := f.dial()
	frame, err := protocol.Append(nil, &protocol.Ping{Timestamp: msgp.AppendInt(nil, 1)})
	require.NoError(t, err)
	c.sendRaw(append(frame, make([]byte, protocol.MaxFrame-len(frame))...)) // trailing bytes are ignored
	expect[*protocol.Pong](c)
	// The server may close while the frame is still on its way.
	_ = c.sock.Write(context.Background(), websocket.MessageBinary, make([]byte, protocol.MaxFrame+1))
	require.Equal(t, protocol.CloseTooBig, c.expectClose())
}

func TestIdleConnectionIsClosed(t *testing.T) {
	f := start(t, func(c *Config, _ *Deps, _ *fakeBackend) { c.Connection.IdleTimeout = 300 * time.Millisecond })
	idle, busy := f.dial(), f.dial()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		idle.expectClose()
	}()
	for alive := true; alive; {
		busy.silent() // any frame keeps a connection
		select {
		case <-closed:
			alive = false
		case <-time.After(50 * time.Millisecond):
		}
	}
	require.Equal(t, protocol.CloseIdle, busy.expectClose())
}

func TestProtocolLevelPingsAreAnsweredButDoNotKeepAConnection(t *testing.T) {
	f := start(t, func(c *Config, _ *Deps, _ *fakeBackend) { c.Connection.IdleTimeout = 300 * time.Millisecond })
	c := f.dial()
	ended := make(chan protocol.CloseCode)
	go func() { ended <- c.expectClose() }()
	pongs := 0
	for {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		if c.sock.Ping(ctx) == nil {
			pongs++
		}
		cancel()
		select {
		case code := <-ended:
			require.Equal(t, protocol.CloseIdle, code)
			require.Positive(t, pongs)
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func TestFramesInFragmentsOfOneByteAreRead(t *testing.T) {
	f := start(t)
	c := f.dial()
	frame, err := protocol.Append(nil, batch(put("1", "m", "k", 1)))
	require.NoError(t, err)
	w, err := c.sock.Writer(t.Context(), websocket.MessageBinary)
	require.NoError(t, err)
	for i := range frame {
		_, err := w.Write(frame[i : i+1])
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.Equal(t, "1", expect[*protocol.OpAck](c).LastID)
}

func TestRateOfAConnectionIsBounded(t *testing.T) {
	f := start(t, func(c *Config, _ *Deps, _ *fakeBackend) { c.RatePerSecond, c.RateBurst = 1, 10 })
	c, other := f.dial(), f.dial()
	ops := make([]protocol.ClientOp, 9)
	for i := range ops {
		ops[i] = put("", "m", "k", i)
	}
	ops[8].ID = "8"
	c.send(batch(ops...))
	expect[*protocol.OpAck](c)
	c.send(batch(ops...))
	e := expect[*protocol.ErrorMessage](c)
	require.Equal(t, protocol.CodeOverloaded, e.Code)
	details := detailsOf(t, e)
	require.Equal(t, "OP_BATCH", details["type"])
	wait, ok := details["retryAfterMs"].(int64)
	require.True(t, ok, "%v", details)
	require.Positive(t, wait)
	require.LessOrEqual(t, wait, int64(8000), "one operation a second, and one is left")
	require.Len(t, f.backend.written(), 9)
	other.silent()
}

func TestABatchLargerThanTheBurstIsNotLockedOut(t *testing.T) {
	f := start(t, func(c *Config, _ *Deps, _ *fakeBackend) { c.RatePerSecond, c.RateBurst = 1, 3 })
	c := f.dial()
	c.send(batch(put("1", "m", "a", 1), put("2", "m", "b", 1), put("3", "m", "c", 1), put("4", "m", "d", 1)))
	require.Equal(t, "4", expect[*protocol.OpAck](c).LastID)
}

func TestBatchFrameIsSplitAndHandledInOrder(t *testing.T) {
	f := start(t)
	c := f.dial()
	var data []byte
	for _, m := range []protocol.Message{
		batch(put("1", "m", "a", 1)),
		&protocol.Batch{Data: protocol.AppendBatch(nil, encode(t, batch(put("9", "m", "z", 1))))},
		&protocol.Auth{Token: "t"}, &protocol.DeviceHello{}, &protocol.ClientApplyAck{},
		batch(put("2", "m", "b", 1)),
	} {
		data = protocol.AppendBatch(data, encode(t, m))
	}
	data = protocol.AppendBatch(data, []byte{0xc1})
	data = protocol.AppendBatch(data, encode(t, batch(put("3", "m", "c", 1))))
	c.send(&protocol.Batch{Count: 17, Data: data}) // the count lies
	var acks []string
	complaints := 0
	for len(acks) < 3 || complaints < 1 {
		switch m := c.next().(type) {
		case *protocol.OpAck:
			acks = append(acks, m.LastID)
		case *protocol.ErrorMessage:
			complaints++
		default:
			t.Fatalf("unexpected %s", m.Kind())
		}
	}
	require.Equal(t, []string{"1", "2", "3"}, acks)
	c.silent()
}

func TestTruncatedBatchIsHandledUpToTheCut(t *testing.T) {
	f := start(t)
	c := f.dial()
	data := protocol.AppendBatch(nil, encode(t, &protocol.Ping{}))
	data = append(data, 0xff, 0xff, 0xff, 0xff, 1, 2, 3)
	c.send(&protocol.Batch{Count: 2, Data: data})
	expect[*protocol.Pong](c)
	require.Equal(t, protocol.CodeMalformed, expect[*protocol.ErrorMessage](c).Code)
}

func TestBatchFrameOfTooManyItemsIsRefusedAsAWhole(t *testing.T) {
	f := start(t)
	c := f.dial()
	write, ping := encode(t, batch(put("1", "m", "a", 1))), encode(t, &protocol.Ping{})
	items := func(n int) *protocol.Batch {
		data := protocol.AppendBatch(nil, write)
		return &protocol.Batch{Count: 1, Data: append(data, bytes.Repeat(protocol.AppendBatch(nil, ping), n-1)...)}
	}
	c.send(items(protocol.MaxBatchItems + 1))
	require.Equal(t, protocol.CodeTooLarge, expect[*protocol.ErrorMessage](c).Code)
	c.silent()
	require.Empty(t, f.backend.written(), "nothing of it is handled")
	c.sendRaw(encode(t, items(protocol.MaxBatchItems)))
	for pongs, acks := 0, 0; pongs < protocol.MaxBatchItems-1 || acks < 1; {
		switch m := c.next().(type) {
		case *protocol.Pong:
			pongs++
		case *protocol.OpAck:
			acks++
		default:
			t.Fatalf("unexpected %s", m.Kind())
		}
	}
}

func TestItemsOfABatchFrameCountForTheRate(t *testing.T) {
	f := start(t, func(c *Config, _ *Deps, _ *fakeBackend) { c.RatePerSecond, c.RateBurst = 1, 5 })
	c := f.dial()
	ping := encode(t, &protocol.Ping{})
	c.send(&protocol.Batch{Data: bytes.Repeat(protocol.AppendBatch(nil, ping), 4)})
	for range 4 {
		expect[*protocol.Pong](c)
	}
	c.send(&protocol.Batch{Data: bytes.Repeat(protocol.AppendBatch(nil, ping), 4)})
	require.Equal(t, protocol.CodeOverloaded, expect[*protocol.ErrorMessage](c).Code)
}

func encode(t testing.TB, m protocol.Message) []byte {
	t.Helper()
	b, err := protocol.Append(nil, m)
	require.NoError(t, err)
	return b
}

func TestConnectionsAreBounded(t *testing.T) {
	for name, limit := range map[string]option{
		"in all":      func(c *Config, _ *Deps, _ *fakeBackend) { c.MaxConnections = 2 },
		"per address": func(c *Config, _ *Deps, _ *fakeBackend) { c.MaxConnectionsPerAddress = 2 },
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, limit)
			first := f.dial()
			f.dial().silent()
			_, resp, err := websocket.Dial(t.Context(), f.url, nil)
			require.Error(t, err)
			require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
			require.Equal(t, "1", resp.Header.Get("Retry-After"))
			require.NoError(t, first.sock.CloseNow())
			// The place is free a moment after the connection is not counted any more.
			eventually(t, func() bool {
				sock, _, err := websocket.Dial(t.Context(), f.url, nil)
				if err != nil {
					return false
				}
				t.Cleanup(func() { _ = sock.CloseNow() })
				return true
			}, "room again")
		})
	}
}

func TestUpgradeIsRefusedWhileNotAccepting(t *testing.T) {
	ready := false
	f := start(t, func(_ *Config, d *Deps, _ *fakeBackend) { d.Accepting = func() bool { return ready } })
	_, resp, err := websocket.Dial(t.Context(), f.url, nil)
	require.Error(t, err)
	require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	ready = true
	f.dial().silent()
}

func TestPlainRequestsAreToldToUpgrade(t *testing.T) {
	f := start(t)
	resp, err := http.Get(strings.Replace(f.url, "ws://", "http://", 1))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	http.DefaultClient.CloseIdleConnections()
	require.Equal(t, http.StatusUpgradeRequired, resp.StatusCode)
}

// TestNoCompressionIsNegotiated offers what a small frame could be inflated by.
func TestNoCompressionIsNegotiated(t *testing.T) {
	f := start(t)
	for _, mode := range []websocket.CompressionMode{websocket.CompressionContextTakeover, websocket.CompressionNoContextTakeover} {
		sock, resp, err := websocket.Dial(t.Context(), f.url, &websocket.DialOptions{CompressionMode: mode})
		require.NoError(t, err)
		require.NotEmpty(t, resp.Request.Header.Get("Sec-WebSocket-Extensions"), "it is offered")
		require.Empty(t, resp.Header.Get("Sec-WebSocket-Extensions"))
		require.NoError(t, sock.CloseNow())
	}
}

func TestForeignPagesAreRefusedBeforeTheUpgrade(t *testing.T) {
	f := start(t, func(c *Config, _ *Deps, _ *fakeBackend) { c.AllowedOrigins = []string{"https://app.example"} })
	host := strings.TrimSuffix(strings.TrimPrefix(f.url, "ws://"), "/ws")
	for origin, allowed := range map[string]bool{
		"": true, "http://" + host: true, "https://app.example": true,
		"null": false, "https://evil.example": false, "https://app.example.evil": false, "http://127.0.0.1:1": false,
	} {
		h := http.Header{}
		if origin != "" {
			h.Set("Origin", origin)
		}
		sock, resp, err := websocket.Dial(t.Context(), f.url, &websocket.DialOptions{HTTPHeader: h})
		if allowed {
			require.NoError(t, err, origin)
			_ = sock.CloseNow()
			continue
		}
		require.Error(t, err, origin)
		require.Equal(t, http.StatusForbidden, resp.StatusCode, origin)
	}
}

func TestOriginRule(t *testing.T) {
	allowed := []string{"https://app.example", "http://dev.example:3000"}
	cases := []struct {
		host    string
		origins []string
		list    []string
		want    bool
	}{
		{"a.example", nil, nil, true},
		{"a.example", []string{"http://a.example"}, nil, true},
		{"A.example", []string{"http://a.EXAMPLE"}, nil, true},
		{"a.example", []string{"https://a.example"}, nil, true}, // TLS ends before us
		{"a.example:80", []string{"http://a.example"}, nil, true},
		{"a.example:443", []string{"https://a.example:443"}, nil, true},
		{"a.example:8080", []string{"http://a.example:8080"}, nil, true},
		{"[::1]:8080", []string{"http://[::1]:8080"}, nil, true},
		{"a.example:8080", []string{"http://a.example"}, nil, false},
		{"a.example:8080", []string{"http://a.example:8081"}, nil, false},
		{"a.example", []string{"http://a.example.evil"}, nil, false},
		{"a.example", []string{"http://evil.a.example"}, nil, false},
		{"a.example", []string{"http://evil/a.example"}, nil, false},
		{"a.example", []string{"http://a.example@evil"}, nil, false},
		{"a.example", []string{"null"}, nil, false},
		{"a.example", []string{""}, nil, false},
		{"a.example", []string{"file://"}, nil, false},
		{"a.example", []string{"http://a.example", "http://evil"}, nil, false},
		{"a.example", []string{"https://app.example"}, allowed, true},
		{"a.example", []string{"https://APP.example:443"}, allowed, true},
		{"a.example", []string{"http://app.example"}, allowed, false},
		{"a.example", []string{"http://dev.example:3000"}, allowed, true},
		{"a.example", []string{"http://dev.example"}, allowed, false},
		{"a.example", []string{"https://sub.app.example"}, allowed, false},
		{"a.example", []string{"null"}, []string{"*"}, true},
		{"a.example", []string{"http://anywhere"}, []string{"*"}, true},
	}
	for _, c := range cases {
		r := &http.Request{Host: c.host, Header: http.Header{}}
		for _, o := range c.origins {
			r.Header.Add("Origin", o)
		}
		require.Equal(t, c.want, OriginAllowed(r, c.list), "host %s origin %q", c.host, c.origins)
	}
}

func TestConfigReportsAllProblems(t *testing.T) {
	err := Config{AllowedOrigins: []string{"app.example"}}.Validate()
	for _, part := range []string{"node id", "auth timeout", "outbound capacity", "app.example", "bytes in flight"} {
		require.ErrorContains(t, err, part)
	}
	cfg := DefaultConfig()
	cfg.NodeID, cfg.AllowedOrigins = "n", []string{"*", "https://app.example:8443"}
	require.NoError(t, cfg.Validate())
}
