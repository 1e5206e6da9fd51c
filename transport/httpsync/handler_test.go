package httpsync

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/transport/auth"
)

const testNow = int64(1_800_000_000_000)

// fakeBackend answers from what a test puts into it.
type fakeBackend struct {
	rows     []partitions.Row
	deltas   map[string][]protocol.KeyedRecord
	written  []partitions.Op
	writes   error
	reads    error
	barriers int
	refuse   map[string]protocol.Code
}

func (*fakeBackend) NewSession() *partitions.Session { return new(partitions.Session) }

func (b *fakeBackend) Write(_ context.Context, _ *partitions.Session, ops []partitions.Op) ([]partitions.Verdict, error) {
	b.written = append(b.written, ops...)
	verdicts := make([]partitions.Verdict, len(ops))
	for i := range ops {
		verdicts[i].Level = protocol.LevelPersisted
		if code := b.refuse[ops[i].Key]; code != 0 {
			verdicts[i] = partitions.Verdict{Code: code, Reason: "refused"}
		}
	}
	return verdicts, b.writes
}

func (b *fakeBackend) Stored(_ context.Context, _ *partitions.Session, op *partitions.Op) (partitions.Stored, error) {
	for _, row := range b.rows {
		if row.Key == op.Key {
			return partitions.Stored{Value: row.Record.Value}, b.reads
		}
	}
	return partitions.Stored{}, b.reads
}

func (b *fakeBackend) Delta(_ context.Context, _ *partitions.Session, mapName string, since protocol.Timestamp, _ int,
) ([]protocol.KeyedRecord, protocol.Timestamp, bool, error) {
	return b.deltas[mapName], protocol.Timestamp{Millis: testNow, NodeID: since.NodeID + "+"}, false, b.reads
}

func (b *fakeBackend) Answer(_ context.Context, _ *partitions.Session, ask partitions.Ask) (*partitions.Answer, error) {
	g := partitions.NewGathering(ask, testNow)
	for _, row := range b.rows {
		if !g.Add(row.Key, row.Record) {
			break
		}
	}
	return g.Answer(), cmp.Or(b.reads, g.Err())
}

func (*fakeBackend) ClusterID() string { return "c1" }

func (b *fakeBackend) Barrier(context.Context, *partitions.Session) error {
	b.barriers++
	return b.reads
}

func (*fakeBackend) Now() protocol.Timestamp {
	return protocol.Timestamp{Millis: testNow, NodeID: "n1"}
}

type tokens struct{}

func (tokens) Verify(token string) (auth.Principal, error) {
	if token != "good" {
		return auth.Principal{}, errors.New("forged")
	}
	return auth.Principal{ID: "u"}, nil
}

func (tokens) Message(error) string { return "credentials refused" }

// serve handles one request; change adjusts the configuration and what it works with.
func serve(t *testing.T, b *fakeBackend, r *http.Request, change ...func(*Config, *Deps)) *http.Response {
	t.Helper()
	cfg := DefaultConfig()
	deps := Deps{Logger: hclog.NewNullLogger(), Now: func() int64 { return testNow }, Backend: func() Backend { return b }}
	if b == nil {
		deps.Backend = func() Backend { return nil }
	}
	for _, f := range change {
		f(&cfg, &deps)
	}
	w := httptest.NewRecorder()
	New(cfg, deps).ServeHTTP(w, r)
	return w.Result()
}

func post(body []byte) *http.Request {
	return httptest.NewRequest(http.MethodPost, "/sync", bytes.NewReader(body))
}

// sync sends one request and returns what is answered.
func sync(t *testing.T, b *fakeBackend, m *protocol.HTTPSync, change ...func(*Config, *Deps)) *protocol.HTTPSyncResponse {
	t.Helper()
	m.ClientID = "web-7"
	resp := serve(t, b, post(protocol.AppendHTTPSync(nil, m)), change...)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode, "%s", body)
	require.Equal(t, "application/msgpack", resp.Header.Get("Content-Type"))
	answer, err := protocol.DecodeHTTPSyncResponse(body)
	require.NoError(t, err)
	require.Equal(t, protocol.Timestamp{Millis: testNow, NodeID: "n1"}, answer.ServerHLC)
	return answer
}

