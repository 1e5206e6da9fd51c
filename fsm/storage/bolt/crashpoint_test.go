package bolt

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/fsm/storage"
)

// crashOps are the transactions of a store, crashPhases where each of them can end: bbolt
// makes the file longer and syncs it, writes pages that nothing refers to and syncs them,
// then writes one meta page, which refers to them, and syncs it.
var (
	crashOps = []string{
		"initialize", "write", "merge", "replace", "sweep", "drop", "write meta", "quarantine", "set damaged journals aside",
	}
	crashPhases = []string{
		"before truncate", "after truncate", "before sync of pages", "after sync of pages", "before sync of meta", "after sync of meta",
	}
)

// image is the content of a file, without pages of zeros.
type image struct {
	size  int64
	pages map[int64][]byte
}

func readImage(path string) (*image, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	im := &image{pages: map[int64][]byte{}}
	size, zeros := os.Getpagesize(), make([]byte, os.Getpagesize())
	for {
		page := make([]byte, size)
		n, err := io.ReadFull(file, page)
		if n > 0 && !bytes.Equal(page[:n], zeros[:n]) {
			im.pages[im.size/int64(size)] = page[:n]
		}
		im.size += int64(n)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return im, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func (im *image) writeTo(t *testing.T, path string) {
	t.Helper()
	file, err := os.Create(path)
	must(t, err)
	defer file.Close()
	must(t, file.Truncate(im.size))
	for number, page := range im.pages {
		_, err := file.WriteAt(page, number*int64(os.Getpagesize()))
		must(t, err)
	}
}

// metaPages are the first pages of bbolt's file.
const metaPages = 2

// ends is the file as a crash in a phase of the commit from before to after leaves it.
func ends(phase string, before, after *image, rnd *rand.Rand) *image {
	im := &image{size: after.size, pages: map[int64][]byte{}}
	take := func(from *image, chosen func(number int64) bool) {
		for number, page := range from.pages {
			if chosen(number) {
				im.pages[number] = page
			}
		}
	}
	all := func(int64) bool { return true }
	take(before, all)
	switch phase {
	case "before truncate":
		im.size = before.size
	case "before sync of pages":
		take(after, func(number int64) bool { return number >= metaPages && rnd.IntN(2) == 0 })
	case "after sync of pages":
		take(after, func(number int64) bool { return number >= metaPages })
	case "before sync of meta":
		take(after, func(number int64) bool { return number >= metaPages })
		for number := range int64(metaPages) {
			if old, page := before.pages[number], after.pages[number]; !bytes.Equal(old, page) {
				torn := bytes.Clone(old)
				copy(torn[:len(torn)/2], page)
				copy(torn[16:40], old[16:40]) // the head of the page is of one commit, what it says of the other
				im.pages[number] = torn
			}
		}
	case "after sync of meta":
		take(after, all)
	}
	return im
}

// crasher looks at every commit of a store, and notes the files that crashes would leave.
type crasher struct {
	t    *testing.T
	path string
	rnd  *rand.Rand

	mu sync.Mutex // protects the fields below
	// states are what the store held before the call that is under way, and after each.
	states []string
	looks  map[string]int
	left   []leftover
}

// leftover is a file after a crash, which must hold the state of that number or the next.
type leftover struct {
	point string
	file  *image
	state int
}

// looksPerOp bounds how many commits of a kind are looked at.
const looksPerOp = 6

func (c *crasher) around(op string, commit func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.looks[op]++; c.looks[op] > looksPerOp {
		return commit()
	}
	before, err := readImage(c.path)
	if err == nil {
		err = commit()
	}
	if err != nil {
		return err
	}
	after, err := readImage(c.path)
	if err != nil {
		return err
	}
	for _, phase := range crashPhases {
		c.left = append(c.left, leftover{point: op + ", " + phase, file: ends(phase, before, after, c.rnd), state: len(c.states) - 1})
	}
	return nil
}

// describe is everything that a store holds, as text.
func describe(s *Store) (string, error) {
	r, err := s.NewReader()
	if err != nil {
		return "", err
	}
	defer r.Close()
	var b strings.Builder
	for group := range uint32(3) {
		mark, err := r.Mark(group)
		if errors.Is(err, storage.ErrCorrupt) {
			fmt.Fprintf(&b, "group %d is damaged\n", group)
			continue
		}
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "group %d at %d:", group, mark.Index)
		err = r.Scan(group, storage.SectionRecords, "", "", func(key string, value []byte) bool {
			fmt.Fprintf(&b, " %s=%s", key, value)
			return true
		})
		if err != nil {
			return "", err
		}
		b.WriteString("\n")
	}
	who, err := s.Meta("who")
	fmt.Fprintf(&b, "who %s\n", who)
	return b.String(), err
}

// note says that a call has returned: what the store holds now must survive.
func (c *crasher) note(s *Store) {
	c.t.Helper()
	text, err := describe(s)
	must(c.t, err)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.states = append(c.states, text)
}

// check opens what crashes left, reads it, and writes to it.
func (c *crasher) check() {
	c.t.Helper()
	path := filepath.Join(c.t.TempDir(), "left.db")
	for _, l := range c.left {
		l.file.writeTo(c.t, path)
		s, err := Open(Config{Path: path, JournalBytes: crashJournal}, deps())
		if err != nil {
			c.t.Errorf("%s: %v", l.point, err)
			continue
		}
		got, err := describe(s)
		must(c.t, err)
		if got != c.states[l.state] && got != c.states[l.state+1] {
			c.t.Errorf("%s: it holds\n%swant\n%sor\n%s", l.point, got, c.states[l.state], c.states[l.state+1])
		}
		if strings.HasSuffix(l.point, crashPhases[0]) && got != c.states[l.state] && !strings.HasPrefix(l.point, "sweep") && !strings.HasPrefix(l.point, "merge") {
			c.t.Errorf("%s: it holds what was not written\n%s", l.point, got)
		}
		must(c.t, s.SetMeta("who", []byte("survivor")))
		must(c.t, s.Close())
	}
}

// crashJournal is small, so that journals are frozen and merged all the time.
const crashJournal = 200

// TestEveryNamedCrashPointIsSurvived ends the transactions of a store at every point of
// their commits, and holds that the file has the state before or after the call, whole,
// and takes writes.
func TestEveryNamedCrashPointIsSurvived(t *testing.T) {
	number := *seed
	if number == 0 {
		number = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", number)
	c := &crasher{
		t: t, path: tempPath(t), rnd: rand.New(rand.NewPCG(number, 0)), looks: map[string]int{}, states: []string{emptyStore},
	}
	must(t, os.WriteFile(c.path, nil, fileMode)) // so that bbolt's first pages are seen too
	open := func() *Store {
		s, err := Open(Config{Path: c.path, JournalBytes: crashJournal}, Deps{Logger: deps().Logger, around: c.around})
		must(t, err)
		s.mergeMost = 1
		c.note(s)
		return s
	}
	s := open()
	for i := range 30 {
		items := []storage.Item{record(fmt.Sprint("k", i%7), fmt.Sprint("v", i)), record(fmt.Sprint("once", i), strings.Repeat("x", 20))}
		must(t, s.Write([]storage.Batch{{Group: uint32(i % 3), Items: items, Mark: storage.Mark{Index: uint64(i + 1)}}}))
		c.note(s)
	}
	must(t, s.SetMeta("who", []byte("me")))
	c.note(s)
	must(t, s.Quarantine(1))
	c.note(s)
	for group := range uint32(2) {
		r, err := s.Replace(group)
		must(t, err)
		must(t, r.Put(manyRecords(20)))
		must(t, r.Commit(storage.Mark{Index: 100}))
		c.note(s)
	}
	must(t, s.Drop(2))
	c.note(s)
	s.awaitGenerations(t, 3) // two that are current, and the one in quarantine
	must(t, s.Close())
	s = open()
	must(t, s.setJournalsAside(errors.New("damaged")))
	c.note(s)
	must(t, s.Close())
	c.states = append(c.states, c.states[len(c.states)-1])
	c.check()
	points := map[string]bool{}
	for _, l := range c.left {
		points[l.point] = true
	}
	for _, op := range crashOps {
		for _, phase := range crashPhases {
			if !points[op+", "+phase] {
				t.Errorf("the store never comes to %q, %s", op, phase)
			}
		}
	}
	t.Logf("%d points, %d files", len(points), len(c.left))
}

// TestACrashWhileTheFileIsMadeIsSurvived leaves every part of bbolt's first pages, before
// and after the file got its name.
func TestACrashWhileTheFileIsMadeIsSurvived(t *testing.T) {
	path := tempPath(t)
	must(t, createFile(path))
	whole, err := readImage(path)
	must(t, err)
	for mask := range 1 << 4 {
		part := &image{size: whole.size, pages: map[int64][]byte{}}
		for number, page := range whole.pages {
			if mask>>number&1 == 1 {
				part.pages[number] = page
			}
		}
		for _, named := range []bool{false, true} {
			path := tempPath(t)
			part.writeTo(t, path+newSuffix)
			if named {
				whole.writeTo(t, path)
			}
			s := openAt(t, path)
			if got, err := describe(s); err != nil || got != emptyStore {
				t.Errorf("pages %04b: %s, %v", mask, got, err)
			}
			must(t, s.Close())
			if left, err := filepath.Glob(path + newSuffix); err != nil || len(left) > 0 {
				t.Errorf("%v is left", left)
			}
		}
	}
}

const emptyStore = "group 0 at 0:\ngroup 1 at 0:\ngroup 2 at 0:\nwho \n"
