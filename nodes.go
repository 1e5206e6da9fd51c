package quorate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"runtime/metrics"
	"slices"
	"sync"

	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/raftnode"
	"github.com/quorate/quorate/raftnode/membership"
	"github.com/quorate/quorate/raftnode/mux"
	"github.com/quorate/quorate/transport/admin"
)

// operators is the cluster as the admin plane sees it from this node.
type operators struct{ s *Server }

var _ admin.Cluster = operators{}

// Node implements admin.Cluster.
func (o operators) Node() admin.NodeInfo {
	s := o.s
	info := admin.NodeInfo{
		NodeID: s.cfg.NodeID, Version: Version, Role: "none", ProtocolVersion: protocol.Version, Ready: s.transport.Ready(),
		Connections: s.transport.Connections(), TotalOperations: s.transport.Operations(), UptimeSeconds: s.uptime(),
	}
	node := s.current()
	if node == nil {
		info.NotAcceptingText = "the node is starting"
		return info
	}
	status := node.Status()
	info.ClusterSize = len(status.live())
	info.Accepting = status.ClusterID != "" && s.transport.State().String() == "ready"
	if !info.Accepting {
		info.NotAcceptingText = "the node is " + status.Phase + " and " + s.transport.State().String()
	}
	for _, g := range status.Groups {
		if g.Group == raftnode.SystemGroup {
			info.Role = g.Role
		}
		if g.Leader == "" && info.Accepting {
			info.Accepting, info.NotAcceptingText = false, fmt.Sprintf("group %d has no leader", g.Group)
		}
	}
	return info
}

// Nodes implements admin.Cluster.
func (o operators) Nodes(ctx context.Context) []admin.Node {
	self := o.s.Status()
	if self == nil {
		return nil
	}
	members := self.live()
	list := make([]admin.Node, len(members))
	var wg sync.WaitGroup
	for i, m := range members {
		wg.Go(func() {
			status := self
			if m.ServerID != self.ServerID {
				status = o.ask(ctx, m.ServerID)
			}
			list[i] = describeNode(m, status, m.ServerID == self.ServerID)
		})
	}
	wg.Wait()
	return list
}

// ask fetches the status of another node, nil if it does not answer before ctx ends.
func (o operators) ask(ctx context.Context, serverID string) *Status {
	node := o.s.current()
	body, err := node.Mux().Call(ctx, raftnode.ServerID(serverID), methodStatus, nil)
	status := &Status{}
	if err == nil {
		err = json.Unmarshal(body, status)
	}
	if err != nil {
		o.s.log.Debug("node does not tell its status", "node", serverID, "err", err)
		return nil
	}
	return status
}

// health are the words of the interface for the states of members.
var health = map[string]string{
	"joining": "healthy", "active": "healthy", "leaving": "healthy", "suspect": "suspect", "failed": "dead", "removed": "dead",
}

// describeNode puts together what the cluster and, unless it is nil, the node itself say.
func describeNode(m MemberStatus, status *Status, local bool) admin.Node {
	n := admin.Node{
		NodeID: m.NodeID, Address: m.ClientURL, Status: health[m.Status], State: m.Status, LastContactMs: m.SilenceMillis,
		Groups: []admin.Group{}, Local: local,
	}
	if u, err := url.Parse(m.ClientURL); err == nil {
		n.Address = u.Host
	}
	if status == nil {
		return n
	}
	n.Connections, n.Memory, n.Uptime, n.Version = &status.Connections, &status.MemoryBytes, &status.UptimeSeconds, status.Version
	for i := range status.Groups {
		g := &status.Groups[i]
		n.Groups = append(n.Groups, admin.Group{
			ID: g.Group, Role: g.Role, Term: g.Term, Leader: nodeOf(g.Leader), CommitIndex: g.CommitIndex, AppliedIndex: g.AppliedIndex,
			FlushedIndex: g.FlushedIndex, LagEntries: g.Lag, Voters: nodesOf(g.Voters), LastContactMs: g.LastContactMillis,
		})
		if g.Group == raftnode.SystemGroup {
			n.Role, n.Term, n.CommitIndex, n.AppliedIndex, n.LagEntries = g.Role, g.Term, g.CommitIndex, g.AppliedIndex, &g.Lag
		}
	}
	return n
}

