package logstore

import (
	"fmt"
	"io"
	"io/fs"
)

// memPage is the unit in which MemFS stores files and remembers unsynced changes.
const memPage = 4096

// memInode is the content of one file, as written and as synced. Pages that were
// never written are nil and read as zeros.
type memInode struct {
	pages      [][]byte
	size       int64
	syncedSize int64
	// dirty maps the number of a page changed since the last sync to its synced
	// content, nil for zeros.
	dirty map[int][]byte
	// reuse keeps page buffers dropped by sync for the next change, so that steady
	// appending does not allocate.
	reuse [][]byte
}

// memFile is an open handle on an inode.
type memFile struct {
	fs    *MemFS
	name  string
	inode *memInode
	epoch uint64
}

// ReadAt implements File.
func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.fs.enter(OpRead, f.name, f.epoch); err != nil {
		return 0, err
	}
	defer f.fs.mu.Unlock()
	return f.inode.readAt(p, off)
}

// WriteAt implements File.
func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.fs.enter(OpWrite, f.name, f.epoch); err != nil {
		return 0, err
	}
	defer f.fs.mu.Unlock()
	if off < 0 {
		return 0, &fs.PathError{Op: "write", Path: f.name, Err: fs.ErrInvalid}
	}
	f.inode.writeAt(p, off)
	return len(p), nil
}

// Size implements File.
func (f *memFile) Size() (int64, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	return f.inode.size, nil
}

// Truncate implements File.
func (f *memFile) Truncate(size int64) error {
	if err := f.fs.enter(OpTruncate, f.name, f.epoch); err != nil {
		return err
	}
	defer f.fs.mu.Unlock()
	f.inode.truncate(size)
	return nil
}

// Sync implements File.
func (f *memFile) Sync() error {
	if err := f.fs.enter(OpSync, f.name, f.epoch); err != nil {
		return err
	}
	defer f.fs.mu.Unlock()
	f.inode.sync()
	return nil
}

// Close implements File.
func (f *memFile) Close() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.epoch != f.fs.epoch {
		return fmt.Errorf("close %s: %w", f.name, ErrCrashed)
	}
	return nil
}

func (n *memInode) readAt(p []byte, off int64) (int, error) {
	if off < 0 || off >= n.size {
		return 0, io.EOF
	}
	want := len(p)
	p = p[:min(int64(want), n.size-off)]
	for done := 0; done < len(p); {
		page, at := n.locate(off + int64(done))
		chunk := p[done:min(len(p), done+memPage-at)]
		if src := n.page(page); src != nil {
			copy(chunk, src[at:])
		} else {
			clear(chunk)
		}
		done += len(chunk)
	}
	if len(p) < want {
		return len(p), io.EOF
	}
	return want, nil
}

func (n *memInode) writeAt(p []byte, off int64) {
	for done := 0; done < len(p); {
		page, at := n.locate(off + int64(done))
		done += copy(n.writable(page)[at:], p[done:])
	}
	n.size = max(n.size, off+int64(len(p)))
}

func (n *memInode) truncate(size int64) {
	if size < n.size {
		// The cut part must read as zeros when the file grows again.
		last, at := n.locate(size)
		for page := last; page < len(n.pages); page++ {
			if n.pages[page] != nil {
				clear(n.writable(page)[at:])
			}
			at = 0
		}
	}
	n.size = size
}

func (n *memInode) sync() {
	for page, old := range n.dirty {
		if old != nil && len(n.reuse) < 64 {
			n.reuse = append(n.reuse, old)
		}
		delete(n.dirty, page)
	}
	n.syncedSize = n.size
}

func (n *memInode) locate(off int64) (page, at int) {
	return int(off / memPage), int(off % memPage)
}

func (n *memInode) page(i int) []byte {
	if i < len(n.pages) {
		return n.pages[i]
	}
	return nil
}

// writable returns page i for changing, after saving its synced content.
func (n *memInode) writable(i int) []byte {
	for len(n.pages) <= i {
		n.pages = append(n.pages, nil)
	}
	if _, saved := n.dirty[i]; !saved {
		if n.dirty == nil {
			n.dirty = make(map[int][]byte)
		}
		n.dirty[i] = n.copyPage(n.pages[i])
	}
	if n.pages[i] == nil {
		n.pages[i] = make([]byte, memPage)
	}
	return n.pages[i]
}

func (n *memInode) copyPage(page []byte) []byte {
	if page == nil {
		return nil
	}
	var buf []byte
	if last := len(n.reuse) - 1; last >= 0 {
		buf, n.reuse = n.reuse[last], n.reuse[:last]
	} else {
		buf = make([]byte, memPage)
	}
	copy(buf, page)
	return buf
}
