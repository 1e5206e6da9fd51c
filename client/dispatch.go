package client

import (
	"slices"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/protocol"
)

// handle takes one message of the server.
func (c *Client) handle(cn *conn, m protocol.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != cn {
		return
	}
	switch m := m.(type) {
	case *protocol.OpAck:
		c.ackedLocked(cn, m)
	case *protocol.OpRejected:
		if k := c.pendingLocked(m.OpID, protocol.KindOpBatch); k != nil {
			c.failLocked(k, m.Code, m.Reason, false)
		}
	case *protocol.ErrorMessage:
		c.errorLocked(cn, m)
	case *protocol.Pong:
		c.pongLocked(cn, m)
	case *protocol.QueryResp:
		c.rowsLocked(m)
	case *protocol.QueryUpdate:
		c.changedLocked(m)
	case *protocol.ServerEvent:
		if m.Record != nil {
			c.clock.Update(m.Record.Timestamp)
		}
	case *protocol.ORMapDiffResponse:
		c.entriesLocked(m)
	case *protocol.LockGranted:
		c.grantedLocked(cn, m)
	case *protocol.LockReleased:
		c.releasedLocked(m)
	case *protocol.CounterResponse:
		c.counterLocked(m)
	case *protocol.CounterUpdate:
		c.showCounterLocked(m.Name, m.State)
	case *protocol.TopicMessage:
		c.publishedLocked(m)
	}
}

// pendingLocked is the call with an id if it is of one of the kinds that an answer is for,
// nil otherwise: what a server sends under the id of something else answers nothing.
func (c *Client) pendingLocked(id string, kinds ...protocol.Kind) *call {
	if k := c.calls[id]; k != nil && slices.Contains(kinds, k.kind) {
		return k
	}
	return nil
}

// pongLocked takes the answer to a heartbeat.
func (c *Client) pongLocked(cn *conn, m *protocol.Pong) {
	number, _, err := msgp.ReadUint64Bytes(m.Timestamp)
	p := cn.pings[number]
	if err != nil || p == nil {
		return
	}
	delete(cn.pings, number)
	if p.call != nil {
		c.settleLocked(p.call, m, nil)
		return
	}
	c.learnClock(m, time.Since(p.sent))
}

// ackedLocked takes the answer to a frame of writes.
func (c *Client) ackedLocked(cn *conn, m *protocol.OpAck) {
	f := cn.popFrameLocked()
	if f == nil || f.lastID != m.LastID {
		// Nothing is known any more of what is on its way.
		cn.cancel(errConnection)
		return
	}
	cn.complaints = 0
	if m.Results == nil {
		for _, k := range f.calls {
			k.level = m.AchievedLevel
			c.settleLocked(k, nil, nil)
		}
		return
	}
	for i := range m.Results {
		if k := c.pendingLocked(m.Results[i].OpID, protocol.KindOpBatch); k != nil && m.Results[i].Success {
			k.level = m.Results[i].AchievedLevel
			c.settleLocked(k, nil, nil)
		}
	}
}

// popFrameLocked takes the frame of writes whose answer has come, nil if none waits.
func (cn *conn) popFrameLocked() *frame {
	if len(cn.frames) == 0 {
		return nil
	}
	f := cn.frames[0]
	cn.frames = cn.frames[1:]
	cn.wakeWriter()
	return f
}

// about is the request that an ERROR names.
type about struct {
	kind, id, name string
}

func aboutOf(m *protocol.ErrorMessage) (a about) {
	fields, _, err := msgp.ReadMapStrIntfBytes(m.Details, nil)
	if len(m.Details) == 0 || err != nil {
		return a
	}
	text := func(names ...string) string {
		for _, name := range names {
			if s, ok := fields[name].(string); ok && s != "" {
				return s
			}
		}
		return ""
	}
	return about{kind: text("type"), id: text("requestId", "context", "queryId", "id"), name: text("name", "topic", "mapName")}
}

// errorLocked takes an ERROR. One that names no request is about the oldest frame of writes.
func (c *Client) errorLocked(cn *conn, m *protocol.ErrorMessage) {
	if m.Code == protocol.CodeUnavailable {
		if cn.complaints++; cn.complaints >= maxComplaints && len(c.cfg.Seeds) > 1 && len(cn.locks) == 0 {
			cn.cancel(errMoves)
		}
	}
	a := aboutOf(m)
	switch a.kind {
	case "", protocol.KindOpBatch.String():
		if f := cn.popFrameLocked(); f != nil {
			for _, k := range f.calls {
				c.failLocked(k, m.Code, m.Message, false)
			}
		}
		return
	case protocol.KindPing.String():
		if k := cn.oldestPingLocked(); k != nil {
			c.failLocked(k, m.Code, m.Message, true)
		}
		return
	}
	if f := c.follows[a.id]; f != nil {
		c.followFailedLocked(f, m.Code, m.Message)
		return
	}
	k := c.calls[a.id]
	if k == nil {
		k = c.oldestLocked(cn, a.kind, a.name)
	}
	if k == nil {
		c.log.Warn("the server complains", "about", a.kind, "name", a.name, "code", int(m.Code), "reason", m.Message)
		return
	}
	for number, p := range cn.pings {
		if p.call == k {
			delete(cn.pings, number) // its answer is this one
		}
	}
	// A counter may have been added to, and a release may have happened.
	c.failLocked(k, m.Code, m.Message, k.kind != protocol.KindTopicPub)
}

// oldestPingLocked takes the oldest heartbeat that is not answered, and returns the call
// that waits for it, nil if there is none.
func (cn *conn) oldestPingLocked() *call {
	var oldest *ping
	for _, p := range cn.pings {
		if oldest == nil || p.number < oldest.number {
			oldest = p
		}
	}
	if oldest == nil {
		return nil
	}
	delete(cn.pings, oldest.number)
	return oldest.call
}

// oldestLocked is the oldest call of a kind about a name that waits for an answer on a
// connection: the server answers those in their order.
func (c *Client) oldestLocked(cn *conn, kind, name string) *call {
	var oldest *call
	for _, k := range c.calls {
		if k.conn == cn && k.kind.String() == kind && k.name == name && (oldest == nil || k.seq < oldest.seq) {
			oldest = k
		}
	}
	return oldest
}

// tooLarge ends calls that no server takes.
func (c *Client) tooLarge(cn *conn, calls []*call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range calls {
		c.failLocked(k, protocol.CodeTooLarge, "the request is larger than a frame may be", false)
	}
	if n := len(cn.frames); n > 0 && slices.Equal(cn.frames[n-1].calls, calls) {
		cn.frames = cn.frames[:n-1]
	}
}
