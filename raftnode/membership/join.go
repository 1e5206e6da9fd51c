package membership

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/system"
	"github.com/quorate/quorate/raftnode"
	"github.com/quorate/quorate/raftnode/mux"
)

// maxHops bounds how often a request follows a hint to the system leader.
const maxHops = 3

// duplicateWatch measures how long this node's id has been in use elsewhere.
type duplicateWatch struct {
	since time.Time
}

// join asks the cluster that the answers lead into for membership. False without
// an error: not now, try again. Errors: *DuplicateError, *RefusedError, and those
// of the store or of starting the system group.
func (a *Agent) join(ctx context.Context, members []answer, duplicate *duplicateWatch) (bool, error) {
	for _, m := range members {
		reply, err := a.askToJoin(ctx, m.target)
		if err == nil {
			return true, a.admitted(reply)
		}
		if other, ok := refusedWith(err, codeDuplicate); ok {
			dup := &DuplicateError{NodeID: a.cfg.NodeID, Addr: a.deps.Mux.Addr(), OtherAddr: other}
			return false, duplicate.look(dup, a.cfg.Timing.DuplicatePatience, time.Now())
		}
		if _, ok := refusedWith(err, codeRemoved); ok {
			return false, &RefusedError{Reason: "this node was removed from the cluster", Err: err}
		}
		a.log.Debug("not admitted yet", "by", m.target, "err", err)
	}
	*duplicate = duplicateWatch{}
	return false, nil
}

// look returns err once the id has been in use for the whole patience.
func (w *duplicateWatch) look(err *DuplicateError, patience time.Duration, now time.Time) error {
	if w.since.IsZero() {
		w.since = now
	}
	if now.Sub(w.since) < patience {
		return nil
	}
	return err
}

// askToJoin sends the request to addr, and on to the leader where it is told to.
func (a *Agent) askToJoin(ctx context.Context, addr string) (joinReply, error) {
	body := encode(joinRequest{ID: a.id, NodeID: a.cfg.NodeID, Addr: a.deps.Mux.Addr(), ClientURL: a.cfg.ClientURL})
	reply, err := a.askLeader(ctx, addr, methodJoin, body)
	if err != nil {
		return joinReply{}, err
	}
	return decode[joinReply](reply)
}

// askLeader calls a method of the system leader, starting at addr.
func (a *Agent) askLeader(ctx context.Context, addr string, method mux.Method, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Timing.ChangeTimeout)
	defer cancel()
	for range maxHops {
		reply, _, err := a.deps.Mux.CallAddr(ctx, addr, method, body)
		next, elsewhere := refusedWith(err, codeNotLeader)
		if !elsewhere {
			return reply, err
		}
		if next == "" || next == addr {
			break
		}
		addr = next
	}
	return nil, errNoLeader
}

// admitted makes the membership durable and starts to follow the system group.
func (a *Agent) admitted(reply joinReply) error {
	if reply.ClusterID == "" {
		return errors.New("join: reply without a cluster id")
	}
	a.former.close()
	a.setPhase(PhaseJoining)
	if err := a.setAddrs(reply.Members); err != nil {
		return err
	}
	rec := a.record()
	rec.ClusterID, rec.Addr = reply.ClusterID, a.deps.Mux.Addr()
	if err := a.setRecord(rec); err != nil {
		return err
	}
	a.deps.Mux.SetClusterID(rec.ClusterID)
	a.learnAddrs(reply.Members)
	a.log.Info("joining cluster", "cluster", rec.ClusterID)
	return a.startGroup(raftnode.SystemGroup, nil)
}

