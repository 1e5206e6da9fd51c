package quorate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/raftnode"
	"github.com/quorate/quorate/raftnode/mux"
)

// The methods with which nodes and operator tools read the state of a group.
const (
	methodOutline mux.Method = 80 // outline
	methodOpen    mux.Method = 81 // openRequest to openReply
	methodRead    mux.Method = 82 // readRequest to bytes of the snapshot, none at its end
	methodRelease mux.Method = 83 // releaseRequest
	methodConfirm mux.Method = 84 // confirmRequest to confirmReply, asked of the group's leader
)

const (
	// exportChunk is how much of a snapshot one reply carries.
	exportChunk = 1 << 20
	// maxExports is how many snapshots are open at once. Each holds a view of the store,
	// which keeps space from being reused; exportIdle is how long one is kept for a
	// reader that asks for nothing.
	maxExports = 8
	exportIdle = time.Minute
	// confirmPause is how long a node waits before it asks again who leads a group.
	confirmPause = 50 * time.Millisecond
	// confirmTimeout bounds its asking.
	confirmTimeout = 30 * time.Second
)

// errExports says that no further snapshot can be opened now.
var errExports = errors.New("too many backups or repairs read from this node")

// outline is what a backup must contain, and where it is.
type outline struct {
	ClusterID string `json:"clusterId"`
	NodeID    string `json:"nodeId"`
	Version   string `json:"version"`
	// Holders lists by group the server ids of the nodes that hold it.
	Holders [][]string `json:"holders"`
}

// openRequest asks for the state of a group.
type openRequest struct {
	Group uint32 `json:"group"`
	// Node is the server id of the replica that is asked; others pass the request on.
	Node string `json:"node"`
	// AtLeast is the log index that the state must reach; zero asks for everything that
	// was acknowledged to anyone before the request.
	AtLeast uint64 `json:"atLeast,omitempty"`
}

type openReply struct {
	Export uint64 `json:"export"`
	Index  uint64 `json:"index"`
	Term   uint64 `json:"term"`
	Size   int64  `json:"size"`
}

type readRequest struct {
	Node   string `json:"node"`
	Export uint64 `json:"export"`
	// Offset is how much of the snapshot the reader has: replies may get lost.
	Offset int64 `json:"offset"`
}

type releaseRequest struct {
	Node   string `json:"node"`
	Export uint64 `json:"export"`
}

type confirmRequest struct {
	Group uint32 `json:"group"`
}

type confirmReply struct {
	// Index is an entry of the group that was committed after the request.
	Index uint64 `json:"index"`
}

// exporter lets peers and operator tools read the states of this node's groups.
type exporter struct {
	node *Node

	mu     sync.Mutex // protects the fields below
	next   uint64
	open   map[uint64]*export
	closed bool
}

// export is one snapshot that somebody reads.
type export struct {
	snapshot *fsm.Snapshot
	idle     *time.Timer

	mu sync.Mutex // protects the fields below
	// offset is where last begins, what was sent last.
	offset int64
	last   []byte
	closed bool
}

func newExporter(node *Node) *exporter {
	e := &exporter{node: node, open: map[uint64]*export{}}
	node.mux.Handle(methodOutline, audited(node.log, "backup asked for", func(context.Context, mux.Peer, []byte) ([]byte, error) { return e.outline() }))
	node.mux.Handle(methodOpen, relayed(node, methodOpen, func(r *openRequest) string { return r.Node }, e.handleOpen))
	node.mux.Handle(methodRead, relayed(node, methodRead, func(r *readRequest) string { return r.Node }, e.handleRead))
	node.mux.Handle(methodRelease, relayed(node, methodRelease, func(r *releaseRequest) string { return r.Node }, e.handleRelease))
	node.mux.Handle(methodConfirm, relayed(node, methodConfirm, func(*confirmRequest) string { return "" }, e.handleConfirm))
	return e
}

// relayed makes a handler of one for requests that name their node: tools reach all
// nodes through one.
func relayed[T any](node *Node, method mux.Method, named func(*T) string, handle func(context.Context, *T) ([]byte, error)) mux.Handler {
	return func(ctx context.Context, _ mux.Peer, body []byte) ([]byte, error) {
		var req T
		if err := json.Unmarshal(body, &req); err != nil {
			return nil, fmt.Errorf("decode request: %w", err)
		}
		if to := raftnode.ServerID(named(&req)); to != "" && to != node.cfg.Raft.ID {
			return node.mux.Call(ctx, to, method, body)
		}
		return handle(ctx, &req)
	}
}

// outline says which groups there are, as this node's documents have it.
func (e *exporter) outline() ([]byte, error) {
	state := e.node.agent.State()
	if state == nil || state.Genesis == nil {
		return nil, errors.New("the node does not belong to a cluster yet")
	}
	o := outline{ClusterID: state.Genesis.ClusterID, NodeID: e.node.cfg.NodeID, Version: Version}
	self := string(e.node.cfg.Raft.ID)
	o.Holders = append(o.Holders, []string{self})
	for _, p := range state.Table.Groups {
		o.Holders = append(o.Holders, p.Voters)
	}
	return json.Marshal(o)
}

