package bolt

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/quorate/quorate/fsm/storage"
)

const (
	fileMode    = 0o600
	lockTimeout = time.Second
	// mmapSize is address space only. A map that must grow waits for every open
	// Reader, so it begins larger than stores are expected to become.
	mmapSize = 8 << 30
)

// Config parameterises a Store.
type Config struct {
	// Path is the file. It is created if absent; its directory must exist.
	Path string
	// JournalBytes is the size of the journal at which its items begin to move to
	// their places; zero is DefaultJournalBytes. Up to twice as much is in memory.
	JournalBytes int
}

// DefaultJournalBytes is 32 MiB.
const DefaultJournalBytes = 32 << 20

// Deps are what a Store works with.
type Deps struct {
	Logger hclog.Logger
	// around, unless nil, carries out every commit: a test looks at the file before and
	// after it.
	around func(op string, commit func() error) error
}

// Store implements storage.Store in a bbolt file. It owns a goroutine, which
// empties abandoned generations until Close.
type Store struct {
	db           *bbolt.DB
	logger       hclog.Logger
	journalBytes int
	// mergeMost is how many items a transaction merges at most.
	mergeMost int
	around    func(op string, commit func() error) error // Deps.around
	// views change in the transactions that change what Readers see.
	views atomic.Pointer[views]

	// mu protects the fields below.
	mu sync.Mutex
	// err is the first failed write, wrapped as ErrFailed; nil while the file works.
	err error
	// loading holds the buckets of generations that are being filled.
	loading map[string]bool

	// sweep asks the sweeper to look; closed by Close, once stopping is set under mu.
	sweep    chan struct{}
	stopping bool
	sweeper  sync.WaitGroup
}

var _ storage.Store = (*Store)(nil)

// openFile is os.OpenFile, or a stand-in that injects faults.
type openFile func(name string, flag int, mode os.FileMode) (*os.File, error)

// Open opens or creates the file. It fails with storage.ErrLocked when another
// process holds it for longer than a second, storage.ErrFormat when a newer build
// or another program wrote it, and storage.ErrCorrupt when it cannot be read.
func Open(cfg Config, deps Deps) (*Store, error) {
	return open(cfg, deps, os.OpenFile)
}

func open(cfg Config, deps Deps, file openFile) (*Store, error) {
	s, err := openStore(cfg, deps, file)
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", cfg.Path, err)
	}
	return s, nil
}

func openStore(cfg Config, deps Deps, file openFile) (*Store, error) {
	opts := &bbolt.Options{
		Timeout:        lockTimeout,
		NoFreelistSync: true,
		FreelistType:   bbolt.FreelistMapType,
		NoStatistics:   true,
		OpenFile:       file,
	}
	if strconv.IntSize == 64 {
		opts.InitialMmapSize = mmapSize
	}
	db, err := openDB(cfg.Path, opts)
	if err != nil {
		return nil, classify(err)
	}
	s := &Store{
		db: db, logger: deps.Logger.Named("store"), journalBytes: cmp.Or(cfg.JournalBytes, DefaultJournalBytes),
		mergeMost: mergeMost, around: deps.around,
		loading: map[string]bool{}, sweep: make(chan struct{}, 1),
	}
	if err := s.prepare(filepath.Dir(cfg.Path)); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	s.sweeper.Go(s.runSweeper)
	s.wakeSweeper()
	return s, nil
}

// openDB opens bbolt's file. It finds its free pages by walking over all others, and
// panics when it meets damage there.
func openDB(path string, opts *bbolt.Options) (db *bbolt.DB, err error) {
	var opened *os.File
	file := opts.OpenFile
	opts.OpenFile = func(name string, flag int, mode os.FileMode) (*os.File, error) {
		f, err := file(name, flag, mode)
		opened = f
		return f, err
	}
	if err := createFile(path); err != nil {
		return nil, err
	}
	if err := checkPages(path); err != nil {
		return nil, err
	}
	defer func() {
		if p := recover(); p != nil {
			// bbolt did not get to closing it, which gives the lock back.
			err = errors.Join(fmt.Errorf("%w: %v", storage.ErrCorrupt, p), opened.Close())
		}
	}()
	defer faultsPanic()()
	return bbolt.Open(path, fileMode, opts)
}

// newSuffix ends the name of a file that is not a store yet.
const newSuffix = ".new"

