package membership

import (
	"context"
	"errors"
	"fmt"

	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/system"
	"github.com/quorate/quorate/raftnode/mux"
)

// Leave takes this node out of the cluster for good: its replicas move to other
// members, then its server id is removed and can never return. It blocks until that
// is done or ctx ends; in the latter case the cluster goes on with it. Run returns
// nil afterwards. Errors: ErrNoCluster, ErrLastMember, or the context's.
func (a *Agent) Leave(ctx context.Context) error {
	if a.State() == nil {
		return ErrNoCluster
	}
	a.mu.Lock()
	a.leaving = true
	a.mu.Unlock()
	for {
		removed, err := a.askToLeave(ctx)
		if _, last := refusedWith(err, codeLastMember); last {
			a.mu.Lock()
			a.leaving = false
			a.mu.Unlock()
			return ErrLastMember
		}
		var refused *mux.RefusedError
		if removed || errors.As(err, &refused) && refused.Code == mux.RefusedRemoved {
			a.log.Info("left the cluster")
			return nil
		}
		if m, _ := a.State().Member(string(a.id)); m.Status == system.StatusRemoved {
			return nil
		}
		if err := sleep(ctx, a.cfg.Timing.StepInterval, nil); err != nil {
			return fmt.Errorf("leave the cluster: %w", err)
		}
	}
}

func (a *Agent) askToLeave(ctx context.Context) (removed bool, err error) {
	req := leaveRequest{ID: a.id}
	reply, err := a.leave(ctx, req)
	if addr, elsewhere := refusedWith(err, codeNotLeader); elsewhere && addr != "" {
		var body []byte
		if body, err = a.askLeader(ctx, addr, methodLeave, encode(req)); err == nil {
			reply, err = decode[leaveReply](body)
		}
	}
	return reply.Removed, err
}

func (a *Agent) handleLeave(ctx context.Context, from mux.Peer, body []byte) ([]byte, error) {
	req, err := decode[leaveRequest](body)
	if err != nil {
		return nil, err
	}
	if req.ID != from.ID {
		return nil, &mux.RemoteError{Code: codeMalformed, Text: "a node can only leave by itself"}
	}
	reply, err := a.leave(ctx, req)
	if err != nil {
		return nil, err
	}
	return encode(reply), nil
}

// leave marks a member as leaving, on the system leader, and reports how far it is.
// The rest follows from the mark: see govern and reconcile.
func (a *Agent) leave(ctx context.Context, req leaveRequest) (leaveReply, error) {
	state, err := a.leading()
	if err != nil {
		return leaveReply{}, err
	}
	m, known := state.Member(string(req.ID))
	switch {
	case !known:
		return leaveReply{}, &mux.RemoteError{Code: codeNotAMember, Text: "unknown server id"}
	case m.Status == system.StatusRemoved:
		return leaveReply{Removed: true}, nil
	case m.Status == system.StatusLeaving:
		return leaveReply{}, nil
	case !othersRemain(state, m.ID):
		return leaveReply{}, &mux.RemoteError{Code: codeLastMember, Text: "no other member is in place"}
	}
	m.Status, m.SinceMillis = system.StatusLeaving, a.deps.Physical()
	if err := a.commit(ctx, command.EncodeMemberPut(m.Version, m)); err != nil {
		return leaveReply{}, &mux.RemoteError{Code: codeNotReady, Text: err.Error()}
	}
	a.log.Info("member leaves", "node", m.ID)
	a.wake()
	return leaveReply{}, nil
}

// othersRemain reports whether a member other than id can take its data.
func othersRemain(state *system.State, id string) bool {
	for _, m := range state.Members {
		if m.ID != id && m.Status == system.StatusActive {
			return true
		}
	}
	return false
}
