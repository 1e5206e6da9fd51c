package ws

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/protocol"
)

// badFrames are frames that no honest client sends.
func badFrames(t testing.TB) map[string][]byte {
	frames := map[string][]byte{}
	for name, lead := range map[string]byte{"array": 0xdd, "map": 0xdf, "bin": 0xc6, "str": 0xdb, "ext": 0xc9} {
		bomb := []byte{lead, 0xff, 0xff, 0xff, 0xff}
		frames["length bomb "+name] = bomb
		frames["length bomb in a BATCH "+name] = encode(t, &protocol.Batch{Count: 1, Data: protocol.AppendBatch(nil, bomb)})
		op := msgp.AppendString(msgp.AppendMapHeader(nil, 2), "type")
		op = msgp.AppendString(msgp.AppendString(op, "OP_BATCH"), "payload")
		frames["length bomb in a payload "+name] = append(op, bomb...)
		value := put("1", "m", "k", 1)
		value.Record.Value = bomb
		frames["length bomb as a value "+name] = encode(t, batch(value))
	}
	for _, depth := range []int{257, 10_000, 2_000_000} {
		frames[fmt.Sprintf("nesting %d", depth)] = bytes.Repeat([]byte{0x91}, depth)
		deep := put("1", "m", "k", 1)
		deep.Record.Value = append(bytes.Repeat([]byte{0x91}, depth), 0xc0)
		frames[fmt.Sprintf("value nested %d", depth)] = encode(t, batch(deep))[:min(protocol.MaxFrame, depth+200)]
	}
	frames["a million operations of one byte"] = manyOps(1_000_000, []byte{0xc0})
	frames["eight thousand operations that are no maps"] = manyOps(8000, []byte{0x01})
	frames["a million empty maps"] = manyOps(1_000_000, []byte{0x80})
	frames["batch prefix longer than the rest"] = encode(t, &protocol.Batch{Count: math.MaxInt32, Data: []byte{0xff, 0xff, 0xff, 0xff}})
	frames["batch of empty items"] = encode(t, &protocol.Batch{Count: 1, Data: make([]byte, 4*8192)})
	frames["too many keys for a processor"] = encode(t, &protocol.EntryProcessBatch{RequestID: "r", MapName: "m", Keys: make([]string, 500_000)})
	frames["empty"] = nil
	frames["no map"] = []byte{0x01}
	frames["no type"] = []byte{0x80}
	frames["type of another type"] = []byte("\x81\xa4type\x01")
	frames["nil payload"] = []byte("\x82\xa4type\xa8OP_BATCH\xa7payload\xc0")
	frames["payload of another type"] = []byte("\x82\xa4type\xa8OP_BATCH\xa7payload\xa1x")
	return frames
}

// manyOps is an OP_BATCH of n equal operations.
func manyOps(n int, op []byte) []byte {
	b := []byte("\x82\xa4type\xa8OP_BATCH\xa7payload\x81\xa3ops\xdd")
	b = binary.BigEndian.AppendUint32(b, uint32(n))
	return append(b, bytes.Repeat(op, n)...)
}

func TestBadFramesCostBoundedMemoryAndNobodyElse(t *testing.T) {
	repeats := 3
	if raceEnabled {
		repeats = 1
	}
	f := start(t)
	other := f.dial()
	other.silent()
	debug.FreeOSMemory()
	before := residentBytes(t)
	worst := before
	for name, frame := range badFrames(t) {
		require.LessOrEqual(t, len(frame), protocol.MaxFrame, name)
		c := f.dial()
		for range repeats {
			c.sendRaw(frame)
		}
		c.send(&protocol.Ping{Timestamp: msgp.AppendInt(nil, 1)})
		for answered := false; !answered; {
			switch m := c.next().(type) {
			case *protocol.Pong:
				answered = true
			case *protocol.ErrorMessage, *protocol.OpRejected, *protocol.OpAck, *protocol.EntryProcessBatchResponse:
			default:
				t.Fatalf("%s: unexpected %s", name, m.Kind())
			}
		}
		other.silent() // is still served
		worst = max(worst, residentBytes(t))
		require.NoError(t, c.sock.CloseNow())
	}
	t.Logf("resident memory grew by %d KiB", (worst-before)>>10)
	if !raceEnabled {
		require.Less(t, worst-before, int64(64<<20))
	}
}

