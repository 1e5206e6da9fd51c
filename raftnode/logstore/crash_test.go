package logstore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
)

// crasher ends the life of a MemFS before its n-th operation.
type crasher struct {
	fs    *MemFS
	crash func()
	after int64
	count atomic.Int64
}

func (c *crasher) hook(op Op, name string) error {
	if c.count.Add(1) == c.after {
		c.crash()
	}
	return nil
}

func (c *crasher) fired() bool { return c.count.Load() >= c.after }

// crashModes are the ways in which a machine or process ends.
func crashModes(fs *MemFS, seed uint64) map[string]func() {
	return map[string]func(){
		"power loss": fs.Crash,
		"torn":       func() { fs.CrashTorn(seed) },
		"kill":       fs.Kill,
	}
}

// crashAtEveryPoint runs one schedule of requests again and again, with a crash
// before operation 1, 2, 3... of the file system until it runs to its end, and
// verifies each time what a new process finds.
func crashAtEveryPoint(mode string, seed uint64) error {
	for n := int64(1); ; n++ {
		fs := NewMemFS()
		c := &crasher{fs: fs, crash: crashModes(fs, seed+uint64(n))[mode], after: n}
		fs.SetHook(c.hook)
		if err := crashOnce(fs, seed); err != nil {
			return fmt.Errorf("%s at operation %d: %w", mode, n, err)
		}
		if !c.fired() {
			return nil
		}
	}
}

func crashOnce(fs *MemFS, seed uint64) error {
	cfg := smallConfig("/log")
	d := []*driver{newDriver(1, seed), newDriver(2, seed)}
	if l, err := Open(cfg, Deps{FS: fs}); err == nil {
		for range 25 {
			if err = errors.Join(d[0].step(l), d[1].step(l)); err != nil {
				break
			}
		}
		if err := crashedOnly(l.Abandon()); err != nil {
			return err
		}
	}
	fs.SetHook(nil)
	fs.Kill()
	l, err := Open(cfg, Deps{FS: fs})
	if err != nil {
		return err
	}
	defer func() { _ = l.Abandon() }()
	for _, d := range d {
		if err := d.resume(l); err != nil {
			return err
		}
		// The log must take writes again.
		if err := d.step(l); err != nil {
			return err
		}
	}
	return nil
}

// crashUnderLoad crashes a log again and again while several groups write to it at
// the same time. What a life found is what the next one builds on.
func crashUnderLoad(seed uint64, lives int) error {
	fs := NewMemFS()
	rng := newRand(seed)
	var drivers []*driver
	for id := range uint32(4) {
		drivers = append(drivers, newDriver(id, seed))
	}
	for life := range lives {
		l, err := Open(smallConfig("/log"), Deps{FS: fs})
		if err != nil {
			return fmt.Errorf("life %d: %w", life, err)
		}
		for _, d := range drivers {
			if err := d.resume(l); err != nil {
				_ = l.Abandon()
				return fmt.Errorf("life %d: %w", life, err)
			}
		}
		if err := crashLife(fs, l, drivers, rng); err != nil {
			return fmt.Errorf("life %d: %w", life, err)
		}
	}
	return nil
}

// crashedOnly returns err unless it comes from the crash.
func crashedOnly(err error) error {
	if errors.Is(err, ErrCrashed) {
		return nil
	}
	return err
}

// crashLife runs all drivers until the crash stops them.
func crashLife(fs *MemFS, l *Log, drivers []*driver, rng *rand.Rand) error {
	mode := []string{"power loss", "torn", "torn", "kill"}[rng.IntN(4)]
	c := &crasher{fs: fs, crash: crashModes(fs, rng.Uint64())[mode], after: 1 + rng.Int64N(400)}
	fs.SetHook(c.hook)
	var wg sync.WaitGroup
	for _, d := range drivers {
		wg.Go(func() {
			for d.step(l) == nil {
			}
		})
	}
	wg.Wait()
	fs.SetHook(nil)
	return crashedOnly(l.Abandon())
}
