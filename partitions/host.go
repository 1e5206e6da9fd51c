package partitions

import (
	"context"

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
func (h HostGroups) Leader(group uint32) raftnode.ServerID {
	g, ok := h.Host.Group(group)
	if !ok {
		return ""
	}
	id, _ := g.Leader()
	return id
}

// Term implements Groups.
func (h HostGroups) Term(group uint32) (term uint64, leads bool) {
	g, ok := h.Host.Group(group)
	if !ok || !g.IsLeader() {
		return 0, false
	}
	_, term = g.Leader()
	return term, true
}

// WaitApplied implements Groups.
func (h HostGroups) WaitApplied(ctx context.Context, group uint32, index uint64) error {
	g, ok := h.Host.Group(group)
	if !ok {
		return raftnode.ErrNotHere
	}
	return g.WaitApplied(ctx, index)
}

// Reader implements Groups.
func (h HostGroups) Reader(group uint32) (Reader, bool) {
	g, ok := h.Host.Group(group)
	if !ok {
		return nil, false
	}
	reader, ok := g.Machine().(Reader)
	return reader, ok
}
