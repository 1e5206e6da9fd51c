package membership

import (
	"context"
	"slices"
	"time"

	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/system"
	"github.com/quorate/quorate/raftnode"
)

// govern keeps the cluster documents true while this node leads the system group.
func (a *Agent) govern(ctx context.Context) error {
	for {
		if state, err := a.leading(); err == nil {
			a.amend(ctx, state)
		}
		if err := sleep(ctx, a.cfg.Timing.StepInterval, a.wakes[loopGovern]); err != nil {
			return err
		}
	}
}

// amend commits the changes that the documents need. Failures are normal where
// leadership or a document changes meanwhile, and decided anew after a pause.
func (a *Agent) amend(ctx context.Context, state *system.State) {
	cmds := a.decide(state)
	if len(cmds) == 0 {
		return
	}
	if err := a.commit(ctx, cmds...); err != nil {
		a.log.Debug("documents not changed", "err", err)
		return
	}
	a.wake()
}

// decide compares the documents with what is seen and returns the changes.
func (a *Agent) decide(state *system.State) []raftnode.Command {
	var cmds []raftnode.Command
	seen := a.survey(state)
	table, _ := planTable(state, a.placeable(state, seen), a.deps.Place, seen.leaders)
	next := *state
	next.Members = slices.Clone(state.Members)
	for i, m := range state.Members {
		// A newcomer is in place when it holds what it is about to be given, not
		// while it has been given nothing.
		now, changed := a.decideMember(m, table.Groups, seen)
		if !changed {
			continue
		}
		a.log.Info("member changes", "node", m.ID, "from", m.Status, "to", now.Status, "addr", now.PeerAddr)
		cmds = append(cmds, command.EncodeMemberPut(m.Version, now))
		next.Members[i] = now
	}
	// The statuses decide about the leaders that the table prefers.
	table, changed := planTable(&next, a.placeable(&next, seen), a.deps.Place, seen.leaders)
	if changed {
		cmds = append(cmds, command.EncodeTablePut(state.Table.Version, table))
	}
	return cmds
}

// survey is what the cluster's replicas report.
type survey struct {
	// leaders are the data groups' leaders, confs the configurations as their
	// leaders report them, the system group's included.
	leaders map[uint32]leadership
	confs   map[uint32]groupReport
}

// survey gathers the newest report on every group.
func (a *Agent) survey(state *system.State) survey {
	s := survey{leaders: map[uint32]leadership{}, confs: map[uint32]groupReport{}}
	s.add(a.id, a.describe().Groups)
	now := time.Now()
	for id, p := range a.peers.all() {
		if m, known := state.Member(string(id)); known && m.Status != system.StatusRemoved &&
			now.Sub(p.at) < a.cfg.Timing.SuspectAfter {
			s.add(id, p.ping.Groups)
		}
	}
	return s
}

func (s survey) add(by raftnode.ServerID, reports []groupReport) {
	for _, r := range reports {
		if r.Group != raftnode.SystemGroup && r.Leader != "" && r.Term >= s.leaders[r.Group].term {
			s.leaders[r.Group] = leadership{string(r.Leader), r.Term}
		}
		if r.Leader == by && len(r.Voters) > 0 && r.Term >= s.confs[r.Group].Term {
			s.confs[r.Group] = r
		}
	}
}

// decideMember returns the document that m should have, and whether it differs.
func (a *Agent) decideMember(m system.Member, plan []system.Placement, seen survey) (system.Member, bool) {
	if m.Status == system.StatusRemoved {
		return m, false
	}
	now := m
	var silence time.Duration
	if m.ID == string(a.id) {
		now.PeerAddr, now.ClientURL = a.deps.Mux.Addr(), a.cfg.ClientURL
	} else {
		silence = a.peers.detector.silence(m.ID, time.Now())
		if p, met := a.peers.get(raftnode.ServerID(m.ID)); met && p.ping.Addr != "" {
			now.PeerAddr, now.ClientURL = p.ping.Addr, p.ping.ClientURL
		}
	}
	now.Status = a.cfg.Timing.statusAfter(m.Status, silence, seen.settled(plan, m.ID))
	if m.Status == system.StatusLeaving && seen.vacated(plan, m.ID) {
		now.Status = system.StatusRemoved
	}
	if now == m {
		return m, false
	}
	if now.Status != m.Status {
		now.SinceMillis = a.deps.Physical()
	}
	return now, true
}

// settled reports whether every group that is placed on id has given it its vote,
// and the system group follows it.
func (s survey) settled(plan []system.Placement, id string) bool {
	conf := s.confs[raftnode.SystemGroup]
	if !containsID(conf.Voters, raftnode.ServerID(id)) && !containsID(conf.Nonvoters, raftnode.ServerID(id)) {
		return false
	}
	for i, p := range plan {
		if slices.Contains(p.Voters, id) && !containsID(s.confs[uint32(i)+1].Voters, raftnode.ServerID(id)) {
			return false
		}
	}
	return true
}

// vacated reports whether id holds no data group any more. A group whose leader is
// not known may still have it.
func (s survey) vacated(plan []system.Placement, id string) bool {
	for i, p := range plan {
		conf, known := s.confs[uint32(i)+1]
		if !known || slices.Contains(p.Voters, id) ||
			containsID(conf.Voters, raftnode.ServerID(id)) || containsID(conf.Nonvoters, raftnode.ServerID(id)) {
			return false
		}
	}
	return true
}

// placeable are the members that replicas may be placed on: the candidates, but a
// newcomer only when it follows the system group, and so can learn of it. One that
// is silent for a short while only is placed as if it were not: leaderships should
// not move back and forth for a pause.
func (a *Agent) placeable(state *system.State, seen survey) []system.Member {
	nodes := a.candidates(state)
	conf := seen.confs[raftnode.SystemGroup]
	for i := range nodes {
		if nodes[i].Status == system.StatusSuspect {
			nodes[i].Status = system.StatusActive
		}
	}
	return slices.DeleteFunc(nodes, func(m system.Member) bool {
		id := raftnode.ServerID(m.ID)
		return m.Status == system.StatusJoining && !containsID(conf.Voters, id) && !containsID(conf.Nonvoters, id)
	})
}

// candidates applies this node's view of which members are dead.
func (a *Agent) candidates(state *system.State) []system.Member {
	now := time.Now()
	return candidates(state.Members, state.Genesis.ReplicationFactor, func(id string) bool {
		return id != string(a.id) && a.peers.detector.silence(id, now) >= a.cfg.Timing.ReplaceDeadAfter
	})
}

func contains(ids []string, id raftnode.ServerID) bool { return slices.Contains(ids, string(id)) }

func containsID(ids []raftnode.ServerID, id raftnode.ServerID) bool { return slices.Contains(ids, id) }
