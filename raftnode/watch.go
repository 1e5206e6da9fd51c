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
	ticker := time.NewTicker(h.cfg.ElectionTimeout / 4)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			h.checkStall(h.deps.Log.StalledFor())
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
