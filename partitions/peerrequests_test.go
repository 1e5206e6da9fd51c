package partitions

import (
	"context"
	"encoding/binary"
	"fmt"
	"runtime/metrics"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/codec"
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/partitions/placement"
	"github.com/quorate/quorate/partitions/remote"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/merkle"
)

// holder answers what other nodes send about a group, of which it holds the first with some
// data and five more without.
type holder struct {
	router *Router
	groups *realGroups
	cfg    remote.Config
	// taps counts those that listen, and tap is the last one.
	taps int
	tap  func(c *fsm.Changes)
}

// heldKeys are keys of the first group.
func heldKeys() (keys []string) {
	for i := 0; len(keys) < 30; i++ {
		if key := fmt.Sprint("k", i); placement.GroupOf(key, 6) == 1 {
			keys = append(keys, key)
		}
	}
	return keys
}

// newHolder is a holder with pages of a few items.
func newHolder(t testing.TB) *holder {
	r, g := newRealRouter(t)
	h := &holder{router: r, groups: g, cfg: remote.DefaultConfig()}
	h.cfg.PageBytes, h.cfg.AnswerBytes, h.cfg.FeedBytes, h.cfg.FeedSubjects = 200, 300, 400, 3
	r.cfg.Remote = h.cfg
	keys := heldKeys()
	for i, key := range keys {
		ts := protocol.Timestamp{Millis: int64(i + 1), NodeID: "c"}
		rec := protocol.Record{Value: object(t, map[string]any{"n": i, "g": i % 3, "t": "text"}), Timestamp: ts}
		g.applyTo(1, command.EncodePut(command.Put{Map: "m", Key: key, Record: rec}))
		add, _ := command.AppendORAdd(nil, command.ORAdd{Map: "s", Key: key, Record: protocol.ORRecord{Tag: fmt.Sprintf("%d:0:c", i), Value: []byte{1}, Timestamp: ts}})
		g.applyTo(1, add)
	}
	for i := range fsm.MaxTags + 10 {
		remove, _ := command.AppendORRemove(nil, command.ORRemove{Map: "s", Key: keys[0], Tag: fmt.Sprintf("%d:1:c", i)})
		g.applyTo(1, remove)
	}
	g.applyTo(1, command.EncodeCounterMerge(command.CounterMerge{Name: "likes", Cells: []command.Cell{{Writer: "w", Positive: 2}}}))
	return h
}

// serve is a new Server of h, which t closes.
func (h *holder) serve(t testing.TB) *remote.Server {
	h.taps, h.tap = 0, func(*fsm.Changes) {}
	s := remote.NewServer(h.cfg, remote.ServerDeps{
		Replica: func(group uint32) (remote.Replica, bool) {
			m, held := h.groups.machines[group]
			return m, held
		},
		WaitApplied: h.groups.WaitApplied, Answer: h.router.answerHere,
		Tap: func(fn func(c *fsm.Changes)) (cancel func()) {
			h.taps, h.tap = h.taps+1, fn
			return func() { h.taps-- }
		},
	})
	t.Cleanup(s.Close)
	return s
}

// requests are what a client asks of h in a read of each kind, all of which it answers.
func (h *holder) requests(t testing.TB) (bodies [][]byte) {
	s := h.serve(t)
	client := remote.NewClient(h.cfg, remote.Deps{
		Logger: hclog.NewNullLogger(), Holders: func(uint32) []string { return []string{"n"} },
		Held: func(uint32) bool { return false }, Followed: func(remote.Subject) bool { return false },
		Read: func(ctx context.Context, _ string, body []byte) ([]byte, error) {
			bodies = append(bodies, body)
			return s.HandleRead(ctx, body)
		},
	})
	t.Cleanup(client.Close)
	r := client.NewReader(context.Background(), 1, h.groups.index[1], new(sync.Mutex))
	keys := heldKeys()
	some := []uint16{merkle.BucketOf(keys[0]), merkle.BucketOf(keys[1])}
	_, err := r.AddLeaves("m", merkle.Records, new(merkle.Leaves))
	require.NoError(t, err)
	require.NoError(t, r.Records("m", some, "", 1, func(uint16, string, protocol.Record) bool { return true }))
	require.NoError(t, r.LeafSets(fsm.Leaf{Map: "s", Bucket: some[0]}, func(protocol.OREntry) bool { return true }))
	require.NoError(t, r.Sets("s", keys[:3], func(protocol.OREntry, bool) bool { return true }))
	_, _, err = r.ChangedBuckets("m", 3)
	require.NoError(t, err)
	_, err = r.Tags("s", []string{"0:0:c", "0:1:c", "none"})
	require.NoError(t, err)
	_, _, err = r.Counter("likes")
	require.NoError(t, err)
	_, err = r.Horizon()
	require.NoError(t, err)
	for _, q := range []map[string]any{
		{"where": map[string]any{"g": 1}, "sort": []any{map[string]any{"field": "n", "direction": "desc"}}},
		{"predicate": map[string]any{"op": "regex", "attribute": "t", "value": "t.x"}, "limit": 3},
		{"groupBy": []any{"g"}, "aggregations": []any{map[string]any{"func": "sum", "field": "n"}}},
	} {
		a := ask(t, q)
		a.Explain = true
		g := NewGathering(a, fakeNow)
		require.NoError(t, g.gatherFar(1, r, h.cfg.AnswerBytes))
	}
	return bodies
}

