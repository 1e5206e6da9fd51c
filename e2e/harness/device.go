package harness

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/coder/websocket"

	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/merkle"
)

// Device is an offline-first client: it holds maps, changes them at any time, and
// exchanges what changed when it is connected, as clients in the field do. It is for
// one goroutine.
type Device struct {
	// ID is the node id of its stamps.
	ID string
	// Records are its last-write-wins maps, Sets its observed-remove maps, by name.
	Records map[string]map[string]protocol.Record
	Sets    map[string]*ORMap
	// Clock is the wall clock in milliseconds.
	Clock func() int64
	// Requests counts the bucket and leaf requests, Received the bytes of all frames.
	Requests, Received int

	token  string
	last   protocol.Timestamp
	nextID int
	ops    []protocol.ClientOp // not acknowledged
	conn   *websocket.Conn
}

// ORMap is the state of an observed-remove map.
type ORMap struct {
	// Live holds the records by key and tag.
	Live map[string]map[string]protocol.ORRecord
	// Removed are the removed tags of the whole map.
	Removed map[string]bool
}

// NewDevice returns a device without maps.
func NewDevice(id string) *Device {
	return &Device{
		ID: id, Records: map[string]map[string]protocol.Record{}, Sets: map[string]*ORMap{},
		Clock: func() int64 { return time.Now().UnixMilli() },
	}
}

func (d *Device) now() protocol.Timestamp {
	if wall := d.Clock(); wall > d.last.Millis {
		d.last = protocol.Timestamp{Millis: wall, NodeID: d.ID}
	} else {
		d.last.Counter++
		d.last.NodeID = d.ID
	}
	return d.last
}

// see moves the clock past a stamp of another.
func (d *Device) see(ts protocol.Timestamp) {
	if ts.Millis > d.last.Millis || ts.Millis == d.last.Millis && ts.Counter > d.last.Counter {
		d.last.Millis, d.last.Counter = ts.Millis, ts.Counter
	}
}

func (d *Device) queue(op protocol.ClientOp) {
	d.nextID++
	op.ID = strconv.Itoa(d.nextID)
	d.ops = append(d.ops, op)
}

// Put writes a text; an empty one deletes.
func (d *Device) Put(mapName, key, value string) {
	rec := protocol.Record{Timestamp: d.now()}
	op := protocol.ClientOp{MapName: mapName, Key: key, Type: protocol.OpRemove, RecordPresence: protocol.Present, Timestamp: rec.Timestamp}
	if value != "" {
		rec.Value, op.Type = Text(value), protocol.OpPut
	}
	op.Record = rec
	d.mergeRecord(mapName, key, rec)
	d.queue(op)
}

// Add adds a text to a set.
func (d *Device) Add(mapName, key, value string) {
	ts := d.now()
	rec := protocol.ORRecord{Value: Text(value), Timestamp: ts, Tag: ts.String()}
	d.set(mapName).merge(protocol.OREntry{Key: key, Records: []protocol.ORRecord{rec}})
	d.queue(protocol.ClientOp{MapName: mapName, Key: key, Type: protocol.OpORAdd, ORRecord: &rec, Timestamp: ts})
}

// Drop removes one of the tags that the device sees under a key, if there is one.
func (d *Device) Drop(mapName, key string) {
	m := d.set(mapName)
	for tag := range m.Live[key] {
		m.merge(protocol.OREntry{Key: key, Tombstones: []string{tag}})
		d.queue(protocol.ClientOp{MapName: mapName, Key: key, Type: protocol.OpORRemove, ORTag: tag, Timestamp: d.now()})
		return
	}
}

func (d *Device) mergeRecord(mapName, key string, rec protocol.Record) {
	m := d.Records[mapName]
	if m == nil {
		m = map[string]protocol.Record{}
		d.Records[mapName] = m
	}
	d.see(rec.Timestamp)
	if met, ok := m[key]; !ok || rec.Timestamp.Compare(met.Timestamp) > 0 {
		m[key] = rec
	}
}

func (d *Device) set(mapName string) *ORMap {
	m := d.Sets[mapName]
	if m == nil {
		m = &ORMap{Live: map[string]map[string]protocol.ORRecord{}, Removed: map[string]bool{}}
		d.Sets[mapName] = m
	}
	return m
}