func (e *exporter) handleOpen(ctx context.Context, req *openRequest) ([]byte, error) {
	group, ok := e.node.host.Group(req.Group)
	if !ok {
		return nil, fmt.Errorf("group %d: %w", req.Group, raftnode.ErrNotHere)
	}
	atLeast := req.AtLeast
	if atLeast == 0 {
		index, err := e.confirm(ctx, req.Group)
		if err != nil {
			return nil, err
		}
		atLeast = index
	}
	if err := group.WaitApplied(ctx, atLeast); err != nil {
		return nil, err
	}
	if err := group.Checkpoint(ctx); err != nil {
		return nil, err
	}
	snapshot, err := group.Machine().OpenSnapshot()
	if err != nil {
		return nil, err
	}
	mark := snapshot.Mark()
	id, err := e.keep(snapshot)
	if err != nil {
		return nil, errors.Join(err, snapshot.Close())
	}
	return json.Marshal(openReply{Export: id, Index: mark.Index, Term: mark.Term, Size: snapshot.Size()})
}

// confirm returns the index of an entry that is committed after the call.
func (e *exporter) confirm(ctx context.Context, group uint32) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	for {
		index, err := e.tryConfirm(ctx, group)
		if err == nil {
			return index, nil
		}
		select {
		case <-time.After(confirmPause):
		case <-ctx.Done():
			return 0, fmt.Errorf("no leader of group %d confirms what is committed: %w", group, errors.Join(ctx.Err(), err))
		}
	}
}

// tryConfirm asks whom this node takes for the leader.
func (e *exporter) tryConfirm(ctx context.Context, group uint32) (uint64, error) {
	g, ok := e.node.host.Group(group)
	if !ok {
		return 0, raftnode.ErrNotHere
	}
	if g.IsLeader() {
		return commitMark(ctx, g)
	}
	leader, _ := g.Leader()
	if leader == "" || leader == e.node.cfg.Raft.ID {
		return 0, &raftnode.NotLeaderError{Group: group}
	}
	body, err := json.Marshal(confirmRequest{Group: group})
	if err != nil {
		return 0, err
	}
	answer, err := e.node.mux.Call(ctx, leader, methodConfirm, body)
	if err != nil {
		return 0, err
	}
	var reply confirmReply
	err = json.Unmarshal(answer, &reply)
	return reply.Index, err
}

func (e *exporter) handleConfirm(ctx context.Context, req *confirmRequest) ([]byte, error) {
	g, ok := e.node.host.Group(req.Group)
	if !ok {
		return nil, raftnode.ErrNotHere
	}
	index, err := commitMark(ctx, g)
	if err != nil {
		return nil, err
	}
	return json.Marshal(confirmReply{Index: index})
}

// commitMark puts a mark into the log of a group that this node leads: a leader that was
// deposed without knowing cannot commit one.
func commitMark(ctx context.Context, g *raftnode.Group) (uint64, error) {
	proposal, err := g.Propose([]raftnode.Command{command.EncodeRead()})
	if err != nil {
		return 0, err
	}
	results, err := proposal.Wait(ctx)
	if err != nil {
		return 0, err
	}
	return results[0].Index, nil
}

// keep makes a snapshot readable until it is released or forgotten.
func (e *exporter) keep(snapshot *fsm.Snapshot) (uint64, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || len(e.open) >= maxExports {
		return 0, errExports
	}
	e.next++
	id := e.next
	e.open[id] = &export{snapshot: snapshot, idle: time.AfterFunc(exportIdle, func() {
		if err := e.release(id); err != nil {
			e.node.log.Warn("abandoned snapshot was not closed", "err", err)
		}
	})}
	return id, nil
}

func (e *exporter) handleRead(_ context.Context, req *readRequest) ([]byte, error) {
	e.mu.Lock()
	x := e.open[req.Export]
	e.mu.Unlock()
	if x == nil {
		return nil, fmt.Errorf("snapshot %d is not open: %w", req.Export, fsm.ErrClosed)
	}
	x.idle.Reset(exportIdle)
	return x.read(req.Offset)
}

func (e *exporter) handleRelease(_ context.Context, req *releaseRequest) ([]byte, error) {
	return nil, e.release(req.Export)
}

func (e *exporter) release(id uint64) error {
	e.mu.Lock()
	x := e.open[id]
	delete(e.open, id)
	e.mu.Unlock()
	if x == nil {
		return nil
	}
	return x.close()
}

// close releases every snapshot. None can be opened afterwards.
func (e *exporter) close() error {
	e.mu.Lock()
	open := e.open
	e.open, e.closed = nil, true
	e.mu.Unlock()
	var errs []error
	for _, x := range open {
		errs = append(errs, x.close())
	}
	return errors.Join(errs...)
}
