package fsm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/quorate/quorate/fsm/storage"
)

// tokenGap is by how much a transplant raises the greatest token of a group: the
// cluster that the snapshot comes from may have given out further tokens since, and
// none may come twice. Tokens stay below 2^53 for two million transplants.
const tokenGap = 1 << 32

// SnapshotInfo says what a snapshot contains.
type SnapshotInfo struct {
	Group uint32
	// Mark is the state that the snapshot contains.
	Mark storage.Mark
	// Items is the number of items, Records that of last-write-wins records and Sets
	// that of keys of observed-remove maps, tombstones included.
	Items, Records, Sets uint64
}

// CheckSnapshot reads a snapshot of group, which src must end with, and checks
// everything that Restore checks. Errors wrap ErrSnapshot, or are those of src.
func CheckSnapshot(group uint32, src io.Reader) (SnapshotInfo, error) {
	l := loader{group: group, state: newResident()}
	if err := l.load(src); err != nil {
		return SnapshotInfo{}, fmt.Errorf("check snapshot: %w", err)
	}
	return l.info(), nil
}

func (l *loader) info() SnapshotInfo {
	return SnapshotInfo{
		Group: l.group, Mark: l.mark, Items: l.count,
		Records: l.counts[storage.SectionRecords], Sets: l.counts[storage.SectionSets],
	}
}

// Replace makes the snapshot in src, which must end with it, the stored state of a
// group that no Machine runs: what of the old state is damaged does not matter. The
// snapshot must reach atLeast, in log indexes, or nothing is changed. Errors as of
// Restore.
func Replace(store storage.Store, group uint32, src io.Reader, atLeast uint64) (SnapshotInfo, error) {
	info, err := replace(store, &loader{group: group, state: newResident()}, src, func(l *loader) (storage.Mark, error) {
		if l.mark.Index < atLeast {
			return storage.Mark{}, fmt.Errorf("%w: it ends at index %d, needed is %d", ErrSnapshot, l.mark.Index, atLeast)
		}
		return l.mark, nil
	})
	if err != nil {
		return SnapshotInfo{}, fmt.Errorf("replace state of group %d: %w", group, err)
	}
	return info, nil
}

// Transplant stores the snapshot in src, which must end with it, as the beginning of
// a group in another cluster: at the same index in term 1, under the configuration
// given, without the documents of the old cluster, and with the greatest token raised
// beyond all that the old cluster can have given out. The group must have no Machine.
// Errors as of Restore; nothing is changed then.
func Transplant(store storage.Store, group uint32, src io.Reader, configuration []byte) (SnapshotInfo, error) {
	l := &loader{group: group, state: newResident()}
	l.adapt = func(it *storage.Item) bool {
		return it.Key.Section != storage.SectionSystem && it.Key != tokenKey
	}
	info, err := replace(store, l, src, func(l *loader) (storage.Mark, error) {
		l.adapt = nil
		token := binary.AppendUvarint([]byte{tokenFormat}, l.state.locks.Fence()+tokenGap)
		if err := l.store(storage.Item{Key: tokenKey, Value: token}); err != nil {
			return storage.Mark{}, err
		}
		mark := l.mark
		mark.Index, mark.Term = max(mark.Index, 1), 1
		mark.Configuration, mark.ConfigurationIndex = configuration, mark.Index
		mark.Digest = l.stored
		return mark, l.flush()
	})
	if err != nil {
		return SnapshotInfo{}, fmt.Errorf("transplant group %d: %w", group, err)
	}
	return info, nil
}

// tokenKey is the item with the greatest token.
var tokenKey = storage.Key{Section: storage.SectionGroup, Bytes: tokenName}

// replace loads src through l and makes it the stored state, under the mark that
// finish names when everything was checked.
func replace(store storage.Store, l *loader, src io.Reader, finish func(*loader) (storage.Mark, error)) (SnapshotInfo, error) {
	replacer, err := store.Replace(l.group)
	if err != nil {
		return SnapshotInfo{}, err
	}
	l.put = replacer.Put
	err = l.load(src)
	var mark storage.Mark
	if err == nil {
		mark, err = finish(l)
	}
	if err != nil {
		return SnapshotInfo{}, errors.Join(err, replacer.Abort())
	}
	if err := replacer.Commit(mark); err != nil {
		return SnapshotInfo{}, err
	}
	return l.info(), nil
}
