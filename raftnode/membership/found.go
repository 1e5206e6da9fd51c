package membership

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/system"
	"github.com/quorate/quorate/raftnode"
)

// found creates the cluster with this node as its only member. Every step can be
// repeated: the cluster's id is durable before the first group exists, groups are
// created only where there is neither log nor state, and the node counts itself a
// member, lets others join and may never create groups again only when all exist.
func (a *Agent) found(ctx context.Context) error {
	a.former.close()
	a.setPhase(PhaseForming)
	rec := a.record()
	if rec.Founding == "" {
		rec.Founding, rec.Groups = randomHex(16), a.cfg.Groups
		if err := a.setRecord(rec); err != nil {
			return err
		}
	}
	// All groups are created at once, so that their elections run side by side.
	for g := range rec.Groups + 1 {
		if err := a.startGroup(g, a.alone()); err != nil {
			return err
		}
	}
	if err := a.writeGenesis(ctx, rec); err != nil {
		return err
	}
	a.log.Info("cluster founded", "cluster", rec.Founding, "groups", rec.Groups)
	rec.ClusterID, rec.Founding, rec.Groups, rec.Addr = rec.Founding, "", 0, a.deps.Mux.Addr()
	if err := a.setRecord(rec); err != nil {
		return err
	}
	a.deps.Mux.SetClusterID(rec.ClusterID)
	return nil
}

// alone is the first configuration of every group.
func (a *Agent) alone() []raft.Server {
	return []raft.Server{{Suffrage: raft.Voter, ID: a.id, Address: raft.ServerAddress(a.id)}}
}

// writeGenesis commits the first documents, unless an earlier start did.
func (a *Agent) writeGenesis(ctx context.Context, rec identityRecord) error {
	for {
		g, ok := a.deps.Host.Group(raftnode.SystemGroup)
		if !ok {
			return fmt.Errorf("found cluster: %w", raftnode.ErrNotHere)
		}
		if g.IsLeader() {
			if documents(g) != nil {
				return nil
			}
			err := a.commit(ctx, a.firstDocuments(rec)...)
			if err == nil {
				continue
			}
			a.log.Warn("cluster documents not written yet", "err", err)
		}
		if err := sleep(ctx, a.cfg.Timing.StepInterval, a.deps.Host.LeaderChanges()); err != nil {
			return err
		}
	}
}

func (a *Agent) firstDocuments(rec identityRecord) []raftnode.Command {
	now := a.deps.Physical()
	self := system.Member{
		ID: string(a.id), NodeID: a.cfg.NodeID, PeerAddr: a.deps.Mux.Addr(), ClientURL: a.cfg.ClientURL,
		Status: system.StatusActive, SinceMillis: now,
	}
	genesis := system.Genesis{
		ClusterID: rec.Founding, Groups: rec.Groups, ReplicationFactor: a.cfg.ReplicationFactor,
		Founder: string(a.id), CreatedMillis: now,
	}
	table := system.Table{Groups: a.deps.Place([]system.Member{self}, rec.Groups, a.cfg.ReplicationFactor, nil)}
	return []raftnode.Command{
		command.EncodeGenesis(genesis), command.EncodeMemberPut(0, self), command.EncodeTablePut(0, table),
	}
}

// resume starts the groups of a member from its disk. Groups that it should hold
// and has nothing of start when the documents are known.
func (a *Agent) resume(ctx context.Context) error {
	if err := a.ensureAlone(ctx); err != nil {
		return err
	}
	a.setPhase(PhaseJoining)
	var addrs peerAddrs
	if _, err := loadDocument(a.deps.Identity, peersDocument, &addrs); err != nil {
		return err
	}
	a.mu.Lock()
	a.addrs = addrs
	a.mu.Unlock()
	if err := a.ensureCurrent(ctx, addrs); err != nil {
		return err
	}
	a.learnAddrs(addrs)
	a.log.Info("resuming", "cluster", a.record().ClusterID)
	if err := a.startGroup(raftnode.SystemGroup, nil); err != nil {
		return err
	}
	if a.deps.Stored == nil {
		return nil
	}
	for _, g := range a.deps.Stored() {
		if err := a.startGroup(g, nil); err != nil {
			return err
		}
	}
	return nil
}

// ensureAlone checks, before a replica starts, that no other process runs with a
// copy of this node's data: it would still answer at the address that the data was
// used at last. Its error is *DuplicateError when that does not end.
func (a *Agent) ensureAlone(ctx context.Context) error {
	rec := a.record()
	var duplicate duplicateWatch
	for rec.Addr != "" && rec.Addr != a.deps.Mux.Addr() {
		found := a.hello(ctx, []string{rec.Addr})[0]
		if err := ctx.Err(); err != nil {
			return err
		}
		if found.err != nil || found.hello.Node.ID != string(a.id) || found.hello.Boot == a.boot {
			break
		}
		dup := &DuplicateError{NodeID: a.cfg.NodeID, Addr: a.deps.Mux.Addr(), OtherAddr: rec.Addr}
		if err := duplicate.look(dup, a.cfg.Timing.DuplicatePatience, time.Now()); err != nil {
			return err
		}
		if err := sleep(ctx, a.cfg.Timing.HelloInterval, nil); err != nil {
			return err
		}
	}
	if rec.Addr == a.deps.Mux.Addr() {
		return nil
	}
	rec.Addr = a.deps.Mux.Addr()
	return a.setRecord(rec)
}

// documents returns the cluster documents in the system group's replica, nil before
// there are any.
func documents(g *raftnode.Group) *system.State {
	holder, ok := g.Machine().(interface{ Cluster() *system.State })
	if !ok {
		return nil
	}
	state := holder.Cluster()
	if state == nil || state.Genesis == nil {
		return nil
	}
	return state
}
