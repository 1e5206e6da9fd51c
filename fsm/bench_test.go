package fsm_test

import (
	"fmt"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/storage/memory"
	"github.com/quorate/quorate/fsm/storage/writebehind"
	"github.com/quorate/quorate/protocol"
)

// BenchmarkApply applies entries of puts of 100 bytes, over a set of keys that the
// cache holds. What one put costs is what is reported.
func BenchmarkApply(b *testing.B) {
	for _, size := range []int{10, 100} {
		for _, keys := range []string{"new", "known"} {
			b.Run(fmt.Sprintf("puts=%d/keys=%s", size, keys), func(b *testing.B) { benchmarkApply(b, size, keys == "new") })
		}
	}
}

func benchmarkApply(b *testing.B, size int, fresh bool) {
	store := memory.New(memory.Config{})
	flusher, err := writebehind.New(writebehind.DefaultConfig(), writebehind.Deps{Logger: hclog.NewNullLogger(), Store: store})
	if err != nil {
		b.Fatal(err)
	}
	m, err := fsm.Open(fsm.DefaultConfig(1), fsm.Deps{
		Logger: hclog.NewNullLogger(), Store: store, Flusher: flusher, OnChange: func(*fsm.Changes) {},
	})
	if err != nil {
		b.Fatal(err)
	}
	value := make([]byte, 100)
	value[0], value[1] = 0xc4, 98
	b.ReportAllocs()
	b.ResetTimer()
	puts := 0
	for n := uint64(1); puts < b.N; n++ {
		b.StopTimer()
		if n%64 == 0 {
			index, term := m.Applied()
			if err := m.Checkpoint(b.Context(), fsm.Position{Index: index, Term: term}); err != nil {
				b.Fatal(err)
			}
		}
		data := benchmarkEntry(n, size, fresh, value)
		b.StartTimer()
		if _, err := m.Apply([]fsm.Entry{{Index: n, Term: 1, Data: data}}); err != nil {
			b.Fatal(err)
		}
		puts += size
	}
}

func benchmarkEntry(n uint64, size int, fresh bool, value []byte) []byte {
	cmds := make([]command.Raw, 0, size)
	for i := range size {
		key := fmt.Sprint("key-", i)
		if fresh {
			key = fmt.Sprintf("key-%d-%d", n, i)
		}
		stamp := protocol.Timestamp{Millis: int64(n), Counter: int64(i), NodeID: "7b0e4d52-8f3a-4c55-9d0e-1f2a3b4c5d6e"}
		cmds = append(cmds, command.EncodePut(command.Put{
			Map: "todos", Key: key, Origin: "n1/c1", Record: protocol.Record{Value: value, Timestamp: stamp},
		}))
	}
	return command.AppendEntry(nil, ts(int64(n), 0), cmds)
}

// BenchmarkOpen opens a machine on a store of 100,000 records, whose trees it rebuilds.
func BenchmarkOpen(b *testing.B) {
	const records, batch = 100_000, 500
	r := openRig(b, 1, openBolt(b))
	for i := range records / batch {
		var cmds []command.Raw
		for j := range batch {
			cmds = append(cmds, put("m", fmt.Sprint("key-", i*batch+j), "a value of some length", ts(1, 0)))
		}
		r.apply(entry(uint64(i+1), ts(1, 0), cmds...))
	}
	r.flush()
	for b.Loop() {
		r = r.crash()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/records, "ns/record")
}