func put(id, mapName, key string) protocol.ClientOp {
	return protocol.ClientOp{
		ID: id, MapName: mapName, Key: key, RecordPresence: protocol.Present,
		Record: protocol.Record{Value: []byte{1}, Timestamp: protocol.Timestamp{Millis: testNow, NodeID: "c"}},
	}
}

func TestAcceptedWritesAreAcknowledgedWithoutResults(t *testing.T) {
	b := &fakeBackend{}
	answer := sync(t, b, &protocol.HTTPSync{Operations: []protocol.ClientOp{put("8", "todos", "a"), put("9", "todos", "b")}})
	require.Equal(t, &protocol.HTTPAck{LastID: "9"}, answer.Ack)
	require.Empty(t, answer.Errors)
	require.Len(t, b.written, 2)
}

func TestRefusedWritesAreErrorsByIdAndResultsListTheOthers(t *testing.T) {
	b := &fakeBackend{refuse: map[string]protocol.Code{"stale": protocol.CodeStale}}
	answer := sync(t, b, &protocol.HTTPSync{Operations: []protocol.ClientOp{
		put("8", "todos", "a"), put("9", "$sys/x", "b"), put("10", "todos", "stale"), put("11", "todos", "d"),
	}})
	require.Equal(t, "11", answer.Ack.LastID)
	var accepted []string
	for _, r := range answer.Ack.Results {
		accepted = append(accepted, r.OpID)
	}
	require.Equal(t, []string{"8", "11"}, accepted)
	require.Equal(t, []protocol.HTTPError{
		{Code: 403, Message: `map is reserved for the server (map "$sys/x")`, Context: "9"}, {Code: 409, Message: `refused (map "todos")`, Context: "10"},
	}, answer.Errors)

	resp := serve(t, b, post(protocol.AppendHTTPSync(nil, &protocol.HTTPSync{Operations: []protocol.ClientOp{put("9", "$sys/x", "b")}})))
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	ack := protocol.Fields(protocol.Fields(body)["ack"])
	require.Equal(t, msgp.AppendString(nil, "9"), []byte(ack["lastId"]))
	require.Equal(t, msgp.Raw{0x90}, ack["results"], "no results would claim that everything was accepted")
}

func TestAnOperationWithoutIdIsNotAppliedAndTheOthersAre(t *testing.T) {
	b := &fakeBackend{}
	answer := sync(t, b, &protocol.HTTPSync{Operations: []protocol.ClientOp{put("", "todos", "nameless"), put("9", "todos", "b")}})
	require.Equal(t, []protocol.HTTPError{{Code: 501, Message: "operation has no id"}}, answer.Errors)
	require.Equal(t, "9", answer.Ack.LastID)
	require.Len(t, answer.Ack.Results, 1, "without results, everything would be accepted")
	require.Len(t, b.written, 1)
}

func TestWritesWithoutVerdictsHaveNoAck(t *testing.T) {
	for _, err := range []error{partitions.ErrUnavailable, partitions.ErrUnknown, errors.New("broken")} {
		answer := sync(t, &fakeBackend{writes: err}, &protocol.HTTPSync{Operations: []protocol.ClientOp{put("8", "todos", "a")}})
		require.Nil(t, answer.Ack)
		require.Len(t, answer.Errors, 1)
		require.True(t, answer.Errors[0].Code.Temporary())
		require.Empty(t, answer.Errors[0].Context)
		require.Equal(t, errors.Is(err, partitions.ErrUnavailable), strings.Contains(answer.Errors[0].Message, "nothing was applied"))
	}
}

func TestObservedRemoveWritesArrive(t *testing.T) {
	b := &fakeBackend{}
	rec := &protocol.ORRecord{Value: []byte{7}, Tag: "t", Timestamp: protocol.Timestamp{Millis: 1, NodeID: "c"}}
	sync(t, b, &protocol.HTTPSync{Operations: []protocol.ClientOp{
		{ID: "1", MapName: "labels", Key: "k", Type: protocol.OpORAdd, ORRecord: rec}, {ID: "2", MapName: "labels", Key: "k", Type: protocol.OpORRemove, ORTag: "t"},
	}})
	require.Equal(t, []partitions.Op{{Map: "labels", Key: "k", Add: rec}, {Map: "labels", Key: "k", Remove: "t"}}, b.written)
}

