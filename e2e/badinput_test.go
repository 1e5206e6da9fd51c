package e2e

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/e2e/harness"
	"github.com/quorate/quorate/protocol"
)

// maxGrowth is how much memory all the hostile input together may cost a node.
const maxGrowth = 64 << 20

// badInput is frames of one connection and what must come back before the answer to
// a good write that follows them.
type badInput struct {
	name   string
	frames [][]byte
	// want is "ignored", "error <code>", "rejected <code>", "accepted", or
	// "close <code>".
	want string
}

func TestHostileFramesCostLittleAndHurtNobody(t *testing.T) {
	c := harness.Start(t, config(), 1)
	n := c.Node("n1")
	stop := watchBystander(t, n)
	before := n.ResidentBytes()
	peak := before
	for _, in := range badInputs() {
		t.Run(in.name, func(t *testing.T) {
			got := exchange(t, n, in.frames)
			require.Contains(t, got, in.want)
			if in.want == "ignored" {
				require.Len(t, got, 1)
			}
		})
		peak = max(peak, n.ResidentBytes())
	}
	hostilePeers(t, n)
	hostileHTTP(t, n)
	peak = max(peak, n.ResidentBytes())
	t.Logf("resident memory grew by %d MiB", (peak-before)>>20)
	require.Less(t, peak-before, maxGrowth)
	stop()
}

// watchBystander writes through a connection of its own until the returned function
// is called, which fails the test if a write was not accepted.
func watchBystander(t *testing.T, n *harness.Node) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	client, err := n.Dial(ctx)
	require.NoError(t, err)
	var wg sync.WaitGroup
	failed := make(chan string, 1)
	wg.Go(func() {
		spaced := time.NewTicker(5 * time.Millisecond)
		defer spaced.Stop()
		for i := 1; ctx.Err() == nil; i++ {
			at := protocol.Timestamp{Millis: time.Now().UnixMilli(), Counter: int64(i), NodeID: "by"}
			op := harness.Put(fmt.Sprint(i), "bystander", "k", fmt.Sprint(i), at)
			if r := client.Write(ctx, &protocol.OpBatch{Ops: []protocol.ClientOp{op}}); !r.Accepted() && ctx.Err() == nil {
				failed <- fmt.Sprintf("write %d of a bystander: %v", i, r)
				return
			}
			<-spaced.C
		}
	})
	stop = func() {
		cancel()
		wg.Wait()
		client.Close()
		select {
		case f := <-failed:
			t.Error(f)
		default:
		}
	}
	t.Cleanup(cancel)
	return stop
}

// exchange sends frames and a good write, and describes what comes back before the
// write is acknowledged: verdicts come in the order of the frames.
func exchange(t *testing.T, n *harness.Node, frames [][]byte) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, n.URL(), nil)
	require.NoError(t, err)
	defer conn.CloseNow()
	conn.SetReadLimit(32 << 20)
	for _, f := range frames {
		// The server may close while it is still sent to; what it says is read below.
		_ = conn.Write(ctx, websocket.MessageBinary, f)
	}
	_ = conn.Write(ctx, websocket.MessageBinary, clientOp(put(object{"id": lastID, "key": "good"}))[0])
	var got []string
	for {
		_, frame, err := conn.Read(ctx)
		if err != nil {
			require.NoError(t, ctx.Err(), "neither answer nor close")
			return append(got, fmt.Sprintf("close %d", websocket.CloseStatus(err)))
		}
		m, err := protocol.Decode(frame)
		require.NoError(t, err)
		switch m := m.(type) {
		case *protocol.ErrorMessage:
			got = append(got, fmt.Sprintf("error %d", m.Code))
		case *protocol.OpRejected:
			got = append(got, fmt.Sprintf("rejected %d", m.Code))
		case *protocol.OpAck:
			if m.LastID == lastID {
				if len(got) == 0 {
					got = append(got, "ignored")
				}
				return got
			}
			if m.Results == nil || len(m.Results) > 0 {
				got = append(got, "accepted")
			}
		}
	}
}

// lastID is the id of the write that ends an exchange.
const lastID = "last"

// frame encodes nested maps, slices and plain values.
func frame(v any) []byte {
	b, err := msgp.AppendIntf(nil, v)
	if err != nil {
		panic(err)
	}
	return b
}

type object = map[string]any

