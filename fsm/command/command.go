// Package command is the encoding of Raft log entries: what the leader decided,
// with everything that apply needs, so that apply reads nothing else.
//
// An entry is a header (format, stamp) and a list of commands that travelled
// together; each command is a kind, a version and a body. Kind 0 is invalid, so
// zeroed bytes never decode. Bit 7 of a kind marks a command that a node which
// does not know it may skip; any other unknown kind stops the group. The formats
// are given byte by byte in DESIGN.md of package fsm.
//
// All functions are pure and safe for concurrent use.
package command

import (
	"fmt"

	"github.com/quorate/quorate/protocol"
)

// Kind selects how a command is applied. The numbers are on disk: never reused,
// never renumbered.
type Kind uint8

// The command kinds.
const (
	KindPut       Kind = 1 // merge one last-write-wins record (a nil value deletes)
	KindMemberPut Kind = 2 // system group: write one member document
	KindTablePut  Kind = 3 // system group: write the partition table
	KindGenesis   Kind = 4 // system group: the cluster's identity, once
	KindORAdd     Kind = 5 // add one record to an observed-remove map
	KindORRemove  Kind = 6 // remove one tag from an observed-remove map
	KindCollect   Kind = 7 // drop tombstones that nobody needs any more

	KindRead         Kind = 8  // change nothing, in its place of the log
	KindLock         Kind = 9  // ask for a lock
	KindUnlock       Kind = 10 // release a lock by its token
	KindExpire       Kind = 11 // end a lease that was not renewed
	KindRenew        Kind = 12 // begin the lease of a lock anew
	KindCancel       Kind = 13 // give up the wait for a lock
	KindEndSession   Kind = 14 // end what a connection has to do with locks
	KindBeat         Kind = 15 // a node lives, and with it its connections
	KindEndGateway   Kind = 16 // end the connections of a node that is silent
	KindCounterMerge Kind = 17 // raise the cells of a counter
	KindCounterAdd   Kind = 18 // add to a counter

	KindRaiseTokens Kind = 19 // leave out tokens that a lost majority may have given
	KindRecover     Kind = 20 // system group: go on as a cluster of one survivor
	KindDocumentPut Kind = 21 // system group: write one document of the operators
	KindDatabasePut Kind = 23 // system group: the database that the cluster writes to
	KindAdopt       Kind = 24 // what a database held before is, or will be, in the state
)

// kindNames name the kinds for logs and errors.
var kindNames = [...]string{
	KindPut: "put", KindMemberPut: "member-put", KindTablePut: "table-put", KindGenesis: "genesis",
	KindORAdd: "or-add", KindORRemove: "or-remove", KindCollect: "collect", KindRead: "read",
	KindLock: "lock", KindUnlock: "unlock", KindExpire: "expire", KindRenew: "renew", KindCancel: "cancel",
	KindEndSession: "end-session", KindBeat: "beat", KindEndGateway: "end-gateway",
	KindCounterMerge: "counter-merge", KindCounterAdd: "counter-add",
	KindRaiseTokens: "raise-tokens", KindRecover: "recover",
	KindDocumentPut: "document-put",
	KindDatabasePut: "database-put", KindAdopt: "adopt",
}

// Ignorable marks the kinds that may be skipped by nodes that do not know them.
const Ignorable Kind = 0x80

// String names the kind for logs and errors.
func (k Kind) String() string {
	if int(k) < len(kindNames) && kindNames[k] != "" {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Put merges one record into a map.
type Put struct {
	Map, Key string
	// Record is the record to merge. Its Value is one MsgPack value; nil (absent or
	// MsgPack nil) writes a tombstone and is kept as an empty Value.
	Record protocol.Record
	// Stamped is true when the proposer's stamp replaces Record.Timestamp: the
	// operation carried none, or one too far in the future. The effective stamp is
	// the entry's, advanced by the command's position; a stamped operation that
	// carried no timestamp (Overwrite) is raised above the record it meets, so
	// that commit order decides.
	Stamped, Overwrite bool
	// Dedup identifies a stamped operation across retries. Empty for operations
	// whose own timestamp makes them idempotent.
	Dedup string
	// Origin names the connection that wrote, so that change events are not echoed
	// to it. Empty for writes without a connection.
	Origin string
	// Fence makes the write depend on a lock, Guard on what it takes the place of.
	Fence Fence
	Guard Guard
}

// FarDedup is the Dedup of a write whose stamp is replaced because it is too far in the
// future: the stamp still tells a repeat from a new write, also one that comes when the
// stamp is not that far any more.
func (p *Put) FarDedup() string {
	return fmt.Sprintf("%s%s/%d/%s%s", FarPrefix, p.Record.Timestamp, len(p.Map), p.Map, p.Key)
}

// FarPrefix begins what FarDedup returns.
const FarPrefix = "far/"

// Fence names a lock and the token with which the writer holds it. The write is refused
// where a greater token of the lock has written. The zero value is no fence.
type Fence struct {
	Lock  string
	Token uint64
}

// Entry is a decoded log entry.
type Entry struct {
	// Stamp is the proposer's clock when the entry was built. Per group, stamps
	// increase along the log as long as leaders start above the group's clock. The
	// proposer leaves room behind it: command i of the entry counts as stamped at
	// Counter+i.
	Stamp    protocol.Timestamp
	Commands []Raw
}

// Stamp is the effective stamp of the command at position, from 0, in e: the
// entry's, with the counter advanced by the position.
func Stamp(e Entry, position int) protocol.Timestamp {
	s := e.Stamp
	s.Counter += int64(position)
	return s
}

// Raw is one command as it lies in an entry. Body aliases the entry's bytes.
type Raw struct {
	Kind    Kind
	Version uint8
	Body    []byte
}

// Result is the outcome of one command, equal on all replicas. It is passed from
// apply to the proposer and over the peer link.
type Result struct {
	// Index is the log index at which the command was applied; for a repeat within
	// the dedup window, the index of the first time.
	Index uint64
	// Code is zero when the command was accepted; otherwise it was refused for
	// good, deterministically, and changed nothing.
	Code protocol.Code
	// Reason explains a refusal, in the client's terms.
	Reason string
	// Changed reports whether the stored state differs from before: false for a
	// write that lost its merge or a repeat.
	Changed bool
	// Value is what the command returns beside its verdict; nil for most. See the
	// kinds.
	Value []byte
}
