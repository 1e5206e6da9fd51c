// Package remote reads and follows groups that a node does not hold, at the nodes that
// do. A Client is the asking side, a Server the answering one; both are parts of every
// node.
//
// A read is one call, or several pages. Pages of one read are of states at rising log
// indexes: what changes between two pages is not in the earlier one, and the index that
// is returned is that of the first, so that whoever follows the map from there misses
// nothing. A follower gets the changes of a group in log order from one holder. When that
// holder is lost, loses the group, or has too much waiting, the changes in between are
// not known: everybody who follows is told to resync.
package remote

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/merkle"
)

// ErrUnanswered says that no holder of the group answered in time. The same read may succeed later.
var ErrUnanswered = errors.New("no holder answered")

// Config tunes a Client and a Server. Use DefaultConfig.
type Config struct {
	// TryTimeout is how long one holder may take for one page. Half of it is for getting
	// as far as the reader needs.
	TryTimeout time.Duration
	// AnswerTimeout is the same for the rows of a query, for which a holder may look at all
	// records.
	AnswerTimeout time.Duration
	// Tries is how many holders are asked for one page.
	Tries int
	// Forgive is how long a holder that failed is asked after all others.
	Forgive time.Duration
	// PageBytes is about how large a page is.
	PageBytes int
	// AnswerBytes is about how many bytes of rows of a query come in one page.
	AnswerBytes int
	// Heartbeat is how long a holder without changes waits before it says so, and Silence
	// how long after its follower's last word it forgets a feed.
	Heartbeat, Silence time.Duration
	// FeedBytes bounds the changes that wait at a holder for one follower.
	FeedBytes int
	// FeedSubjects bounds the maps and counters that one node follows at another.
	FeedSubjects int
}

// DefaultConfig is the configuration for production.
func DefaultConfig() Config {
	return Config{
		TryTimeout: 1500 * time.Millisecond, AnswerTimeout: 20 * time.Second, Tries: 3, Forgive: 5 * time.Second,
		PageBytes: 512 << 10, AnswerBytes: 4 << 20,
		Heartbeat: time.Second, Silence: 10 * time.Second, FeedBytes: 4 << 20, FeedSubjects: 1 << 16,
	}
}

// Replica is the local state of a group; *fsm.Machine is one.
type Replica interface {
	AddLeaves(mapName string, kind merkle.Kind, leaves *merkle.Leaves) (uint64, error)
	LeafRecords(leaf fsm.Leaf, since uint64, fn func(key string, rec protocol.Record) bool) error
	LeafSets(leaf fsm.Leaf, fn func(part protocol.OREntry) bool) error
	Set(mapName, key, tag string) (part protocol.OREntry, more bool, err error)
	ChangedBuckets(mapName string, since uint64) ([]uint16, uint64, error)
	Tag(mapName, tag string) (fsm.TagState, error)
	Counter(name string) ([]command.Cell, uint64, error)
	Horizon() fsm.Horizon
	Applied() (index, term uint64)
}

// Deps are the collaborators of a Client. All are required.
type Deps struct {
	Logger hclog.Logger
	// Holders lists the nodes that hold a group, without this one, those first that are
	// best asked.
	Holders func(group uint32) []string
	// Held reports whether this node holds a group itself by now.
	Held func(group uint32) bool
	// Read and Follow bring a body to HandleRead and HandleFollow of a node.
	Read, Follow func(ctx context.Context, node string, body []byte) ([]byte, error)
	// Followed reports whether somebody on this node wants the changes of a subject.
	Followed func(s Subject) bool
	// Deliver takes the changes of a group that this node follows, in order; Reset says
	// that some are not known. It does not block.
	Deliver func(c *fsm.Changes)
}

// Subject is what changes can be followed of: a map, or a counter.
type Subject struct {
	Counter bool
	Name    string
}

// ServerDeps are the collaborators of a Server. All are required.
type ServerDeps struct {
	// Replica is the local replica of a group, if there is one.
	Replica func(group uint32) (Replica, bool)
	// WaitApplied blocks until the local replica has applied index.
	WaitApplied func(ctx context.Context, group uint32, index uint64) error
	// Answer looks for the rows of a group that an ask wants, and shows them.
	Answer func(ctx context.Context, group uint32, mapName string, ask []byte, show func(key string, rec protocol.Record)) (Found, error)
	// Tap has fn take all changes of the local replicas from now on, in order per group,
	// until cancel is called. Reset says that some are missing; with group 0, of every
	// group.
	Tap func(fn func(c *fsm.Changes)) (cancel func())
}

// Found is what a holder says of the rows that it found.
type Found struct {
	// Index is the log index of the state that was read.
	Index uint64
	// Cut is the place of the first row that it leaves out, empty if it shows all; Plan is how
	// it found them, empty if nobody asked.
	Cut, Plan []byte
}
