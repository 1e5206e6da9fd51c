package memory_test

import (
	"flag"
	"testing"

	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/fsm/storage/memory"
	"github.com/quorate/quorate/fsm/storage/storagetest"
)

var seed = flag.Uint64("seed", 0, "seed of the random operations; 0 takes a new one")

func TestStoreConforms(t *testing.T) {
	storagetest.Run(t, storagetest.Backend{
		Seed: *seed,
		Open: func(*testing.T) storage.Store { return memory.New(memory.Config{}) },
		Reopen: func(_ *testing.T, s storage.Store) storage.Store {
			s.(*memory.Store).Reopen()
			return s
		},
	})
}

func TestDurableIsAsConfigured(t *testing.T) {
	if memory.New(memory.Config{}).Durable() {
		t.Error("a store in memory reports to be durable")
	}
	if !memory.New(memory.Config{Durable: true}).Durable() {
		t.Error("a simulated disk reports not to be durable")
	}
}
