package quorate

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/raftnode"
	"github.com/quorate/quorate/raftnode/logstore"
)

// epochDocument is where the store keeps its epoch, and epochKey where the log keeps the
// number of the node's life: the two are opened, and may be copied, one by one.
const epochDocument = "node/epoch"

var epochKey = []byte("Epoch")

// epoch is what the store knows of the log beside it.
type epoch struct {
	// life counts the lives of the node.
	life uint64
	// position is how far the log was written when the node ended in good order last.
	position uint64
}

func loadEpoch(store storage.Store) (e epoch, err error) {
	document, err := store.Meta(epochDocument)
	switch {
	case err != nil:
		return e, fmt.Errorf("read epoch of the store: %w", err)
	case document == nil:
		return e, nil
	case len(document) != 16:
		return e, fmt.Errorf("epoch of the store has %d bytes: %w", len(document), storage.ErrCorrupt)
	}
	return epoch{binary.BigEndian.Uint64(document), binary.BigEndian.Uint64(document[8:])}, nil
}

func (e epoch) save(store storage.Store) error {
	document := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, e.life), e.position)
	if err := store.SetMeta(epochDocument, document); err != nil {
		return fmt.Errorf("write epoch of the store: %w", err)
	}
	return nil
}

// beginEpoch counts the lives of a node, first in its log and then in its store, and
// refuses a log that missed one, or lacks what it had at the end of the last one, with
// raftnode.ErrStaleLog. A store that missed some is no danger: what it lacks is in the
// log, or comes from another node.
func beginEpoch(store storage.Store, wal *logstore.Log) error {
	position := wal.Position()
	kept := wal.Group(logstore.NodeGroup)
	life, err := kept.GetUint64(epochKey)
	if err != nil && !errors.Is(err, logstore.ErrKeyNotFound) {
		return fmt.Errorf("read epoch of the log: %w", err)
	}
	e, err := loadEpoch(store)
	if err != nil {
		return err
	}
	if life < e.life {
		return fmt.Errorf("%w: it is of life %d of the node, the store of life %d", raftnode.ErrStaleLog, life, e.life)
	}
	if position < e.position {
		return fmt.Errorf("%w: it ends at frame %d, and ended at %d when the node stopped", raftnode.ErrStaleLog, position, e.position)
	}
	if err := kept.SetUint64(epochKey, life+1); err != nil {
		return fmt.Errorf("write epoch of the log: %w", err)
	}
	e.life = life + 1
	return e.save(store)
}

// endEpoch notes where the log ends, which must be closed.
func endEpoch(store storage.Store, wal *logstore.Log) error {
	e, err := loadEpoch(store)
	if err != nil {
		return err
	}
	e.position = wal.Position()
	return e.save(store)
}
