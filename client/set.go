package client

import (
	"context"
	"fmt"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/protocol"
)

// Set is an observed-remove map: under each key a set of values. A removal takes away exactly
// the additions that it names, so an addition elsewhere at the same time stays.
type Set struct {
	client *Client
	name   string
}

// Set returns the observed-remove map with a name. It asks the server nothing.
func (c *Client) Set(name string) *Set { return &Set{client: c, name: name} }

// Name is the map's name.
func (s *Set) Name() string { return s.name }

// Element is one addition to a Set.
type Element struct {
	// Tag names the addition for good.
	Tag   string
	Value Value
}

// Add adds a value under a key and returns the addition's tag, also with an error. Of the
// options it knows AtLevel and WithTTL.
func (s *Set) Add(ctx context.Context, key string, value any, opts ...WriteOption) (tag string, ack Ack, err error) {
	encoded, err := Encode(value)
	if err != nil {
		return "", Ack{}, err
	}
	o := writeOptionsOf(opts)
	at := s.client.clock.Now()
	rec := &protocol.ORRecord{Value: msgp.Raw(encoded), Timestamp: at, Tag: at.String(), TTLMillis: max(0, o.ttl.Milliseconds())}
	ack, err = s.client.writeOp(ctx, &protocol.ClientOp{
		MapName: s.name, Key: key, Type: protocol.OpORAdd, ORRecord: rec, WriteConcern: o.level, Timestamp: at,
	})
	return rec.Tag, ack, err
}

// RemoveTag removes one addition. A tag that is not known is removed as well, should it come
// later.
func (s *Set) RemoveTag(ctx context.Context, key, tag string, opts ...WriteOption) (Ack, error) {
	return s.client.writeOp(ctx, &protocol.ClientOp{
		MapName: s.name, Key: key, Type: protocol.OpORRemove, ORTag: tag,
		WriteConcern: writeOptionsOf(opts).level, Timestamp: s.client.clock.Now(),
	})
}

// Remove removes all additions of a value under a key that Get shows now, and returns how
// many. With an error those counted are removed.
func (s *Set) Remove(ctx context.Context, key string, value any, opts ...WriteOption) (removed int, err error) {
	encoded, err := Encode(value)
	if err != nil {
		return 0, err
	}
	elements, err := s.Get(ctx, key)
	if err != nil {
		return 0, err
	}
	for _, e := range elements {
		if !protocol.Equal(msgp.Raw(e.Value), msgp.Raw(encoded)) {
			continue
		}
		if _, err := s.RemoveTag(ctx, key, e.Tag, opts...); err != nil {
			return removed, err
		}
		removed++
	}
	return removed, nil
}

// Get reads the additions under a key that are not removed, none if there is no such key. It
// is never older than what was acknowledged on the present connection.
func (s *Set) Get(ctx context.Context, key string) ([]Element, error) {
	c := s.client
	k := c.newCall(protocol.KindORMapDiffRequest, s.name, func(string) protocol.Message {
		return &protocol.ORMapDiffRequest{MapName: s.name, Keys: []string{key}}
	})
	k.again = true
	answer, err := c.do(ctx, k)
	if err != nil {
		return nil, fmt.Errorf("read %q of set %q: %w", key, s.name, err)
	}
	now := time.Now().UnixMilli() + c.skew.Load()
	var elements []Element
	for _, entry := range answer.(*protocol.ORMapDiffResponse).Entries {
		if entry.Key != key {
			continue
		}
		for _, r := range entry.Records {
			if r.TTLMillis == 0 || r.Timestamp.Millis+r.TTLMillis >= now {
				elements = append(elements, Element{Tag: r.Tag, Value: Value(r.Value)})
			}
		}
	}
	return elements, nil
}

// entriesLocked takes the state of keys of a set. Requests for one map are answered in their
// order; an answer without entries tells clients that sync the map something else.
func (c *Client) entriesLocked(m *protocol.ORMapDiffResponse) {
	if len(m.Entries) == 0 {
		return
	}
	var oldest *call
	for _, k := range c.calls {
		asked, ok := k.msg.(*protocol.ORMapDiffRequest)
		if ok && k.conn == c.conn && k.name == m.MapName && asked.Keys[0] == m.Entries[0].Key && (oldest == nil || k.seq < oldest.seq) {
			oldest = k
		}
	}
	if oldest != nil {
		c.settleLocked(oldest, m, nil)
	}
}
