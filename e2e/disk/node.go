//go:build linux

package disk

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// node is a file or directory of a Disk.
type node struct {
	fs.LoopbackNode
	disk *Disk
}

var (
	_ fs.NodeWrapChilder = (*node)(nil)
	_ fs.NodeOpener      = (*node)(nil)
	_ fs.NodeCreater     = (*node)(nil)
	_ fs.NodeSetattrer   = (*node)(nil)
)

// WrapChild implements fs.NodeWrapChilder.
func (n *node) WrapChild(_ context.Context, ops fs.InodeEmbedder) fs.InodeEmbedder {
	l, ok := ops.(*fs.LoopbackNode)
	if !ok {
		return ops
	}
	return &node{LoopbackNode: fs.LoopbackNode{RootData: l.RootData}, disk: n.disk}
}

func (n *node) path() string { return filepath.Join(n.disk.backing, n.Path(n.Root())) }

// Open implements fs.NodeOpener.
func (n *node) Open(_ context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	f, err := os.OpenFile(n.path(), int(flags)&(os.O_RDONLY|os.O_WRONLY|os.O_RDWR), 0)
	if err != nil {
		return nil, 0, fs.ToErrno(err)
	}
	h, errno := n.disk.handle(f)
	return h, 0, errno
}

// Create implements fs.NodeCreater.
func (n *node) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	child, opened, _, errno := n.LoopbackNode.Create(ctx, name, flags, mode, out)
	if errno != 0 {
		return nil, nil, 0, errno
	}
	if r, ok := opened.(fs.FileReleaser); ok {
		if errno := r.Release(ctx); errno != 0 {
			return nil, nil, 0, errno
		}
	}
	f, err := os.OpenFile(filepath.Join(n.path(), name), os.O_RDWR, 0)
	if err != nil {
		return nil, nil, 0, fs.ToErrno(err)
	}
	h, errno := n.disk.handle(f)
	return child, h, 0, errno
}

// Setattr implements fs.NodeSetattrer: what is cut off comes back without a sync.
func (n *node) Setattr(ctx context.Context, _ fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if size, ok := in.GetSize(); ok {
		if errno := n.disk.beforeTruncate(n.path(), int64(size)); errno != 0 {
			return errno
		}
	}
	return n.LoopbackNode.Setattr(ctx, nil, in, out)
}

func (d *Disk) beforeTruncate(path string, size int64) syscall.Errno {
	info, err := os.Stat(path)
	if err != nil {
		return fs.ToErrno(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if errno := d.brokenLocked(); errno != 0 {
		return errno
	}
	return fs.ToErrno(d.saveLocked(identify(info), path, size, info.Size()))
}

func identify(info os.FileInfo) inode {
	st := info.Sys().(*syscall.Stat_t)
	return inode{st.Dev, st.Ino}
}

func (d *Disk) brokenLocked() syscall.Errno {
	if d.cut {
		return syscall.EIO
	}
	return d.fault
}

// handle is an open file of a Disk.
type handle struct {
	disk *Disk
	file *os.File
	id   inode
}

var (
	_ fs.FileReader   = (*handle)(nil)
	_ fs.FileWriter   = (*handle)(nil)
	_ fs.FileFsyncer  = (*handle)(nil)
	_ fs.FileReleaser = (*handle)(nil)
	_ fs.FileFlusher  = (*handle)(nil)
)

func (d *Disk) handle(f *os.File) (*handle, syscall.Errno) {
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return nil, fs.ToErrno(err)
	}
	return &handle{disk: d, file: f, id: identify(info)}, 0
}

// Read implements fs.FileReader.
func (h *handle) Read(_ context.Context, buf []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	return fuse.ReadResultFd(h.file.Fd(), off, len(buf)), 0
}

// Write implements fs.FileWriter.
func (h *handle) Write(_ context.Context, data []byte, off int64) (uint32, syscall.Errno) {
	d := h.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	if errno := d.brokenLocked(); errno != 0 {
		return 0, errno
	}
	if err := d.saveLocked(h.id, procPath(h.file), off, off+int64(len(data))); err != nil {
		return 0, fs.ToErrno(err)
	}
	n, err := h.file.WriteAt(data, off)
	return uint32(n), fs.ToErrno(err)
}

// procPath is a name of an open file that holds when it is renamed.
func procPath(f *os.File) string {
	return filepath.Join("/proc/self/fd", strconv.Itoa(int(f.Fd())))
}

// Fsync implements fs.FileFsyncer.
func (h *handle) Fsync(ctx context.Context, _ uint32) syscall.Errno {
	d := h.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	if stalled := d.stalled; stalled != nil {
		d.mu.Unlock()
		select {
		case <-stalled:
		case <-ctx.Done():
		}
		d.mu.Lock()
	}
	if errno := d.brokenLocked(); errno != 0 {
		return errno
	}
	return fs.ToErrno(d.syncedLocked(h.id))
}

// Flush implements fs.FileFlusher. Closing a file syncs nothing.
func (h *handle) Flush(context.Context) syscall.Errno { return 0 }

// Release implements fs.FileReleaser.
func (h *handle) Release(context.Context) syscall.Errno { return fs.ToErrno(h.file.Close()) }
