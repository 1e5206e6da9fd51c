package fsm

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/quorate/quorate/fsm/storage"
)

// Scrub reads the whole flushed state and checks it: every item against its checksum,
// and all of them against the digest of the mark, which shows items that are missing. It
// calls pace with the number of bytes before it goes on from a portion; an error of pace
// ends it. A view of the store is open meanwhile, which keeps space from being reused.
// storage.ErrCorrupt means that the state is damaged; OnDamage is told too.
func (m *Machine) Scrub(ctx context.Context, pace func(ctx context.Context, bytes int) error) (int64, error) {
	m.mu.RLock()
	err := m.err
	m.mu.RUnlock()
	if err != nil {
		return 0, fmt.Errorf("scrub: %w", err)
	}
	reader, err := m.store.NewReader()
	if err != nil {
		return 0, fmt.Errorf("scrub: %w", m.noticed(err))
	}
	size, err := m.scrub(ctx, reader, pace)
	err = errors.Join(err, reader.Close())
	if err != nil {
		return size, fmt.Errorf("scrub: %w", m.noticed(err))
	}
	return size, nil
}

func (m *Machine) scrub(ctx context.Context, reader storage.Reader, pace func(context.Context, int) error) (size int64, err error) {
	f := frames{reader: reader, group: m.group}
	if f.mark, err = reader.Mark(m.group); err != nil {
		return 0, err
	}
	for {
		frame, err := f.next()
		if errors.Is(err, io.EOF) {
			return size, f.complete()
		}
		if err != nil {
			return size, err
		}
		size += int64(len(frame))
		if err := pace(ctx, len(frame)); err != nil {
			return size, err
		}
	}
}

// complete compares the items with the mark when all were read.
func (f *frames) complete() error {
	if f.digest != f.mark.Digest {
		return fmt.Errorf("digest of the items is %#x, that of the mark %#x: %w", f.digest, f.mark.Digest, storage.ErrCorrupt)
	}
	return nil
}

// noticed tells the owner of the machine when err says that stored data is damaged.
func (m *Machine) noticed(err error) error {
	if m.onDamage != nil && errors.Is(err, storage.ErrCorrupt) {
		m.onDamage(err)
	}
	return err
}