// followBegin begins a request to follow the first group.
func followBegin(kind byte, number uint64) []byte {
	return binary.AppendUvarint(codec.AppendText([]byte{kind, 1}, "feed"), number)
}

// TestAPeerCannotFollowMoreThanItMay asks for one subject more than there may be, again and
// again: what is refused must not be kept.
func TestAPeerCannotFollowMoreThanItMay(t *testing.T) {
	h := newHolder(t)
	s := h.serve(t)
	add := func(number uint64, name string) byte {
		reply, err := s.HandleFollow(t.Context(), "n2", codec.AppendText(append(followBegin(kindAdd, number), 0), name))
		require.NoError(t, err)
		return reply[0]
	}
	for i := range h.cfg.FeedSubjects {
		require.Equal(t, byte(replyDone), add(uint64(i+1), fmt.Sprint("m", i)))
	}
	require.Equal(t, byte(replyAbsent), add(8, "more"))
	require.Equal(t, byte(replyAbsent), add(9, "more"))
	require.Equal(t, byte(replyDone), add(10, "m0"), "it is followed already")
	h.tap(&fsm.Changes{Group: 1, Index: 2000, List: []fsm.Change{
		{Index: 2000, Section: storage.SectionRecords, Map: "more", Key: "k", Record: rec(5, 1)},
		{Index: 2000, Section: storage.SectionRecords, Map: "m0", Key: "its", Record: rec(5, 1)},
	}})
	reply, err := s.HandleFollow(t.Context(), "n2", append(followBegin(kindNext, 60_000), 0))
	require.NoError(t, err)
	require.Contains(t, string(reply), "its")
	require.NotContains(t, string(reply), "more")
}

// TestNumbersThatAreTooLargeNameNothing sends a group and a bucket whose low bits are those of
// one that exists.
func TestNumbersThatAreTooLargeNameNothing(t *testing.T) {
	s := newHolder(t).serve(t)
	group := binary.AppendUvarint(nil, 1<<32+1)
	bucket := binary.AppendUvarint(nil, 1<<16+1)
	for _, body := range [][]byte{
		append(append([]byte{8}, group...), 0, 0),
		append([]byte{2, 1, 0, 0, 1, 'm', 0, 0, 1}, bucket...),
		append(append([]byte{3, 1, 0, 0, 1, 's'}, bucket...), 0, 0),
	} {
		_, err := s.HandleRead(t.Context(), body)
		require.ErrorIs(t, err, codec.ErrMalformed, "%x", body)
	}
	_, err := s.HandleFollow(t.Context(), "n2", append(append([]byte{kindAdd}, group...), 0, 1, 0, 0))
	require.ErrorIs(t, err, codec.ErrMalformed)
}

// Kinds of reads and requests to follow, and of replies, as package remote documents them.
const (
	kindAnswer = 9
	kindAdd    = 1
	kindNext   = 2

	replyDone   = 1
	replyAbsent = 2
	replyBehind = 3
)

