package bolt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"slices"

	"github.com/quorate/quorate/fsm/storage"
)

// The layout of bbolt's file, version 2 of it, as far as its tree goes. All integers are
// little-endian.
const (
	metaBytes      = 64 // behind the page header
	pageHeader     = 16 // id 8, flags 2, count 2, overflow 4
	elementBytes   = 16 // branch: pos 4, ksize 4, page 8; leaf: flags 4, pos 4, ksize 4, vsize 4
	bucketHeader   = 16 // root page 8, sequence 8
	pageBranch     = 1
	pageLeaf       = 2
	elementBucket  = 1
	metaMagic      = 0xED0CDAED
	metaVersion    = 2
	largestOfPages = 1 << 26
	deepest        = 64
)

// pageChecker walks over the tree of a bbolt file. bbolt itself does so when it opens a
// file, to find the pages that are free, and ends the process where a page is damaged.
type pageChecker struct {
	file io.ReaderAt
	// size is that of a page, end the number of the first page that was never used.
	size, end uint64
	seen      []bool
	// pages are those on the path from the root, by depth.
	pages [][]byte
}

// checkPages verifies the structure of the file at path: that its pages belong where they
// are, that none is used twice, and that all keys are in order. Values are not looked at.
// A file that does not exist or is empty is as good as a new one.
func checkPages(path string) error {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	c := pageChecker{file: file}
	root, err := c.meta(info.Size())
	if err != nil {
		return err
	}
	c.seen = make([]bool, c.end)
	return c.tree(root, nil, nil, 0)
}

func broken(page uint64, format string, args ...any) error {
	return fmt.Errorf("%w: page %d: %s", storage.ErrCorrupt, page, fmt.Sprintf(format, args...))
}

// meta reads the newer valid one of the two meta pages and returns the root of the tree. It
// looks where bbolt does: at the start, and one page behind, which is somewhere at a power of
// two if the first page does not say.
func (c *pageChecker) meta(fileSize int64) (root uint64, err error) {
	newest, found, first := uint64(0), false, uint64(0)
	for at := int64(0); at <= 16<<20 && at < fileSize; at = max(2*at, 1024) {
		if at != 0 && first != 0 && uint64(at) != first {
			continue
		}
		b := make([]byte, pageHeader+metaBytes)
		if _, err := c.file.ReadAt(b, at); err != nil {
			break // too short, or unreadable, which shows again
		}
		b = b[pageHeader:]
		size := uint64(binary.LittleEndian.Uint32(b[8:]))
		h := fnv.New64a()
		_, _ = h.Write(b[:56]) // never fails
		if binary.LittleEndian.Uint32(b) != metaMagic || binary.LittleEndian.Uint32(b[4:]) != metaVersion || h.Sum64() != binary.LittleEndian.Uint64(b[56:]) {
			continue
		}
		if at == 0 {
			first = size
		} else if uint64(at) != size {
			return 0, fmt.Errorf("%w: the meta page at %d says that pages have %d bytes", storage.ErrCorrupt, at, size)
		}
		if tx := binary.LittleEndian.Uint64(b[48:]); !found || tx > newest {
			newest, found = tx, true
			root, c.size, c.end = binary.LittleEndian.Uint64(b[16:]), size, binary.LittleEndian.Uint64(b[40:])
		}
		if at != 0 {
			break
		}
	}
	switch {
	case !found:
		return 0, fmt.Errorf("%w: no valid meta page", storage.ErrCorrupt)
	case c.size < 1024 || c.size > 16<<20 || c.end > uint64(fileSize)/c.size:
		return 0, fmt.Errorf("%w: %d pages of %d bytes in a file of %d", storage.ErrCorrupt, c.end, c.size, fileSize)
	}
	return root, nil
}

