package raftnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/storage"
)

// stateID names the one snapshot of a group that always exists: its flushed state.
const stateID = "state"

// openRetryPause follows a state that could not be opened for sending.
const openRetryPause = time.Second

// snapshotVersion is the library's format of snapshot metadata.
const snapshotVersion raft.SnapshotVersion = 1

// snapshotStore is the raft.SnapshotStore of one group. The library's snapshots are
// pointers to the machine's flushed state: listing one reads the mark, taking one
// checkpoints the machine, and only sending one copies bytes. A received snapshot
// is spooled until the machine has restored it.
type snapshotStore struct {
	group   uint32
	machine StateMachine
	spool   *spool
	sender  *sender
	// ctx ends with the group.
	ctx context.Context
}

var _ raft.SnapshotStore = (*snapshotStore)(nil)

// List implements raft.SnapshotStore: the flushed state, which decides where the
// replay of the log begins. Nothing while nothing was flushed.
func (s *snapshotStore) List() ([]*raft.SnapshotMeta, error) {
	mark := s.machine.Flushed()
	if mark.Index == 0 {
		return nil, nil
	}
	meta, err := snapshotMeta(stateID, mark)
	if err != nil {
		return nil, err
	}
	return []*raft.SnapshotMeta{meta}, nil
}

// Create implements raft.SnapshotStore, for a snapshot of this replica and for one
// that a leader sends: the first use of the sink decides.
func (s *snapshotStore) Create(_ raft.SnapshotVersion, index, term uint64, servers raft.Configuration,
	serversIndex uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	return &snapshotSink{store: s, meta: raft.SnapshotMeta{
		Version: snapshotVersion, ID: stateID, Index: index, Term: term,
		Configuration: servers, ConfigurationIndex: serversIndex,
	}}, nil
}

// Open implements raft.SnapshotStore: the flushed state for sending, or a received
// snapshot for restoring. Sending waits for its turn.
func (s *snapshotStore) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	if id != stateID {
		in, err := s.spool.open(id)
		if err != nil {
			return nil, nil, fmt.Errorf("open received snapshot: %w", err)
		}
		return &in.meta, in, nil
	}
	release, err := s.sender.acquire(s.ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("open snapshot of group %d: %w", s.group, err)
	}
	meta, snapshot, err := s.openState()
	if err != nil {
		release()
		// The library tries again at once, and each attempt may read the whole state.
		select {
		case <-time.After(openRetryPause):
		case <-s.ctx.Done():
		}
		return nil, nil, fmt.Errorf("open snapshot of group %d: %w", s.group, err)
	}
	return meta, &outgoing{ReadCloser: snapshot, ctx: s.ctx, limit: s.sender.limit, release: release}, nil
}

// openState opens the flushed state for reading.
func (s *snapshotStore) openState() (*raft.SnapshotMeta, io.ReadCloser, error) {
	snapshot, err := s.machine.OpenSnapshot()
	if err != nil {
		return nil, nil, err
	}
	meta, err := snapshotMeta(stateID, snapshot.Mark())
	if err != nil {
		return nil, nil, errors.Join(err, snapshot.Close())
	}
	meta.Size = snapshot.Size()
	return meta, snapshot, nil
}

// snapshotMeta is the library's view of a mark, without the size.
func snapshotMeta(id string, mark storage.Mark) (*raft.SnapshotMeta, error) {
	conf, err := markConfiguration(mark)
	if err != nil {
		return nil, err
	}
	return &raft.SnapshotMeta{
		Version: snapshotVersion, ID: id, Index: mark.Index, Term: mark.Term,
		Configuration:      raft.Configuration{Servers: conf.servers},
		ConfigurationIndex: conf.index,
	}, nil
}

// markConfiguration decodes the configuration of a mark; the zero mark has none.
func markConfiguration(mark storage.Mark) (conf *configuration, err error) {
	if mark.Index == 0 {
		return &configuration{}, nil
	}
	// The library's decoder panics on malformed bytes.
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: configuration of mark %d: %v", ErrCorrupt, mark.Index, p)
		}
	}()
	servers := raft.DecodeConfiguration(mark.Configuration).Servers
	if len(servers) == 0 {
		return nil, fmt.Errorf("%w: mark %d has no configuration", ErrCorrupt, mark.Index)
	}
	return &configuration{index: mark.ConfigurationIndex, servers: servers}, nil
}

// metaPosition is the place in the log that a snapshot stands for.
func metaPosition(meta *raft.SnapshotMeta) fsm.Position {
	return fsm.Position{
		Index: meta.Index, Term: meta.Term,
		Configuration:      raft.EncodeConfiguration(meta.Configuration),
		ConfigurationIndex: meta.ConfigurationIndex,
	}
}

// snapshotSink is the raft.SnapshotSink of both directions. For one goroutine.
type snapshotSink struct {
	store *snapshotStore
	meta  raft.SnapshotMeta
	// incoming is set by the first Write.
	incoming *received
}

// ID implements raft.SnapshotSink. It is final after Close.
func (s *snapshotSink) ID() string { return s.meta.ID }

// checkpoint makes the state durable up to the index of the sink.
func (s *snapshotSink) checkpoint() error {
	err := s.store.machine.Checkpoint(s.store.ctx, metaPosition(&s.meta))
	if err != nil {
		return fmt.Errorf("checkpoint group %d at %d: %w", s.store.group, s.meta.Index, err)
	}
	return nil
}

// Write implements raft.SnapshotSink for a snapshot that is received.
func (s *snapshotSink) Write(b []byte) (int, error) {
	if s.incoming == nil {
		w, err := s.store.spool.create()
		if err != nil {
			return 0, fmt.Errorf("receive snapshot: %w", err)
		}
		s.incoming = w
	}
	n, err := s.incoming.Write(b)
	s.meta.Size += int64(n)
	return n, err
}

// Close implements raft.SnapshotSink: a received snapshot may now be opened.
func (s *snapshotSink) Close() error {
	if s.incoming == nil {
		return nil
	}
	id, err := s.incoming.keep(s.meta)
	if err != nil {
		return fmt.Errorf("receive snapshot: %w", err)
	}
	s.meta.ID = id
	return nil
}

// Cancel implements raft.SnapshotSink.
func (s *snapshotSink) Cancel() error {
	if s.incoming == nil {
		return nil
	}
	return s.incoming.Close()
}