// put is an operation whose fields can be replaced.
func put(change object) object {
	op := object{
		"id": "1", "mapName": "bad", "key": "k", "opType": "PUT",
		"record": object{"value": "v", "timestamp": stamp(1)},
	}
	for k, v := range change {
		op[k] = v
	}
	return op
}

func stamp(millis any) object { return object{"millis": millis, "counter": 0, "nodeId": "bad"} }

func clientOp(op object) [][]byte {
	return [][]byte{frame(object{"type": "CLIENT_OP", "payload": op})}
}

func opBatch(ops ...any) []byte {
	return frame(object{"type": "OP_BATCH", "payload": object{"ops": ops}})
}

func badInputs() []badInput {
	list := append(brokenFrames(), brokenOps()...)
	return append(list, brokenBatches()...)
}

func brokenFrames() []badInput {
	var list []badInput
	add := func(name, want string, frames ...[]byte) { list = append(list, badInput{name, frames, want}) }
	for _, lead := range []byte{0xdd, 0xdf, 0xc6, 0xdb, 0xc9} {
		bomb := []byte{lead, 0xff, 0xff, 0xff, 0xff}
		add(fmt.Sprintf("bomb %x as frame", lead), "error 400", bomb)
		field := append(msgp.AppendMapHeader(nil, 2), msgp.AppendString(msgp.AppendString(msgp.AppendString(nil, "type"), "PING"), "timestamp")...)
		add(fmt.Sprintf("bomb %x as field", lead), "error 400", append(field, bomb...))
	}
	add("nesting of 257", "error 400", bytes.Repeat([]byte{0x91}, 257))
	add("nesting of 2000000", "error 400", bytes.Repeat([]byte{0x91}, 2000000))
	add("a frame of 2 MiB and 1", "close 1009", make([]byte, protocol.MaxFrame+1))
	add("a frame of zeros", "error 400", make([]byte, protocol.MaxFrame))
	add("empty frame", "error 400", nil)
	add("no map", "error 400", frame([]any{"PING"}))
	add("no type", "error 400", frame(object{"payload": object{}}))
	add("type of another type", "error 400", frame(object{"type": 7}))
	add("unknown type", "ignored", frame(object{"type": "MAKE_COFFEE", "payload": object{"sugar": true}}))
	add("server's own type", "ignored", frame(object{"type": "AUTH_REQUIRED"}))
	add("extra fields", "ignored", frame(object{"type": "PING", "timestamp": 1, "more": object{"a": []any{1}}}))
	add("query without map", "error 400", frame(object{"type": "QUERY_SUB", "payload": object{"queryId": "q", "query": object{}}}))
	add("query of a map with a long name", "error 400", frame(object{"type": "QUERY_SUB", "payload": object{
		"queryId": "q", "mapName": strings.Repeat("m", 1<<20), "query": object{}}}))
	add("sync of a map with a long name", "error 400", frame(object{"type": "SYNC_INIT", "mapName": strings.Repeat("m", 1<<20)}))
	add("sync of a reserved map", "error 403", frame(object{"type": "SYNC_INIT", "mapName": "$sys/members"}))
	add("path beyond the leaves", "error 400", frame(object{"type": "MERKLE_REQ_BUCKET", "payload": object{"mapName": "m", "path": "8722"}}))
	add("path that is none", "error 400", frame(object{"type": "ORMAP_MERKLE_REQ_BUCKET", "payload": object{"mapName": "m", "path": "../"}}))
	add("push without tags", "error 400", frame(object{"type": "ORMAP_PUSH_DIFF", "payload": object{"mapName": "m", "entries": []any{
		object{"key": "k", "records": []any{object{"value": 1, "timestamp": stamp(1), "tag": ""}}, "tombstones": []any{}}}}}))
	payload := func(kind string, fields object) []byte { return frame(object{"type": kind, "payload": fields}) }
	add("service that is not there", "error 501", frame(object{"type": "JOURNAL_SUBSCRIBE", "requestId": "r"}))
	for name, lock := range map[string]object{
		"without a name": {"requestId": "r", "name": ""}, "with a name of 1 MiB": {"requestId": "r", "name": strings.Repeat("l", 1<<20)},
		"with an odd name": {"requestId": "r", "name": "../x y"}, "for no time": {"requestId": "r", "name": "l", "ttl": 0},
		"for NaN": {"requestId": "r", "name": "l", "ttl": math.NaN()}, "of no lease": {"requestId": "r", "name": "l", "fencingToken": 1},
		"for less than no time": {"requestId": "r", "name": "l", "ttl": -5},
	} {
		add("lock "+name, "error 400", payload("LOCK_REQUEST", lock))
	}
	add("release of nothing", "ignored", payload("LOCK_RELEASE", object{"requestId": "r", "name": "nobody-has-it", "fencingToken": int64(1) << 52}))
	add("release with a negative token", "error 400", payload("LOCK_RELEASE", object{"requestId": "r", "name": "l", "fencingToken": -1}))
	for name, cells := range map[string]any{
		"negative": object{"w": -1}, "NaN": object{"w": math.NaN()}, "infinite": object{"w": math.Inf(1)}, "text": object{"w": "1"}, "no map": 5,
		"of a long writer": object{strings.Repeat("w", 300): 1},
	} {
		add("counter that is "+name, "error 400", payload("COUNTER_SYNC", object{"name": "bad", "state": object{"p": cells, "n": object{}}}))
	}
	add("addition of NaN", "error 400", payload("COUNTER_SYNC", object{"name": "bad", "state": object{}, "add": math.NaN()}))
	add("counter with a long name", "error 400", payload("COUNTER_REQUEST", object{"name": strings.Repeat("c", 1<<20)}))
	add("topic with an odd name", "error 400", payload("TOPIC_SUB", object{"topic": "a b"}))
	add("topic with a long name", "error 400", payload("TOPIC_PUB", object{"topic": strings.Repeat("t", 1<<20), "data": 1}))
	add("message of 1 MiB and more", "error 413", payload("TOPIC_PUB", object{"topic": "t", "data": strings.Repeat("d", 1<<20)}))
	add("AUTH twice without authentication", "ignored", frame(object{"type": "AUTH", "token": "t", "protocolVersion": 99}),
		frame(object{"type": "AUTH", "token": "t"}))
	return list
}

