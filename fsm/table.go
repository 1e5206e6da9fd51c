package fsm

import (
	"fmt"

	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/lock"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/fsm/system"
)

// commands says how each kind is applied; a kind without a row stops the group.
// Each command changes at most one item of a section that counts; a collection changes
// as many as its proposer puts into it, and the end of a session its locks.
var commands = [...]struct {
	name  string
	apply func(*run, command.Raw) (command.Result, error)
}{
	command.KindPut:       {"put", applyPut},
	command.KindMemberPut: {"member-put", applyMemberPut},
	command.KindTablePut:  {"table-put", applyTablePut},
	command.KindGenesis:   {"genesis", applyGenesis},
	command.KindORAdd:     {"or-add", applyORAdd},
	command.KindORRemove:  {"or-remove", applyORRemove},
	command.KindCollect:   {"collect", applyCollect},

	command.KindRead:         {"read", applyRead},
	command.KindLock:         {"lock", applyLock},
	command.KindUnlock:       {"unlock", applyUnlock},
	command.KindExpire:       {"expire", applyExpire},
	command.KindRenew:        {"renew", applyRenew},
	command.KindCancel:       {"cancel", applyCancel},
	command.KindEndSession:   {"end-session", applyEndSession},
	command.KindBeat:         {"beat", applyBeat},
	command.KindEndGateway:   {"end-gateway", applyEndGateway},
	command.KindCounterMerge: {"counter-merge", applyCounterMerge},
	command.KindCounterAdd:   {"counter-add", applyCounterAdd},
}

// sections says what each part of the state is. The items of a scanned section are
// read when a machine opens, because something in memory follows from them; load takes
// one item, in key order. For the others load only checks the item. What counts is
// counted for the batch size; the rest is bookkeeping of what counts. A kept item stays
// in memory for a while when it is flushed.
var sections = [...]struct {
	name    string
	scanned bool
	counts  bool
	kept    bool
	load    func(s *resident, key string, value []byte) error
}{
	storage.SectionRecords: {"records", true, true, true, loadRecord},
	storage.SectionDedup:   {"dedup", true, false, true, loadOutcome},
	storage.SectionSystem:  {"system", true, true, true, loadDocument},
	storage.SectionSets:    {"sets", true, true, true, loadSet},
	storage.SectionTags:    {"tags", false, false, true, loadTag},
	storage.SectionRemoved: {"removed", false, false, false, loadRemoved},
	storage.SectionKeys:    {"keys", false, false, false, loadKey},
	storage.SectionGraves:  {"graves", false, false, false, loadGrave},
	storage.SectionGroup:   {"group", true, false, true, loadGroup},

	storage.SectionLocks:    {"locks", true, true, true, loadLock},
	storage.SectionGateways: {"gateways", true, false, true, loadGateway},
	storage.SectionSettled:  {"settled", true, false, true, loadSettled},
	storage.SectionFences:   {"fences", false, false, true, loadFence},
	storage.SectionCounters: {"counters", false, true, true, loadCounter},
}

// resident is what a machine keeps in memory of the whole state, while it is read
// from the store or from a snapshot.
type resident struct {
	window  window
	cluster *system.State
	trees   trees
	// horizon is what was collected.
	horizon Horizon
	// settled is the window of commands for locks and counters, which many writes of
	// records do not push out.
	settled window
	locks   *lock.Table
}

func newResident() *resident {
	return &resident{
		window: newWindow(storage.SectionDedup), cluster: &system.State{}, trees: trees{},
		settled: newWindow(storage.SectionSettled), locks: lock.NewTable(),
	}
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

func loadOutcome(s *resident, key string, value []byte) error { return s.window.load(key, value) }

func loadSettled(s *resident, key string, value []byte) error { return s.settled.load(key, value) }

func loadDocument(s *resident, key string, value []byte) error {
	next, err := s.cluster.Load(key, value)
	if err != nil {
		return fmt.Errorf("%w: %w", storage.ErrCorrupt, err)
	}
	s.cluster = next
	return nil
}
