package writebehind

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/quorate/quorate/fsm/storage"
)

// Run flushes until ctx ends or the store fails, whose error it returns: every
// Interval everything, and the sealed batches at once when a quarter of the capacity
// is dirty. What is dirty at the end is left to Close.
func (f *Flusher) Run(ctx context.Context) error {
	tick := time.NewTicker(f.cfg.Interval)
	defer tick.Stop()
	for {
		seal := true
		select {
		case <-ctx.Done():
			return nil
		case <-f.failed:
			return f.Err()
		case <-tick.C:
		case <-f.wake:
			seal = f.Full()
		}
		more, err := f.round(ctx, seal)
		switch {
		case ctx.Err() != nil || errors.Is(err, ErrClosed):
			return nil
		case err != nil:
			return err
		}
		// One round at a time, so that neither ticks nor other flushes starve.
		if more && f.crowded() {
			f.Notify(true)
		}
	}
}

// FlushThrough returns when the store durably holds group's state at index or
// later; the open batches of all groups are sealed for it. It fails with the
// store's failure, ErrClosed, or the context's error, and at once if the group
// has not applied index.
func (f *Flusher) FlushThrough(ctx context.Context, group uint32, index uint64) error {
	s, err := f.source(group)
	if err != nil {
		return err
	}
	more := true
	for seal := true; s.Flushed().Index < index; seal = false {
		if !more {
			return fmt.Errorf("flush group %d through %d: only %d is applied", group, index, s.Flushed().Index)
		}
		if more, err = f.round(ctx, seal); err != nil {
			return fmt.Errorf("flush group %d through %d: %w", group, index, err)
		}
	}
	return nil
}

// Close writes everything that is dirty and refuses further flushes. An error means
// that something was left unwritten, which the log still has. The owner of Run
// ends it through its context, before or after. Calling Close again writes nothing.
func (f *Flusher) Close(ctx context.Context) error {
	var err error
	for more, seal := true, true; more && err == nil; seal = false {
		more, err = f.round(ctx, seal)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	if errors.Is(err, ErrClosed) {
		return nil
	}
	return err
}

func (f *Flusher) source(group uint32) (Source, error) {
	sources := *f.sources.Load()
	i, found := slices.BinarySearchFunc(sources, group, compareGroup)
	if !found {
		return nil, fmt.Errorf("group %d is not registered for flushing", group)
	}
	return sources[i], nil
}

// round writes what every source has waiting in one transaction, after sealing the
// open batches if asked, and reports whether more is waiting.
func (f *Flusher) round(ctx context.Context, seal bool) (more bool, err error) {
	select {
	case <-f.turn:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	defer f.release()
	if err := f.usable(); err != nil {
		return false, err
	}
	sources := *f.sources.Load()
	batches, owners := f.collect(sources, seal)
	if len(batches) == 0 {
		return false, nil
	}
	if err := f.write(batches); err != nil {
		return false, err
	}
	for _, o := range owners {
		o.source.Written(o.cuts)
	}
	f.signalRoom()
	return slices.ContainsFunc(sources, hasBatch), nil
}

// owner is a source whose oldest cuts are being written.
type owner struct {
	source Source
	cuts   int
}

// collect takes what every source has waiting.
func (f *Flusher) collect(sources []Source, seal bool) (batches []storage.Batch, owners []owner) {
	for _, s := range sources {
		if seal {
			s.Seal()
		}
		if b, cuts := s.Oldest(f.cfg.Capacity); cuts > 0 {
			batches = append(batches, b)
			owners = append(owners, owner{s, cuts})
		}
	}
	return batches, owners
}

func hasBatch(s Source) bool {
	_, cuts := s.Oldest(1)
	return cuts > 0
}

// write puts the batches into the store. A failure is final.
func (f *Flusher) write(batches []storage.Batch) error {
	start := time.Now()
	if err := f.store.Write(batches); err != nil {
		err = fmt.Errorf("flush: %w", err)
		f.metrics.failures.Inc()
		f.fail(err)
		return err
	}
	f.metrics.seconds.Observe(time.Since(start).Seconds())
	for _, b := range batches {
		f.metrics.items.Add(float64(len(b.Items)))
	}
	return nil
}
