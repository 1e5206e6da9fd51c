package quorate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/quorate/quorate/raftnode"
	"github.com/quorate/quorate/raftnode/mux"
)

// Transfer is a leadership that was handed over.
type Transfer struct {
	Group uint32 `json:"group"`
	// From and To are the server ids of the leaders before and after, Term is that of
	// the latter. They are equal when the wanted node led already.
	From string `json:"from"`
	To   string `json:"to"`
	Term uint64 `json:"term"`
}

// transferRequest is the body of methodTransfer.
type transferRequest struct {
	Group uint32 `json:"group"`
	// Node is a node id or a server id, empty for any caught-up voter.
	Node string `json:"node"`
	// Hops counts the nodes that have passed the request on.
	Hops int `json:"hops,omitempty"`
}

const (
	// maxTransferHops bounds how often a request follows what a node believes about
	// the leader.
	maxTransferHops = 2
	// transferPoll is how often a node looks for the leader that follows it.
	transferPoll = 10 * time.Millisecond
	// transferPatience is how long it looks.
	transferPatience = 5 * time.Second
)

// transferCodes are the refusals of a transfer on the peer port. The numbers are part
// of the peer protocol.
var transferCodes = []struct {
	code uint16
	err  error
}{
	{mux.FirstFreeCode + 64, ErrNoGroup},
	{mux.FirstFreeCode + 65, ErrNoLeader},
	{mux.FirstFreeCode + 66, ErrNotVoter},
	{mux.FirstFreeCode + 67, ErrLagging},
	{mux.FirstFreeCode + 68, ErrTransferTried},
	{mux.FirstFreeCode + 69, ErrTransferUnknown},
}

// TransferLeadership hands the leadership of a group to a node, or to any caught-up
// voter if node is empty. Any node takes the call. It returns when the next leader is
// known. Errors wrap ErrNoGroup, ErrNoLeader, ErrNotVoter, ErrLagging,
// ErrTransferTried (nothing was begun) or ErrTransferUnknown.
func (n *Node) TransferLeadership(ctx context.Context, group uint32, node string) (*Transfer, error) {
	return n.transfer(ctx, transferRequest{Group: group, Node: node})
}

func (n *Node) transfer(ctx context.Context, req transferRequest) (*Transfer, error) {
	if state := n.agent.State(); state == nil || int(req.Group) > len(state.Table.Groups) {
		return nil, fmt.Errorf("group %d: %w", req.Group, ErrNoGroup)
	}
	g, here := n.host.Group(req.Group)
	if here && g.IsLeader() {
		return n.handOver(ctx, g, req.Node)
	}
	leader := n.leaderOf(req.Group)
	if leader == "" || leader == n.cfg.Raft.ID || req.Hops >= maxTransferHops {
		return nil, fmt.Errorf("group %d: %w", req.Group, ErrNoLeader)
	}
	req.Hops++
	body, err := json.Marshal(req)
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	reply, err := n.mux.Call(ctx, leader, methodTransfer, body)
	if err != nil {
		return nil, transferError(err)
	}
	done := new(Transfer)
	if err := json.Unmarshal(reply, done); err != nil {
		return nil, fmt.Errorf("decode answer of %s: %w: %w", leader, ErrTransferUnknown, err)
	}
	return done, nil
}

// leaderOf is the leader of a group as this node's replica knows it, or as the
// partition table does.
func (n *Node) leaderOf(group uint32) raftnode.ServerID {
	if g, here := n.host.Group(group); here {
		if id, _ := g.Leader(); id != "" {
			return id
		}
	}
	if group == raftnode.SystemGroup {
		return ""
	}
	return raftnode.ServerID(n.agent.State().Table.Groups[group-1].Leader)
}

// handOver gives the leadership that this node has to a node.
func (n *Node) handOver(ctx context.Context, g *raftnode.Group, node string) (*Transfer, error) {
	self := n.cfg.Raft.ID
	term, _ := g.Leads()
	to, err := voterOf(g, node)
	if err != nil {
		return nil, fmt.Errorf("group %d: %w", g.ID(), err)
	}
	if to == self {
		return &Transfer{Group: g.ID(), From: string(self), To: string(self), Term: term}, nil
	}
	if err := g.TransferLeadership(ctx, to); err != nil {
		return nil, classifyTransfer(err)
	}
	ctx, cancel := context.WithTimeout(ctx, transferPatience)
	defer cancel()
	poll := time.NewTicker(transferPoll)
	defer poll.Stop()
	for {
		if now := g.Leadership(); now.Term > term && now.Leader != "" {
			return &Transfer{Group: g.ID(), From: string(self), To: string(now.Leader), Term: now.Term}, nil
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("group %d has no leader yet: %w: %w", g.ID(), ErrTransferUnknown, ctx.Err())
		}
	}
}

// voterOf finds the voter of a group that an operator names; none is named by "".
func voterOf(g *raftnode.Group, node string) (raftnode.ServerID, error) {
	if node == "" {
		return "", nil
	}
	for _, id := range g.Status().Voters {
		if name, _, _ := strings.Cut(string(id), "#"); string(id) == node || name == node {
			return id, nil
		}
	}
	return "", fmt.Errorf("%s: %w", node, ErrNotVoter)
}

// classifyTransfer gives an error of the group the meaning that operators act on.
func classifyTransfer(err error) error {
	var notLeader *raftnode.NotLeaderError
	class := ErrTransferUnknown
	switch {
	case errors.As(err, &notLeader):
		class = ErrNoLeader
	case errors.Is(err, raftnode.ErrNotVoter):
		class = ErrNotVoter
	case errors.Is(err, raftnode.ErrNotCaughtUp):
		class = ErrLagging
	case errors.Is(err, raftnode.ErrTransferred):
		class = ErrTransferTried
	}
	return fmt.Errorf("%w: %w", class, err)
}

// remoteTransfer is err as it travels to the caller of methodTransfer.
func remoteTransfer(err error) error {
	for _, c := range transferCodes {
		if errors.Is(err, c.err) {
			return &mux.RemoteError{Code: c.code, Text: err.Error()}
		}
	}
	return err
}

// transferError is what an error of a call of methodTransfer means here.
func transferError(err error) error {
	var remote *mux.RemoteError
	if errors.As(err, &remote) {
		for _, c := range transferCodes {
			if remote.Code == c.code {
				return &refusedTransfer{class: c.err, text: remote.Text}
			}
		}
	}
	if errors.Is(err, mux.ErrNoReply) {
		return fmt.Errorf("%w: %w", ErrTransferUnknown, err)
	}
	return err
}

// refusedTransfer is the refusal of another node, in its own words.
type refusedTransfer struct {
	class error
	text  string
}

// Error implements error.
func (e *refusedTransfer) Error() string { return e.text }

// Unwrap returns the class.
func (e *refusedTransfer) Unwrap() error { return e.class }

// RequestTransfer has the node at addr see to it that the leadership of a group is
// handed over, as Node.TransferLeadership does, whose errors it has besides those of
// mux.Mux.CallAddr.
func RequestTransfer(ctx context.Context, addr, secret string, group uint32, node string) (*Transfer, error) {
	body, err := json.Marshal(transferRequest{Group: group, Node: node})
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	done := new(Transfer)
	if err := ask(ctx, addr, secret, methodTransfer, body, done); err != nil {
		return nil, transferError(err)
	}
	return done, nil
}
