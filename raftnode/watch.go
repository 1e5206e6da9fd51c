package raftnode

import (
	"errors"
	"fmt"
	"time"
)

// errFenced is why a node sends nothing as a leader: its log hangs or failed.
var errFenced = errors.New("this node must not lead now")

// fenced returns why this node must not act as a leader, or nil. A leader whose log
// hangs would keep its followers waiting with heartbeats (hashicorp/raft issue 503).
func (h *Host) fenced() error {
	if h.failure.Load() != nil || h.stalled.Load() {
		return errFenced
	}
	return nil
}

// watch looks after the log until the Host is closed.
func (h *Host) watch() {
	interval := h.cfg.ElectionTimeout / 4
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	hang := hangTime{interval: interval, last: time.Now()}
	for {
		select {
		case <-ticker.C:
			h.checkStall(hang.observe(time.Now(), h.deps.Log.StalledFor()))
		case <-h.deps.Log.Failed():
			h.fail(fmt.Errorf("log: %w", h.deps.Log.Err()))
			<-h.stop
			return
		case <-h.stop:
			return
		}
	}
}

func (h *Host) checkStall(hanging time.Duration) {
	stalled := hanging > 2*h.cfg.ElectionTimeout
	if h.stalled.Swap(stalled) != stalled {
		if stalled {
			h.logger.Warn("log hangs, leaderships are given up", "for", hanging)
		} else {
			h.logger.Info("log goes on")
		}
		h.signal()
	}
	if hanging > h.cfg.StallFatal {
		// The write is never abandoned: it may still reach the disk.
		h.fail(fmt.Errorf("log hangs for %s", hanging.Round(time.Second)))
	}
}

// hangTime is how long the log hangs as far as this process has seen it. The clock goes on
// while the process is stopped or its machine is suspended; the disk had no chance then.
type hangTime struct {
	interval time.Duration
	last     time.Time
	seen     time.Duration
}

// observe takes what the clock says at now, which should come every interval.
func (t *hangTime) observe(now time.Time, byClock time.Duration) time.Duration {
	passed := now.Sub(t.last)
	t.last = now
	if byClock == 0 {
		t.seen = 0
		return 0
	}
	t.seen = min(t.seen+min(passed, 2*t.interval), byClock)
	return t.seen
}
