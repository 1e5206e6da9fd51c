package quorate

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/storage/memory"
	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/raftnode/logstore"
	"github.com/quorate/quorate/raftnode/mux/memnet"
)

// BenchmarkWritePath is one batch of ten operations from the router's call to its
// verdicts: encoding, coalescing, log, commit and apply in a node of its own, without
// disk and sockets. Sixteen writers share the entries.
func BenchmarkWritePath(b *testing.B) {
	n := loneNode(b)
	value := msgp.AppendBytes(nil, make([]byte, 98))
	b.ReportAllocs()
	b.SetParallelism(8)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		sess, count := n.Router().NewSession(), 0
		for pb.Next() {
			ops := make([]partitions.Op, 10)
			for i := range ops {
				count++
				ops[i] = partitions.Op{Map: "bench", Key: fmt.Sprint("key-", count%1000), Record: protocol.Record{
					Value: value, Timestamp: protocol.Timestamp{Millis: time.Now().UnixMilli(), Counter: int64(count), NodeID: "bench"},
				}}
			}
			if _, err := n.Router().Write(context.Background(), sess, ops); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// loneNode runs a cluster of one node until the test ends.
func loneNode(tb testing.TB) *Node {
	tb.Helper()
	cfg := DefaultNodeConfig("lone")
	cfg.Mux.ListenAddr = "lone:7000"
	cfg.Membership.ClientURL = "ws://lone/ws"
	cfg.Cache = fsm.BudgetConfig{Ceiling: 64 << 20, High: 64 << 20, Low: 64 << 20}
	n, err := OpenNode(cfg, NodeDeps{
		Logger: hclog.NewNullLogger(), Network: memnet.New(1).Host("lone"), LogFS: logstore.NewMemFS(),
		Store: memory.New(memory.Config{Durable: true}), Physical: func() int64 { return time.Now().UnixMilli() },
	})
	require.NoError(tb, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	tb.Cleanup(func() {
		cancel()
		require.NoError(tb, <-ended)
		require.NoError(tb, n.Close(context.Background()))
	})
	require.Eventually(tb, n.CaughtUp, time.Minute, 10*time.Millisecond)
	return n
}