func brokenOps() []badInput {
	var list []badInput
	add := func(name, want string, change object) {
		list = append(list, badInput{name, clientOp(put(change)), want})
	}
	add("map name missing", "rejected 400", object{"mapName": nil})
	add("map name of another type", "rejected 400", object{"mapName": 5})
	add("map name empty", "rejected 400", object{"mapName": ""})
	add("map name with NUL", "rejected 400", object{"mapName": "a\x00b"})
	add("map name of 1 MiB", "rejected 400", object{"mapName": strings.Repeat("m", 1<<20)})
	add("map name not UTF-8", "rejected 400", object{"mapName": "\xff\xfe"})
	add("reserved map", "rejected 403", object{"mapName": "$SYS/nodes"})
	add("key missing", "rejected 400", object{"key": nil})
	add("key of 1 MiB", "rejected 400", object{"key": strings.Repeat("k", 1<<20)})
	add("key not UTF-8", "rejected 400", object{"key": "\xff\xfe"})
	add("key that walks up", "accepted", object{"key": "../../etc/passwd"})
	add("value of 1 MiB and more", "rejected 413", object{"record": object{"value": strings.Repeat("v", 1<<20), "timestamp": stamp(1)}})
	add("no record", "rejected 400", object{"record": nil})
	add("unknown operation", "rejected 422", object{"opType": "DELETE"})
	add("tag that is missing", "rejected 400", object{"opType": "OR_ADD", "orRecord": object{"value": 1, "timestamp": stamp(1)}})
	add("tag that is too long", "rejected 400", object{"opType": "OR_REMOVE", "orTag": strings.Repeat("t", 513)})
	add("tag from the far future", "accepted", object{"opType": "OR_ADD", "orRecord": object{"value": 1, "timestamp": stamp(int64(1) << 52), "tag": "1:0:bad"}})
	add("unknown write concern", "rejected 400", object{"writeConcern": "ETERNAL"})
	for name, millis := range map[string]any{
		"NaN": math.NaN(), "infinity": math.Inf(1), "fraction": 1.5, "text": "1", "negative": -1, "2^53+1": int64(1)<<53 + 1, "2^64-1": uint64(math.MaxUint64),
	} {
		add("time stamp "+name, "rejected 400", object{"record": object{"value": "v", "timestamp": stamp(millis)}})
	}
	add("far future", "accepted", object{"record": object{"value": "v", "timestamp": stamp(int64(1) << 52)}})
	for name, ttl := range map[string]any{"negative": -1, "NaN": math.NaN()} {
		add("time to live "+name, "rejected 400", object{"record": object{"value": "v", "ttlMs": ttl, "timestamp": stamp(1)}})
	}
	return list
}