// nodeOf is the node id of a server id.
func nodeOf(serverID string) string {
	for i := range len(serverID) {
		if serverID[i] == '#' {
			return serverID[:i]
		}
	}
	return serverID
}

func nodesOf(serverIDs []string) []string {
	list := make([]string, len(serverIDs))
	for i, id := range serverIDs {
		list[i] = nodeOf(id)
	}
	return list
}

// Drain implements admin.Cluster.
func (o operators) Drain(ctx context.Context, nodeID string) error {
	return o.command(ctx, nodeID, methodDrain, func(*Node) error {
		o.s.askDrain()
		return nil
	})
}

// Remove implements admin.Cluster. Leaving goes on when ctx ends.
func (o operators) Remove(ctx context.Context, nodeID string) error {
	node, status := o.s.current(), o.s.Status()
	if status == nil {
		return admin.ErrUnknownNode
	}
	members := status.live()
	if i := slices.IndexFunc(members, func(m MemberStatus) bool { return m.NodeID == nodeID && m.Status == "failed" }); i >= 0 {
		if err := node.agent.Expel(ctx, raftnode.ServerID(members[i].ServerID)); err != nil {
			return &admin.NodeError{NodeID: nodeID, Err: err}
		}
		return nil
	}
	err := o.command(ctx, nodeID, methodLeave, func(node *Node) error { return node.Leave(ctx) })
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, mux.ErrNoReply) && o.awaitGone(ctx, node, nodeID) {
		return nil
	}
	return err
}

// awaitGone waits until no node has an id any more, and reports whether that came before ctx
// ended. Connections to a node that has left are closed, which overtakes its answer.
func (o operators) awaitGone(ctx context.Context, node *Node, nodeID string) bool {
	changed, cancel := node.Agent().Subscribe()
	defer cancel()
	for {
		status := node.Status()
		if !slices.ContainsFunc(status.live(), func(m MemberStatus) bool { return m.NodeID == nodeID }) {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// Transfer implements admin.Cluster.
func (o operators) Transfer(ctx context.Context, group uint32, nodeID string) (admin.Transferred, error) {
	node := o.s.current()
	if node == nil {
		return admin.Transferred{}, admin.ErrUnknownGroup
	}
	done, err := node.TransferLeadership(ctx, group, nodeID)
	switch {
	case errors.Is(err, ErrNoGroup):
		return admin.Transferred{}, admin.ErrUnknownGroup
	case errors.Is(err, ErrTransferUnknown):
		return admin.Transferred{}, fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	case err != nil:
		return admin.Transferred{}, fmt.Errorf("%w: %w", admin.ErrNoTransfer, err)
	}
	return admin.Transferred{Group: done.Group, From: nodeOf(done.From), To: nodeOf(done.To), Term: done.Term}, nil
}

// command has a live node do something: this one by do, another one by a call.
func (o operators) command(ctx context.Context, nodeID string, method mux.Method, do func(*Node) error) error {
	node, status := o.s.current(), o.s.Status()
	if status == nil {
		return admin.ErrUnknownNode
	}
	members := status.live()
	i := slices.IndexFunc(members, func(m MemberStatus) bool { return m.NodeID == nodeID && m.Status != "failed" })
	if i < 0 {
		return admin.ErrUnknownNode
	}
	var err error
	if members[i].ServerID == status.ServerID {
		err = do(node)
	} else {
		_, err = node.Mux().Call(ctx, raftnode.ServerID(members[i].ServerID), method, nil)
	}
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		if errors.Is(err, membership.ErrLastMember) {
			err = membership.ErrLastMember
		}
		return &admin.NodeError{NodeID: nodeID, Err: err}
	}
	return err
}

// memoryBytes is what the process holds of the system's memory.
func memoryBytes() uint64 {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64() - samples[1].Value.Uint64()
}