func TestDeltasCarryRemovals(t *testing.T) {
	live := protocol.Record{Value: []byte{1}, Timestamp: protocol.Timestamp{Millis: 5, NodeID: "c"}, TTLMillis: 70}
	dead := protocol.Record{Timestamp: protocol.Timestamp{Millis: 6, NodeID: "c"}}
	b := &fakeBackend{deltas: map[string][]protocol.KeyedRecord{"todos": {{Key: "a", Record: live}, {Key: "b", Record: dead}}}}
	answer := sync(t, b, &protocol.HTTPSync{SyncMaps: []protocol.HTTPSyncMap{
		{MapName: "todos", LastSyncTimestamp: protocol.Timestamp{NodeID: "before"}}, {MapName: "empty"}, {MapName: "_service_x"},
	}})
	require.Equal(t, []protocol.MapDelta{
		{MapName: "todos", Records: []protocol.DeltaRecord{
			{Key: "a", Record: live, EventType: protocol.OpPut}, {Key: "b", Record: dead, EventType: protocol.OpRemove},
		}, ServerSyncTimestamp: protocol.Timestamp{Millis: testNow, NodeID: "before+"}},
		{MapName: "empty", ServerSyncTimestamp: protocol.Timestamp{Millis: testNow, NodeID: "+"}},
	}, answer.Deltas)
	require.Equal(t, protocol.CodeForbidden, answer.Errors[0].Code)
}

func TestAFullResponseLeavesLaterMapsWhereTheyAre(t *testing.T) {
	big := protocol.Record{Value: msgp.AppendBytes(nil, make([]byte, 100)), Timestamp: protocol.Timestamp{NodeID: "c"}}
	b := &fakeBackend{deltas: map[string][]protocol.KeyedRecord{"a": {{Key: "k", Record: big}}, "b": {{Key: "k", Record: big}}}}
	answer := sync(t, b, &protocol.HTTPSync{SyncMaps: []protocol.HTTPSyncMap{
		{MapName: "a"}, {MapName: "b", LastSyncTimestamp: protocol.Timestamp{Millis: 3, NodeID: "old"}},
	}}, func(c *Config, _ *Deps) { c.MaxDeltaBytes = 50 })
	require.Len(t, answer.Deltas[0].Records, 1)
	require.Equal(t, protocol.MapDelta{MapName: "b", ServerSyncTimestamp: protocol.Timestamp{Millis: 3, NodeID: "old"}}, answer.Deltas[1])
}

// table is rows k0..k9 with the values {"n": i, "odd": bool}.
func table() *fakeBackend {
	b := &fakeBackend{}
	for i := range 10 {
		value := msgp.AppendMapHeader(nil, 2)
		value = msgp.AppendInt(msgp.AppendString(value, "n"), i)
		value = msgp.AppendBool(msgp.AppendString(value, "odd"), i%2 == 1)
		b.rows = append(b.rows, partitions.Row{Key: fmt.Sprint("k", i), Record: protocol.Record{Value: value}})
	}
	return b
}

func TestReadsThatFail(t *testing.T) {
	for err, code := range map[error]protocol.Code{partitions.ErrUnavailable: 503, errors.New("broken"): 500} {
		answer := sync(t, &fakeBackend{reads: err}, &protocol.HTTPSync{
			SyncMaps: []protocol.HTTPSyncMap{{MapName: "m"}}, Queries: []protocol.HTTPQuery{{QueryID: "q", MapName: "m"}},
			Searches: []protocol.HTTPSearch{{SearchID: "s", MapName: "m", Query: "x"}},
		})
		require.Empty(t, answer.Deltas)
		require.Empty(t, answer.QueryResults)
		codes := []protocol.Code{}
		for _, e := range answer.Errors {
			codes = append(codes, e.Code)
		}
		require.Equal(t, []protocol.Code{code, code, protocol.CodeNotImplemented}, codes)
	}
}

