package mux_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/raftnode/mux"
)

// BenchmarkCall measures small calls between two nodes in this process, both ends
// included, with as many callers at a time as the name says.
func BenchmarkCall(b *testing.B) {
	for _, secret := range []string{"", "a secret of at least thirty-two bytes"} {
		for _, callers := range []int{1, 64, 512} {
			name := fmt.Sprintf("plain/%d", callers)
			if secret != "" {
				name = fmt.Sprintf("tls/%d", callers)
			}
			b.Run(name, func(b *testing.B) {
				benchmarkCall(b, []byte(secret), callers)
			})
		}
	}
}

func benchmarkCall(b *testing.B, secret []byte, callers int) {
	node := func(id string) *mux.Mux {
		cfg := mux.DefaultConfig()
		cfg.ListenAddr, cfg.NodeID, cfg.Incarnation, cfg.Secret = "127.0.0.1:0", id, "1", secret
		cfg.CallTimeout = time.Minute // a busy machine is slow, not wrong
		return open(b, cfg, mux.Deps{})
	}
	from, to := node("a"), node("b")
	to.Handle(methodEcho, echo)
	to.Start()
	from.SetPeerAddr(to.ID(), to.Addr())
	body := make([]byte, 100)
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ReportAllocs()
	b.ResetTimer()
	done := make(chan error, callers)
	for range callers {
		go func() {
			var err error
			for err == nil && left.Add(-1) >= 0 {
				_, err = from.Call(context.Background(), to.ID(), methodEcho, body)
			}
			done <- err
		}()
	}
	for range callers {
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
}
