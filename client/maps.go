package client

import (
	"context"
	"fmt"

	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/protocol"
)

// Map is a named map of records of which the last write of each key wins.
type Map struct {
	client *Client
	name   string
}

// Map returns the map with a name. It asks the server nothing.
func (c *Client) Map(name string) *Map { return &Map{client: c, name: name} }

// Name is the map's name.
func (m *Map) Name() string { return m.name }

// Put writes a record; see Encode for what value may be. A nil value removes the record, as
// everywhere in the protocol. The write is repeated over new connections until it is decided
// or time is up; repeats have no effect of their own.
func (m *Map) Put(ctx context.Context, key string, value any, opts ...WriteOption) (Ack, error) {
	encoded, err := Encode(value)
	if err != nil {
		return Ack{}, err
	}
	return m.write(ctx, protocol.OpPut, key, encoded, opts)
}

// Remove removes a record. That there is none is no error.
func (m *Map) Remove(ctx context.Context, key string, opts ...WriteOption) (Ack, error) {
	return m.write(ctx, protocol.OpRemove, key, nil, opts)
}

func (m *Map) write(ctx context.Context, kind protocol.OpType, key string, value Value, opts []WriteOption) (Ack, error) {
	o := writeOptionsOf(opts)
	op := &protocol.ClientOp{
		MapName: m.name, Key: key, Type: kind, WriteConcern: o.level, RecordPresence: protocol.Present,
		Record: protocol.Record{Value: msgp.Raw(value), TTLMillis: max(0, o.ttl.Milliseconds())},
	}
	if !o.stamps {
		op.Record.Timestamp = m.client.clock.Now()
		op.Timestamp = op.Record.Timestamp
	}
	if o.fence != nil {
		op.Fence = &protocol.Fence{Lock: o.fence.Lock, Token: o.fence.Token}
	}
	return m.client.writeOp(ctx, op)
}

// writeOp brings one operation to the server.
func (c *Client) writeOp(ctx context.Context, op *protocol.ClientOp) (Ack, error) {
	k := c.newCall(protocol.KindOpBatch, op.Key, nil)
	op.ID = k.id
	k.op, k.again, k.changes = op, true, true
	if c.tooLong(op) {
		return Ack{}, refused(protocol.CodeTooLarge, "the write is larger than a frame may be")
	}
	if _, err := c.do(ctx, k); err != nil {
		return Ack{}, fmt.Errorf("write %q of map %q: %w", op.Key, op.MapName, err)
	}
	return Ack{Level: k.level, Timestamp: op.Timestamp}, nil
}

// Record is one record of a map.
type Record struct {
	Key   string
	Value Value
}

// Get reads a record, or returns ErrNotFound.
func (m *Map) Get(ctx context.Context, key string, opts ...ReadOption) (Record, error) {
	rows, err := m.Find(ctx, Query{Where: map[string]any{"_key": key}}, opts...)
	if err != nil {
		return Record{}, fmt.Errorf("read %q of map %q: %w", key, m.name, err)
	}
	for _, r := range rows.Records {
		if r.Key == key {
			return r, nil
		}
	}
	return Record{}, fmt.Errorf("%q of map %q: %w", key, m.name, ErrNotFound)
}
