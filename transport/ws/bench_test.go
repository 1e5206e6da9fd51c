package ws

import (
	"context"
	"fmt"
	"testing"

	"github.com/coder/websocket"
	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/transport/judge"
)

// instant is a cluster that accepts everything at once.
type instant struct{ *fakeBackend }

func (instant) Write(_ context.Context, _ *partitions.Session, ops []partitions.Op) ([]partitions.Verdict, error) {
	verdicts := make([]partitions.Verdict, len(ops))
	for i := range verdicts {
		verdicts[i].Level = protocol.LevelPersisted
	}
	return verdicts, nil
}

func batchOf10(tb testing.TB) []byte {
	var ops []protocol.ClientOp
	for i := range 10 {
		op := put(fmt.Sprint(i), "bench", fmt.Sprintf("key-%d", i), i)
		op.Record.Value = msgp.AppendBytes(nil, make([]byte, 100))
		ops = append(ops, op)
	}
	return encode(tb, batch(ops...))
}

// BenchmarkBatchOf10 is one OP_BATCH of ten operations from decoding to the encoded
// acknowledgement, without socket and cluster.
func BenchmarkBatchOf10(b *testing.B) {
	f := start(b)
	frame := batchOf10(b)
	c := &conn{srv: f.Server, id: "c"}
	b.ReportAllocs()
	for b.Loop() {
		m, err := protocol.Decode(frame)
		if err != nil {
			b.Fatal(err)
		}
		p := c.srv.limits.Plan(judge.Writes{Ops: m.(*protocol.OpBatch).Ops}, c.auth.client)
		verdicts, _ := instant{}.Write(context.Background(), nil, p.Propose)
		p.Settle(verdicts)
		if _, err := protocol.Append(nil, p.Acknowledgement(verdicts)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(10*b.N)/b.Elapsed().Seconds(), "ops/s")
}

// BenchmarkRoundTrip sends batches of ten over a loopback socket, up to eight at a
// time, and reads their acknowledgements. The client's share is included.
func BenchmarkRoundTrip(b *testing.B) {
	f := start(b, func(c *Config, _ *Deps, _ *fakeBackend) { c.RatePerSecond = 0 })
	f.Server.mu.Lock()
	f.Server.backend = instant{f.backend}
	f.Server.mu.Unlock()
	c := f.dial()
	frame := batchOf10(b)
	window := make(chan struct{}, 8)
	failed := make(chan error, 1)
	b.ReportAllocs()
	b.ResetTimer()
	go func() {
		for range b.N {
			if _, _, err := c.sock.Read(context.Background()); err != nil {
				failed <- err
				return
			}
			<-window
		}
		failed <- nil
	}()
	for range b.N {
		window <- struct{}{}
		if err := c.sock.Write(context.Background(), websocket.MessageBinary, frame); err != nil {
			b.Fatal(err)
		}
	}
	if err := <-failed; err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(10*b.N)/b.Elapsed().Seconds(), "ops/s")
}
