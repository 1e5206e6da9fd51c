package quorate_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"
	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate"
	"github.com/quorate/quorate/protocol"
)

// device is a client in the field as the wire shows it: it sends everything that is not
// acknowledged with every frame, and follows two maps.
type device struct {
	t      *testing.T
	ctx    context.Context
	conn   *websocket.Conn
	token  string
	events []protocol.ServerEvent
}

// connect shakes hands and begins to follow the maps. It returns their roots.
func (d *device) connect(port int) (roots [2]uint32) {
	d.t.Helper()
	d.conn = dial(d.ctx, d.t, port)
	d.send(&protocol.DeviceHello{DeviceToken: d.token})
	if ack := next[*protocol.DeviceAck](d); ack.DeviceToken != "" {
		d.token = ack.DeviceToken
	}
	d.send(&protocol.SyncInit{MapName: "records"})
	roots[0] = next[*protocol.SyncRespRoot](d).RootHash
	d.send(&protocol.ORMapSyncInit{MapName: "sets", BucketHashes: map[string]uint32{}})
	roots[1] = next[*protocol.ORMapSyncRespRoot](d).RootHash
	return roots
}

func (d *device) send(m protocol.Message) {
	d.t.Helper()
	frame, err := protocol.Append(nil, m)
	if err != nil {
		d.t.Fatal(err)
	}
	if err := d.conn.Write(d.ctx, websocket.MessageBinary, frame); err != nil {
		d.t.Fatal(err)
	}
}

// next is the next message, which must be of type T; events are kept aside.
func next[T protocol.Message](d *device) T {
	d.t.Helper()
	for {
		_, frame, err := d.conn.Read(d.ctx)
		if err != nil {
			d.t.Fatal(err)
		}
		m, err := protocol.Decode(frame)
		if err != nil {
			d.t.Fatal(err)
		}
		switch m := m.(type) {
		case T:
			return m
		case *protocol.ServerEvent:
			d.events = append(d.events, *m)
		default:
			var want T
			d.t.Fatalf("got %s %+v, want %T", m.Kind(), m, want)
		}
	}
}

// told returns the events up to that of a key, which somebody writes last, without it.
func (d *device) told(key string) []protocol.ServerEvent {
	d.t.Helper()
	for len(d.events) == 0 || d.events[len(d.events)-1].Key != key {
		_, frame, err := d.conn.Read(d.ctx)
		if err != nil {
			d.t.Fatal(err)
		}
		m, err := protocol.Decode(frame)
		if err != nil {
			d.t.Fatal(err)
		}
		event, ok := m.(*protocol.ServerEvent)
		if !ok {
			d.t.Fatalf("got %s", m.Kind())
		}
		d.events = append(d.events, *event)
	}
	told := d.events[:len(d.events)-1]
	d.events = nil
	return told
}

// operations are one of each kind, each with an effect: with a stamp, without one, with one
// from the future, and a removal of what another one wrote.
func operations() []protocol.ClientOp {
	now := time.Now().UnixMilli()
	at := func(n int64) protocol.Timestamp { return protocol.Timestamp{Millis: now, Counter: n, NodeID: "writer"} }
	record := func(ts protocol.Timestamp) protocol.ClientOp {
		return protocol.ClientOp{
			MapName: "records", Type: protocol.OpPut, RecordPresence: protocol.Present, Timestamp: ts,
			Record: protocol.Record{Value: msgp.AppendString(nil, "v"), Timestamp: ts, TTLMillis: time.Hour.Milliseconds()},
		}
	}
	stamped, unstamped, future, removed := record(at(1)), record(protocol.Timestamp{}), record(at(2)), record(at(3))
	stamped.Key, unstamped.Key, future.Key, removed.Key = "stamped", "unstamped", "future", "stamped"
	future.Record.Timestamp.Millis += time.Hour.Milliseconds()
	removed.Type, removed.Record.Value, removed.Record.TTLMillis = protocol.OpRemove, nil, 0
	tag := at(4).String()
	add := protocol.ClientOp{
		MapName: "sets", Key: "k", Type: protocol.OpORAdd, Timestamp: at(4),
		ORRecord: &protocol.ORRecord{Value: msgp.AppendInt(nil, 7), Timestamp: at(4), Tag: tag},
	}
	drop := protocol.ClientOp{MapName: "sets", Key: "k", Type: protocol.OpORRemove, ORTag: tag, Timestamp: at(5)}
	ops := []protocol.ClientOp{stamped, unstamped, future, removed, add, drop}
	for i := range ops {
		ops[i].ID = strconv.Itoa(i + 1)
	}
	return ops
}

