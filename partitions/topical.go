package partitions

import (
	"context"

	"github.com/quorate/quorate/fsm/system"
	"github.com/quorate/quorate/partitions/topics"
	"github.com/quorate/quorate/raftnode"
	"github.com/quorate/quorate/raftnode/mux"
)

// methodPublish brings messages of topics to their sequencer, methodDeliver to the nodes
// of their subscribers; see package topics for the bodies.
const (
	methodPublish mux.Method = 33
	methodDeliver mux.Method = 34
)

// newTopics returns the topic service, and has it answer other nodes.
func (r *Router) newTopics() *topics.Service {
	cfg := topics.DefaultConfig()
	cfg.Self, cfg.Run = string(r.cfg.Self), r.boot
	s := topics.New(cfg, topics.Deps{
		Logger: r.log.Named("topics"), GroupOf: r.groupOf,
		Leader: func(group uint32) (string, uint64) {
			id, term := r.leaderIn(group)
			return string(id), term
		},
		Term:  r.deps.Groups.Term,
		Nodes: r.liveNodes,
		Publish: func(ctx context.Context, node string, body []byte) ([]byte, error) {
			return r.deps.Peers.Call(ctx, raftnode.ServerID(node), methodPublish, body)
		},
		Deliver: func(ctx context.Context, node string, body []byte) ([]byte, error) {
			return r.deps.Peers.Call(ctx, raftnode.ServerID(node), methodDeliver, body)
		},
		NotSent: notAppended, Now: r.deps.Physical,
	})
	handle := func(take func([]byte) ([]byte, error)) mux.Handler {
		return func(_ context.Context, _ mux.Peer, body []byte) ([]byte, error) {
			reply, err := take(body)
			if err != nil {
				return nil, &mux.RemoteError{Code: codeUnreadable, Text: err.Error()}
			}
			return reply, nil
		}
	}
	r.deps.Peers.Handle(methodPublish, handle(s.HandlePublish))
	r.deps.Peers.Handle(methodDeliver, handle(s.HandleDeliver))
	return s
}

// liveNodes lists the members that serve clients.
func (r *Router) liveNodes() (list []string) {
	state := r.deps.Cluster()
	if state == nil {
		return nil
	}
	for i := range state.Members {
		if m := &state.Members[i]; m.Status >= system.StatusJoining && m.Status <= system.StatusLeaving {
			list = append(list, m.ID)
		}
	}
	return list
}

// Publish sends a message to the subscribers of its topic on all nodes, and reports
// whether there was room for it. Messages that are published one after the other on this
// node keep their order. Delivery is at most once.
func (r *Router) Publish(m *topics.Message) bool { return r.topics.Publish(m) }

// ReceiveTopics has fn take all messages of topics, in order per topic, for the
// subscribers of this node. fn must neither block nor modify a message. The last call
// counts.
func (r *Router) ReceiveTopics(fn func(*topics.Message)) { r.topics.Receive(fn) }