// residentBytes is the resident memory of this process.
func residentBytes(t testing.TB) int64 {
	t.Helper()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip("needs /proc")
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			require.NoError(t, err)
			return kib << 10
		}
	}
	t.Skip("no VmRSS")
	return 0
}

func TestBadFieldsAreRefusedOneByOne(t *testing.T) {
	f := start(t)
	c := f.dial()
	// A raw op map with a field replaced.
	op := func(id string, field string, value []byte) []byte {
		fields := map[string][]byte{
			"id": msgp.AppendString(nil, id), "mapName": msgp.AppendString(nil, "m"), "key": msgp.AppendString(nil, "k"+id),
			"opType": msgp.AppendString(nil, "PUT"), "record": protocol.AppendRecord(nil, record(1, testNow)),
		}
		fields[field] = value
		b := msgp.AppendMapHeader(nil, uint32(len(fields)))
		for name, v := range fields {
			b = append(msgp.AppendString(b, name), v...)
		}
		return b
	}
	stamped := func(millis []byte) []byte {
		ts := msgp.AppendString(msgp.AppendMapHeader(nil, 3), "millis")
		ts = append(ts, millis...)
		ts = msgp.AppendInt(msgp.AppendString(ts, "counter"), 0)
		return msgp.AppendString(msgp.AppendString(ts, "nodeId"), "n")
	}
	bad := [][]byte{
		op("1", "mapName", msgp.AppendNil(nil)),
		op("2", "key", msgp.AppendInt(nil, 7)),
		op("3", "record", msgp.AppendString(nil, "text")),
		op("4", "timestamp", stamped(msgp.AppendInt(nil, -1))),
		op("5", "timestamp", stamped(msgp.AppendUint64(nil, 1<<53))),
		op("6", "timestamp", stamped(msgp.AppendFloat64(nil, math.NaN()))),
		op("7", "timestamp", stamped(msgp.AppendFloat64(nil, math.Inf(1)))),
		op("8", "timestamp", stamped(msgp.AppendFloat64(nil, 1.5))),
		op("9", "mapName", []byte{0xa2, 0xc3, 0x28}),
		op("10", "writeConcern", msgp.AppendString(nil, "EVENTUALLY")),
		op("11", "opType", msgp.AppendString(nil, "DROP TABLE")),
		op("12", "fence", msgp.AppendString(nil, "mine")),
	}
	good := op("13", "synced", msgp.AppendBool(nil, false))
	b := []byte("\x82\xa4type\xa8OP_BATCH\xa7payload\x81\xa3ops")
	b = msgp.AppendArrayHeader(b, uint32(len(bad)+1))
	for _, raw := range bad {
		b = append(b, raw...)
	}
	c.sendRaw(append(b, good...))
	for i := range bad {
		require.Equal(t, strconv.Itoa(i+1), expect[*protocol.OpRejected](c).OpID)
	}
	ack := expect[*protocol.OpAck](c)
	require.Equal(t, []string{"13"}, resultIDs(ack))
	require.Len(t, f.backend.written(), 1)
}

func TestOperationWithoutReadableIDIsRefusedSilently(t *testing.T) {
	f := start(t)
	c := f.dial()
	c.sendRaw(manyOps(3, []byte{0x01}))
	c.silent()
	c.sendRaw([]byte("\x82\xa4type\xa9CLIENT_OP\xa7payload\x81\xa2id\xa15"))
	require.Equal(t, "5", expect[*protocol.OpRejected](c).OpID)
	require.Equal(t, "5", expect[*protocol.OpAck](c).LastID)
}

func TestTextThatIsNoTextIsNotSentBack(t *testing.T) {
	f := start(t)
	c := f.dial()
	c.sendRaw([]byte("\x82\xa4type\xa9CLIENT_OP\xa7payload\x81\xa2id\xa2\xc3\x28"))
	c.silent()
	c.sendRaw([]byte("\x82\xa4type\xa9QUERY_SUB\xa7payload\x82\xa7queryId\xa1\xff\xa7mapName\xc2"))
	require.Equal(t, map[string]any{"type": "QUERY_SUB"}, detailsOf(t, expect[*protocol.ErrorMessage](c)))
}

