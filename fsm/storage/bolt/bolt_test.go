package bolt

import (
	"flag"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/fsm/storage/storagetest"
)

var seed = flag.Uint64("seed", 0, "seed of the random operations; 0 takes a new one")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func deps() Deps { return Deps{Logger: hclog.NewNullLogger()} }

func tempPath(t *testing.T) string { return filepath.Join(t.TempDir(), "service.db") }

func openAt(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(Config{Path: path}, deps())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestStoreConforms runs the suite with a journal that takes everything, and with
// ones that are merged all the time and now and then.
func TestStoreConforms(t *testing.T) {
	for _, journal := range []int{0, 1, 5000} {
		t.Run(fmt.Sprintf("journal=%d", journal), func(t *testing.T) { conforms(t, journal) })
	}
}

func conforms(t *testing.T, journalBytes int) {
	paths := map[storage.Store]string{}
	open := func(t *testing.T, path string) storage.Store {
		s, err := Open(Config{Path: path, JournalBytes: journalBytes}, deps())
		must(t, err)
		paths[s] = path
		return s
	}
	storagetest.Run(t, storagetest.Backend{
		Seed:   *seed,
		Open:   func(t *testing.T) storage.Store { return open(t, tempPath(t)) },
		Reopen: func(t *testing.T, s storage.Store) storage.Store { return open(t, paths[s]) },
	})
}
