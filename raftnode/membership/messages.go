package membership

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/quorate/quorate/raftnode"
	"github.com/quorate/quorate/raftnode/membership/genesis"
	"github.com/quorate/quorate/raftnode/mux"
)

// The methods of this package on the peer network. The numbers are part of the
// peer protocol: never reused, never renumbered. Bodies are JSON: the exchanges
// are few, and fields can be added without breaking older nodes.
const (
	methodHello   mux.Method = 1 // who are you, and do you belong to a cluster
	methodPrepare mux.Method = 2 // founding, first phase
	methodAccept  mux.Method = 3 // founding, second phase
	methodChosen  mux.Method = 4 // you are the founder
	methodJoin    mux.Method = 5 // let me in; asked of the system leader
	methodPing    mux.Method = 6 // members' regular exchange
	methodLeave   mux.Method = 7 // take me out for good; asked of the system leader
	methodExpel   mux.Method = 8 // take a dead member out for good; asked of the system leader
)

// maxMessage bounds the bodies that are decoded.
const maxMessage = 1 << 20

// Codes with which the handlers refuse. The numbers are part of the peer protocol.
const (
	codeNotLeader  = mux.FirstFreeCode + 0 // Text is the leader's address, or empty
	codeDuplicate  = mux.FirstFreeCode + 1 // Text is the address of the node that was first
	codeRemoved    = mux.FirstFreeCode + 2 // the server id was removed for good
	codeNotReady   = mux.FirstFreeCode + 3 // try again
	codeOtherView  = mux.FirstFreeCode + 4 // the acceptor sees another electorate
	codeIsMember   = mux.FirstFreeCode + 5 // the acceptor belongs to a cluster
	codeMalformed  = mux.FirstFreeCode + 6
	codeLastMember = mux.FirstFreeCode + 7 // the only member cannot leave
	codeNotAMember = mux.FirstFreeCode + 8 // the server id is not known to the cluster
	codeAlive      = mux.FirstFreeCode + 9 // only a dead member is expelled
)

// helloMessage is request and reply of methodHello.
type helloMessage struct {
	Node genesis.Node `json:"node"`
	// Boot is random per process, so that two processes with one store are told
	// apart.
	Boot string `json:"boot"`
	// ClusterID is set by members; then the fields below are too.
	ClusterID string `json:"clusterId,omitempty"`
	// Members are the addresses of the members, as far as the sender has heard of
	// them lately.
	Members peerAddrs `json:"members,omitempty"`
}

// voteMessage is the request of methodPrepare, and of methodAccept with Founder,
// and of methodChosen.
type voteMessage struct {
	Ballot  genesis.Ballot  `json:"ballot"`
	View    genesis.View    `json:"view"`
	Founder genesis.Founder `json:"founder"`
}

// joinRequest asks for membership.
type joinRequest struct {
	ID        raftnode.ServerID `json:"id"`
	NodeID    string            `json:"nodeId"`
	Addr      string            `json:"addr"`
	ClientURL string            `json:"clientUrl"`
}

// joinReply admits.
type joinReply struct {
	ClusterID string    `json:"clusterId"`
	Members   peerAddrs `json:"members"`
}

// leaveRequest names the member that leaves.
type leaveRequest struct {
	ID raftnode.ServerID `json:"id"`
}

// leaveReply reports how far it is.
type leaveReply struct {
	Removed bool `json:"removed"`
}

// pingMessage is request and reply of methodPing: what one member tells another
// about itself.
type pingMessage struct {
	ID        raftnode.ServerID `json:"id"`
	Addr      string            `json:"addr"`
	ClientURL string            `json:"clientUrl"`
	// Draining: the node is about to stop and should not be given leaderships.
	Draining bool `json:"draining,omitempty"`
	// Table is the version of the partition table that the node acts on.
	Table uint32 `json:"table"`
	// HeardMillis is how long ago the sender has heard of the other members.
	HeardMillis map[raftnode.ServerID]int64 `json:"heardMillis,omitempty"`
	Groups      []groupReport               `json:"groups,omitempty"`
}

// groupReport is one replica as its node sees it.
type groupReport struct {
	Group   uint32            `json:"group"`
	Term    uint64            `json:"term"`
	Leader  raftnode.ServerID `json:"leader,omitempty"`
	Commit  uint64            `json:"commit"`
	Applied uint64            `json:"applied"`
	// Voters and Nonvoters are the group's configuration; only its leader reports
	// them.
	Voters    []raftnode.ServerID `json:"voters,omitempty"`
	Nonvoters []raftnode.ServerID `json:"nonvoters,omitempty"`
}

// decode reads the body of a peer's message. Its error is a *mux.RemoteError, fit
// to be answered.
func decode[T any](body []byte) (T, error) {
	var msg T
	if len(body) > maxMessage {
		return msg, &mux.RemoteError{Code: codeMalformed, Text: fmt.Sprintf("message of %d bytes", len(body))}
	}
	if err := json.Unmarshal(body, &msg); err != nil {
		return msg, &mux.RemoteError{Code: codeMalformed, Text: err.Error()}
	}
	return msg, nil
}

// encode renders a message. The types of this package always have an encoding.
func encode(msg any) []byte {
	body, err := json.Marshal(msg)
	if err != nil {
		panic(fmt.Sprintf("membership: encode %T: %v", msg, err))
	}
	return body
}

// refusedWith reports whether the peer's handler answered err with code, and the
// text that came with it.
func refusedWith(err error, code uint16) (text string, ok bool) {
	var remote *mux.RemoteError
	if errors.As(err, &remote) && remote.Code == code {
		return remote.Text, true
	}
	return "", false
}
