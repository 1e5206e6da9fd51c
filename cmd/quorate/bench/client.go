package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/coder/websocket"

	"github.com/quorate/quorate/protocol"
)

// client is one connection that writes batches and waits for their verdicts. For
// one goroutine.
type client struct {
	id      int
	options *Options
	level   protocol.WriteConcern
	conn    *websocket.Conn
	value   []byte
	nextID  uint64
	nextKey int
	frame   []byte
	batch   protocol.OpBatch
	// bound tells that the end of the run closes the connection.
	bound bool
}

// errRefused is the answer to a batch that was not fully accepted.
var errRefused = errors.New("batch was not accepted")

// dial opens connection number id to url and completes the handshake.
func dial(ctx context.Context, o *Options, id int, url string) (*client, error) {
	conn, _, err := websocket.Dial(ctx, url, nil)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", url, err)
	}
	conn.SetReadLimit(protocol.MaxAnswer)
	level, err := protocol.ParseWriteConcern(o.Level)
	if err != nil {
		return nil, err
	}
	c := &client{id: id, options: o, level: level, conn: conn, value: benchValue(o.ValueBytes)}
	if o.Token == "" {
		return c, nil
	}
	if err := c.send(ctx, &protocol.Auth{Token: o.Token}); err != nil {
		return nil, err
	}
	for {
		switch m, err := c.receive(ctx); m := m.(type) {
		case *protocol.AuthAck:
			return c, nil
		case *protocol.AuthFail:
			return nil, fmt.Errorf("authenticate: %s", m.Reason)
		default:
			if err != nil {
				return nil, err
			}
		}
	}
}

// benchValue is one MsgPack binary value of n bytes in total, that does not
// compress to nothing.
func benchValue(n int) []byte {
	body := make([]byte, max(n-5, 0))
	for i := range body {
		body[i] = byte(i*131 + 7)
	}
	value := binary.BigEndian.AppendUint32([]byte{0xc6}, uint32(len(body)))
	return append(value, body...)
}

func (c *client) send(ctx context.Context, m protocol.Message) error {
	frame, err := protocol.Append(c.frame[:0], m)
	if err != nil {
		return fmt.Errorf("encode %s: %w", m.Kind(), err)
	}
	c.frame = frame
	return c.conn.Write(ctx, websocket.MessageBinary, frame)
}

// receive returns the next message that this package knows, or nil for one that it
// does not.
func (c *client) receive(ctx context.Context) (protocol.Message, error) {
	_, frame, err := c.conn.Read(ctx)
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	m, err := protocol.DecodeAnswer(frame)
	if errors.Is(err, protocol.ErrUnknownKind) {
		return nil, nil
	}
	return m, err
}

// write sends one batch of n operations and waits for its acknowledgement. The end of
// the first call's ctx closes the connection: to watch a context that all connections
// share with every frame costs the load generator more than the frame.
func (c *client) write(ctx context.Context, n int) error {
	if !c.bound {
		c.bound = true
		context.AfterFunc(ctx, func() { _ = c.conn.CloseNow() }) // whoever waits notices
	}
	ctx = context.Background()
	now := time.Now().UnixMilli()
	batch := &c.batch
	batch.Ops, batch.WriteConcern = slices.Grow(batch.Ops[:0], n)[:n], c.level
	for i := range batch.Ops {
		c.nextID++
		c.nextKey = (c.nextKey + 1) % c.options.Keys
		batch.Ops[i] = protocol.ClientOp{
			ID: strconv.FormatUint(c.nextID, 10), MapName: "bench",
			Key: "c" + strconv.Itoa(c.id) + "-" + strconv.Itoa(c.nextKey), Type: protocol.OpPut,
			RecordPresence: protocol.Present,
			Record: protocol.Record{Value: c.value, Timestamp: protocol.Timestamp{
				Millis: now, Counter: int64(c.nextID), NodeID: "bench-" + strconv.Itoa(c.id),
			}},
		}
	}
	if err := c.send(ctx, batch); err != nil {
		return err
	}
	return c.await(ctx, batch.Ops[n-1].ID)
}

// await reads until the acknowledgement of lastID.
func (c *client) await(ctx context.Context, lastID string) error {
	for {
		m, err := c.receive(ctx)
		if err != nil {
			return err
		}
		switch m := m.(type) {
		case *protocol.OpAck:
			if m.LastID == lastID {
				return nil
			}
		case *protocol.OpRejected:
			return fmt.Errorf("%w: %d %s", errRefused, m.Code, m.Reason)
		case *protocol.ErrorMessage:
			return fmt.Errorf("%w: %d %s", errRefused, m.Code, m.Message)
		}
	}
}

// owners asks the node for the partition map and counts the partitions per owner.
func (c *client) owners(ctx context.Context) (map[string]int, error) {
	if err := c.send(ctx, &protocol.PartitionMapRequest{}); err != nil {
		return nil, err
	}
	for {
		m, err := c.receive(ctx)
		if err != nil {
			return nil, err
		}
		if table, ok := m.(*protocol.PartitionMap); ok {
			count := map[string]int{}
			for _, p := range table.Partitions {
				count[p.OwnerNodeID]++
			}
			return count, nil
		}
	}
}

func (c *client) close() { _ = c.conn.Close(websocket.StatusNormalClosure, "") }
