package model

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// registerInput is a write of a value, or a read.
type registerInput struct {
	key   string
	write bool
	value string
}

// Registers records reads and writes of registers whose writes carry no timestamp
// and so take effect in the order of their commits. Its methods are safe for
// concurrent use. At most some 1000 operations per key can be judged in time.
type Registers struct {
	start time.Time

	// mu protects ops.
	mu  sync.Mutex
	ops []porcupine.Operation
}

// NewRegisters returns an empty history that starts now.
func NewRegisters() *Registers { return &Registers{start: time.Now()} }

// Now is a moment of the history, for the calls below.
func (r *Registers) Now() int64 { return time.Since(r.start).Nanoseconds() }

// Wrote records that client wrote value, from called until returned. A negative
// returned says that the outcome was never learned: the write may take effect at any
// later time.
func (r *Registers) Wrote(client int, key, value string, called, returned int64) {
	if returned < 0 {
		returned = math.MaxInt64
	}
	r.add(client, registerInput{key, true, value}, "", called, returned)
}

// Read records that client read value, empty if there was none.
func (r *Registers) Read(client int, key, value string, called, returned int64) {
	r.add(client, registerInput{key: key}, value, called, returned)
}

func (r *Registers) add(client int, in registerInput, out string, called, returned int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops = append(r.ops, porcupine.Operation{ClientId: client, Input: in, Output: out, Call: called, Return: returned})
}

// Check returns an error unless the history is linearizable. It takes at most
// timeout; running out of it is an error too.
func (r *Registers) Check(timeout time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if result := porcupine.CheckOperationsTimeout(registerModel(), r.ops, timeout); result != porcupine.Ok {
		return fmt.Errorf("history of %d register operations is not shown linearizable: %s", len(r.ops), result)
	}
	return nil
}

func registerModel() porcupine.Model {
	return porcupine.Model{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			byKey := make(map[string][]porcupine.Operation)
			for _, op := range history {
				key := op.Input.(registerInput).key
				byKey[key] = append(byKey[key], op)
			}
			var parts [][]porcupine.Operation
			for _, ops := range byKey {
				parts = append(parts, ops)
			}
			return parts
		},
		Init: func() any { return "" },
		Step: func(state, input, output any) (bool, any) {
			in := input.(registerInput)
			if in.write {
				return true, in.value
			}
			return output == state, state
		},
	}
}