func TestBrokenWebSocketFramesEndOnlyTheirConnection(t *testing.T) {
	f := start(t)
	other := f.dial()
	for name, raw := range map[string][]byte{
		"unmasked":                  {0x82, 0x01, 0xc0},
		"reserved bits":             {0xf2, 0x80, 0, 0, 0, 0},
		"unknown opcode":            {0x83, 0x80, 0, 0, 0, 0},
		"continuation of nothing":   {0x80, 0x80, 0, 0, 0, 0},
		"huge declared length":      {0x82, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 1, 2, 3},
		"negative declared length":  {0x82, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0},
		"fragmented control":        {0x09, 0x80, 0, 0, 0, 0},
		"long control":              append([]byte{0x89, 0xfe, 0, 200, 0, 0, 0, 0}, make([]byte, 200)...),
		"close with a broken code":  {0x88, 0x82, 0, 0, 0, 0, 0, 1},
		"close with half a code":    {0x88, 0x81, 0, 0, 0, 0, 3},
		"compressed without a deal": {0xc2, 0x81, 0, 0, 0, 0, 0},
	} {
		c := dialRaw(t, f.url)
		_, err := c.Write(raw)
		require.NoError(t, err, name)
		require.NoError(t, c.Conn.(interface{ CloseWrite() error }).CloseWrite(), name)
		_, _ = bytes.NewBuffer(nil).ReadFrom(c) // until the server closes
		other.silent()
	}
	eventually(t, func() bool { return f.Connections() == 1 }, "the broken ones are gone")
}

func TestVectorsOfClientsInTheField(t *testing.T) {
	want := map[protocol.Kind]protocol.Kind{
		protocol.KindAuth:                 protocol.KindAuthAck,
		protocol.KindSyncInit:             protocol.KindSyncRespRoot,
		protocol.KindORMapSyncInit:        protocol.KindORMapSyncRespRoot,
		protocol.KindMerkleReqBucket:      protocol.KindSyncRespBuckets,
		protocol.KindORMapMerkleReqBucket: protocol.KindORMapSyncRespBuckets,
		protocol.KindCounterRequest:       protocol.KindCounterResponse,
		protocol.KindCounterSync:          protocol.KindCounterUpdate,
		protocol.KindLockRequest:          protocol.KindLockGranted,
		protocol.KindSearch:               protocol.KindSearchResp,
		protocol.KindVectorSearch:         protocol.KindVectorSearchResp,
		protocol.KindHybridSearch:         protocol.KindHybridSearchResp,
		protocol.KindSQLQuery:             protocol.KindSQLQueryResp,
		protocol.KindQuerySub:             protocol.KindQueryResp,
	}
	silent := map[protocol.Kind]bool{protocol.KindTopicSub: true, protocol.KindTopicPub: true, protocol.KindQueryUnsub: true, protocol.KindTopicUnsub: true, protocol.KindORMapPushDiff: true}
	f := start(t)
	seen := 0
	for _, frame := range capturedFrames(t) {
		m, err := protocol.Decode(frame)
		if err != nil {
			continue // the body of an HTTP request
		}
		seen++
		c := f.dial()
		c.sendRaw(frame)
		switch {
		case m.Kind() == protocol.KindOpBatch:
			expectVerdicts(c, m.(*protocol.OpBatch))
		case !silent[m.Kind()]:
			require.Equal(t, want[m.Kind()].String(), c.next().Kind().String(), "answer to %s", m.Kind())
		}
		c.silent()
	}
	require.Greater(t, seen, 25)
}

// expectVerdicts requires the acknowledgement of all operations.
func expectVerdicts(c *client, m *protocol.OpBatch) {
	c.t.Helper()
	require.Equal(c.t, m.Ops[len(m.Ops)-1].ID, expect[*protocol.OpAck](c).LastID)
}

