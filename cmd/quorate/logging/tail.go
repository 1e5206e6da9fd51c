package logging

import (
	"io"
	"strings"
	"sync"
)

// Tail passes lines on and remembers the last ones, up to a number of bytes. It is safe for
// concurrent use.
type Tail struct {
	out io.Writer
	max int

	// mu protects the fields below.
	mu    sync.Mutex
	lines []string
	bytes int
}

// NewTail returns a Tail on out that remembers up to maxBytes.
func NewTail(out io.Writer, maxBytes int) *Tail { return &Tail{out: out, max: maxBytes} }

// Write implements io.Writer. Each call is one line.
func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	t.lines = append(t.lines, string(p))
	t.bytes += len(p)
	first := 0
	for ; t.bytes > t.max; first++ {
		t.bytes -= len(t.lines[first])
		t.lines[first] = ""
	}
	t.lines = t.lines[first:]
	t.mu.Unlock()
	return t.out.Write(p)
}

// Text is what is remembered.
func (t *Tail) Text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.lines, "")
}
