package logstore

import (
	"encoding/binary"
	"fmt"
)

// The keys under which hashicorp/raft keeps its vote (raft.go, keyLastVoteTerm and
// keyLastVoteCand).
const (
	keyLastVoteTerm = "LastVoteTerm"
	keyLastVoteCand = "LastVoteCand"
)

// Set implements raft.StableStore: it blocks until the value is durable. Errors
// wrap ErrTooLarge, ErrClosed or ErrFailed.
//
// A vote is one thing in two keys. Raft sets LastVoteTerm, then LastVoteCand, and a
// crash between two separate writes would pair the new term with the old candidate
// (hashicorp/raft issue 661). So LastVoteTerm is held back in memory, invisible, and
// written in one record with the LastVoteCand that follows. Raft answers no vote
// request in between.
func (g *GroupLog) Set(key, value []byte) error {
	if err := g.set(string(key), value); err != nil {
		return fmt.Errorf("set %q of group %d: %w", key, g.id, err)
	}
	return nil
}

func (g *GroupLog) set(key string, value []byte) error {
	if n := len(key) + len(value); n > MaxStableBytes {
		return fmt.Errorf("%w: %d bytes", ErrTooLarge, n)
	}
	if key == keyLastVoteTerm {
		return g.holdVoteTerm(value)
	}
	var term []byte
	if key == keyLastVoteCand {
		term = g.takeVoteTerm()
	}
	return g.log.submit(func(b []byte) ([]byte, error) {
		b = g.appendHintLocked(b)
		if term != nil {
			return appendPairRecord(b, recordVote, g.id, term, value), nil
		}
		return appendPairRecord(b, recordSet, g.id, []byte(key), value), nil
	})
}

func (g *GroupLog) holdVoteTerm(value []byte) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.heldVoteTerm = append([]byte{}, value...)
	return g.log.usable()
}

func (g *GroupLog) takeVoteTerm() []byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	term := g.heldVoteTerm
	g.heldVoteTerm = nil
	return term
}

// Get implements raft.StableStore. It returns a copy of the durable value, or
// ErrKeyNotFound, unwrapped.
func (g *GroupLog) Get(key []byte) ([]byte, error) {
	if err := g.log.usable(); err != nil {
		return nil, fmt.Errorf("get %q of group %d: %w", key, g.id, err)
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	value, ok := g.stable[string(key)]
	if !ok {
		return nil, ErrKeyNotFound
	}
	return append([]byte{}, value...), nil
}

// SetUint64 implements raft.StableStore; it is Set of the number, 8 bytes big endian.
func (g *GroupLog) SetUint64(key []byte, value uint64) error {
	return g.Set(key, binary.BigEndian.AppendUint64(nil, value))
}

// GetUint64 implements raft.StableStore. Errors: ErrKeyNotFound, unwrapped; or an
// error if the value was not set by SetUint64.
func (g *GroupLog) GetUint64(key []byte) (uint64, error) {
	value, err := g.Get(key)
	if err != nil {
		return 0, err
	}
	if len(value) != 8 {
		return 0, fmt.Errorf("get %q of group %d: value of %d bytes is no number", key, g.id, len(value))
	}
	return binary.BigEndian.Uint64(value), nil
}