// createFile makes bbolt's file at path, unless there is something. It gets its name when
// its first pages are on disk: what a power cut leaves of them could not be told from a
// store that is damaged.
func createFile(path string) error {
	name := path + newSuffix
	if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	db, err := bbolt.Open(name, fileMode, &bbolt.Options{Timeout: lockTimeout})
	if err != nil {
		return err
	}
	if err := db.Close(); err != nil {
		return err
	}
	// Unlike a renaming, a link replaces nothing; not every file system has links.
	if err := os.Link(name, path); err != nil && !errors.Is(err, os.ErrExist) {
		return os.Rename(name, path)
	}
	return os.Remove(name)
}

// prepare checks the format, and makes a new file in dir a store.
func (s *Store) prepare(dir string) error {
	fresh := false
	err := s.view(func(tx *bbolt.Tx) (err error) {
		fresh, err = checkFormat(tx)
		return err
	})
	if err == nil && fresh {
		err = s.update("initialize", initialize)
	}
	if err == nil {
		err = s.view(s.load)
	}
	if errors.Is(err, errJournal) {
		err = s.setJournalsAside(err)
	}
	if err != nil {
		return err
	}
	// Every time: a crash may have come between creating the file and this.
	return syncDir(dir)
}

// syncDir makes the name of a new file survive a power cut.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// classify maps bbolt's errors to those of package storage.
func classify(err error) error {
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return fmt.Errorf("%w: %w", storage.ErrLocked, err)
	case errors.Is(err, berrors.ErrDatabaseNotOpen):
		return fmt.Errorf("%w: %w", storage.ErrClosed, err)
	case errors.Is(err, berrors.ErrInvalid), errors.Is(err, berrors.ErrChecksum), errors.Is(err, berrors.ErrVersionMismatch):
		return fmt.Errorf("%w: %w", storage.ErrCorrupt, err)
	default:
		return err
	}
}

// Drop implements storage.Store.
func (s *Store) Drop(group uint32) error {
	err := s.update("drop", func(tx *bbolt.Tx) error {
		if err := tx.Bucket(groupsBucket).Delete(groupKey(group)); err != nil {
			return err
		}
		return s.forget(tx, group)
	})
	s.wakeSweeper()
	return err
}

// Meta implements storage.Store.
func (s *Store) Meta(name string) (value []byte, err error) {
	err = s.view(func(tx *bbolt.Tx) error {
		stored, err := openBucket(tx, metaBucket).get([]byte(name))
		if stored != nil {
			value = append([]byte{}, stored...)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read meta %s: %w", name, err)
	}
	return value, nil
}

// SetMeta implements storage.Store.
func (s *Store) SetMeta(name string, value []byte) error {
	return s.update("write meta", func(tx *bbolt.Tx) error {
		return openBucket(tx, metaBucket).put([]byte(name), value)
	})
}

// Durable implements storage.Store.
func (s *Store) Durable() bool { return true }

// Close implements storage.Store. It waits until every Reader is closed.
func (s *Store) Close() error {
	s.mu.Lock()
	if !s.stopping {
		s.stopping = true
		close(s.sweep)
	}
	s.mu.Unlock()
	s.sweeper.Wait()
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("close store: %w", err)
	}
	return nil
}

func (s *Store) view(fn func(*bbolt.Tx) error) (err error) {
	defer func() { err = classify(err) }()
	defer faultsPanic()()
	defer guard(&err, nil)
	return s.db.View(fn)
}

// update runs fn in a durable transaction. A failure is final: the file may hold
// the old state or the new one, and only opening it again tells.
func (s *Store) update(op string, fn func(*bbolt.Tx) error) error {
	if err := s.failure(); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	err := classify(s.tryUpdate(op, fn))
	switch {
	case err == nil:
		return nil
	case errors.Is(err, storage.ErrClosed):
		return fmt.Errorf("%s: %w", op, err)
	default:
		return fmt.Errorf("%s: %w", op, s.fail(err))
	}
}

func (s *Store) tryUpdate(op string, fn func(*bbolt.Tx) error) (err error) {
	defer faultsPanic()()
	defer guard(&err, nil)
	if s.around != nil {
		return s.around(op, func() error { return s.db.Update(fn) })
	}
	return s.db.Update(fn)
}

func (s *Store) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *Store) fail(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = fmt.Errorf("%w: %w", storage.ErrFailed, err)
	}
	return s.err
}
