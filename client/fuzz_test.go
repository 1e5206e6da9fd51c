package client

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"reflect"
	"testing"

	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/hlc"
)

// answers are the types of what ends a call of each kind without an error; nil is for none.
var answers = map[protocol.Kind][]protocol.Message{
	protocol.KindOpBatch:          {nil},
	protocol.KindQuerySub:         {&protocol.QueryResp{}},
	protocol.KindORMapDiffRequest: {&protocol.ORMapDiffResponse{}},
	protocol.KindCounterSync:      {&protocol.CounterResponse{}},
	protocol.KindCounterRequest:   {&protocol.CounterResponse{}},
	protocol.KindLockRequest:      {&protocol.LockGranted{}, &protocol.LockReleased{}},
	protocol.KindLockRelease:      {&protocol.LockReleased{}},
	protocol.KindTopicPub:         {&protocol.Pong{}},
	protocol.KindTopicSub:         {&protocol.Pong{}},
}

// FuzzServer gives a client with a call of every kind whatever a server may send, as frames
// that each have their length in front: no call ends twice or with what is no answer to it,
// and nothing piles up.
func FuzzServer(f *testing.F) {
	join := func(messages ...protocol.Message) (data []byte) {
		for _, m := range messages {
			frame, err := protocol.Append(nil, m)
			if err != nil {
				f.Fatal(err)
			}
			data = protocol.AppendBatch(data, frame)
		}
		return data
	}
	for _, id := range []string{"OP_BATCH", "QUERY_SUB", "COUNTER_SYNC", "LOCK_REQUEST", "LOCK_RELEASE", "COUNTER_REQUEST", "follow", "n"} {
		value := 1.5
		f.Add(join(
			&protocol.QueryResp{QueryID: id, Results: []protocol.QueryRow{{Key: "k", Value: []byte{0x81, 0xa1, 'a', 0xc0}}}},
			&protocol.QueryUpdate{QueryID: id, Key: "k", ChangeType: protocol.ChangeEnter, Value: []byte{1}},
			&protocol.CounterResponse{RequestID: id, Name: "n", Value: &value, State: protocol.CounterState{Positive: map[string]float64{"w": 1.5}}},
		))
		f.Add(join(&protocol.OpAck{LastID: id, Results: []protocol.AckResult{{OpID: id, Success: true}}}))
		f.Add(join(&protocol.OpRejected{OpID: id, Code: protocol.CodeForbidden}, &protocol.OpAck{LastID: id}))
		f.Add(join(&protocol.LockGranted{RequestID: id, Name: "n", FencingToken: 7}, &protocol.LockReleased{RequestID: id, Name: "n", Success: true}))
		details := msgp.AppendString(msgp.AppendString(msgp.AppendMapHeader(nil, 1), "requestId"), id)
		f.Add(join(&protocol.ErrorMessage{Code: protocol.CodeMalformed, Details: details}, &protocol.ErrorMessage{Code: protocol.CodeOverloaded}))
	}
	f.Add(join(&protocol.Pong{Timestamp: msgp.AppendUint64(nil, 1)}, &protocol.ORMapDiffResponse{MapName: "n", Entries: []protocol.OREntry{{Key: "k"}}}))
	f.Add(join(&protocol.TopicMessage{Topic: "n", Data: []byte{0x92, 0xc4, 1, 9, 0xca, 0x7f, 0xc0, 0, 0}}, &protocol.LockReleased{Name: "n"}))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, calls := clientWithCalls(t)
		frames, _ := protocol.SplitBatch(data)
		for _, frame := range frames {
			m, err := protocol.DecodeAnswer(frame)
			if err != nil {
				var malformed *protocol.DecodeError
				if !errors.Is(err, protocol.ErrUnknownKind) && !errors.As(err, &malformed) {
					t.Fatalf("untyped error %v", err)
				}
				continue
			}
			c.handle(c.conn, m)
		}
		for _, k := range calls {
			checkEnd(t, c, k)
		}
		checkStreams(t, c)
		_ = expiry(string(data))
	})
}

const streamLimit = 4

