package raftnode

import (
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorate/quorate/raftnode/logstore"
)

// SystemGroup is the group that replicates the cluster's own documents.
const SystemGroup uint32 = 0

// Config has the settings of a Host. Start from DefaultConfig.
type Config struct {
	// ID is this node's server id in every group. Required.
	ID ServerID
	// DataDir holds snapshots while they are received. Empty keeps them in memory,
	// for nodes without a disk.
	DataDir string

	// HeartbeatTimeout is how long a follower waits for its leader before it asks
	// for votes, ElectionTimeout how long it waits for them.
	HeartbeatTimeout, ElectionTimeout time.Duration
	// LeaderLeaseTimeout is how long a leader stays one without hearing from a
	// quorum. At most HeartbeatTimeout.
	LeaderLeaseTimeout time.Duration
	// CommitTimeout is how long the commit of entries that do not reach the state may
	// wait to travel to followers when nothing else does. That of others does not wait.
	CommitTimeout time.Duration
	// RPCTimeout bounds one exchange between two replicas.
	RPCTimeout time.Duration
	// StallFatal is how long the log may hang in one write before the node gives
	// up; already after two ElectionTimeouts it stops acting as leader.
	StallFatal time.Duration

	// MaxAppendEntries is the greatest number of entries in one message.
	MaxAppendEntries int
	// TrailingLogs is how many entries stay behind a checkpoint for followers that
	// lag. Values near the number of entries in flight make replicas exchange
	// snapshots forever (hashicorp/raft issue 697).
	TrailingLogs uint64
	// SnapshotThreshold and SnapshotInterval: the log is truncated when that many
	// entries gathered, looked at that often; SnapshotBytes: or that many bytes.
	SnapshotThreshold uint64
	SnapshotInterval  time.Duration
	SnapshotBytes     int64
	// SnapshotRate is the speed of sending snapshots, in bytes a second, of which
	// one at a time leaves the node.
	SnapshotRate int

	// MaxEntryOps and MaxEntryBytes end the coalescing of proposals into one entry.
	// A proposal is never split: a larger one makes a larger entry, up to
	// MaxProposalBytes, which the largest client frame fits into.
	MaxEntryOps, MaxEntryBytes, MaxProposalBytes int
	// InFlight is the number of entries of one group on their way at once.
	InFlight int
	// QueueOps and QueueBytes bound the proposals of one group that wait for their
	// entry. Beyond, Propose answers ErrBusy.
	QueueOps, QueueBytes int
}

// DefaultConfig returns the settings of production; ID and DataDir are empty.
func DefaultConfig() Config {
	return Config{
		HeartbeatTimeout:   time.Second,
		ElectionTimeout:    time.Second,
		LeaderLeaseTimeout: 800 * time.Millisecond,
		CommitTimeout:      100 * time.Millisecond,
		RPCTimeout:         3 * time.Second,
		StallFatal:         30 * time.Second,
		MaxAppendEntries:   256,
		TrailingLogs:       4096,
		SnapshotThreshold:  4096,
		SnapshotInterval:   30 * time.Second,
		SnapshotBytes:      64 << 20,
		SnapshotRate:       64 << 20,
		MaxEntryOps:        256,
		MaxEntryBytes:      256 << 10,
		MaxProposalBytes:   4 << 20,
		InFlight:           2,
		QueueOps:           16384,
		QueueBytes:         16 << 20,
	}
}

// Validate reports every setting that cannot work, joined.
func (c *Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.ID != "", "ID is empty")
	check(c.StallFatal > 2*c.ElectionTimeout, "StallFatal %s is not above two ElectionTimeouts", c.StallFatal)
	check(c.RPCTimeout > 0, "RPCTimeout is not positive")
	check(c.SnapshotBytes > 0 && c.SnapshotRate > 0, "SnapshotBytes or SnapshotRate is not positive")
	check(c.MaxEntryOps > 0 && c.MaxEntryBytes > 0, "MaxEntryOps or MaxEntryBytes is not positive")
	check(c.MaxProposalBytes >= c.MaxEntryBytes, "MaxProposalBytes is below MaxEntryBytes")
	check(c.InFlight > 0, "InFlight is not positive")
	check(c.QueueOps > 0 && c.QueueBytes >= c.MaxProposalBytes, "QueueOps or QueueBytes is too small")
	check(c.TrailingLogs > uint64(c.InFlight), "TrailingLogs %d is not above InFlight", c.TrailingLogs)
	if c.ID != "" {
		if err := raft.ValidateConfig(c.raft(hclog.NewNullLogger())); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// raft is the library's configuration for one group.
func (c *Config) raft(logger hclog.Logger) *raft.Config {
	rc := raft.DefaultConfig()
	rc.LocalID = c.ID
	rc.Logger = logger
	rc.HeartbeatTimeout = c.HeartbeatTimeout
	rc.ElectionTimeout = c.ElectionTimeout
	rc.LeaderLeaseTimeout = c.LeaderLeaseTimeout
	rc.CommitTimeout = c.CommitTimeout
	rc.MaxAppendEntries = c.MaxAppendEntries
	rc.TrailingLogs = c.TrailingLogs
	rc.SnapshotThreshold = c.SnapshotThreshold
	rc.SnapshotInterval = c.SnapshotInterval
	rc.NoLegacyTelemetry = true
	// The state machine comes back with its own durable state, at the mark that the
	// snapshot store reports.
	rc.NoSnapshotRestoreOnStart = true
	// Whoever removes a replica stops its group; the library must not do it alone.
	rc.ShutdownOnRemove = false
	// An unbuffered channel makes ErrEnqueueTimeout mean "never taken". The batcher
	// keeps so few entries in flight that a buffer would gain nothing.
	rc.BatchApplyCh = false
	return rc
}

// Deps are what a Host works with. All are required unless said otherwise.
type Deps struct {
	Logger hclog.Logger
	// Mux carries the groups' messages.
	Mux Network
	// Log is the write-ahead log and stable store of all groups.
	Log   *logstore.Log
	Clock Clock
	// NewMachine opens the state machine of a group at its durable state.
	NewMachine func(group uint32) (StateMachine, error)
	// DropMachine deletes the durable state of a stopped group. Nil when machines
	// leave nothing behind.
	DropMachine func(group uint32) error
	// Fatal is told, once, why this process must stop: storage, corruption or
	// programming failures. It is called from any goroutine and must not block or
	// call the Host. Until the process ends, no replica here acts as leader.
	Fatal func(error)
	// Damaged is told that the stored state of a group is damaged and its replica can do
	// nothing: it was not started, or applies no more and is to be isolated. It is called
	// from any goroutine and must not block or call the Host. Nil: Fatal is told instead.
	Damaged func(group uint32, err error)
	// Registerer takes the metrics. Nil means none.
	Registerer prometheus.Registerer
}