// merge takes one key's records and removed tags.
func (m *ORMap) merge(e protocol.OREntry) {
	for _, tag := range e.Tombstones {
		m.Removed[tag] = true
		for key, records := range m.Live {
			if delete(records, tag); len(records) == 0 {
				delete(m.Live, key)
			}
		}
	}
	for _, rec := range e.Records {
		met, known := m.Live[e.Key][rec.Tag]
		if m.Removed[rec.Tag] || known && rec.Timestamp.Compare(met.Timestamp) <= 0 {
			continue
		}
		if m.Live[e.Key] == nil {
			m.Live[e.Key] = map[string]protocol.ORRecord{}
		}
		m.Live[e.Key][rec.Tag] = rec
	}
}

// leaves are the buckets of the device's tree of a map.
func (d *Device) leaves(mapName string, kind merkle.Kind) *merkle.Leaves {
	var tree merkle.Tree
	if kind == merkle.Records {
		for key, rec := range d.Records[mapName] {
			tree.Update(merkle.BucketOf(key), 0, merkle.LWWItem(key, rec.Timestamp), 1, 0)
		}
	} else {
		for key, records := range d.set(mapName).Live {
			tree.Update(merkle.BucketOf(key), 0, merkle.ORItem(key, sorted(records)), 1, 0)
		}
	}
	leaves := new(merkle.Leaves)
	tree.AddTo(leaves)
	return leaves
}

func sorted(records map[string]protocol.ORRecord) []protocol.ORRecord {
	list := make([]protocol.ORRecord, 0, len(records))
	for _, rec := range records {
		list = append(list, rec)
	}
	return list
}

// Connect dials a node and completes the handshake.
func (d *Device) Connect(ctx context.Context, n *Node) error {
	conn, _, err := websocket.Dial(ctx, n.URL(), nil)
	if err != nil {
		return fmt.Errorf("dial %s: %w", n.Name, err)
	}
	conn.SetReadLimit(protocol.MaxAnswer)
	d.conn = conn
	if err := d.send(ctx, &protocol.DeviceHello{DeviceToken: d.token}); err != nil {
		return err
	}
	for {
		m, err := d.receive(ctx)
		if err != nil {
			return err
		}
		if ack, ok := m.(*protocol.DeviceAck); ok {
			if ack.DeviceToken != "" {
				d.token = ack.DeviceToken
			}
			return nil
		}
	}
}

// Disconnect cuts the connection.
func (d *Device) Disconnect() {
	if d.conn != nil {
		_ = d.conn.CloseNow()
		d.conn = nil
	}
}

func (d *Device) send(ctx context.Context, m protocol.Message) error {
	frame, err := protocol.Append(nil, m)
	if err != nil {
		return fmt.Errorf("encode %s: %w", m.Kind(), err)
	}
	return d.conn.Write(ctx, websocket.MessageBinary, frame)
}

// errDevice is wrapped when the server answers what a device cannot use.
var errDevice = errors.New("unexpected answer")

// receive returns the next message; events and whatever else concerns the maps alone
// are taken on the way.
func (d *Device) receive(ctx context.Context) (protocol.Message, error) {
	_, frame, err := d.conn.Read(ctx)
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	d.Received += len(frame)
	m, err := protocol.DecodeAnswer(frame)
	if err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	switch m := m.(type) {
	case *protocol.ServerEvent:
		d.event(m)
	case *protocol.ErrorMessage:
		return nil, fmt.Errorf("%w: ERROR %d %s", errDevice, m.Code, m.Message)
	case *protocol.OpRejected:
		return nil, fmt.Errorf("%w: OP_REJECTED %d %s", errDevice, m.Code, m.Reason)
	}
	return m, nil
}

func (d *Device) event(e *protocol.ServerEvent) {
	switch {
	case e.Record != nil:
		d.mergeRecord(e.MapName, e.Key, *e.Record)
	case e.ORRecord != nil:
		d.set(e.MapName).merge(protocol.OREntry{Key: e.Key, Records: []protocol.ORRecord{*e.ORRecord}})
	case e.ORTag != "":
		d.set(e.MapName).merge(protocol.OREntry{Key: e.Key, Tombstones: []string{e.ORTag}})
	}
}
