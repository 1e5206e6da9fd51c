package logstore

import (
	"errors"
	"fmt"
	"math"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
)

// Limits of what may be written. They bound the memory that recovery needs.
const (
	// MaxEntryBytes is the limit of Data plus Extensions of one entry.
	MaxEntryBytes = 128 << 20
	// MaxStableBytes is the limit of a stable key plus its value. Stable values are
	// copied into every new segment and kept in memory.
	MaxStableBytes = 64 << 10
)

// Config are the settings of a Log. They may change between one Open and the next.
type Config struct {
	// Dir is the directory of the log. It is created if missing and used by one Log
	// at a time.
	Dir string
	// SegmentBytes is the size at which the log goes on in a new segment file. Space
	// is freed by whole segments. 4 KiB to 1 GiB.
	SegmentBytes int64
	// QueueBytes bounds the records that wait for the writer, and so the size of one
	// write; callers block when it is reached. One entry may exceed it. 4 KiB to 64 MiB.
	QueueBytes int
	// CacheEntries and CacheBytes bound, per group, the newest entries that are kept
	// in memory for GetLog. Bytes counts data and extensions. Zero disables the cache.
	CacheEntries int
	CacheBytes   int
	// RewriteSegments is the number of segments that the log may have before live
	// entries of the oldest are copied to its end to free it. The copying starts only
	// when more than half of the log is dead. At least 1.
	RewriteSegments int
	// Prefill writes each new segment file full of zeros ahead of its use, in the
	// background. It makes fdatasync cheaper on real disks and is useless in memory.
	Prefill bool
}

// DefaultConfig returns the settings for a log on disk in dir.
func DefaultConfig(dir string) Config {
	return Config{
		Dir:             dir,
		SegmentBytes:    64 << 20,
		QueueBytes:      4 << 20,
		CacheEntries:    2048,
		CacheBytes:      2 << 20,
		RewriteSegments: 4,
		Prefill:         true,
	}
}

// MemConfig returns the settings for a log on a MemFS: small segments, because
// there the dead bytes of the log cost memory.
func MemConfig(dir string) Config {
	cfg := DefaultConfig(dir)
	cfg.SegmentBytes = 4 << 20
	cfg.Prefill = false
	return cfg
}

// Validate reports all settings that are out of range.
func (c Config) Validate() error {
	return errors.Join(
		outOfRange("segment bytes", c.SegmentBytes, 4<<10, 1<<30),
		outOfRange("queue bytes", int64(c.QueueBytes), 4<<10, 64<<20),
		outOfRange("cache entries", int64(c.CacheEntries), 0, math.MaxInt32),
		outOfRange("cache bytes", int64(c.CacheBytes), 0, math.MaxInt64),
		outOfRange("rewrite segments", int64(c.RewriteSegments), 1, math.MaxInt32),
	)
}

func outOfRange(name string, value, low, high int64) error {
	if low <= value && value <= high {
		return nil
	}
	return fmt.Errorf("%s is %d, must be %d to %d", name, value, low, high)
}

// Deps are what a Log needs from its surroundings.
type Deps struct {
	// Logger receives recovery and failure messages. Nil discards them.
	Logger hclog.Logger
	// FS is the file system. Nil is OSFS.
	FS FS
	// Registerer receives the metrics. Nil means none.
	Registerer prometheus.Registerer
}

func (d Deps) withDefaults() Deps {
	if d.Logger == nil {
		d.Logger = hclog.NewNullLogger()
	}
	if d.FS == nil {
		d.FS = OSFS{}
	}
	return d
}