// handleJoin admits a node, on the system leader.
func (a *Agent) handleJoin(ctx context.Context, from mux.Peer, body []byte) ([]byte, error) {
	req, err := decode[joinRequest](body)
	if err != nil {
		return nil, err
	}
	if req.ID == "" || req.ID != from.ID || req.NodeID != from.NodeID {
		return nil, &mux.RemoteError{Code: codeMalformed, Text: "a node can only ask for itself"}
	}
	// One at a time: two nodes with one id must not be admitted side by side.
	select {
	case a.admitting <- struct{}{}:
		defer func() { <-a.admitting }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	state, err := a.leading()
	if err != nil {
		return nil, err
	}
	if m, known := state.Member(string(req.ID)); known {
		if m.Status == system.StatusRemoved {
			return nil, &mux.RemoteError{Code: codeRemoved, Text: "removed"}
		}
		return a.admit()
	}
	for _, m := range state.Members {
		if m.NodeID != req.NodeID || m.Status == system.StatusRemoved {
			continue
		}
		if err := a.retire(ctx, m, req); err != nil {
			return nil, err
		}
	}
	m := system.Member{
		ID: string(req.ID), NodeID: req.NodeID, PeerAddr: req.Addr, ClientURL: req.ClientURL,
		Status: system.StatusJoining, SinceMillis: a.deps.Physical(),
	}
	if err := a.commit(ctx, command.EncodeMemberPut(0, m)); err != nil {
		return nil, &mux.RemoteError{Code: codeNotReady, Text: err.Error()}
	}
	a.log.Info("node admitted", "node", m.ID, "addr", m.PeerAddr)
	a.wake()
	return a.admit()
}

func (a *Agent) admit() ([]byte, error) {
	return encode(joinReply{ClusterID: a.record().ClusterID, Members: a.reachable(time.Now())}), nil
}

// retire takes old, a previous life of the node that asks, out of the cluster for
// good. It is refused while old may be alive.
func (a *Agent) retire(ctx context.Context, old system.Member, req joinRequest) error {
	id := raftnode.ServerID(old.ID)
	if id == a.id {
		return &mux.RemoteError{Code: codeDuplicate, Text: a.deps.Mux.Addr()}
	}
	callCtx, cancel := context.WithTimeout(ctx, a.cfg.Timing.CallTimeout)
	_, err := a.ping(callCtx, id)
	cancel()
	if err == nil {
		addr, _ := a.deps.Mux.PeerAddr(id)
		return &mux.RemoteError{Code: codeDuplicate, Text: addr}
	}
	// A process that took over the address is the proof that the old one is gone.
	var refused *mux.RefusedError
	replaced := errors.As(err, &refused) && refused.Code == mux.RefusedWrongTarget && refused.By.ID == req.ID
	if silence := a.peers.detector.silence(old.ID, time.Now()); !replaced && silence < a.cfg.Timing.SuspectAfter {
		return &mux.RemoteError{Code: codeNotReady, Text: fmt.Sprintf("%s was alive %s ago", old.ID, silence)}
	}
	removed := old
	removed.Status, removed.SinceMillis = system.StatusRemoved, a.deps.Physical()
	if err := a.commit(ctx, command.EncodeMemberPut(old.Version, removed)); err != nil {
		return &mux.RemoteError{Code: codeNotReady, Text: err.Error()}
	}
	a.log.Info("node came back without its data, its old identity is removed", "node", old.ID, "successor", req.ID)
	return nil
}

// leading returns the documents if this node is the system leader. Otherwise its
// error is the *mux.RemoteError that tells a caller where to go.
func (a *Agent) leading() (*system.State, error) {
	g, ok := a.deps.Host.Group(raftnode.SystemGroup)
	if !ok {
		return nil, &mux.RemoteError{Code: codeNotLeader}
	}
	if g.IsLeader() {
		if state := documents(g); state != nil {
			return state, nil
		}
	}
	leader, _ := g.Leader()
	if leader == a.id {
		leader = ""
	}
	addr, _ := a.deps.Mux.PeerAddr(leader)
	return nil, &mux.RemoteError{Code: codeNotLeader, Text: addr}
}

// commit proposes commands to the system group and waits until they are applied
// here. It fails as well when one of them was refused, because the document that
// it was computed from has changed.
func (a *Agent) commit(ctx context.Context, cmds ...raftnode.Command) error {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Timing.ChangeTimeout)
	defer cancel()
	p, err := a.deps.Host.Propose(raftnode.SystemGroup, cmds)
	if err != nil {
		return fmt.Errorf("propose to the system group: %w", err)
	}
	results, err := p.Wait(ctx)
	if err != nil {
		return fmt.Errorf("propose to the system group: %w", err)
	}
	for _, r := range results {
		if r.Code != 0 {
			return fmt.Errorf("system group refused: %s", r.Reason)
		}
	}
	return nil
}