// clientWithCalls is a client whose one connection waits for the answers of a call of every
// kind, each under the name of its kind, and that follows something of everything.
func clientWithCalls(t *testing.T) (*Client, []*call) {
	ctx, cancel := context.WithCancel(t.Context())
	c := &Client{
		cfg: Config{StreamBuffer: streamLimit, Seeds: []string{"a", "b"}}, log: slog.New(slog.DiscardHandler), ctx: ctx, cancel: cancel,
		calls: map[string]*call{}, names: map[string]*lockName{}, follows: map[string]*Follow{}, topics: map[string]map[*Subscription]struct{}{},
		watches: map[string]map[*CounterWatch]struct{}{},
	}
	t.Cleanup(cancel)
	c.clock = hlc.New("c", func() int64 { return 1_700_000_000_000 })
	c.conn = newConn(c, nil, "ws://a")
	watch := &CounterWatch{client: c, name: "n", in: newInbox[float64]()}
	topic := &Subscription{client: c, topic: "n", limit: streamLimit, in: newInbox[Message]()}
	c.watches["n"], c.topics["n"] = map[*CounterWatch]struct{}{watch: {}}, map[*Subscription]struct{}{topic: {}}
	c.follows["follow"] = &Follow{client: c, id: "follow", mapName: "n", limit: streamLimit, in: newInbox[Change]()}
	var calls []*call
	for seq, kind := range protocol.Kinds() {
		if answers[kind] == nil {
			continue
		}
		k := &call{id: kind.String(), seq: uint64(seq), kind: kind, name: "n", done: make(chan struct{}), conn: c.conn}
		switch kind {
		case protocol.KindOpBatch:
			k.op = &protocol.ClientOp{ID: k.id}
			c.conn.frames = []*frame{{lastID: k.id, calls: []*call{k}}}
		case protocol.KindORMapDiffRequest:
			k.msg = &protocol.ORMapDiffRequest{MapName: "n", Keys: []string{"k"}}
		case protocol.KindLockRequest:
			k.wants = &Lock{client: c, name: "n", over: make(chan struct{}), lost: make(chan struct{})}
		case protocol.KindTopicPub, protocol.KindTopicSub:
			k.barrier = true
			c.conn.pingLocked(k)
		}
		c.calls[k.id] = k
		calls = append(calls, k)
	}
	return c, calls
}

// checkEnd holds that a call waits, or has ended as its kind does.
func checkEnd(t *testing.T, c *Client, k *call) {
	t.Helper()
	if !k.settled {
		if c.calls[k.id] != k {
			t.Fatalf("%s is lost", k.kind)
		}
		return
	}
	if err := k.err; err != nil {
		if !errors.Is(err, ErrRefused) && !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrUnknown) && !errors.Is(err, ErrNotGranted) {
			t.Fatalf("%s ended with untyped error %v", k.kind, err)
		}
		return
	}
	for _, want := range answers[k.kind] {
		if reflect.TypeOf(want) == reflect.TypeOf(k.answer) {
			return
		}
	}
	t.Fatalf("%s was answered by %T", k.kind, k.answer)
}

// checkStreams holds that what waits for consumers has bounds, and that its values are
// shown as JSON or refused.
func checkStreams(t *testing.T, c *Client) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.follows {
		if len(f.in.items) > streamLimit {
			t.Fatalf("%d changes wait", len(f.in.items))
		}
		for _, change := range f.in.items {
			for _, r := range change.Records {
				checkValue(t, r.Value)
			}
			checkValue(t, change.Value)
		}
	}
	for s := range c.topics["n"] {
		if len(s.in.items) > streamLimit+1 {
			t.Fatalf("%d messages wait", len(s.in.items))
		}
		for _, m := range s.in.items {
			checkValue(t, m.Data)
		}
	}
	for w := range c.watches["n"] {
		if len(w.in.items) > 1 {
			t.Fatalf("%d totals wait", len(w.in.items))
		}
	}
}

// checkValue holds that the JSON of a value is read back as a value with the same JSON.
func checkValue(t *testing.T, v Value) {
	t.Helper()
	text, err := v.MarshalJSON()
	var any any
	if err != nil || json.Unmarshal(text, &any) != nil {
		return // NaN, for instance, has no JSON
	}
	first, err := EncodeJSON(text)
	if err != nil {
		t.Fatalf("%s of %x: %v", text, []byte(v), err)
	}
	text, err = first.MarshalJSON()
	if err != nil {
		t.Fatalf("%x: %v", []byte(first), err)
	}
	if again, err := EncodeJSON(text); err != nil || string(again) != string(first) {
		t.Fatalf("%s reads back as %x, not %x: %v", text, []byte(again), []byte(first), err)
	}
}
