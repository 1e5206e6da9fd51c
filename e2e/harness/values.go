package harness

import (
	"context"
	"fmt"

	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/e2e/model"
	"github.com/quorate/quorate/protocol"
)

// Text is the MsgPack form of a text.
func Text(s string) msgp.Raw { return msgp.AppendString(nil, s) }

// TextOf is the text of a MsgPack value, or a description of what it is instead.
func TextOf(value msgp.Raw) string {
	s, _, err := msgp.ReadStringBytes(value)
	if err != nil {
		return fmt.Sprintf("not a text: % x", []byte(value))
	}
	return s
}

// Put is the operation that writes a text with the client's own timestamp. A zero
// timestamp asks the server to stamp it.
func Put(id, mapName, key, value string, at protocol.Timestamp) protocol.ClientOp {
	return protocol.ClientOp{
		ID: id, MapName: mapName, Key: key, Type: protocol.OpPut,
		RecordPresence: protocol.Present, Record: protocol.Record{Value: Text(value), Timestamp: at},
		Timestamp: at,
	}
}

// Remove is the operation that deletes a key.
func Remove(id, mapName, key string, at protocol.Timestamp) protocol.ClientOp {
	return protocol.ClientOp{
		ID: id, MapName: mapName, Key: key, Type: protocol.OpRemove,
		RecordPresence: protocol.Present, Record: protocol.Record{Timestamp: at},
		Timestamp: at,
	}
}

// ReadState reads whole maps from a node over a connection of its own.
func (n *Node) ReadState(ctx context.Context, maps ...string) (model.State, error) {
	c, err := n.Dial(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	state := make(model.State)
	for _, name := range maps {
		q, err := c.Subscribe(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("read %s from %s: %w", name, n.Name, err)
		}
		state[name] = make(map[string]string)
		for key, value := range q.Rows() {
			state[name][key] = TextOf(value)
		}
	}
	return state, nil
}

// Dial connects a client to the node, with a token if the cluster has a secret.
func (n *Node) Dial(ctx context.Context) (*Client, error) {
	return n.DialAs(ctx, "tester", "")
}

// DialAs connects a client that names its user and its device. Either may be empty.
func (n *Node) DialAs(ctx context.Context, subject, device string) (*Client, error) {
	return n.DialWith(ctx, subject, ClientConfig{DeviceToken: device})
}

// DialWith connects a client that names its user, with the token of its own if the
// cluster has a secret.
func (n *Node) DialWith(ctx context.Context, subject string, cfg ClientConfig) (*Client, error) {
	if secret := n.cluster.cfg.Secret; secret != "" {
		token, err := Token(secret, subject)
		if err != nil {
			return nil, err
		}
		cfg.Token = token
	}
	return Dial(ctx, n.URL(), cfg)
}
