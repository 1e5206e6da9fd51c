package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestClosedLoopCountsWhatEndedAfterTheWarmup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		work := func(ctx context.Context) (int, error) {
			select {
			case <-time.After(10 * time.Millisecond):
				return 5, nil
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}
		m := drive(t.Context(), []worker{work, work}, time.Second, 10*time.Second, 0)
		require.InDelta(t, 2*5*1000, m.ops, 20)
		require.InDelta(t, 10, m.seconds, 0.1)
		require.InDelta(t, 10_000, m.latency.ValueAtQuantile(50), 20)
		require.Zero(t, m.errors)
	})
}

// TestOpenLoopCountsTheStallOfTheServer stops the server for a second: closed loop
// would see one slow batch, open loop sees all that were due meanwhile.
func TestOpenLoopCountsTheStallOfTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		work := func(context.Context) (int, error) {
			if at := time.Since(start); at > 5*time.Second && at < 6*time.Second {
				time.Sleep(6*time.Second - at)
			}
			return 1, nil
		}
		m := drive(t.Context(), []worker{work}, 0, 10*time.Second, 100)
		require.InDelta(t, 1000, m.ops, 2)
		slow := 0
		for _, bar := range m.latency.Distribution() {
			if bar.From > 100_000 {
				slow += int(bar.Count)
			}
		}
		require.InDelta(t, 90, slow, 3)
	})
}

func TestRefusalsAreCountedAndALostConnectionEndsItsWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		refused := func(context.Context) (int, error) {
			time.Sleep(time.Second)
			return 0, errRefused
		}
		lost := func(context.Context) (int, error) {
			calls.Add(1)
			return 0, errors.New("connection reset")
		}
		m := drive(t.Context(), []worker{refused, lost}, 0, 10*time.Second, 0)
		require.Equal(t, int64(1), calls.Load())
		require.InDelta(t, 10, m.errors, 1)
		require.Zero(t, m.ops)
		require.ErrorIs(t, m.firstErr, errRefused)
	})
}

func TestReportsShowMediansAndTheRatioOfTheSameCall(t *testing.T) {
	loads := []Sample{{OpsPerSecond: 100, P50: 30}, {OpsPerSecond: 300, P50: 10}, {OpsPerSecond: 200, P50: 20, Errors: 2}}
	floors := []Sample{{OpsPerSecond: 1000, P50: 5}, {OpsPerSecond: 400, P50: 10}, {OpsPerSecond: 500, P50: 8}}
	write := summarise(mode{name: "w", nodes: 3, kind: "write", target: 0.15}, loads, floors)
	require.InDelta(t, 0.4, write.Ratio, 1e-9)
	require.Equal(t, int64(2), write.Median.Errors)
	latency := summarise(mode{name: "l", nodes: 3, kind: "latency", target: 3}, loads, floors)
	require.InDelta(t, 2.5, latency.Ratio, 1e-9)
	require.Zero(t, summarise(mode{kind: "floor"}, nil, floors).Ratio)

	report := Report{Machine: describeMachine(), Results: []Result{write, latency, {Name: "idle", IdleCPUPercent: []float64{4.5}, IdleRSSMegabytes: []float64{30}}}}
	var text, encoded bytes.Buffer
	require.NoError(t, report.writeText(&text))
	require.Contains(t, text.String(), "0.40 of ops/s")
	require.Contains(t, text.String(), "2.50 of median latency")
	require.Contains(t, text.String(), "idle: node 1 uses 4.5 % of one core and 30 MB")
	require.NoError(t, writeJSON(&encoded, &report))
	var back Report
	require.NoError(t, json.Unmarshal(encoded.Bytes(), &back))
	require.Equal(t, report, back)
}

func TestFloorResultsAddUp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	require.NoError(t, os.WriteFile(path, []byte("noise\n"), 0o600))
	_, ok := readFloorResult(path)
	require.False(t, ok)
	require.NoError(t, os.WriteFile(path, []byte("noise\nFLOOR {\"ops\":7,\"seconds\":2,\"p50Micros\":3}\n"), 0o600))
	r, ok := readFloorResult(path)
	require.True(t, ok)
	total := addFloorResults(map[string]floorResult{"a": r, "b": {Ops: 3, Seconds: 3, P50: 9, P99: 20, Errors: 1}})
	require.Equal(t, floorResult{Ops: 10, Seconds: 3, P50: 9, P99: 20, Errors: 1}, total)
}

func TestOptionsAreValidated(t *testing.T) {
	o, err := ParseOptions(nil, io.Discard)
	require.NoError(t, err)
	require.Equal(t, 200, o.Connections)
	require.Equal(t, 10, o.Batch)
	for _, args := range [][]string{
		{"-mode", "x"}, {"-nodes", "0"}, {"-nodes", "10"}, {"-connections", "0"}, {"-batch", "8193"}, {"-value-bytes", "0"},
		{"-keys", "0"}, {"-duration", "0s"}, {"-warmup", "-1s"}, {"-runs", "0"}, {"-rate", "-1"}, {"-target", "ws://x", "-mode", "all"}, {"more"},
	} {
		_, err := ParseOptions(args, io.Discard)
		require.Error(t, err, args)
	}
}

func TestUsageOfAProcessIsRead(t *testing.T) {
	u, err := processUsage(os.Getpid())
	require.NoError(t, err)
	require.Positive(t, u.rss)
	_, err = processUsage(1 << 30)
	require.Error(t, err)
}
