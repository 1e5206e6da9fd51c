package logstore

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
)

// crashPoints are the operations on the kinds of files that a log makes in a few lives; a
// process or machine can end before and after each.
var crashPoints = []string{
	"create spare", "write spare", "sync spare", "rename spare", "remove spare",
	"write segment", "sync segment", "truncate segment", "rename segment", "remove segment",
	"sync dir", "open segment", "read segment",
}

// point names an operation of the log on one of its files.
func point(op Op, name string) string {
	switch {
	case op == OpSyncDir:
		return string(op)
	case strings.HasSuffix(name, tempSuffix):
		return string(op) + " spare"
	default:
		return string(op) + " segment"
	}
}

// pointCrasher ends the life of a MemFS at the nth time that it comes to a point.
type pointCrasher struct {
	point string
	after bool
	nth   int
	crash func()

	mu    sync.Mutex // protects the fields below
	count int
	fired bool
}

func (c *pointCrasher) hook(op Op, name string) error {
	c.mu.Lock()
	due := c.after && c.count == c.nth
	if point(op, name) == c.point {
		c.count++
	}
	due = due || !c.after && c.count == c.nth
	due = due && !c.fired
	c.fired = c.fired || due
	c.mu.Unlock()
	if due {
		c.crash()
	}
	return nil
}

func (c *pointCrasher) done() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fired
}

// lives writes to a log in a few lives. One loses what it did not sync, which leaves a
// segment without an end.
func lives(fs *MemFS, d *driver) error {
	for life := range 4 {
		cfg := smallConfig("/log")
		cfg.Prefill = life > 0
		l, err := Open(cfg, Deps{FS: fs})
		if err != nil {
			return err
		}
		err = d.resume(l)
		for range 60 {
			if err == nil {
				err = d.step(l)
			}
		}
		if err != nil {
			return errors.Join(err, l.Abandon())
		}
		if life == 1 {
			fs.Crash()
			if err := crashedOnly(l.Abandon()); err != nil {
				return err
			}
			continue
		}
		if err := l.Close(); err != nil {
			return err
		}
	}
	return nil
}

// crashAt reports whether the point was reached.
func crashAt(t *testing.T, c *pointCrasher, mode string, seed uint64) bool {
	t.Helper()
	fs := NewMemFS()
	c.crash = crashModes(fs, seed)[mode]
	fs.SetHook(c.hook)
	d := newDriver(1, seed)
	what := fmt.Sprintf("%s %s, after %t, time %d", mode, c.point, c.after, c.nth)
	if err := lives(fs, d); err != nil && !errors.Is(err, ErrCrashed) {
		t.Errorf("%s: %v", what, err)
	}
	fs.SetHook(nil)
	fs.Kill()
	if !c.done() {
		return false
	}
	l, err := Open(smallConfig("/log"), Deps{FS: fs})
	if err != nil {
		t.Errorf("%s: %v", what, err)
		return true
	}
	defer func() { _ = l.Abandon() }()
	if err := errors.Join(d.resume(l), d.step(l)); err != nil {
		t.Errorf("%s: %v", what, err)
	}
	return true
}

// TestEveryNamedCrashPointIsSurvived crashes at an early and at a later time that the log
// comes to each point, before and after it, and holds that the next life finds what was
// acknowledged.
func TestEveryNamedCrashPointIsSurvived(t *testing.T) {
	seed := testSeed(t)
	for _, name := range crashPoints {
		for _, after := range []bool{false, true} {
			reached := false
			// Spare files are made beside the writing, not at every try.
			for try := uint64(0); try < 50 && !reached; try++ {
				seed := seed + try
				for _, mode := range []string{"power loss", "torn", "kill"} {
					for _, nth := range []int{1, 4} {
						reached = crashAt(t, &pointCrasher{point: name, after: after, nth: nth}, mode, seed) || reached
					}
				}
			}
			if !reached {
				t.Errorf("the log never comes to %q, after %t", name, after)
			}
		}
	}
}
