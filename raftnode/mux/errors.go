package mux

import (
	"errors"
	"fmt"
)

// Errors of calls and dials, by class. Of all errors that Call can return, only
// ErrNoReply is indeterminate; see Mux.Call.
var (
	// ErrUnreachable: the request was never sent. It wraps the cause: no known
	// address, a failed dial, a *RefusedError, ErrWrongSecret, a full queue, or the
	// end of the context. Transient.
	ErrUnreachable = errors.New("peer is unreachable")
	// ErrNoReply: the request was sent, or may have been, and no reply came. The
	// handler may have run, may run still, or may never run. Indeterminate.
	ErrNoReply = errors.New("no reply from peer")
	// ErrTooLarge: the request is larger than Config.MaxMessage and was not sent.
	ErrTooLarge = errors.New("message is too large")
	// ErrWrongSecret: the other end does not hold this cluster's secret, or only one
	// of the two has a secret at all. Wrapped by ErrUnreachable errors.
	ErrWrongSecret = errors.New("peer has another cluster secret")
	// ErrClosed: the Mux is closed. Wrapped by ErrUnreachable errors.
	ErrClosed = errors.New("peer network is closed")
)

// Faults of a connection. They end it and never reach a caller alone.
var (
	errMalformed  = errors.New("malformed message")
	errSilent     = errors.New("peer is silent")
	errLinkClosed = errors.New("connection is closed")
	errNoAddress  = errors.New("no address known")
	errMoved      = errors.New("address has changed")
	errTooMany    = errors.New("too many connections")
)

// RefusalCode says why a node refused a connection. The numbers are part of the
// peer protocol: never reused, never renumbered.
type RefusalCode uint8

// The refusals.
const (
	RefusedWrongCluster RefusalCode = 1 // the two nodes belong to different clusters
	RefusedWrongTarget  RefusalCode = 2 // another node, or another life of the node, is at this address
	RefusedRemoved      RefusalCode = 3 // the dialer's server id was removed from the cluster for good
	RefusedVersion      RefusalCode = 4 // the peer protocol versions do not overlap
	RefusedUnknownGroup RefusalCode = 5 // the node does not run this Raft group (now)
	RefusedSecret       RefusalCode = 6 // one end has a cluster secret, the other has none
	RefusedMalformed    RefusalCode = 7 // the greeting contradicts itself or its certificate
	RefusedBusy         RefusalCode = 8 // the node has all the connections it allows
)

var refusalNames = [...]string{
	RefusedWrongCluster: "WRONG_CLUSTER",
	RefusedWrongTarget:  "WRONG_TARGET",
	RefusedRemoved:      "REMOVED",
	RefusedVersion:      "VERSION",
	RefusedUnknownGroup: "UNKNOWN_GROUP",
	RefusedSecret:       "SECRET",
	RefusedMalformed:    "MALFORMED",
	RefusedBusy:         "BUSY",
}

// String returns the name of the code, such as WRONG_CLUSTER.
func (c RefusalCode) String() string {
	if int(c) < len(refusalNames) && refusalNames[c] != "" {
		return refusalNames[c]
	}
	return fmt.Sprintf("REFUSAL_%d", uint8(c))
}

// RefusedError is a connection refused by the node at the other end, in answer to
// the handshake. Nothing was sent over it.
type RefusedError struct {
	Code RefusalCode
	Text string
	// By is the node that refused, as far as it said.
	By Peer
}

// Error implements error.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("refused by %s: %s: %s", e.By, e.Code, e.Text)
}

// Unwrap returns ErrWrongSecret for RefusedSecret, else nil.
func (e *RefusedError) Unwrap() error {
	if e.Code == RefusedSecret {
		return ErrWrongSecret
	}
	return nil
}

// Codes of a RemoteError that the mux itself gives. Handlers choose their own from
// FirstFreeCode on.
const (
	// CodeInternal: the handler returned an error that is not a *RemoteError.
	CodeInternal uint16 = 1
	// CodeNoMethod: the node has no handler for the method. Nothing ran.
	CodeNoMethod uint16 = 2
	// CodeBusy: the node already works on as much for this peer as it allows.
	// Nothing ran. Transient.
	CodeBusy uint16 = 3
	// CodeReplyTooLarge: the handler ran, its reply exceeds Config.MaxMessage.
	CodeReplyTooLarge uint16 = 4

	// FirstFreeCode is the lowest code that is not reserved for the mux.
	FirstFreeCode uint16 = 16
)

// RemoteError is the error with which the handler at the other end answered. A
// handler returns one to choose the code that its caller sees.
type RemoteError struct {
	Code uint16
	Text string
}

// Error implements error.
func (e *RemoteError) Error() string { return fmt.Sprintf("remote error %d: %s", e.Code, e.Text) }