func TestEveryRequestIsAnsweredOrKnownToBeSilent(t *testing.T) {
	mute := map[protocol.Kind]bool{
		protocol.KindQuerySyncInit: true, protocol.KindHybridQuerySubscribe: true, protocol.KindHybridQueryUnsubscribe: true,
		protocol.KindClientApplyAck: true, protocol.KindSearchUnsub: true, protocol.KindHybridSearchUnsub: true,
		protocol.KindTopicUnsub: true, protocol.KindJournalUnsubscribe: true,
	}
	for _, m := range unsupportedRequests() {
		answer := unsupported(m)
		if mute[m.Kind()] {
			require.Nil(t, answer, m.Kind().String())
			continue
		}
		require.NotNil(t, answer, m.Kind().String())
		require.NotEqual(t, protocol.KindLockReleased, answer.Kind(), "clients take it for a grant")
		require.NotEqual(t, protocol.KindOpAck, answer.Kind(), "clients take it for a watermark")
		_, err := protocol.Decode(encode(t, answer))
		require.NoError(t, err, m.Kind().String())
		if e, ok := answer.(*protocol.ErrorMessage); ok {
			require.Equal(t, protocol.CodeNotImplemented, e.Code)
			require.Contains(t, fmt.Sprint(detailsOf(t, e)), "corr", m.Kind().String())
		} else {
			require.Contains(t, fmt.Sprintf("%+v", answer), "corr", m.Kind().String())
		}
	}
}

func unsupportedRequests() []protocol.Message {
	return []protocol.Message{
		&protocol.ClientApplyAck{}, &protocol.QuerySyncInit{QueryID: "corr"}, &protocol.SQLQuery{QueryID: "corr"},
		&protocol.HybridQuerySubscribe{SubscriptionID: "corr"}, &protocol.HybridQueryUnsubscribe{SubscriptionID: "corr"},
		&protocol.Search{RequestID: "corr"}, &protocol.SearchSub{SubscriptionID: "corr"}, &protocol.SearchUnsub{SubscriptionID: "corr"},
		&protocol.VectorSearch{ID: "corr"}, &protocol.HybridSearch{RequestID: "corr"}, &protocol.HybridSearchSub{SubscriptionID: "corr"},
		&protocol.HybridSearchUnsub{SubscriptionID: "corr"}, &protocol.TopicSub{Topic: "corr"}, &protocol.TopicUnsub{Topic: "corr"},
		&protocol.TopicPub{Topic: "corr"}, &protocol.LockRequest{RequestID: "corr"}, &protocol.LockRelease{Name: "corr"},
		&protocol.CounterRequest{Name: "corr"}, &protocol.CounterSync{Name: "corr"}, &protocol.EntryProcess{RequestID: "corr"},
		&protocol.EntryProcessBatch{RequestID: "corr", Keys: []string{"a", "b"}}, &protocol.JournalSubscribe{RequestID: "corr"},
		&protocol.JournalUnsubscribe{SubscriptionID: "corr"}, &protocol.JournalRead{RequestID: "corr"},
		&protocol.RegisterResolver{RequestID: "corr"}, &protocol.UnregisterResolver{RequestID: "corr"}, &protocol.ListResolvers{RequestID: "corr"},
	}
}

// FuzzFrame feeds frames to a connection without a socket's pace: whatever they
// hold, the connection must survive or close in order.
func FuzzFrame(f *testing.F) {
	for _, frame := range capturedFrames(f) {
		f.Add(frame)
	}
	for _, frame := range badFrames(f) {
		if len(frame) < 4096 {
			f.Add(frame)
		}
	}
	f.Add(encode(f, querySub("q", "m")))
	f.Add(encode(f, &protocol.QueryUnsub{QueryID: "q"}))
	f.Add(encode(f, &protocol.PartitionMapRequest{}))
	fx := start(f, func(c *Config, _ *Deps, _ *fakeBackend) { c.RatePerSecond = 0 })
	ping := encode(f, &protocol.Ping{Timestamp: msgp.AppendInt(nil, 4711)})
	var sock *websocket.Conn
	f.Fuzz(func(t *testing.T, frame []byte) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if sock == nil {
			var err error
			if sock, _, err = websocket.Dial(ctx, fx.url, nil); err != nil {
				t.Fatal(err)
			}
			sock.SetReadLimit(-1)
		}
		for _, b := range [][]byte{frame, ping} {
			if err := sock.Write(ctx, websocket.MessageBinary, b); err != nil {
				t.Fatal(err)
			}
		}
		for {
			_, b, err := sock.Read(ctx)
			if err != nil {
				t.Fatalf("connection ended: %v", err)
			}
			m, err := protocol.Decode(b)
			if err != nil {
				t.Fatalf("server sent %x: %v", b, err)
			}
			if p, ok := m.(*protocol.Pong); ok && bytes.Equal(p.Timestamp, msgp.AppendInt(nil, 4711)) {
				return
			}
		}
	})
}
