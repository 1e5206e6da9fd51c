package hlc

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/quorate/quorate/protocol"
)

type step struct {
	Op             string
	Clock          int64
	Result, Remote protocol.Timestamp
	State          struct{ Millis, Counter int64 }
}

type sequence struct {
	Kind, Name, NodeID string
	Strict             bool
	MaxDriftMs         int64
	Start              *struct{ Millis, Counter int64 }
	Steps              []step
}

func TestClockVectors(t *testing.T) {
	b, err := os.ReadFile("../testdata/hlc.json")
	require.NoError(t, err)
	var file struct{ Cases []sequence }
	require.NoError(t, json.Unmarshal(b, &file))
	n := 0
	for _, v := range file.Cases {
		if v.Kind != "sequence" {
			continue
		}
		n++
		t.Run(v.Name, func(t *testing.T) { v.run(t) })
	}
	require.Greater(t, n, 50)
}

func (v *sequence) run(t *testing.T) {
	var wall int64
	c := New(v.NodeID, func() int64 { return wall })
	if c.maxDrift = v.MaxDriftMs; !v.Strict {
		c.maxDrift = math.MaxInt64
	}
	if v.Start != nil {
		c.Advance(v.Start.Millis, v.Start.Counter)
	}
	for i, s := range v.Steps {
		wall = s.Clock
		if s.Op == "now" {
			require.Equal(t, s.Result, c.Now(), "step %d", i)
			continue
		}
		c.Update(s.Remote)
		want := protocol.Timestamp{Millis: s.State.Millis, Counter: s.State.Counter, NodeID: v.NodeID}
		require.Equal(t, want, c.Last(), "step %d", i)
	}
}

func fixed(wall int64) func() int64 { return func() int64 { return wall } }

func TestDriftBound(t *testing.T) {
	c := New("n", fixed(1_000_000))
	c.Update(protocol.Timestamp{Millis: 1_000_000 + MaxDriftMillis, Counter: 3, NodeID: "r"})
	require.Equal(t, protocol.Timestamp{Millis: 1_000_000 + MaxDriftMillis, Counter: 4, NodeID: "n"}, c.Last())
	c.Update(protocol.Timestamp{Millis: 1_000_001 + MaxDriftMillis, NodeID: "r"})
	require.Equal(t, int64(1_000_000+MaxDriftMillis), c.Last().Millis, "a stamp beyond the bound was followed")
}

func TestReserveHandsOutConsecutiveCounters(t *testing.T) {
	c := New("n", fixed(50))
	require.Equal(t, protocol.Timestamp{Millis: 50, Counter: 0, NodeID: "n"}, c.Reserve(10))
	require.Equal(t, protocol.Timestamp{Millis: 50, Counter: 10, NodeID: "n"}, c.Now())
	require.Equal(t, protocol.Timestamp{Millis: 50, Counter: 11, NodeID: "n"}, c.Reserve(0))
	require.Equal(t, protocol.Timestamp{Millis: 50, Counter: 12, NodeID: "n"}, c.Reserve(-3))
}

func TestCounterOverflowGoesToTheNextMillisecond(t *testing.T) {
	const most = protocol.MaxSafeInteger
	c := New("n", fixed(5))
	c.Advance(5, most-3)
	require.Equal(t, protocol.Timestamp{Millis: 5, Counter: most - 2, NodeID: "n"}, c.Reserve(3))
	require.Equal(t, protocol.Timestamp{Millis: 6, Counter: 0, NodeID: "n"}, c.Now(), "counters are used up")

	c.Advance(6, most-3)
	require.Equal(t, protocol.Timestamp{Millis: 7, Counter: 0, NodeID: "n"}, c.Reserve(4), "a reservation does not cross")

	c.Update(protocol.Timestamp{Millis: 7, Counter: most, NodeID: "r"})
	require.Equal(t, protocol.Timestamp{Millis: 8, Counter: 0, NodeID: "n"}, c.Last())
	c.Update(protocol.Timestamp{Millis: 9, Counter: most, NodeID: "r"})
	require.Equal(t, protocol.Timestamp{Millis: 10, Counter: 0, NodeID: "n"}, c.Last())
}

func TestAdvanceNeverGoesBack(t *testing.T) {
	c := New("n", fixed(0))
	c.Advance(100, 5)
	for _, old := range [][2]int64{{99, 9}, {100, 4}, {100, 5}, {0, 0}} {
		c.Advance(old[0], old[1])
		require.Equal(t, protocol.Timestamp{Millis: 100, Counter: 5, NodeID: "n"}, c.Last())
	}
	c.Advance(1<<40, 0) // however far ahead of the physical clock
	require.Equal(t, int64(1<<40), c.Last().Millis)
	require.Equal(t, protocol.Timestamp{Millis: 1 << 40, Counter: 1, NodeID: "n"}, c.Now())
}

// TestStampsIncreaseWhateverHappens drives a clock with a jumping physical clock
// and foreign stamps: each stamp exceeds everything issued and believed before.
func TestStampsIncreaseWhateverHappens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		wall := int64(1_000_000)
		c := New("n", func() int64 { return wall })
		var floor protocol.Timestamp
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			wall = rapid.Int64Range(900_000, 1_100_000).Draw(t, "wall")
			remote := protocol.Timestamp{
				Millis:  rapid.Int64Range(0, 1_300_000).Draw(t, "millis"),
				Counter: rapid.SampledFrom([]int64{0, 1, 7, protocol.MaxSafeInteger - 1, protocol.MaxSafeInteger}).Draw(t, "counter"),
				NodeID:  "~", // greater than every other id
			}
			switch rapid.IntRange(0, 2).Draw(t, "op") {
			case 0:
				n := rapid.IntRange(1, 5).Draw(t, "n")
				first := c.Reserve(n)
				require.Positive(t, first.Compare(floor), "%s after %s", first, floor)
				floor = first
				floor.Counter += int64(n) - 1
			case 1:
				if c.Update(remote); remote.Millis-wall <= MaxDriftMillis && remote.Compare(floor) > 0 {
					floor = remote
				}
			case 2:
				if c.Advance(remote.Millis, remote.Counter); remote.Compare(floor) > 0 {
					floor = remote
				}
			}
		}
	})
}

func TestConcurrentStampsAreUnique(t *testing.T) {
	c := New("n", func() int64 { return 1000 + rand.Int64N(3) })
	const workers, each = 8, 500
	stamps := make([][]protocol.Timestamp, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				stamps[w] = append(stamps[w], c.Now())
				c.Update(protocol.Timestamp{Millis: 1000, Counter: int64(i), NodeID: "r"})
			}
		})
	}
	wg.Wait()
	seen := map[protocol.Timestamp]bool{}
	for _, list := range stamps {
		for i, ts := range list {
			require.False(t, seen[ts], "%s was issued twice", ts)
			seen[ts] = true
			require.True(t, i == 0 || ts.Compare(list[i-1]) > 0)
		}
	}
	require.Len(t, seen, workers*each)
}
