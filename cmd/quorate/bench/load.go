package bench

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Latencies are kept in microseconds from 1 to maxLatency with three digits.
const maxLatency = 60_000_000

// measurement is what one run gave.
type measurement struct {
	ops      int64
	errors   int64
	seconds  float64
	latency  *hdrhistogram.Histogram
	firstErr error
}

func (m *measurement) rate() float64 { return float64(m.ops) / m.seconds }

func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, maxLatency, 3) }

// worker is one source of load: it performs one batch and reports its operations.
type worker func(ctx context.Context) (ops int, err error)

// drive runs the workers for warmup and then duration, and measures the latter. With
// a rate, in operations per second over all workers, batches are due at fixed
// times and latency counts from then (open loop); without, every worker begins its
// next batch when the last one ended.
func drive(ctx context.Context, workers []worker, warmup, duration time.Duration, batchRate float64) *measurement {
	ctx, cancel := context.WithTimeout(ctx, warmup+duration)
	defer cancel()
	begin := time.Now().Add(warmup)
	results := make([]*measurement, len(workers))
	var group sync.WaitGroup
	var due atomic.Int64
	start := time.Now()
	for i, w := range workers {
		m := &measurement{latency: newHistogram()}
		results[i] = m
		group.Go(func() { m.run(ctx, w, begin, schedule(start, batchRate, &due)) })
	}
	group.Wait()
	total := &measurement{latency: newHistogram(), seconds: time.Since(begin).Seconds()}
	for _, m := range results {
		total.ops += m.ops
		total.errors += m.errors
		total.latency.Merge(m.latency)
		total.firstErr = errors.Join(total.firstErr, m.firstErr)
	}
	return total
}

// schedule returns when the next batch is due: now without a rate, otherwise the
// next of the times that all workers share.
func schedule(start time.Time, batchRate float64, due *atomic.Int64) func() time.Time {
	if batchRate <= 0 {
		return time.Now
	}
	gap := float64(time.Second) / batchRate
	return func() time.Time { return start.Add(time.Duration(float64(due.Add(1)-1) * gap)) }
}

func (m *measurement) run(ctx context.Context, w worker, begin time.Time, next func() time.Time) {
	for ctx.Err() == nil {
		at := next()
		if wait := time.Until(at); wait > 0 {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return
			}
		}
		ops, err := w(ctx)
		end := time.Now()
		if ctx.Err() != nil || at.Before(begin) {
			continue
		}
		if err != nil {
			m.errors++
			if m.firstErr == nil {
				m.firstErr = err
			}
			if !errors.Is(err, errRefused) {
				return // the connection is gone
			}
			continue
		}
		m.ops += int64(ops)
		_ = m.latency.RecordValue(min(max(end.Sub(at).Microseconds(), 1), maxLatency))
	}
}
