package check

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"sync"
)

// Kind says what an operation does; which kinds occur depends on the workload.
type Kind string

// The kinds of operations.
const (
	Put     Kind = "put"     // write Value to Key; empty removes
	Append  Kind = "append"  // write Rows[Key] with Value added to Key, if it is unchanged
	Read    Kind = "read"    // read all of Rows, linearizable
	Local   Kind = "local"   // read all of Rows from the replicas of Node
	Add     Kind = "add"     // add Value to a set, or Number to a counter
	Remove  Kind = "remove"  // remove the tag Value
	Acquire Kind = "acquire" // take the lock Key; Token is its fencing token
	Release Kind = "release" // give the lock Key back
	Renew   Kind = "renew"   // begin the lease of Key anew
	Held    Kind = "held"    // the connection answered what was asked at Call, and Key was held after it, at Until
	Lost    Kind = "lost"    // Key is lost; Refused if neither its connection had ended nor its client
	Fenced  Kind = "fenced"  // write Value to Resource in protection of the lock Key with Token
	Publish Kind = "publish" // publish Value to the topic Key
	Deliver Kind = "deliver" // Value of the topic Key came in
	Update  Kind = "update"  // a live query shows Value for Key; empty when it left
	Final   Kind = "final"   // Rows of Node when all is quiet
)

// Outcome is what a client knows about an operation.
type Outcome string

// The outcomes.
const (
	OK      Outcome = "ok"      // it took effect
	Failed  Outcome = "failed"  // it took no effect and never will
	Unknown Outcome = "unknown" // it may take effect between its call and the end of time
)

// AnyNode is the Node of an operation whose client chooses its connections by itself.
const AnyNode = "any"

// Op is one operation of one client.
type Op struct {
	Client int    `json:"client"`
	Node   string `json:"node,omitempty"`
	// Session counts the connections of a client, where order within one matters.
	Session int    `json:"session,omitempty"`
	Kind    Kind   `json:"kind"`
	Key     string `json:"key,omitempty"`
	// Resource is the key of Rows that a fenced write writes, the lock's own name if empty.
	Resource string            `json:"resource,omitempty"`
	Value    string            `json:"value,omitempty"`
	Rows     map[string]string `json:"rows,omitempty"`
	Number   float64           `json:"number,omitempty"`
	Token    uint64            `json:"token,omitempty"`
	Outcome  Outcome           `json:"outcome"`
	// Refused: it failed because the server refused it for good.
	Refused bool `json:"refused,omitempty"`
	// Call and Return are nanoseconds on one clock. Return of an operation with unknown
	// outcome is when the client gave up.
	Call   int64 `json:"call"`
	Return int64 `json:"return"`
	// Until is until when the lease of a lock lasts at least, as its client knows; of a renewal
	// whose outcome is unknown, if it took place.
	Until int64 `json:"until,omitempty"`
}

// end is the latest moment at which op takes effect.
func (op *Op) end() int64 {
	if op.Outcome == Unknown {
		return math.MaxInt64
	}
	return op.Return
}

// Head says where a history comes from. It is the first line of its file.
type Head struct {
	Workload string `json:"workload"`
	Round    int    `json:"round"`
	Seed     int64  `json:"seed"`
	// Repeat are the flags of the run that plays the round again.
	Repeat string `json:"repeat"`
}

// History collects operations and streams them to a file. It is safe for concurrent use.
type History struct {
	path string

	// mu protects the fields below.
	mu   sync.Mutex
	ops  []Op
	file *os.File
	out  *bufio.Writer
	err  error
}

// NewHistory creates the file, one JSON object per line: the head, and each operation.
func NewHistory(path string, head Head) (*History, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("create history: %w", err)
	}
	h := &History{path: path, file: f, out: bufio.NewWriter(f)}
	if err := json.NewEncoder(h.out).Encode(head); err != nil {
		return nil, errors.Join(fmt.Errorf("create history: %w", err), f.Close())
	}
	return h, nil
}

// Path is the file.
func (h *History) Path() string { return h.path }

// Add notes an operation that has ended. It must not be changed afterwards.
func (h *History) Add(op Op) {
	line, err := json.Marshal(op)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, op)
	if err == nil {
		_, err = h.out.Write(append(line, '\n'))
	}
	h.err = errors.Join(h.err, err)
}

// Ops are the operations so far.
func (h *History) Ops() []Op {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.ops)
}

// Close completes the file.
func (h *History) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return errors.Join(h.err, h.out.Flush(), h.file.Close())
}

// ReadHistory reads the head and the operations of a file.
func ReadHistory(path string) (head Head, ops []Op, err error) {
	f, err := os.Open(path)
	if err != nil {
		return head, nil, fmt.Errorf("open history: %w", err)
	}
	defer f.Close()
	dec := json.NewDecoder(f)
	if err := dec.Decode(&head); err != nil {
		return head, nil, fmt.Errorf("read head of history %s: %w", path, err)
	}
	for {
		var op Op
		switch err := dec.Decode(&op); {
		case errors.Is(err, io.EOF):
			return head, ops, nil
		case err != nil:
			return head, nil, fmt.Errorf("read history %s: %w", path, err)
		}
		ops = append(ops, op)
	}
}
