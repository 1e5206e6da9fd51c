package raftnode

import (
	"io"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// maxMessageBytes is where a message to a follower ends, although it could take more
// entries. The library counts entries only, and a message that is too large for
// its timeout is sent again and again.
const maxMessageBytes = 4 << 20

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
	// repeat is how old the follower's last answer, to a heartbeat for one, may be for a
	// message that says nothing new to be held back. To spread the commit index quickly
	// the library repeats it every CommitTimeout; the answer is then the previous one. It
	// makes the library's lease longer by this much, at most.
	repeat time.Duration
	// progressed is told that a follower has taken entries; it must not block.
	progressed func()
	// stop ends the waiting for links.
	stop <-chan struct{}
}

func newTransport(stream raft.StreamLayer, timeout time.Duration, logger hclog.Logger) *raft.NetworkTransport {
	return raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream:  stream,
		Logger:  quietenAll(logger.Named("transport")),
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
	probe := isHeartbeat(req)
	if !probe {
		// Heartbeats probe the link that other messages wait for.
		t.peers.await(id, req.Term, t.stop)
	}
	if err := t.fenced(); err != nil {
		return err
	}
	if !probe && t.peers.repeats(id, req, t.repeat) {
		*resp = raft.AppendEntriesResponse{Term: req.Term, LastLog: req.PrevLogEntry, Success: true}
		return nil
	}
	// The library reads from req what was sent, and continues there.
	req.Entries = firstBytes(req.Entries, maxMessageBytes)
	if err := t.NetworkTransport.AppendEntries(id, target, req, resp); err != nil {
		t.peers.failed(id, req.Term, err)
		return err
	}
	switch {
	case resp.Term > req.Term:
		// The leadership is over.
	case resp.Success && !probe:
		t.peers.accepted(id, target, req)
		if len(req.Entries) > 0 {
			t.progressed()
		}
	default:
		t.peers.answered(id, req.Term)
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
		t.peers.failed(id, req.Term, err)
		return err
	}
	if resp.Success {
		t.peers.stored(id, req.Term, req.LastLogIndex)
	}
	return nil
}

// firstBytes is the longest prefix of entries within limit bytes, but at least one.
func firstBytes(entries []*raft.Log, limit int) []*raft.Log {
	size := 0
	for i, e := range entries {
		if size += len(e.Data); size > limit && i > 0 {
			return entries[:i]
		}
	}
	return entries
}

// isHeartbeat recognises the messages that only keep the leadership up.
func isHeartbeat(req *raft.AppendEntriesRequest) bool {
	return req.PrevLogEntry == 0 && len(req.Entries) == 0 && req.LeaderCommitIndex == 0
}