// handled has handle answer body, and holds that it waits a minute at most, takes memory for
// a page or so and a multiple of the request, and refuses what has a byte too many or too few.
func handled(t *testing.T, body []byte, handle func(body []byte) ([]byte, error)) (reply []byte, err error) {
	began, before := time.Now(), allocated()
	reply, err = handle(body)
	require.LessOrEqual(t, time.Since(began), time.Minute)
	require.LessOrEqual(t, allocated()-before, uint64(8<<20+100*len(body)))
	if err != nil {
		require.Empty(t, reply)
		return reply, err
	}
	require.GreaterOrEqual(t, len(reply), 1)
	require.Contains(t, []byte{1, 2, 3}, reply[0])
	require.LessOrEqual(t, len(reply), 40<<10+len(body), "a page, one item and a tree of hashes")
	return reply, nil
}

// allocated is how many bytes were allocated so far.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// requireExact holds that body is refused with a byte more and with one less.
func requireExact(t *testing.T, body []byte, handle func(body []byte) ([]byte, error)) {
	for _, other := range [][]byte{append(body[:len(body):len(body)], 0), body[:len(body)-1]} {
		_, err := handled(t, other, handle)
		require.ErrorIs(t, err, codec.ErrMalformed, "%x", other)
	}
}

// FuzzPeerReads holds that whatever a node sends to read a group is answered with a page or
// refused, in time.
func FuzzPeerReads(f *testing.F) {
	h := newHolder(f)
	kinds := map[byte]bool{}
	for _, body := range h.requests(f) {
		kinds[body[0]] = true
		f.Add(body)
	}
	require.Len(f, kinds, kindAnswer, "a read of every kind")
	grouped := ask(f, map[string]any{"groupBy": []any{"g"}, "aggregations": []any{map[string]any{"func": "count"}}})
	source := grouped.Query.AppendSource([]byte{askPlan, 9, 9, 0})
	f.Add(codec.AppendBytes(codec.AppendText([]byte{kindAnswer, 1, 0, 0}, "m"), source))
	f.Add([]byte{8, 1, 0xff, 0xff, 3, 0xff, 0xff, 0xff, 3}) // of a state to come
	f.Add([]byte{8, 9, 0, 0})                               // of a group that is elsewhere
	f.Fuzz(func(t *testing.T, body []byte) {
		synctest.Test(t, func(t *testing.T) {
			s := h.serve(t)
			read := func(body []byte) ([]byte, error) { return s.HandleRead(t.Context(), body) }
			reply, err := handled(t, body, read)
			switch {
			case err == nil && reply[0] == replyDone:
				requireExact(t, body, read)
			case err != nil && (len(body) == 0 || body[0] != kindAnswer): // which says what is wrong with a query
				require.ErrorIs(t, err, codec.ErrMalformed)
			}
		})
	})
}

// FuzzPeerFollows holds the same for what a node sends to have the changes of a group, and
// that nothing of it is left once the holder closes.
func FuzzPeerFollows(f *testing.F) {
	h := newHolder(f)
	aMap, aCounter := codec.AppendText([]byte{0}, "m"), codec.AppendText([]byte{1}, "likes")
	drops := append(append([]byte{2, 2}, aMap...), append([]byte{0}, aCounter...)...)
	f.Add(append(followBegin(kindAdd, 1), aMap...), append(followBegin(kindNext, 1000), 0))
	f.Add(append(followBegin(kindAdd, 1), aCounter...), append(followBegin(kindNext, 1<<50), drops...))
	f.Add(append(followBegin(kindAdd, 2), aMap...), append(followBegin(kindAdd, 1), aMap...))
	f.Add([]byte{kindAdd, 9, 0, 1, 0, 0}, []byte{kindNext, 9, 0, 1, 0})
	list := []fsm.Change{
		{Index: 2000, Section: storage.SectionRecords, Map: "m", Key: "k", Record: rec(5, 1), Old: []byte{2}},
		{Index: 2001, Section: storage.SectionCounters, Key: "likes"},
		{Index: 2002, Section: storage.SectionSets, Map: "s", Key: "k", Removed: strings.Repeat("t", 300)},
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		synctest.Test(t, func(t *testing.T) {
			s := h.serve(t)
			follow := func(body []byte) ([]byte, error) { return s.HandleFollow(t.Context(), "n2", body) }
			for _, body := range [][]byte{first, second, first, second} {
				reply, err := handled(t, body, follow)
				if err != nil {
					require.ErrorIs(t, err, codec.ErrMalformed)
					continue
				}
				require.NotEqual(t, byte(replyBehind), reply[0])
				requireExact(t, body, follow)
				h.tap(&fsm.Changes{Group: 1, Index: 2002, List: list})
			}
			s.Close()
			require.Zero(t, h.taps)
		})
	})
}