func brokenBatches() []badInput {
	var list []badInput
	add := func(name, want string, frames ...[]byte) { list = append(list, badInput{name, frames, want}) }
	inner := frame(object{"type": "CLIENT_OP", "payload": put(nil)})
	batch := func(count any, data []byte) []byte {
		return frame(object{"type": "BATCH", "count": count, "data": data})
	}
	add("BATCH whose count lies", "accepted", batch(1<<40, protocol.AppendBatch(nil, inner)))
	add("BATCH with a length beyond the rest", "accepted", batch(2, append(protocol.AppendBatch(nil, inner), 0xff, 0xff, 0xff, 0xff, 1)))
	add("BATCH in BATCH", "ignored", batch(1, protocol.AppendBatch(nil, batch(1, protocol.AppendBatch(nil, inner)))))
	var many []byte
	for range protocol.MaxBatchItems + 1 {
		many = protocol.AppendBatch(many, []byte{0x80})
	}
	add("BATCH with an item too many", "error 413", batch(1, many))
	var bomb []byte
	bomb = protocol.AppendBatch(bomb, []byte{0xdd, 0xff, 0xff, 0xff, 0xff})
	add("bomb in BATCH", "error 400", batch(1, bomb))
	add("data of another type", "error 400", batch(1, nil)[:1], frame(object{"type": "BATCH", "count": 1, "data": "text"}))
	add("ids twice with other content", "rejected 400", opBatch(put(nil), put(object{"key": "other"})))
	add("one bad of two", "accepted", opBatch(put(object{"mapName": ""}), put(object{"id": "2"})))
	add("ids replayed", "accepted", opBatch(put(nil)), opBatch(put(nil)))
	add("operation without id", "ignored", opBatch(put(object{"id": nil})))
	add("empty batch", "ignored", opBatch())
	add("ops are no list", "error 400", frame(object{"type": "OP_BATCH", "payload": object{"ops": 7}}))
	ops := make([]any, protocol.MaxBatchItems+1)
	for i := range ops {
		ops[i] = put(object{"id": fmt.Sprint(i)})
	}
	add("too many operations", "error 413", opBatch(ops...))
	return list
}

// hostilePeers sends bombs and noise to the cluster port.
func hostilePeers(t *testing.T, n *harness.Node) {
	t.Helper()
	rng := rand.New(rand.NewPCG(uint64(*seed), 4))
	noise := make([]byte, 1<<20)
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	greeting := append([]byte("QRAT\x01\x01"), 0xff, 0xff)
	for _, input := range [][]byte{noise, greeting, append(bytes.Clone(greeting), noise...), {22, 3, 1, 0xff, 0xff}, []byte("GET / HTTP/1.1\r\n\r\n")} {
		conn, err := net.Dial("tcp4", n.PeerAddr())
		require.NoError(t, err)
		// The node may close while it is still sent to.
		_, _ = conn.Write(input)
		_ = conn.Close()
	}
	_, err := n.Status()
	require.NoError(t, err, "the cluster port still answers")
}

// hostileHTTP sends broken requests to the client port.
func hostileHTTP(t *testing.T, n *harness.Node) {
	t.Helper()
	addr := strings.TrimSuffix(strings.TrimPrefix(n.URL(), "ws://"), "/ws")
	var headers strings.Builder
	for i := range 10000 {
		fmt.Fprintf(&headers, "X-%d: %s\r\n", i, strings.Repeat("v", 1000))
	}
	for _, request := range []string{
		"GET /health HTTP/1.1\r\nHost: x\r\n" + headers.String() + "\r\n",
		"POST /health HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999\r\n\r\n",
		"GET /" + strings.Repeat("a", 4<<20) + " HTTP/1.1\r\n\r\n",
		"GET /admin/%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		string(binary.BigEndian.AppendUint64(nil, math.MaxUint64)) + "\r\n\r\n",
	} {
		conn, err := net.Dial("tcp4", addr)
		require.NoError(t, err)
		_, _ = conn.Write([]byte(request))
		_ = conn.Close()
	}
	n.AwaitReady()
}
