package quorate_test

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/tinylib/msgp/msgp"
	"go.uber.org/goleak"

	"github.com/quorate/quorate"
	"github.com/quorate/quorate/protocol"
)

// embed starts a Server as an embedding program does and returns its port and how
// to end it.
func embed(t *testing.T, cfg quorate.ServerConfig) (port int, end func() error) {
	t.Helper()
	s, err := quorate.New(cfg, quorate.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	port, err = s.Start()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()
	return port, func() error {
		cancel()
		err := <-served
		if closeErr := s.Close(); closeErr != nil {
			t.Error(closeErr)
		}
		return err
	}
}

// noLeaks fails the test if goroutines started in it outlive it.
func noLeaks(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
}

func awaitReady(t *testing.T, port int) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for deadline := time.Now().Add(time.Minute); ; {
		resp, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/health/ready", port))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not ready: %d", resp.StatusCode)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func dial(ctx context.Context, t *testing.T, port int) *websocket.Conn {
	t.Helper()
	conn, _, err := websocket.Dial(ctx, fmt.Sprintf("ws://127.0.0.1:%d/ws", port), nil)
	if err != nil {
		t.Fatal(err)
	}
	conn.SetReadLimit(protocol.MaxFrame)
	return conn
}

// exchange sends m and returns the first answer of type T.
func exchange[T protocol.Message](ctx context.Context, t *testing.T, conn *websocket.Conn, m protocol.Message) T {
	t.Helper()
	frame, err := protocol.Append(nil, m)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Write(ctx, websocket.MessageBinary, frame); err != nil {
		t.Fatal(err)
	}
	for {
		_, frame, err := conn.Read(ctx)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := protocol.Decode(frame)
		if err != nil {
			t.Fatal(err)
		}
		if want, ok := answer.(T); ok {
			return want
		}
	}
}

func put(key, value string) *protocol.OpBatch {
	return &protocol.OpBatch{Ops: []protocol.ClientOp{{
		ID: "op-" + key, MapName: "m", Key: key, Type: protocol.OpPut, RecordPresence: protocol.Present,
		Record: protocol.Record{
			Value:     msgp.AppendString(nil, value),
			Timestamp: protocol.Timestamp{Millis: time.Now().UnixMilli(), NodeID: "client"},
		},
	}}}
}

func TestServerKeepsAcknowledgedWritesAcrossARestart(t *testing.T) {
	noLeaks(t)
	cfg := quorate.DefaultServerConfig()
	cfg.NodeID = "n1"
	cfg.Security.NoAuth = true
	cfg.Storage.Path = filepath.Join(t.TempDir(), "n1.db")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	port, end := embed(t, cfg)
	awaitReady(t, port)
	conn := dial(ctx, t, port)
	ack := exchange[*protocol.OpAck](ctx, t, conn, put("k", "v"))
	if ack.LastID != "op-k" || ack.AchievedLevel != protocol.LevelPersisted {
		t.Errorf("%+v", ack)
	}
	closed := make(chan websocket.StatusCode, 1)
	go func() {
		_, _, err := conn.Read(ctx)
		closed <- websocket.CloseStatus(err)
	}()
	if err := end(); err != nil {
		t.Error(err)
	}
	if code := <-closed; code != websocket.StatusGoingAway {
		t.Errorf("close code %d at the drain", code)
	}

	port, end = embed(t, cfg)
	awaitReady(t, port)
	conn = dial(ctx, t, port)
	resp := exchange[*protocol.QueryResp](ctx, t, conn, &protocol.QuerySub{QueryID: "q", MapName: "m"})
	if len(resp.Results) != 1 || resp.Results[0].Key != "k" {
		t.Errorf("%+v", resp)
	}
	_ = conn.CloseNow()
	if err := end(); err != nil {
		t.Error(err)
	}
}

// TestWritesWithoutIdsAreNoRepeatsAfterARestart writes without timestamp and id, so that
// the server itself tells the writes apart.
func TestWritesWithoutIdsAreNoRepeatsAfterARestart(t *testing.T) {
	noLeaks(t)
	cfg := quorate.DefaultServerConfig()
	cfg.NodeID = "n1"
	cfg.Security.NoAuth = true
	cfg.Storage.Path = filepath.Join(t.TempDir(), "n1.db")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, value := range []string{"first", "second"} {
		port, end := embed(t, cfg)
		awaitReady(t, port)
		conn := dial(ctx, t, port)
		batch := put("k", value)
		batch.Ops[0].ID, batch.Ops[0].Record.Timestamp = "", protocol.Timestamp{}
		batch.Ops = append(batch.Ops, put("other", value).Ops...)
		exchange[*protocol.OpAck](ctx, t, conn, batch)
		resp := exchange[*protocol.QueryResp](ctx, t, conn, &protocol.QuerySub{QueryID: "q", MapName: "m"})
		if len(resp.Results) != 2 || string(resp.Results[0].Value) != string(msgp.AppendString(nil, value)) {
			t.Errorf("after writing %s: %+v", value, resp)
		}
		_ = conn.CloseNow()
		if err := end(); err != nil {
			t.Error(err)
		}
	}
}

func TestServerInMemoryReportsWhatItHolds(t *testing.T) {
	noLeaks(t)
	cfg := quorate.DefaultServerConfig()
	cfg.NodeID = "n1"
	cfg.Security.NoAuth = true
	cfg.Storage.Backend = quorate.BackendNull
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	port, end := embed(t, cfg)
	awaitReady(t, port)
	conn := dial(ctx, t, port)
	if ack := exchange[*protocol.OpAck](ctx, t, conn, put("k", "v")); ack.AchievedLevel != protocol.LevelReplicated {
		t.Errorf("%+v", ack)
	}
	_ = conn.CloseNow()
	if err := end(); err != nil {
		t.Error(err)
	}
}

func TestServerThatCannotOpenItsStoreSaysWhy(t *testing.T) {
	cfg := quorate.DefaultServerConfig()
	cfg.NodeID = "n1"
	cfg.Security.NoAuth = true
	cfg.Storage.Path = filepath.Join(t.TempDir(), "missing", "n1.db")
	_, end := embed(t, cfg)
	if err := end(); err == nil {
		t.Error("served without a store")
	}
}
