package logstore

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
)

// Op names an operation of a MemFS for fault injection.
type Op string

// The operations that can be hooked and made to fail.
const (
	OpCreate   Op = "create"
	OpOpen     Op = "open"
	OpRename   Op = "rename"
	OpRemove   Op = "remove"
	OpSyncDir  Op = "sync dir"
	OpRead     Op = "read"
	OpWrite    Op = "write"
	OpTruncate Op = "truncate"
	OpSync     Op = "sync"
)

// memSector is the unit of which a crash keeps all or nothing.
const memSector = 512

// faults is the fault state of a MemFS, protected by its mutex.
type faults struct {
	hook    func(op Op, name string) error
	next    map[Op]error
	stalled chan struct{} // not nil while syncs stall; closed by the end of the stall
}

// SetHook installs fn to be called before every operation, nil for none; an error
// from it fails the operation without effect. fn may call Kill, Crash and
// CrashTorn and must be safe for concurrent use.
func (m *MemFS) SetHook(fn func(op Op, name string) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fault.hook = fn
}

// FailNext makes the next operation of kind op fail with err, without effect. A
// failed sync leaves everything unsynced.
func (m *MemFS) FailNext(op Op, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fault.next == nil {
		m.fault.next = make(map[Op]error)
	}
	m.fault.next[op] = err
}

// StallSync makes every Sync and SyncDir block until release is called or the file
// system crashes. Release may be called more than once.
func (m *MemFS) StallSync() (release func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.endStallLocked()
	stalled := make(chan struct{})
	m.fault.stalled = stalled
	return sync.OnceFunc(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.fault.stalled == stalled {
			m.endStallLocked()
		}
	})
}

func (m *MemFS) endStallLocked() {
	if m.fault.stalled != nil {
		close(m.fault.stalled)
		m.fault.stalled = nil
	}
}

// inject blocks in a stall and returns the error that op has to fail with.
func (m *MemFS) inject(op Op, name string) error {
	m.mu.Lock()
	hook, stalled := m.fault.hook, m.fault.stalled
	err := m.fault.next[op]
	delete(m.fault.next, op)
	m.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%s %s: %w", op, name, err)
	}
	if hook != nil {
		if err := hook(op, name); err != nil {
			return fmt.Errorf("%s %s: %w", op, name, err)
		}
	}
	if stalled != nil && (op == OpSync || op == OpSyncDir) {
		<-stalled
	}
	return nil
}

// Kill ends the process that uses the file system: all handles are dead, locks are
// free, but everything written is kept, synced or not.
func (m *MemFS) Kill() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.endHandlesLocked()
}

// Crash is a power loss: like Kill, and everything not synced is lost.
func (m *MemFS) Crash() {
	m.crash(nil)
}

// CrashTorn is a power loss at a bad moment: of everything not synced, a random
// part survives. Each name change and each 512-byte sector is kept or lost on its
// own. What survives is durable afterwards.
func (m *MemFS) CrashTorn(seed uint64) {
	m.crash(rand.New(rand.NewPCG(seed, 0)))
}

func (m *MemFS) endHandlesLocked() {
	m.epoch++
	m.endStallLocked()
	m.fault.next = nil
	for _, d := range m.dirs {
		d.locked = false
	}
}

func (m *MemFS) crash(rng *rand.Rand) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.endHandlesLocked()
	for _, dir := range slices.Sorted(maps.Keys(m.dirs)) {
		d := m.dirs[dir]
		for _, c := range d.pending {
			if rng != nil && rng.IntN(2) == 0 {
				c.apply(d.durable)
			}
		}
		d.pending = nil
		d.current = make(map[string]*memInode)
		for _, name := range slices.Sorted(maps.Keys(d.durable)) {
			d.durable[name].crash(rng)
			d.current[name] = d.durable[name]
		}
	}
}

// crash takes the inode back to its synced content, except for what rng keeps.
func (n *memInode) crash(rng *rand.Rand) {
	size := n.syncedSize
	if rng != nil {
		low, high := min(n.size, n.syncedSize), max(n.size, n.syncedSize)
		size = low + rng.Int64N(high-low+1)
	}
	for _, page := range slices.Sorted(maps.Keys(n.dirty)) {
		n.crashPage(page, n.dirty[page], rng)
	}
	n.size = int64(len(n.pages)) * memPage
	n.truncate(size)
	n.dirty, n.reuse = nil, nil
	n.sync()
}

func (n *memInode) crashPage(page int, synced []byte, rng *rand.Rand) {
	written := n.pages[page]
	if synced == nil {
		synced = make([]byte, memPage)
	}
	for at := 0; at < memPage; at += memSector {
		if rng == nil || rng.IntN(2) == 0 {
			copy(written[at:at+memSector], synced[at:])
		}
	}
}