// read returns a page with its overflow, and marks it as used. It is valid until another
// page of this depth is read.
func (c *pageChecker) read(id uint64, depth int) ([]byte, error) {
	if id < 2 || id >= c.end {
		return nil, broken(id, "outside of the file")
	}
	for len(c.pages) <= depth {
		c.pages = append(c.pages, make([]byte, c.size))
	}
	b := c.pages[depth][:c.size]
	if _, err := c.file.ReadAt(b, int64(id*c.size)); err != nil {
		return nil, err
	}
	if own := binary.LittleEndian.Uint64(b); own != id {
		return nil, broken(id, "it says that it is page %d", own)
	}
	pages := uint64(binary.LittleEndian.Uint32(b[12:])) + 1
	if pages > c.end-id || pages > largestOfPages {
		return nil, broken(id, "%d pages long", pages)
	}
	for i := range pages {
		if c.seen[id+i] {
			return nil, broken(id+i, "used twice")
		}
		c.seen[id+i] = true
	}
	if pages == 1 {
		return b, nil
	}
	b = slices.Grow(b, int((pages-1)*c.size))[:pages*c.size]
	c.pages[depth] = b
	_, err := c.file.ReadAt(b[c.size:], int64((id+1)*c.size))
	return b, err
}

// tree checks the tree below a page, whose keys are not below first and below last; a nil
// one is no bound.
func (c *pageChecker) tree(id uint64, first, last []byte, depth int) error {
	if depth > deepest {
		return broken(id, "at depth %d", depth)
	}
	b, err := c.read(id, depth)
	if err != nil {
		return err
	}
	return c.page(id, b, first, last, depth)
}

func (c *pageChecker) page(id uint64, b, first, last []byte, depth int) error {
	flags, count := binary.LittleEndian.Uint16(b[8:]), int(binary.LittleEndian.Uint16(b[10:]))
	switch {
	case flags != pageBranch && flags != pageLeaf:
		return broken(id, "neither branch nor leaf")
	case pageHeader+count*elementBytes > len(b) || flags == pageBranch && count == 0:
		return broken(id, "%d elements at depth %d", count, depth)
	}
	var before []byte
	for i := range count {
		key, value, err := element(b, i, flags == pageLeaf)
		if err != nil {
			return broken(id, "element %d: %v", i, err)
		}
		if i > 0 && bytes.Compare(before, key) >= 0 || first != nil && bytes.Compare(key, first) < 0 || last != nil && bytes.Compare(key, last) >= 0 {
			return broken(id, "keys out of order at element %d", i)
		}
		before = key
		if err := c.below(b, i, count, key, value, last, depth, flags == pageLeaf); err != nil {
			return err
		}
	}
	return nil
}

// below checks what hangs on an element: a subtree, or a bucket.
func (c *pageChecker) below(b []byte, i, count int, key, value, last []byte, depth int, leaf bool) error {
	at := pageHeader + i*elementBytes
	if !leaf {
		if i+1 < count {
			next, _, err := element(b, i+1, false)
			if err != nil {
				return fmt.Errorf("%w: %w", storage.ErrCorrupt, err)
			}
			last = next
		}
		return c.tree(binary.LittleEndian.Uint64(b[at+8:]), key, last, depth+1)
	}
	if binary.LittleEndian.Uint32(b[at:])&elementBucket == 0 {
		return nil
	}
	if len(value) < bucketHeader {
		return fmt.Errorf("%w: bucket %q of %d bytes", storage.ErrCorrupt, key, len(value))
	}
	if root := binary.LittleEndian.Uint64(value); root != 0 {
		return c.tree(root, nil, nil, depth+1)
	}
	if len(value) < bucketHeader+pageHeader || depth == deepest {
		return fmt.Errorf("%w: bucket %q of %d bytes", storage.ErrCorrupt, key, len(value))
	}
	return c.page(0, value[bucketHeader:], nil, nil, depth+1)
}

// element returns the key of an element and, in a leaf, its value.
func element(b []byte, i int, leaf bool) (key, value []byte, err error) {
	at := pageHeader + i*elementBytes
	pos, ksize, vsize := binary.LittleEndian.Uint32(b[at:]), binary.LittleEndian.Uint32(b[at+4:]), uint32(0)
	if leaf {
		pos, ksize, vsize = ksize, binary.LittleEndian.Uint32(b[at+8:]), binary.LittleEndian.Uint32(b[at+12:])
	}
	start := uint64(at) + uint64(pos)
	if start+uint64(ksize)+uint64(vsize) > uint64(len(b)) {
		return nil, nil, errors.New("outside of its page")
	}
	end := start + uint64(ksize)
	return b[start:end], b[end : end+uint64(vsize)], nil
}
