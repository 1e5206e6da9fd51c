package sim

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// tally counts things by name. It is safe for concurrent use; the zero value is empty.
type tally struct {
	mu sync.Mutex
	n  map[string]int
}

func (t *tally) add(name string, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n == nil {
		t.n = map[string]int{}
	}
	t.n[name] += n
}

// merge adds everything of another tally, which is not used any more.
func (t *tally) merge(from *tally) {
	for name, n := range from.n {
		t.add(name, n)
	}
}

// String lists the counts by name.
func (t *tally) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []string
	for _, name := range slices.Sorted(maps.Keys(t.n)) {
		list = append(list, fmt.Sprintf("%s %d", name, t.n[name]))
	}
	return strings.Join(list, ", ")
}

// totals are those of all histories of this process.
var totals struct {
	counts, faults tally
	mu             sync.Mutex // protects the fields below
	histories      int
	virtual        time.Duration
}

// account adds a finished history to the totals.
func (w *world) account() {
	totals.counts.merge(&w.counts)
	totals.faults.merge(&w.faults)
	totals.mu.Lock()
	defer totals.mu.Unlock()
	totals.histories++
	totals.virtual += w.lasted
}

// TestMain prints the totals after all tests.
func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	totals.mu.Lock()
	if totals.histories > 0 {
		fmt.Printf("totals: %d histories, %.2f virtual hours of a cluster; %s; faults: %s\n",
			totals.histories, totals.virtual.Hours(), &totals.counts, &totals.faults)
	}
	totals.mu.Unlock()
	os.Exit(code)
}
