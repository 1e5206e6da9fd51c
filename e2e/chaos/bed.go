package chaos

import (
	"fmt"
	"io"
	"slices"
	"sync"
)

// bed is what the harness needs of a test.
type bed struct {
	dir string
	out io.Writer

	// mu protects cleanups and the order of lines in out.
	mu       sync.Mutex
	cleanups []func()
}

// fatal is the panic by which the harness ends what it cannot go on with; see guard.
type fatal struct{ error }

// guard runs do and returns what the harness ended it with.
func guard(do func()) (err error) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case fatal:
			err = v.error
		default:
			panic(v)
		}
	}()
	do()
	return nil
}

// Helper implements harness.TB.
func (b *bed) Helper() {}

// Logf implements harness.TB.
func (b *bed) Logf(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fmt.Fprintf(b.out, format+"\n", args...)
}

// Errorf implements harness.TB.
func (b *bed) Errorf(format string, args ...any) { b.Logf(format, args...) }

// Fatalf implements harness.TB; it does not return.
func (b *bed) Fatalf(format string, args ...any) { panic(fatal{fmt.Errorf(format, args...)}) }

// Cleanup implements harness.TB.
func (b *bed) Cleanup(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cleanups = append(b.cleanups, f)
}

// Failed implements harness.TB: the logs of the nodes stay in their directories.
func (b *bed) Failed() bool { return false }

// TempDir implements harness.TB.
func (b *bed) TempDir() string { return b.dir }

// close runs the cleanups.
func (b *bed) close() {
	b.mu.Lock()
	list := slices.Clone(b.cleanups)
	b.mu.Unlock()
	for _, f := range slices.Backward(list) {
		f()
	}
}
