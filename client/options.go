package client

import (
	"time"

	"github.com/quorate/quorate/protocol"
)

// Level says what a write must have reached before it is acknowledged, and what it had
// reached when it was. Greater is stronger.
type Level = protocol.WriteConcern

// The levels of writes.
const (
	// Memory: the leader has queued the write. It can be lost.
	Memory = protocol.LevelMemory
	// Applied: it is committed, and merged into the leader's state.
	Applied = protocol.LevelApplied
	// Replicated: it is committed by a majority of the replicas.
	Replicated = protocol.LevelReplicated
	// Persisted: it is committed by a majority that had synced it to disk. A server without
	// disk acknowledges it as Replicated. This is what writes ask for by default.
	Persisted = protocol.LevelPersisted
)

// Timestamp is a hybrid timestamp. The greatest one of a key wins.
type Timestamp = protocol.Timestamp

// Fence guards a write by a lock: the server refuses it (409) when a later holder of the
// lock has written to the key's group, or when nobody was given the token.
type Fence struct {
	Lock  string
	Token uint64
}

// Ack is the acknowledgement of a write.
type Ack struct {
	// Level is what the write had reached.
	Level Level
	// Timestamp is the write's; zero if the server stamped it.
	Timestamp Timestamp
}

type writeOptions struct {
	level  Level
	ttl    time.Duration
	fence  *Fence
	stamps bool
}

// WriteOption changes how something is written.
type WriteOption func(*writeOptions)

// AtLevel has the write acknowledged at a level.
func AtLevel(level Level) WriteOption { return func(o *writeOptions) { o.level = level } }

// WithTTL hides the record from reads when so much time has passed. It is a whole number of
// milliseconds, the rest is cut off; below one it has no effect.
func WithTTL(ttl time.Duration) WriteOption { return func(o *writeOptions) { o.ttl = ttl } }

// Fenced guards the write by a lock; see Lock.Fence.
func Fenced(fence Fence) WriteOption { return func(o *writeOptions) { o.fence = &fence } }

// ServerStamp has the server stamp the write when it is ordered. The writes of a key that are
// all stamped so, and its Linearizable reads, make a linearizable register. By default the
// client stamps, by its own clock set to the server's: of two writes the one with the later
// timestamp wins, also if it was acknowledged first.
func ServerStamp() WriteOption { return func(o *writeOptions) { o.stamps = true } }

func writeOptionsOf(opts []WriteOption) writeOptions {
	o := writeOptions{level: Persisted}
	for _, opt := range opts {
		opt(&o)
	}
	return o
}

type readOptions struct {
	linearizable, explain bool
}

// ReadOption changes how something is read.
type ReadOption func(*readOptions)

// Linearizable has the answer show everything that was acknowledged to anyone before the
// call. It costs a commit. By default a read is never older than what was acknowledged on the
// present connection, but possibly older than what others were told.
func Linearizable() ReadOption { return func(o *readOptions) { o.linearizable = true } }

// Explain has the Result of Find say how its rows were found, in Plan. The nodes that hold
// records count what they look at; nothing else is looked at than without it. Other reads are
// not explained.
func Explain() ReadOption { return func(o *readOptions) { o.explain = true } }

func readOptionsOf(opts []ReadOption) (o readOptions) {
	for _, opt := range opts {
		opt(&o)
	}
	return o
}

// consistency is the wire form of what the read must show.
func (o readOptions) consistency() string {
	if o.linearizable {
		return protocol.ConsistencyLinearizable
	}
	return ""
}
