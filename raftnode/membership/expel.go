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

// expelRequest names the dead member to take out.
type expelRequest struct {
	ID raftnode.ServerID `json:"id"`
}

// Expel takes a member that is dead out of the cluster for good: the others take its
// replicas over, and its server id can never return. It blocks until that is decided, or ctx
// ends; the cluster then goes on with it. Errors: ErrNoCluster, ErrNotAMember, ErrAlive and
// ErrLastMember (nothing was decided), or the context's.
func (a *Agent) Expel(ctx context.Context, id raftnode.ServerID) error {
	if a.State() == nil {
		return ErrNoCluster
	}
	for {
		err := a.askToExpel(ctx, id)
		if err == nil {
			return nil
		}
		for code, final := range map[uint16]error{codeLastMember: ErrLastMember, codeNotAMember: ErrNotAMember, codeAlive: ErrAlive} {
			if _, refused := refusedWith(err, code); refused {
				return final
			}
		}
		if sleepErr := sleep(ctx, a.cfg.Timing.StepInterval, nil); sleepErr != nil {
			return fmt.Errorf("expel %s: %w", id, errors.Join(sleepErr, err))
		}
	}
}

func (a *Agent) askToExpel(ctx context.Context, id raftnode.ServerID) error {
	req := expelRequest{ID: id}
	err := a.expel(ctx, req)
	if addr, elsewhere := refusedWith(err, codeNotLeader); elsewhere && addr != "" {
		_, err = a.askLeader(ctx, addr, methodExpel, encode(req))
	}
	return err
}

func (a *Agent) handleExpel(ctx context.Context, _ mux.Peer, body []byte) ([]byte, error) {
	req, err := decode[expelRequest](body)
	if err != nil {
		return nil, err
	}
	return nil, a.expel(ctx, req)
}

// expel marks a dead member as leaving, on the system leader. The rest follows from the
// mark: see govern and reconcile.
func (a *Agent) expel(ctx context.Context, req expelRequest) error {
	state, err := a.leading()
	if err != nil {
		return err
	}
	m, known := state.Member(string(req.ID))
	switch {
	case !known:
		return &mux.RemoteError{Code: codeNotAMember, Text: "unknown server id"}
	case m.Status == system.StatusRemoved || m.Status == system.StatusLeaving:
		return nil
	case m.Status != system.StatusFailed:
		return &mux.RemoteError{Code: codeAlive, Text: "the member is not dead"}
	case a.peers.detector.silence(m.ID, time.Now()) < a.cfg.Timing.SuspectAfter:
		// It came back, or this leader has not listened for long enough to tell.
		return &mux.RemoteError{Code: codeNotReady, Text: "the member may be alive"}
	case !othersRemain(state, m.ID):
		return &mux.RemoteError{Code: codeLastMember, Text: "no other member is in place"}
	}
	m.Status, m.SinceMillis = system.StatusLeaving, a.deps.Physical()
	if err := a.commit(ctx, command.EncodeMemberPut(m.Version, m)); err != nil {
		return &mux.RemoteError{Code: codeNotReady, Text: err.Error()}
	}
	a.log.Warn("dead member is expelled", "node", m.ID)
	a.wake()
	return nil
}
