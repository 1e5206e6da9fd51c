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
// as many as its proposer puts into it, the end of a session its locks, and a recovery
// the cluster documents.
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

	command.KindRaiseTokens: {"raise-tokens", applyRaiseTokens},
	command.KindRecover:     {"recover", applyRecover},
	command.KindDocumentPut: {"document-put", applyDocumentPut},
	command.KindDatabasePut: {"database-put", applyDatabasePut},
	command.KindAdopt:       {"adopt", applyAdopt},
}

// sections says what each part of the state is. The items of a scanned section are
// read when a machine opens, because something in memory follows from them; load takes
// one item, in key order. For the others load only checks the item. What counts is
// counted for the batch size; the rest is bookkeeping of what counts. A kept item stays
// in memory for a while when it is flushed. What a tree is made of is read only when the
// store lacks the tree. A derived section follows from others: it is no part of digests
// and snapshots, and has no row of its own to load.
var sections = [...]struct {
	name    string
	scanned bool
	counts  bool
	kept    bool
	treed   bool
	derived bool
	load    func(s *resident, key string, value []byte) error
}{
	storage.SectionRecords: {name: "records", scanned: true, counts: true, kept: true, treed: true, load: loadRecord},
	storage.SectionDedup:   {name: "dedup", scanned: true, kept: true, load: loadOutcome},
	storage.SectionSystem:  {name: "system", scanned: true, counts: true, kept: true, load: loadDocument},
	storage.SectionSets:    {name: "sets", scanned: true, counts: true, kept: true, treed: true, load: loadSet},
	storage.SectionTags:    {name: "tags", kept: true, load: loadTag},
	storage.SectionRemoved: {name: "removed", load: loadRemoved},
	storage.SectionKeys:    {name: "keys", load: loadKey},
	storage.SectionGraves:  {name: "graves", scanned: true, load: loadGrave},
	storage.SectionGroup:   {name: "group", scanned: true, kept: true, load: loadGroup},

	storage.SectionLocks:    {name: "locks", scanned: true, counts: true, kept: true, load: loadLock},
	storage.SectionGateways: {name: "gateways", scanned: true, kept: true, load: loadGateway},
	storage.SectionSettled:  {name: "settled", scanned: true, kept: true, load: loadSettled},
	storage.SectionFences:   {name: "fences", kept: true, load: loadFence},
	storage.SectionCounters: {name: "counters", counts: true, kept: true, load: loadCounter},
	storage.SectionAdded:    {name: "added", scanned: true, kept: true, load: loadAdded},
	storage.SectionLeaves:   {name: "leaves", derived: true},
}

// resident is what a machine keeps in memory of the whole state, while it is read
// from the store or from a snapshot.
type resident struct {
	window  window
	cluster *system.State
	trees   trees
	// horizon is what was collected, graves what is listed to be.
	horizon Horizon
	graves  graveTally
	// settled is the window of commands for locks, and added that of additions to
	// counters: what one kind of command does pushes no outcome of another out.
	settled, added window
	locks          *lock.Table
	adopted        bool
}

func newResident() *resident {
	return &resident{
		window: newWindow(storage.SectionDedup), cluster: &system.State{}, trees: newTrees(),
		settled: newWindow(storage.SectionSettled), added: newWindow(storage.SectionAdded), locks: lock.NewTable(),
	}
}

// load takes one stored item.
func (s *resident) load(key storage.Key, value []byte) error {
	if int(key.Section) >= len(sections) || sections[key.Section].load == nil {
		return fmt.Errorf("unknown section %d: %w", uint8(key.Section), storage.ErrFormat)
	}
	return sections[key.Section].load(s, key.Bytes, value)
}

// readSection reads every item of a section from the store, with load takes what is kept in
// memory of it, and returns the section's share of the digest.
func (s *resident) readSection(reader storage.Reader, group uint32, section storage.Section, load bool) (digest uint64, err error) {
	if section == 0 || sections[section].load == nil {
		return 0, nil
	}
	var bad error
	err = reader.Scan(group, section, "", "", func(key string, value []byte) bool {
		k := storage.Key{Section: section, Bytes: key}
		digest += storage.ItemHash(k, value)
		if load {
			bad = s.load(k, value)
		}
		return bad == nil
	})
	if err == nil {
		err = bad
	}
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", section, err)
	}
	return digest, nil
}

func loadOutcome(s *resident, key string, value []byte) error { return s.window.load(key, value) }

func loadSettled(s *resident, key string, value []byte) error { return s.settled.load(key, value) }

func loadAdded(s *resident, key string, value []byte) error { return s.added.load(key, value) }

func loadDocument(s *resident, key string, value []byte) error {
	next, err := s.cluster.Load(key, value)
	if err != nil {
		return fmt.Errorf("%w: %w", storage.ErrCorrupt, err)
	}
	s.cluster = next
	return nil
}
