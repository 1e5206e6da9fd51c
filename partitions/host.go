package partitions

import (
	"context"

	"github.com/quorate/quorate/partitions/mirror"
	"github.com/quorate/quorate/raftnode"
)

// HostGroups adapts a raft host to Groups.
type HostGroups struct {
	Host *raftnode.Host
}

// Propose implements Groups.
func (h HostGroups) Propose(group uint32, cmds []raftnode.Command) (raftnode.Proposal, error) {
	return h.Host.Propose(group, cmds)
}

// Leader implements Groups.
func (h HostGroups) Leader(group uint32) (id raftnode.ServerID, term uint64) {
	g, ok := h.Host.Group(group)
	if !ok {
		return "", 0
	}
	return g.Leader()
}

// Term implements Groups.
func (h HostGroups) Term(group uint32) (term uint64, leads bool) {
	g, ok := h.Host.Group(group)
	if !ok {
		return 0, false
	}
	return g.Leads()
}

// WaitApplied implements Groups.
func (h HostGroups) WaitApplied(ctx context.Context, group uint32, index uint64) error {
	g, ok := h.Host.Group(group)
	if !ok {
		return raftnode.ErrNotHere
	}
	return g.WaitApplied(ctx, index)
}

// Source implements mirror.Groups.
func (h HostGroups) Source(group uint32) (mirror.Replica, bool) {
	g, ok := h.Host.Group(group)
	if !ok {
		return nil, false
	}
	replica, ok := g.Machine().(mirror.Replica)
	return replica, ok
}

// Replica implements Groups.
func (h HostGroups) Replica(group uint32) (Replica, bool) {
	g, ok := h.Host.Group(group)
	if !ok || !g.Votes() {
		return nil, false
	}
	replica, ok := g.Machine().(Replica)
	return replica, ok
}
