package raftnode

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/hashicorp/raft"
)

// spool keeps the received snapshots of one group until they are restored: in files
// of dir, or in memory when dir is empty. Nothing in it survives the process; what a
// crash leaves behind is deleted by clear.
type spool struct {
	dir   string
	group uint32

	mu   sync.Mutex // protects the fields below
	next int
	kept map[string]*received
}

// received is a snapshot that is, or was, received. One goroutine at a time uses it.
type received struct {
	spool *spool
	meta  raft.SnapshotMeta
	// file holds the bytes; when nil, memory does.
	file   *os.File
	memory bytes.Buffer
}

func newSpool(dir string, group uint32) *spool {
	return &spool{dir: dir, group: group, kept: make(map[string]*received)}
}

// pattern matches the files of this group.
func (s *spool) pattern() string { return fmt.Sprintf("group-%d-*.snapshot", s.group) }

// clear prepares the directory and deletes leftovers.
func (s *spool) clear() error {
	if s.dir == "" {
		return nil
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("snapshot directory: %w", err)
	}
	left, err := filepath.Glob(filepath.Join(s.dir, s.pattern()))
	if err != nil {
		return fmt.Errorf("list received snapshots: %w", err)
	}
	var errs []error
	for _, name := range left {
		errs = append(errs, os.Remove(name))
	}
	return errors.Join(errs...)
}

// create begins a snapshot.
func (s *spool) create() (*received, error) {
	r := &received{spool: s}
	if s.dir == "" {
		return r, nil
	}
	file, err := os.CreateTemp(s.dir, s.pattern())
	if err != nil {
		return nil, fmt.Errorf("create snapshot file: %w", err)
	}
	r.file = file
	return r, nil
}

// Write implements io.Writer.
func (r *received) Write(b []byte) (int, error) {
	if r.file != nil {
		return r.file.Write(b)
	}
	return r.memory.Write(b)
}

// Read implements io.Reader, after keep.
func (r *received) Read(b []byte) (int, error) {
	if r.file != nil {
		return r.file.Read(b)
	}
	return r.memory.Read(b)
}

// keep ends the writing and returns the id under which the snapshot can be opened.
func (r *received) keep(meta raft.SnapshotMeta) (id string, err error) {
	if r.file != nil {
		if _, err := r.file.Seek(0, io.SeekStart); err != nil {
			return "", fmt.Errorf("rewind snapshot file: %w", err)
		}
	}
	s := r.spool
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	id = fmt.Sprintf("received-%d", s.next)
	r.meta = meta
	r.meta.ID = id
	s.kept[id] = r
	return id, nil
}

// open returns a kept snapshot for reading, once. Closing it deletes it.
func (s *spool) open(id string) (*received, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.kept[id]
	if r == nil {
		return nil, fmt.Errorf("snapshot %s: %w", id, os.ErrNotExist)
	}
	delete(s.kept, id)
	return r, nil
}

// Close deletes the snapshot.
func (r *received) Close() error {
	r.memory = bytes.Buffer{}
	if r.file == nil {
		return nil
	}
	return errors.Join(r.file.Close(), os.Remove(r.file.Name()))
}
