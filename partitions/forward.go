package partitions

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/raftnode"
	"github.com/quorate/quorate/raftnode/mux"
)

// methodForward carries commands to the leader of their group.
//
//	request:  group (4 bytes, big endian), flags (1: hand over), entry without stamp
//	response: status (1), then results, or the leader's id, or nothing
const methodForward mux.Method = 32

const flagHandover = 1

// codeUnreadable refuses a request that cannot be decoded; nothing was proposed.
const codeUnreadable = uint16(protocol.CodeMalformed)

// The first byte of a forward response.
const (
	forwardDone      = 0 // results follow
	forwardNotLeader = 1 // nothing appended; the best known leader's id follows
	forwardBusy      = 2 // nothing appended
	forwardUnknown   = 3 // the commands may have been appended
)

// forward offers cmds to the leader of group on another node.
func (r *Router) forward(leader raftnode.ServerID, group uint32, cmds []raftnode.Command, handover bool) ([]command.Result, error) {
	body := binary.BigEndian.AppendUint32(make([]byte, 0, 512), group)
	if handover {
		body = append(body, flagHandover)
	} else {
		body = append(body, 0)
	}
	body = command.AppendEntry(body, protocol.Timestamp{}, cmds)
	ctx, cancel := context.WithTimeout(r.ctx, r.cfg.AttemptTimeout)
	defer cancel()
	reply, err := r.deps.Peers.Call(ctx, leader, methodForward, body)
	if err != nil {
		return nil, fmt.Errorf("forward to %s: %w", leader, err)
	}
	return decodeForwardReply(group, reply)
}

func decodeForwardReply(group uint32, reply []byte) ([]command.Result, error) {
	if len(reply) == 0 {
		return nil, fmt.Errorf("%w: empty reply", raftnode.ErrUnknown)
	}
	switch reply[0] {
	case forwardDone:
		results, err := command.DecodeResults(reply[1:])
		if err != nil {
			return nil, fmt.Errorf("%w: decode results: %w", raftnode.ErrUnknown, err)
		}
		return results, nil
	case forwardNotLeader:
		return nil, &raftnode.NotLeaderError{Group: group, Leader: raftnode.ServerID(reply[1:])}
	case forwardBusy:
		return nil, raftnode.ErrBusy
	default:
		return nil, raftnode.ErrUnknown
	}
}

// handleForward proposes forwarded commands on this node. Every outcome travels in
// the reply, so that the sender can class it; an error is returned only for a
// request that cannot be read, of which nothing was proposed.
func (r *Router) handleForward(ctx context.Context, _ mux.Peer, body []byte) ([]byte, error) {
	if len(body) < 5 {
		return nil, &mux.RemoteError{Code: codeUnreadable, Text: "forward request too short"}
	}
	group := binary.BigEndian.Uint32(body)
	entry, err := command.DecodeEntry(body[5:])
	if err != nil {
		return nil, &mux.RemoteError{Code: codeUnreadable, Text: err.Error()}
	}
	for _, c := range entry.Commands {
		// Another build, to which this one would be a follower that stops.
		if err := command.Check(c); err != nil {
			return nil, &mux.RemoteError{Code: codeUnreadable, Text: err.Error()}
		}
	}
	results, err := r.proposeHere(ctx, group, entry.Commands, body[4]&flagHandover != 0)
	if err == nil {
		return append([]byte{forwardDone}, command.EncodeResults(results)...), nil
	}
	var notLeader *raftnode.NotLeaderError
	switch {
	case errors.As(err, &notLeader):
		return append([]byte{forwardNotLeader}, notLeader.Leader...), nil
	case errors.Is(err, raftnode.ErrNotHere):
		return []byte{forwardNotLeader}, nil
	case errors.Is(err, raftnode.ErrBusy):
		return []byte{forwardBusy}, nil
	default:
		return []byte{forwardUnknown}, nil
	}
}
