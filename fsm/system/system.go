// Package system holds the cluster documents that group 0 replicates: the
// cluster's identity, its members, and which nodes hold which group. A State is
// an immutable snapshot of them; its methods are the rules by which a committed
// command turns one State into the next, as pure functions.
//
// Writers read a State, compute a new document and propose it together with the
// version they read. A document that changed meanwhile refuses the proposal, so
// two writers never overwrite each other unseen.
package system

import (
	"fmt"

	"github.com/quorate/quorate/protocol"
)

// Status is the life stage of a member. The numbers are on disk: never reused,
// never renumbered. Zero is invalid.
type Status uint8

// The stages of a member.
const (
	StatusJoining Status = 1 // admitted, not yet caught up
	StatusActive  Status = 2 // serves clients and may hold replicas
	StatusSuspect Status = 3 // silent for a short while
	StatusLeaving Status = 4 // hands its replicas over
	StatusFailed  Status = 5 // silent for long; expected back
	StatusRemoved Status = 6 // gone for good: the id can never return
)

// String names the stage for logs and operators.
func (s Status) String() string {
	switch s {
	case StatusJoining:
		return "joining"
	case StatusActive:
		return "active"
	case StatusSuspect:
		return "suspect"
	case StatusLeaving:
		return "leaving"
	case StatusFailed:
		return "failed"
	case StatusRemoved:
		return "removed"
	default:
		return fmt.Sprintf("status(%d)", uint8(s))
	}
}

// Genesis is the identity of a cluster, written once by its founder.
type Genesis struct {
	ClusterID string
	// Groups is the number of data groups, which are numbered from 1; group 0 is not
	// among them. It can never change.
	Groups uint32
	// ReplicationFactor is the number of replicas wanted for each group.
	ReplicationFactor int
	// Founder is the server id of the node that formed the cluster.
	Founder       string
	CreatedMillis int64
}

// Database is the table of a database that a cluster writes its records to.
type Database struct {
	// Instance names the cluster's claim of the table, at random: a table with another one
	// or with none is not the cluster's.
	Instance string
	// Epoch counts the claims of the table.
	Epoch uint64
	// Token is at least the greatest one that earlier owners of the table have given.
	Token uint64
}

// Member is one life of a node's data.
type Member struct {
	// ID is the server id: node id, '#', incarnation.
	ID string
	// NodeID is the name that operators gave the node.
	NodeID string
	// PeerAddr is host:port of the cluster listener, ClientURL what clients dial.
	PeerAddr, ClientURL string
	Status              Status
	// SinceMillis is when Status was entered, by the proposer's clock.
	SinceMillis int64
	// Version counts the document's writes, from 1. Zero: never stored.
	Version uint64
}

// Table places the groups on members. The zero Table means that none was written.
type Table struct {
	// Version counts the table's writes, from 1. Zero: never stored.
	Version uint32
	// Groups holds one placement per data group: Groups[i] is that of group i+1.
	Groups []Placement
}

// Placement is where one group lives.
type Placement struct {
	// Voters are the server ids that hold the group.
	Voters []string
	// Preferred is the voter that should lead when it can; empty for no preference.
	Preferred string
	// Leader is the last known leader, elected in LeaderTerm; empty for none.
	Leader     string
	LeaderTerm uint64
}

// Bounds of a document.
const (
	MaxDocumentName  = 64
	MaxDocumentBytes = 1 << 20
)

// Document is something that operators gave the whole cluster, such as its policies.
// What is in it is known to those who write and read it; here it is bytes.
type Document struct {
	Name string
	// Version counts the document's writes, from 1. Zero: never stored.
	Version uint64
	Value   []byte
}

// Refusal is the deterministic rejection of a proposed document.
type Refusal struct {
	Code   protocol.Code
	Reason string
}

func refuse(code protocol.Code, format string, args ...any) *Refusal {
	return &Refusal{Code: code, Reason: fmt.Sprintf(format, args...)}
}