func TestLinearizableQueriesAreConfirmedOnce(t *testing.T) {
	b := table()
	query := func(consistency string) protocol.HTTPQuery {
		return protocol.HTTPQuery{QueryID: "q", MapName: "m", Consistency: consistency}
	}
	answer := sync(t, b, &protocol.HTTPSync{Queries: []protocol.HTTPQuery{query(""), query("linearizable"), query("linearizable"), query("maybe")}})
	require.Len(t, answer.QueryResults, 3)
	require.Equal(t, []protocol.HTTPError{{Code: 400, Message: "consistency is unknown", Context: "q"}}, answer.Errors)
	require.Equal(t, 1, b.barriers)
	b.reads = partitions.ErrUnavailable
	answer = sync(t, b, &protocol.HTTPSync{Queries: []protocol.HTTPQuery{query("linearizable")}})
	require.Equal(t, protocol.CodeUnavailable, answer.Errors[0].Code)
}

func TestAResponseIsCutWhereItIsFull(t *testing.T) {
	answer := sync(t, table(), &protocol.HTTPSync{Queries: []protocol.HTTPQuery{{QueryID: "q", MapName: "m"}}}, func(c *Config, _ *Deps) { c.MaxResultBytes = 30 })
	require.NotEmpty(t, answer.QueryResults[0].NextCursor)
	require.Less(t, len(answer.QueryResults[0].Results), 10)

	many := sync(t, table(), &protocol.HTTPSync{
		SyncMaps: slices.Repeat([]protocol.HTTPSyncMap{{MapName: "m"}}, 4),
		Queries:  slices.Repeat([]protocol.HTTPQuery{{QueryID: "q", MapName: "m"}}, 5),
	}, func(c *Config, _ *Deps) { c.MaxReads, c.MaxResultBytes = 3, 3 })
	require.Len(t, many.Deltas, 3)
	var codes []protocol.Code
	for _, e := range many.Errors {
		codes = append(codes, e.Code)
	}
	require.Equal(t, []protocol.Code{413, 413, 413, 413}, codes, "one map and one query too many, and two queries without room: %v", many.Errors)
	require.Len(t, many.QueryResults, 1)

	far := sync(t, table(), &protocol.HTTPSync{Queries: []protocol.HTTPQuery{{QueryID: "q", MapName: "m", Offset: 8}}}, func(c *Config, _ *Deps) { c.MaxResultBytes = 3 })
	require.Equal(t, protocol.CodeTooLarge, far.Errors[0].Code)
}

// TestSmallItemsFillAResponseToo has items that take more room beside their keys and values
// than for them.
func TestSmallItemsFillAResponseToo(t *testing.T) {
	b := table()
	b.deltas = map[string][]protocol.KeyedRecord{}
	for i := range 10 {
		kr := protocol.KeyedRecord{Key: fmt.Sprint("k", i), Record: protocol.Record{Value: []byte{1}, Timestamp: protocol.Timestamp{NodeID: "c"}}}
		b.deltas["a"] = append(b.deltas["a"], kr)
		b.deltas["b"] = append(b.deltas["b"], kr)
	}
	answer := sync(t, b, &protocol.HTTPSync{
		SyncMaps: []protocol.HTTPSyncMap{{MapName: "a"}, {MapName: "b"}},
		Queries:  slices.Repeat([]protocol.HTTPQuery{{QueryID: "q", MapName: "m"}}, 8),
	}, func(c *Config, _ *Deps) { c.MaxDeltaBytes, c.MaxResultBytes = 900, 700 })
	require.Len(t, answer.Deltas[0].Records, 10)
	require.Empty(t, answer.Deltas[1].Records)
	rows := 0
	for _, result := range answer.QueryResults {
		rows += len(result.Results)
	}
	require.LessOrEqual(t, rows, 10)
	require.NotEmpty(t, answer.Errors)
	require.Equal(t, protocol.CodeTooLarge, answer.Errors[0].Code)
}

