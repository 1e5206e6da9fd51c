package fsm

import (
	"errors"
	"fmt"
	"io"

	"github.com/quorate/quorate/fsm/codec"
	"github.com/quorate/quorate/fsm/storage"
)

// restoreChunk is the amount of items, in bytes, that Restore puts into the store
// at a time.
const restoreChunk = 1 << 20

// Restore replaces the whole state by the snapshot in src, which must end with it.
// Everything is checked, the digest included, before anything of it is visible: on
// an error that wraps ErrSnapshot, or an error of src, the machine goes on with the
// state it had. Then it switches once; what was dirty is dropped, and listeners get
// a Reset. It blocks on the disk.
func (m *Machine) Restore(src io.Reader) error {
	m.applying.Lock()
	defer m.applying.Unlock()
	m.mu.RLock()
	err := m.err
	m.mu.RUnlock()
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	mark, err := m.restore(src)
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	m.logger.Info("state restored from snapshot", "index", mark.Index, "term", mark.Term)
	if m.onChange != nil {
		m.onChange(&Changes{Group: m.group, Index: mark.Index, Reset: true})
	}
	return nil
}

func (m *Machine) restore(src io.Reader) (storage.Mark, error) {
	replacer, err := m.store.Replace(m.group)
	if err != nil {
		return storage.Mark{}, err
	}
	l := loader{group: m.group, put: replacer.Put, state: newResident()}
	if err := l.load(src); err != nil {
		return storage.Mark{}, errors.Join(err, replacer.Abort())
	}
	// No flush may be under way: its batch belongs to the state that goes.
	err = m.flusher.Exclusive(func() error { return m.swap(replacer, &l) })
	return l.mark, err
}

// swap makes the loaded state the current one, in the store and in memory.
func (m *Machine) swap(replacer storage.Replacer, l *loader) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return errors.Join(m.err, replacer.Abort())
	}
	if err := replacer.Commit(l.mark); err != nil {
		// Which of the two states the store holds is unknown.
		m.stopLocked(err)
		return m.err
	}
	m.install(l.state, l.mark)
	return nil
}

// loader takes a snapshot apart and checks it.
type loader struct {
	group uint32
	// put takes what is to be stored, a chunk at a time; nil only checks.
	put func([]storage.Item) error
	// adapt, when set, changes an item that was checked before it is stored, and
	// reports whether it is stored at all.
	adapt func(*storage.Item) bool

	mark   storage.Mark
	state  *resident
	last   storage.Key
	count  uint64
	counts [storage.Sections]uint64
	digest uint64
	// stored is the digest of what was stored: that of the snapshot unless adapt
	// changes something.
	stored uint64
	// chunk is what put did not get yet, and its size in bytes.
	chunk      []storage.Item
	chunkBytes int
}

func (l *loader) load(src io.Reader) error {
	if err := l.header(src); err != nil {
		return err
	}
	for {
		kind, payload, err := readFrame(src)
		if err != nil {
			return err
		}
		switch kind {
		case frameItems:
			if err := l.items(&payload); err != nil {
				return err
			}
		case frameTrailer:
			return l.trailer(&payload, src)
		default:
			return fmt.Errorf("%w: frame of kind %d", ErrSnapshot, kind)
		}
	}
}

func (l *loader) header(src io.Reader) error {
	var magic [len(snapshotMagic)]byte
	if _, err := io.ReadFull(src, magic[:]); err != nil {
		return fmt.Errorf("%w: header: %w", ErrSnapshot, err)
	}
	if string(magic[:]) != snapshotMagic {
		return fmt.Errorf("%w: magic %q", ErrSnapshot, magic)
	}
	kind, payload, err := readFrame(src)
	if err != nil {
		return err
	}
	group, encoded := payload.Uvarint(), payload.Bytes()
	if err := payload.End(); err != nil || kind != frameHeader {
		return fmt.Errorf("%w: header of kind %d", errors.Join(ErrSnapshot, err), kind)
	}
	if group != uint64(l.group) {
		return fmt.Errorf("%w: it is of group %d", ErrSnapshot, group)
	}
	if l.mark, err = storage.DecodeMark(encoded); err != nil {
		return fmt.Errorf("%w: %w", ErrSnapshot, err)
	}
	return nil
}

func (l *loader) items(payload *codec.Reader) error {
	for payload.Len() > 0 {
		key := storage.Key{Section: storage.Section(payload.Byte()), Bytes: payload.Text()}
		value := payload.Bytes()
		if payload.Err() != nil {
			break
		}
		if err := l.item(key, value); err != nil {
			return err
		}
	}
	if err := payload.End(); err != nil {
		return fmt.Errorf("%w: items: %w", ErrSnapshot, err)
	}
	return nil
}

func (l *loader) item(key storage.Key, value []byte) error {
	if key.Section < l.last.Section || (key.Section == l.last.Section && key.Bytes <= l.last.Bytes && l.count > 0) {
		return fmt.Errorf("%w: items out of order", ErrSnapshot)
	}
	if err := l.state.load(key, value); err != nil {
		return fmt.Errorf("%w: %w", ErrSnapshot, err)
	}
	l.last = key
	l.count++
	l.counts[key.Section]++
	l.digest += storage.ItemHash(key, value)
	return l.store(storage.Item{Key: key, Value: value})
}

// store passes an item on to put.
func (l *loader) store(it storage.Item) error {
	if l.put == nil || l.adapt != nil && !l.adapt(&it) {
		return nil
	}
	l.stored += storage.ItemHash(it.Key, it.Value)
	l.chunk = append(l.chunk, it)
	l.chunkBytes += cellOverhead + len(it.Key.Bytes) + len(it.Value)
	if l.chunkBytes < restoreChunk {
		return nil
	}
	return l.flush()
}

func (l *loader) flush() error {
	if len(l.chunk) == 0 {
		return nil
	}
	if err := l.put(l.chunk); err != nil {
		return err
	}
	l.chunk, l.chunkBytes = nil, 0
	return nil
}

func (l *loader) trailer(payload *codec.Reader, src io.Reader) error {
	count, digest := payload.Uvarint(), payload.Uint64()
	if err := payload.End(); err != nil {
		return fmt.Errorf("%w: trailer: %w", ErrSnapshot, err)
	}
	if count != l.count || digest != l.digest || digest != l.mark.Digest {
		return fmt.Errorf("%w: %d items with digest %#x, of %d with %#x", ErrSnapshot, l.count, l.digest, count, digest)
	}
	if n, err := io.ReadFull(src, make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: data behind the trailer", errors.Join(ErrSnapshot, err))
	}
	return l.flush()
}
