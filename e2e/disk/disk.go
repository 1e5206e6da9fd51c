//go:build linux

package disk

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// ErrUnsupported is wrapped where the machine does not let the process mount a FUSE file
// system.
var ErrUnsupported = errors.New("cannot mount with FUSE here")

// pageSize is the unit of which a power loss keeps all or nothing.
const pageSize = 4096

// Disk is a mounted directory. Its methods are safe for concurrent use, but for Cut and
// Restore, which are for one goroutine.
type Disk struct {
	backing, mount string
	server         *fuse.Server

	mu sync.Mutex // protects the fields below
	// pending is what every file had where it was changed since its last sync.
	pending map[inode]*undo
	cut     bool
	// fault is what writes and syncs answer; zero while the disk works.
	fault syscall.Errno
	// stalled blocks syncs until it is closed; nil while they go on.
	stalled chan struct{}
}

type inode struct{ dev, ino uint64 }

// undo takes a file back to its last sync.
type undo struct {
	file  *os.File
	size  int64
	pages map[int64][]byte
}

// Mount mounts a disk at the directory mount that keeps its content in backing; both
// exist. Errors wrap ErrUnsupported when the machine does not allow it. Close follows.
func Mount(backing, mount string) (*Disk, error) {
	d := &Disk{backing: backing, mount: mount, pending: map[inode]*undo{}}
	return d, d.attach()
}

func (d *Disk) attach() error {
	root, err := fs.NewLoopbackRoot(d.backing)
	if err != nil {
		return fmt.Errorf("root of %s: %w", d.backing, err)
	}
	data := root.(*fs.LoopbackNode).RootData
	top := &node{LoopbackNode: fs.LoopbackNode{RootData: data}, disk: d}
	data.RootNode = top
	server, err := fs.Mount(d.mount, top, &fs.Options{MountOptions: fuse.MountOptions{DirectMount: true, FsName: "quorate-test-disk"}})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	d.server = server
	return nil
}

// Path is where the disk is mounted.
func (d *Disk) Path() string { return d.mount }

// Cut cuts the power: from now on nothing reaches the disk, and of what was not synced an
// arbitrary part is gone, as rnd has it. The processes that use the disk must end before
// Restore.
func (d *Disk) Cut(rnd *rand.Rand) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cut = true
	d.releaseLocked()
	var errs []error
	all := rnd.IntN(2) == 0
	for id, u := range d.pending {
		errs = append(errs, u.apply(func() bool { return all || rnd.IntN(2) == 0 }), u.file.Close())
		delete(d.pending, id)
	}
	return errors.Join(errs...)
}

// Restore gives the power back. Nobody may use the disk.
func (d *Disk) Restore() error {
	if err := d.server.Unmount(); err != nil {
		return fmt.Errorf("unmount %s: %w", d.mount, err)
	}
	d.mu.Lock()
	d.cut, d.fault = false, 0
	d.mu.Unlock()
	return d.attach()
}

// Fail makes writes and syncs fail with an error, 0 to work again.
func (d *Disk) Fail(errno syscall.Errno) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault = errno
}

// Stall makes syncs hang until release is called.
func (d *Disk) Stall() (release func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stalled = make(chan struct{})
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.releaseLocked()
	}
}

func (d *Disk) releaseLocked() {
	if d.stalled != nil {
		close(d.stalled)
		d.stalled = nil
	}
}

// Close unmounts the disk. Nobody may use it.
func (d *Disk) Close() error {
	d.mu.Lock()
	d.releaseLocked()
	var errs []error
	for id, u := range d.pending {
		errs = append(errs, u.file.Close())
		delete(d.pending, id)
	}
	d.mu.Unlock()
	return errors.Join(append(errs, d.server.Unmount())...)
}

// apply takes back what lose picks, page by page, and the length if it picks that.
func (u *undo) apply(lose func() bool) error {
	for at, old := range u.pages {
		if !lose() {
			continue
		}
		if _, err := u.file.WriteAt(old, at); err != nil {
			return fmt.Errorf("take back a page: %w", err)
		}
	}
	if !lose() {
		return nil
	}
	return u.file.Truncate(u.size)
}

// save keeps what the file at path has between from and to, before it is changed.
func (d *Disk) saveLocked(id inode, path string, from, to int64) error {
	u := d.pending[id]
	if u == nil {
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		info, err := file.Stat()
		if err != nil {
			return errors.Join(err, file.Close())
		}
		u = &undo{file: file, size: info.Size(), pages: map[int64][]byte{}}
		d.pending[id] = u
	}
	for at := from / pageSize * pageSize; at < min(to, u.size); at += pageSize {
		if u.pages[at] != nil {
			continue
		}
		page := make([]byte, pageSize)
		n, err := u.file.ReadAt(page, at)
		if n == 0 && err != nil {
			return err
		}
		u.pages[at] = page[:n]
	}
	return nil
}

// synced forgets how to take a file back.
func (d *Disk) syncedLocked(id inode) error {
	u := d.pending[id]
	if u == nil {
		return nil
	}
	delete(d.pending, id)
	return u.file.Close()
}
