package fsm

import (
	"fmt"

	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/fsm/system"
)

// commands says how each kind is applied; a kind without a row stops the group.
// Each command changes at most one item outside the dedup section.
var commands = [...]struct {
	name  string
	apply func(*run, command.Raw) (command.Result, error)
}{
	command.KindPut:       {"put", applyPut},
	command.KindMemberPut: {"member-put", applyMemberPut},
	command.KindTablePut:  {"table-put", applyTablePut},
	command.KindGenesis:   {"genesis", applyGenesis},
}

// sections says what each part of the state is. A resident section is loaded into
// memory as a whole when a machine opens; load takes one item of it, in key order.
// For the others load only checks the item.
var sections = [...]struct {
	name     string
	resident bool
	load     func(s *resident, key string, value []byte) error
}{
	storage.SectionRecords: {"records", false, loadRecord},
	storage.SectionDedup:   {"dedup", true, loadOutcome},
	storage.SectionSystem:  {"system", true, loadDocument},
}

// resident is the state that a machine keeps in memory as a whole, while it is
// read from the store or from a snapshot.
type resident struct {
	window  window
	cluster *system.State
}

func newResident() *resident {
	return &resident{window: newWindow(), cluster: &system.State{}}
}

// load takes one stored item.
func (s *resident) load(key storage.Key, value []byte) error {
	if int(key.Section) >= len(sections) || sections[key.Section].load == nil {
		return fmt.Errorf("unknown section %d: %w", uint8(key.Section), storage.ErrFormat)
	}
	return sections[key.Section].load(s, key.Bytes, value)
}

// readSection takes every item of a section from the store.
func (s *resident) readSection(reader storage.Reader, group uint32, section storage.Section) error {
	var bad error
	err := reader.Scan(group, section, "", "", func(key string, value []byte) bool {
		bad = s.load(storage.Key{Section: section, Bytes: key}, value)
		return bad == nil
	})
	if err == nil {
		err = bad
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", section, err)
	}
	return nil
}

func loadRecord(_ *resident, key string, value []byte) error { return checkRecord(key, value) }

func loadOutcome(s *resident, key string, value []byte) error { return s.window.load(key, value) }

func loadDocument(s *resident, key string, value []byte) error {
	next, err := s.cluster.Load(key, value)
	if err != nil {
		return fmt.Errorf("%w: %w", storage.ErrCorrupt, err)
	}
	s.cluster = next
	return nil
}
