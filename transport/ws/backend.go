package ws

import (
	"context"

	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/partitions/locks"
	"github.com/quorate/quorate/partitions/notice"
	"github.com/quorate/quorate/partitions/topics"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/merkle"
	"github.com/quorate/quorate/transport/auth"
)

// Backend is the cluster as connections use it; *partitions.Router is one. All
// methods are safe for concurrent use.
type Backend interface {
	// NewSession returns the state of one new connection: the origin of its writes
	// and what it has been acknowledged.
	NewSession() *partitions.Session
	// Write proposes ops, which are validated, and returns one verdict per op, in
	// order. It blocks until all are known or ctx ends. Errors: ErrUnavailable of
	// package partitions (nothing was proposed); any other means that the outcome
	// of at least one op is unknown.
	Write(ctx context.Context, s *partitions.Session, ops []partitions.Op) ([]partitions.Verdict, error)
	// Stored returns what is stored where op would change it, not older than what s was
	// acknowledged. Errors: ErrUnavailable, a failure of the store.
	Stored(ctx context.Context, s *partitions.Session, op *partitions.Op) (partitions.Stored, error)
	// Subscribe starts gathering the changes of a map that want asks for. None reaches sink
	// before Release on the result, which the caller closes.
	Subscribe(ctx context.Context, s *partitions.Session, mapName string, want partitions.Interest, sink partitions.Sink) (*partitions.Subscription, error)
	// Answer returns the first rows of a query, not older than what s was acknowledged.
	// Changes that it lacks reach the subscription that it covers after Release. Errors:
	// ErrUnavailable, ErrQueryTooCostly, ErrTooManyGroups, a failure of the
	// store.
	Answer(ctx context.Context, s *partitions.Session, ask partitions.Ask) (*partitions.Answer, error)
	// Barrier has later reads of s show everything that was acknowledged to anyone before
	// the call. Error: ErrUnavailable.
	Barrier(ctx context.Context, s *partitions.Session) error
	// Watch gathers the changes of a map, except those written by s, from now on; sink
	// gets them at once. The caller closes the result.
	Watch(s *partitions.Session, mapName string, sink partitions.Sink) *partitions.Subscription
	// Tree returns the leaf buckets of a hash tree of a map, LeafRecords, LeafSets and
	// Sets what is in them, none of it older than what s was acknowledged. Errors:
	// ErrUnavailable, ErrTooMuch of Sets, a failure of the store.
	Tree(ctx context.Context, s *partitions.Session, mapName string, kind merkle.Kind) (*merkle.Leaves, error)
	LeafRecords(ctx context.Context, s *partitions.Session, mapName string, bucket uint16, at partitions.LeafPlace,
		fn func(key string, rec protocol.Record) bool) (next partitions.LeafPlace, end bool, err error)
	LeafSets(ctx context.Context, s *partitions.Session, mapName string, bucket uint16, at partitions.LeafPlace,
		fn func(entry protocol.OREntry) bool) (next partitions.LeafPlace, end bool, err error)
	Sets(ctx context.Context, s *partitions.Session, mapName string, keys []string, maxBytes int) ([]protocol.OREntry, error)
	// Horizon says which tombstones are collected. HorizonChanged calls fn after some were
	// until cancel is called; fn does not block.
	Horizon() (partitions.Horizon, error)
	HorizonChanged(fn func()) (cancel func())
	// UnknownRemovals returns those of tags that are not known to be removed.
	UnknownRemovals(mapName string, tags []string) []string
	// AcquireLock waits until s holds a lock and returns its token. ReleaseLock and
	// RenewLock report whether the token held the lock; their errors leave open what
	// was done. EndSession ends the locks of a connection that is over; it blocks for as
	// long as ctx lasts at most.
	AcquireLock(ctx context.Context, s *partitions.Session, ask locks.Ask) (token uint64, err error)
	ReleaseLock(ctx context.Context, s *partitions.Session, name string, token uint64) (released bool, reason string, err error)
	RenewLock(ctx context.Context, name string, token uint64, ttlMillis int64) (held bool, err error)
	EndSession(ctx context.Context, s *partitions.Session)
	// MergeCounter raises a counter to a client's state and reports whether that changed
	// it, AddToCounter adds to it and returns its total; each may return a refusal. Counter reads it, not older than what
	// s was acknowledged, and WatchCounter tells when it may have changed.
	MergeCounter(ctx context.Context, s *partitions.Session, name string, state protocol.CounterState) (changed bool, refusal partitions.Verdict, err error)
	AddToCounter(ctx context.Context, s *partitions.Session, name string, delta float64, dedup string) (float64, partitions.Verdict, error)
	Counter(ctx context.Context, s *partitions.Session, name string) (protocol.CounterState, error)
	WatchCounter(name string) *notice.Watcher
	// Publish sends a message to the subscribers of its topic and reports whether there
	// was room; ReceiveTopics has fn take the messages for this node's subscribers.
	Publish(m *topics.Message) bool
	ReceiveTopics(fn func(*topics.Message))
	// Now is a fresh stamp of the node's clock.
	Now() protocol.Timestamp
	// ClusterID names the cluster, empty while there is none.
	ClusterID() string
	// PartitionMap is the cluster as clients see it, nil while there is none. It is
	// shared and not modified.
	PartitionMap() *partitions.MapInfo
	// MapChanged calls fn after changes of PartitionMap until cancel is called. fn
	// does not block.
	MapChanged(fn func()) (cancel func())
}

// Verifier checks the tokens of clients; *auth.Verifier is one.
type Verifier interface {
	// Verify returns the bearer of a token, or why it is refused.
	Verify(token string) (auth.Principal, error)
	// Message is what the client is told about a refusal.
	Message(err error) string
}
