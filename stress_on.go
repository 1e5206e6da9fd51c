//go:build stress

package quorate

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The variables of builds with the tag stress, for fault suites.
const (
	// stressClock names a file with a number of milliseconds, which may be negative:
	// the wall clock of the process is off by that. A file that does not exist is 0.
	stressClock = "QUORATE_STRESS_CLOCK"
	// stressLog is the number of entries after which a log is truncated, half of which
	// stay, so that followers that were away need snapshots.
	stressLog = "QUORATE_STRESS_LOG"
)

// leastStressLog keeps what stays of a log above what is in flight (hashicorp/raft
// issue 697).
const leastStressLog = 32

// skewRead is how often the file of the clock is read at most.
const skewRead = 10 * time.Millisecond

// skewedClock is a wall clock that is off by what a file says.
type skewedClock struct {
	file string

	mu    sync.Mutex // protects the fields below
	read  time.Time  // when the file was read last, by the monotonic clock
	skew  int64
	fault string // what was wrong with the file last
}

var stressedClock = &skewedClock{file: os.Getenv(stressClock)}

// unixMillis is the wall clock, and what the suite adds to it.
func unixMillis() int64 { return time.Now().UnixMilli() + stressedClock.offset() }

// offset is the number in the file, or the last one while it cannot be read.
func (c *skewedClock) offset() int64 {
	if c.file == "" {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.read.IsZero() && time.Since(c.read) < skewRead {
		return c.skew
	}
	c.read = time.Now()
	skew, err := readSkew(c.file)
	if err != nil {
		if c.fault != err.Error() {
			fmt.Fprintf(os.Stderr, "quorate: %s: %v\n", stressClock, err)
		}
		c.fault = err.Error()
		return c.skew
	}
	c.skew, c.fault = skew, ""
	return c.skew
}

func readSkew(file string) (int64, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
}

// stress makes the logs of a node as short as the suite wants them.
func stress(cfg *NodeConfig) error {
	text := os.Getenv(stressLog)
	if text == "" {
		return nil
	}
	entries, err := strconv.ParseUint(text, 10, 32)
	if err != nil || entries < leastStressLog {
		return fmt.Errorf("%s=%q is no number from %d", stressLog, text, leastStressLog)
	}
	cfg.Raft.SnapshotThreshold, cfg.Raft.TrailingLogs = entries, entries/2
	cfg.Raft.SnapshotInterval = time.Second
	return nil
}
