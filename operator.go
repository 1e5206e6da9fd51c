package quorate

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quorate/quorate/raftnode/mux"
)

// The methods of operator tools on the peer port. Replies are JSON, and so are
// requests that are not empty.
const (
	methodStatus   mux.Method = 64 // Status
	methodLeave    mux.Method = 65 // the node id, when the node has left
	methodTransfer mux.Method = 66 // transferRequest; Transfer. Nodes pass it on to leaders
	methodDrain    mux.Method = 67 // the node id, when the drain is about to begin
	methodSupport  mux.Method = 68 // Support
)

// handleOperators answers operator tools. Whoever holds the cluster's secret, or
// reaches a port without one, is an operator.
func (s *Server) handleOperators(node *Node) {
	node.Mux().Handle(methodStatus, func(context.Context, mux.Peer, []byte) ([]byte, error) {
		return json.Marshal(s.status(node))
	})
	s.handleSupport(node)
	node.Mux().Handle(methodDrain, audited(s.log, "drain of this node asked for", func(context.Context, mux.Peer, []byte) ([]byte, error) {
		s.askDrain()
		return json.Marshal(s.cfg.NodeID)
	}))
	node.Mux().Handle(methodLeave, audited(s.log, "removal of this node asked for", func(ctx context.Context, _ mux.Peer, _ []byte) ([]byte, error) {
		s.leaving.Add(1)
		defer s.leaving.Add(-1)
		if err := node.Leave(ctx); err != nil {
			return nil, err
		}
		return json.Marshal(s.cfg.NodeID)
	}))
}

// audited has the log say who asks for what, before it is done. A tool has no name: it is
// known by the cluster's secret alone.
func audited(log hclog.Logger, what string, handle mux.Handler) mux.Handler {
	audit := log.Named("audit")
	return func(ctx context.Context, peer mux.Peer, body []byte) ([]byte, error) {
		audit.Warn(what, "peer", peer.String())
		return handle(ctx, peer, body)
	}
}

// handleTransfers takes requests to hand a leadership over, of operators and of nodes
// that were asked by one.
func (n *Node) handleTransfers() {
	n.mux.Handle(methodTransfer, audited(n.log, "transfer of a leadership asked for", func(ctx context.Context, _ mux.Peer, body []byte) ([]byte, error) {
		var req transferRequest
		if err := json.Unmarshal(body, &req); err != nil {
			return nil, fmt.Errorf("decode request: %w", err)
		}
		done, err := n.transfer(ctx, req)
		if err != nil {
			return nil, remoteTransfer(err)
		}
		return json.Marshal(done)
	}))
}

// Status returns what the node knows about itself and its cluster, nil while Serve
// has not opened it.
func (s *Server) Status() *Status {
	node := s.current()
	if node == nil {
		return nil
	}
	return s.status(node)
}

func (s *Server) status(node *Node) *Status {
	status := node.Status()
	status.Health = s.transport.State().String()
	status.Ready = s.transport.Ready()
	status.UptimeSeconds = s.uptime()
	status.Connections, status.MemoryBytes = s.transport.Connections(), memoryBytes()
	return status
}

func (s *Server) uptime() int64 { return int64(time.Since(s.started) / time.Second) }

// askDrain has Serve drain and return, as if its context had ended.
func (s *Server) askDrain() {
	select {
	case s.drainAsked <- struct{}{}:
	default: // it was asked already
	}
}

// Leave takes the node out of its cluster for good. It blocks until that is done or
// ctx ends; the cluster goes on with it in the latter case. Run returns nil then.
func (n *Node) Leave(ctx context.Context) error {
	done := make(chan error, 1)
	go func() { done <- n.agent.Leave(ctx) }()
	select {
	case err := <-done:
		return err
	case <-n.left:
		return nil
	}
}

// FetchStatus asks the node whose peer port is at addr, host:port, for its status.
// secret is the cluster's, empty for a cluster without one. Errors are those of
// mux.Mux.CallAddr.
func FetchStatus(ctx context.Context, addr, secret string) (*Status, error) {
	var status Status
	if err := ask(ctx, addr, secret, methodStatus, nil, &status); err != nil {
		return nil, err
	}
	return &status, nil
}

// RequestLeave has the node at addr leave its cluster for good, and returns its
// node id when it has. When ctx ends before, the leaving goes on.
func RequestLeave(ctx context.Context, addr, secret string) (nodeID string, err error) {
	err = ask(ctx, addr, secret, methodLeave, nil, &nodeID)
	return nodeID, err
}

// ask makes one call as a tool that is no member.
func ask(ctx context.Context, addr, secret string, method mux.Method, request []byte, reply any) error {
	cfg := mux.DefaultConfig()
	cfg.Secret = []byte(secret)
	m, err := mux.Open(cfg, mux.Deps{Logger: hclog.NewNullLogger()})
	if err != nil {
		return err
	}
	defer m.Close()
	body, _, err := m.CallAddr(ctx, addr, method, request)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, reply); err != nil {
		return fmt.Errorf("decode answer of %s: %w", addr, err)
	}
	return nil
}

// writeAddress leaves the node's cluster address to the tools on this machine.
func (s *Server) writeAddress(node *Node) error {
	file := s.cfg.AddressFile()
	if file == "" {
		return nil
	}
	addr, err := s.localAddr(node)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, []byte(addr+"\n"), 0o600); err != nil {
		return fmt.Errorf("write address file: %w", err)
	}
	return nil
}

// localAddr is where this machine reaches the peer port, which may not be how
// peers reach it.
func (s *Server) localAddr(node *Node) (string, error) {
	_, port, err := net.SplitHostPort(node.Mux().Addr())
	if err != nil {
		return "", fmt.Errorf("cluster address: %w", err)
	}
	host := s.cfg.BindHost()
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
		if ip.To4() == nil {
			host = "::1"
		}
	}
	return net.JoinHostPort(host, port), nil
}

func (s *Server) removeAddress() {
	if file := s.cfg.AddressFile(); file != "" {
		if err := os.Remove(file); err != nil {
			s.log.Warn("address file was not removed", "err", err)
		}
	}
}
