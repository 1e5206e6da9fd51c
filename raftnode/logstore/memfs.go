package logstore

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"sync"
)

// MemFS is an FS in memory that tells written from synced, for files and for
// directory entries. It uses only mutexes held briefly and channels, so it runs
// inside testing/synctest. Kill, Crash and CrashTorn end the life of all handles,
// as the end of the process would; the same MemFS can then be opened again. Memory
// use is the size of the files plus one copy of each page not yet synced.
type MemFS struct {
	mu    sync.Mutex // protects everything below and all files
	epoch uint64     // counts crashes; handles of an older epoch are dead
	dirs  map[string]*memDir
	fault faults
}

// memDir is the name space of one directory. Invariant: current equals durable
// with pending applied in order.
type memDir struct {
	current, durable map[string]*memInode
	pending          []nameChange
	locked           bool
}

// nameChange is one directory operation that is not yet durable. An empty add or
// remove does nothing.
type nameChange struct {
	remove, add string
	inode       *memInode
}

func (c nameChange) apply(names map[string]*memInode) {
	if c.remove != "" {
		delete(names, c.remove)
	}
	if c.add != "" {
		names[c.add] = c.inode
	}
}

var _ FS = (*MemFS)(nil)

// NewMemFS returns an empty file system.
func NewMemFS() *MemFS {
	return &MemFS{dirs: make(map[string]*memDir)}
}

// enter injects faults for op, checks that epoch is still alive and takes the
// mutex. After an error the mutex is not held.
func (m *MemFS) enter(op Op, name string, epoch uint64) error {
	if err := m.inject(op, name); err != nil {
		return err
	}
	m.mu.Lock()
	if m.epoch != epoch {
		m.mu.Unlock()
		return fmt.Errorf("%s %s: %w", op, name, ErrCrashed)
	}
	return nil
}

// begin is enter for calls that belong to no handle.
func (m *MemFS) begin(op Op, name string) error {
	m.mu.Lock()
	epoch := m.epoch
	m.mu.Unlock()
	return m.enter(op, name, epoch)
}

func (m *MemFS) dirLocked(dir string) (*memDir, error) {
	if d := m.dirs[filepath.Clean(dir)]; d != nil {
		return d, nil
	}
	return nil, &fs.PathError{Op: "open", Path: dir, Err: fs.ErrNotExist}
}

func (d *memDir) changeLocked(c nameChange) {
	c.apply(d.current)
	d.pending = append(d.pending, c)
}

// MkdirAll implements FS. Directories survive every crash.
func (m *MemFS) MkdirAll(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir = filepath.Clean(dir)
	if m.dirs[dir] == nil {
		m.dirs[dir] = &memDir{current: make(map[string]*memInode), durable: make(map[string]*memInode)}
	}
	return nil
}

// Lock implements FS. Kill and Crash release all locks.
func (m *MemFS) Lock(dir string) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, err := m.dirLocked(dir)
	if err != nil {
		return nil, err
	}
	if d.locked {
		return nil, fmt.Errorf("%w: %s", ErrLocked, dir)
	}
	d.locked = true
	return &memLock{fs: m, dir: d, epoch: m.epoch}, nil
}

// List implements FS.
func (m *MemFS) List(dir string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, err := m.dirLocked(dir)
	if err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(d.current)), nil
}

// Create implements FS.
func (m *MemFS) Create(name string) (File, error) {
	if err := m.begin(OpCreate, name); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	d, err := m.dirLocked(filepath.Dir(name))
	if err != nil {
		return nil, err
	}
	inode := &memInode{}
	d.changeLocked(nameChange{add: filepath.Base(name), inode: inode})
	return &memFile{fs: m, name: name, inode: inode, epoch: m.epoch}, nil
}

// Open implements FS.
func (m *MemFS) Open(name string) (File, error) {
	if err := m.begin(OpOpen, name); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	_, inode, err := m.lookupLocked(name)
	if err != nil {
		return nil, err
	}
	return &memFile{fs: m, name: name, inode: inode, epoch: m.epoch}, nil
}

func (m *MemFS) lookupLocked(name string) (*memDir, *memInode, error) {
	d, err := m.dirLocked(filepath.Dir(name))
	if err != nil {
		return nil, nil, err
	}
	inode := d.current[filepath.Base(name)]
	if inode == nil {
		return nil, nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return d, inode, nil
}

// Rename implements FS.
func (m *MemFS) Rename(from, to string) error {
	if err := m.begin(OpRename, from); err != nil {
		return err
	}
	defer m.mu.Unlock()
	if filepath.Dir(from) != filepath.Dir(to) {
		return &fs.PathError{Op: "rename", Path: to, Err: errors.ErrUnsupported}
	}
	d, inode, err := m.lookupLocked(from)
	if err != nil {
		return err
	}
	d.changeLocked(nameChange{remove: filepath.Base(from), add: filepath.Base(to), inode: inode})
	return nil
}

// Remove implements FS.
func (m *MemFS) Remove(name string) error {
	if err := m.begin(OpRemove, name); err != nil {
		return err
	}
	defer m.mu.Unlock()
	d, _, err := m.lookupLocked(name)
	if err != nil {
		return err
	}
	d.changeLocked(nameChange{remove: filepath.Base(name)})
	return nil
}

// SyncDir implements FS.
func (m *MemFS) SyncDir(dir string) error {
	if err := m.begin(OpSyncDir, dir); err != nil {
		return err
	}
	defer m.mu.Unlock()
	d, err := m.dirLocked(dir)
	if err != nil {
		return err
	}
	d.durable = maps.Clone(d.current)
	d.pending = nil
	return nil
}

// memLock is a held directory lock.
type memLock struct {
	fs    *MemFS
	dir   *memDir
	epoch uint64
}

// Close releases the lock, unless a crash has done so before.
func (k *memLock) Close() error {
	k.fs.mu.Lock()
	defer k.fs.mu.Unlock()
	if k.epoch == k.fs.epoch {
		k.dir.locked = false
	}
	return nil
}