// embedAlone starts a server without peers and authentication, which end stops; with cfg it
// starts again. ctx ends after a minute.
func embedAlone(t *testing.T) (ctx context.Context, cfg quorate.ServerConfig, port int, end func() error) {
	t.Helper()
	noLeaks(t)
	cfg = quorate.DefaultServerConfig()
	cfg.NodeID, cfg.Security.NoAuth, cfg.Storage.Path = "n1", true, filepath.Join(t.TempDir(), "n1.db")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	port, end = embed(t, cfg)
	awaitReady(t, port)
	return ctx, cfg, port, end
}

// TestOperationsSentAgainAreAnsweredAndHaveNoSecondEffect sends growing batches, as a client
// does that writes faster than it is answered, and all of them again over another connection
// and after a restart: every batch has its own answer, and every operation its one event.
func TestOperationsSentAgainAreAnsweredAndHaveNoSecondEffect(t *testing.T) {
	ctx, cfg, port, end := embedAlone(t)
	writer, follower := &device{t: t, ctx: ctx}, &device{t: t, ctx: ctx}
	writer.connect(port)
	follower.connect(port)
	ops := operations()
	for n := range ops {
		writer.send(&protocol.OpBatch{Ops: ops[:n+1]})
	}
	acknowledged := func(n int) {
		t.Helper()
		ack := next[*protocol.OpAck](writer)
		if want := strconv.Itoa(n); ack.LastID != want || ack.Results != nil {
			t.Errorf("ack %+v, want one of all up to %s", ack, want)
		}
	}
	for n := range ops {
		acknowledged(n + 1)
	}
	other := &device{t: t, ctx: ctx}
	other.connect(port)
	marks := 0
	mark := func() string {
		marks++
		batch := put(fmt.Sprint("mark ", marks), "")
		batch.Ops[0].MapName = "records"
		other.send(batch)
		next[*protocol.OpAck](other)
		return batch.Ops[0].Key
	}
	last := mark()
	if told := writer.told(last); len(told) != 1 || told[0].Key != "future" {
		t.Errorf("the writer, who does not know one stamp, is told %+v", told)
	}
	var kinds []string
	for _, e := range follower.told(last) {
		kinds = append(kinds, string(e.EventType)+" "+e.Key)
	}
	want := []string{"PUT stamped", "PUT unstamped", "PUT future", "REMOVE stamped", "OR_ADD k", "OR_REMOVE k"}
	if diff := cmp.Diff(want, kinds, cmp.Transformer("set", setOf)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	for _, restart := range []bool{false, true} {
		before := other.connect(port)
		if restart {
			if err := end(); err != nil {
				t.Error(err)
			}
			port, end = embed(t, cfg)
			awaitReady(t, port)
			follower.connect(port)
		}
		writer.connect(port)
		writer.send(&protocol.OpBatch{Ops: ops})
		acknowledged(len(ops))
		if roots := other.connect(port); roots != before {
			t.Errorf("roots %v, were %v", roots, before)
		}
		if told := follower.told(mark()); len(told) > 0 {
			t.Errorf("restart %v: events of repeats: %+v", restart, told)
		}
	}
	for _, d := range []*device{writer, follower, other} {
		_ = d.conn.CloseNow()
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

func setOf(list []string) map[string]int {
	set := map[string]int{}
	for _, s := range list {
		set[s]++
	}
	return set
}
