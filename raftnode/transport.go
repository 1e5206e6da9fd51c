package raftnode

import (
	"io"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// maxPool is the number of idle connections kept per peer and group: one each for
// heartbeats, entries and votes.
const maxPool = 3

// transport is the library's network transport behind three guards: heartbeats
// take the way of all messages, entries are not pipelined, and a node that must
// not lead sends nothing as a leader.
type transport struct {
	*raft.NetworkTransport
	peers *peers
	// fenced returns why this node must not act as a leader now, or nil.
	fenced func() error
	// stop ends the waiting for links.
	stop <-chan struct{}
}

func newTransport(stream raft.StreamLayer, timeout time.Duration, logger hclog.Logger) *raft.NetworkTransport {
	return raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream:  stream,
		Logger:  logger,
		MaxPool: maxPool,
		Timeout: timeout,
		// One failed message leaves a pipeline stuck for good: hashicorp/raft issue
		// 612. One in flight turns pipelines off.
		MaxRPCsInFlight: 1,
	})
}

// SetHeartbeatHandler ignores the library's fast path for heartbeats, which
// changes term and role beside the main loop and can make replicas diverge
// (hashicorp/raft issue 695). Without a handler they arrive through Consumer.
func (t *transport) SetHeartbeatHandler(func(raft.RPC)) {}

// AppendEntries implements raft.Transport.
func (t *transport) AppendEntries(id raft.ServerID, target raft.ServerAddress,
	req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	// Heartbeats probe the link that other messages wait for.
	if !isHeartbeat(req) {
		t.peers.await(id, req.Term, t.stop)
	}
	if err := t.fenced(); err != nil {
		return err
	}
	if err := t.NetworkTransport.AppendEntries(id, target, req, resp); err != nil {
		t.peers.failed(id, req.Term)
		return err
	}
	var match uint64
	if resp.Success && !isHeartbeat(req) {
		match = appended(req)
	}
	if resp.Term <= req.Term {
		t.peers.answered(id, req.Term, match)
	}
	return nil
}

// InstallSnapshot implements raft.Transport.
func (t *transport) InstallSnapshot(id raft.ServerID, target raft.ServerAddress,
	req *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	if err := t.fenced(); err != nil {
		return err
	}
	if err := t.NetworkTransport.InstallSnapshot(id, target, req, resp, data); err != nil {
		t.peers.failed(id, req.Term)
		return err
	}
	if resp.Success {
		t.peers.answered(id, req.Term, req.LastLogIndex)
	}
	return nil
}

// isHeartbeat recognises the messages that only keep the leadership up.
func isHeartbeat(req *raft.AppendEntriesRequest) bool {
	return req.PrevLogEntry == 0 && len(req.Entries) == 0 && req.LeaderCommitIndex == 0
}