func TestStatuses(t *testing.T) {
	withAuth := func(_ *Config, d *Deps) { d.Verifier = tokens{} }
	good := protocol.AppendHTTPSync(nil, &protocol.HTTPSync{ClientID: "c"})
	header := func(value string, body []byte) *http.Request {
		r := post(body)
		r.Header.Set("Authorization", value)
		return r
	}
	deep := slices.Concat(bytes.Repeat([]byte{0x91}, 300), []byte{0xc0})
	for name, c := range map[string]struct {
		request *http.Request
		change  []func(*Config, *Deps)
		status  int
	}{
		"empty body":        {post(nil), nil, 200},
		"nothing asked":     {post(good), nil, 200},
		"not MsgPack":       {post([]byte{0xc1}), nil, 400},
		"not a map":         {post([]byte{0x05}), nil, 400},
		"no client id":      {post([]byte{0x80}), nil, 400},
		"too deep":          {post(deep), nil, 400},
		"no token":          {post(good), []func(*Config, *Deps){withAuth}, 401},
		"bare word":         {header("Bearer", good), []func(*Config, *Deps){withAuth}, 401},
		"other scheme":      {header("Basic good", good), []func(*Config, *Deps){withAuth}, 401},
		"bad token":         {header("Bearer bad", good), []func(*Config, *Deps){withAuth}, 401},
		"token before body": {header("Bearer bad", []byte{0xc1}), []func(*Config, *Deps){withAuth}, 401},
		"good token":        {header("Bearer good", good), []func(*Config, *Deps){withAuth}, 200},
	} {
		resp := serve(t, &fakeBackend{}, c.request, c.change...)
		require.Equal(t, c.status, resp.StatusCode, name)
		if c.status != 200 {
			require.Equal(t, "application/json", resp.Header.Get("Content-Type"), name)
		}
	}
	resp := serve(t, nil, post(good))
	require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	require.NotEmpty(t, resp.Header.Get("Retry-After"))
	over := post(good)
	over.Body = http.MaxBytesReader(httptest.NewRecorder(), over.Body, 3)
	require.Equal(t, http.StatusRequestEntityTooLarge, serve(t, &fakeBackend{}, over).StatusCode)
}

func TestDrainWaitsForRequests(t *testing.T) {
	h := New(DefaultConfig(), Deps{Logger: hclog.NewNullLogger()})
	h.slots <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, h.Drain(ctx))
	h = New(DefaultConfig(), Deps{Logger: hclog.NewNullLogger()})
	require.NoError(t, h.Drain(t.Context()))
}

// TestTheRateOfASubjectIsBounded charges a request what it asks for; what is left out of the
// rate of one subject is none of another's.
func TestTheRateOfASubjectIsBounded(t *testing.T) {
	cfg, now := DefaultConfig(), testNow
	cfg.RatePerSecond, cfg.RateBurst = 10, 4
	b := &fakeBackend{}
	h := New(cfg, Deps{Logger: hclog.NewNullLogger(), Now: func() int64 { return now }, Backend: func() Backend { return b }, Verifier: subjects{}})
	ask := func(subject string, operations int) *http.Response {
		m := &protocol.HTTPSync{ClientID: "c", SyncMaps: []protocol.HTTPSyncMap{{MapName: "m"}}}
		for i := range operations {
			m.Operations = append(m.Operations, put(fmt.Sprint(i), "m", "k"))
		}
		r := post(protocol.AppendHTTPSync(nil, m))
		r.Header.Set("Authorization", "Bearer "+subject)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Result()
	}
	require.Equal(t, 200, ask("ann", 2).StatusCode)
	over := ask("ann", 1)
	require.Equal(t, 429, over.StatusCode)
	require.NotEmpty(t, over.Header.Get("Retry-After"))
	require.Len(t, b.written, 2, "nothing of a refused request is applied")
	require.Equal(t, 200, ask("bob", 2).StatusCode)
	require.Equal(t, 200, ask("eve", 100).StatusCode, "a request larger than the burst costs the burst")
	now += 100
	require.Equal(t, 200, ask("ann", 1).StatusCode)
	h.SetRate(1)
	now += 1000
	require.Equal(t, 429, ask("ann", 3).StatusCode)
}

// subjects takes every token for its own subject.
type subjects struct{ tokens }

func (subjects) Verify(token string) (auth.Principal, error) { return auth.Principal{ID: token}, nil }
