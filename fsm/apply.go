package fsm

import (
	"errors"
	"fmt"
	"slices"

	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/fsm/system"
	"github.com/quorate/quorate/protocol"
)

// Entry is one committed log entry.
type Entry struct {
	Index, Term uint64
	// Data is an encoded command entry or, with Configuration, an encoded Raft
	// configuration. Results and events may alias it.
	Data          []byte
	Configuration bool
}

// Apply applies entries in log order and returns, for each, one result per command;
// none for a configuration. An entry that the state contains already is skipped:
// its results are not known any more, and its list is nil.
//
// An entry that cannot be applied (undecodable, of an unknown kind, or the store
// fails) stops the machine: Apply returns the results of the entries before it and
// an error that wraps ErrStopped, and Applied stays before it. It reads the store
// for items that are not in memory, and otherwise blocks on nothing.
func (m *Machine) Apply(entries []Entry) ([][]command.Result, error) {
	m.applying.Lock()
	defer m.applying.Unlock()
	r := run{machine: m}
	results, err := r.apply(entries)
	m.flusher.Notify(r.sealed)
	if len(r.changes) > 0 {
		m.onChange(&Changes{Group: m.group, Index: r.through, List: r.changes})
	}
	index, _ := m.Applied()
	m.published.Store(index)
	return results, err
}

// run is one Apply. It works on the machine under its lock.
type run struct {
	machine *Machine
	collect bool
	// reader is a view of the store, opened when the first item is missing in memory.
	reader storage.Reader
	// sealed tells whether a batch was sealed.
	sealed bool
	// changes are those of whole entries, through the last one.
	changes []Change
	through uint64

	// The entry being applied: its decoded form, the position of the command, and
	// the mark and the cluster documents that it leads to.
	entry    command.Entry
	position int
	mark     storage.Mark
	cluster  *system.State
	// sets are the observed-remove sets that its commands have opened, by their places,
	// and dirtySets those that they changed.
	sets      map[string]*openSet
	dirtySets []*openSet
}

func (r *run) apply(entries []Entry) ([][]command.Result, error) {
	m := r.machine
	m.mu.Lock()
	// Asked under the lock: who begins to listen and then reads, reads either the state
	// before this run, of which it is then told, or the one after it.
	r.collect = m.onChange != nil && (m.listening == nil || m.listening())
	whole := false
	defer func() {
		if !whole {
			// A panic left the state inside an entry. Before the lock goes and the
			// process with it, no flush must take that for a cut.
			m.stopLocked(errors.New("panic while applying"))
		}
		// The view must not outlive the lock: after the next flush it is older than
		// the overlay assumes.
		r.closeReader()
		m.mu.Unlock()
	}()
	results, err := r.applyLocked(entries)
	whole = true
	return results, err
}

func (r *run) applyLocked(entries []Entry) ([][]command.Result, error) {
	m := r.machine
	if m.err != nil {
		return nil, fmt.Errorf("apply: %w", m.err)
	}
	results := make([][]command.Result, 0, len(entries))
	for _, e := range entries {
		if e.Index <= m.mark.Index {
			results = append(results, nil)
			continue
		}
		complete := len(r.changes)
		list, err := r.applyEntry(e)
		if err != nil {
			r.changes = r.changes[:complete]
			m.stopLocked(fmt.Errorf("entry %d of term %d: %w", e.Index, e.Term, m.noticed(err)))
			return results, fmt.Errorf("apply: %w", m.err)
		}
		results = append(results, list)
	}
	return results, nil
}

// applyEntry moves the machine's mark past e as its very last step, so that neither
// an error nor a panic leaves it beyond the state.
func (r *run) applyEntry(e Entry) ([]command.Result, error) {
	m := r.machine
	r.mark, r.cluster = m.mark, m.cluster.Load()
	r.mark.Index, r.mark.Term = e.Index, e.Term
	results := []command.Result{}
	if e.Configuration {
		r.mark.Configuration = append([]byte(nil), e.Data...)
		r.mark.ConfigurationIndex = e.Index
	} else {
		var err error
		if r.entry, err = command.DecodeEntry(e.Data); err != nil {
			return nil, err
		}
		r.makeRoom(len(r.entry.Commands))
		if results, err = r.applyCommands(); err != nil {
			return nil, err
		}
	}
	if r.cluster != m.cluster.Load() {
		m.cluster.Store(r.cluster)
	}
	m.mark = r.mark
	r.through = e.Index
	return results, nil
}

// makeRoom seals the open batch when n more items could take it over the batch
// size. Each command changes at most one item that counts.
func (r *run) makeRoom(n int) {
	m := r.machine
	if open := m.overlay.open.counted; open > 0 && open+n > m.flusher.BatchSize() {
		m.sealLocked()
		r.sealed = true
	}
}

func (r *run) applyCommands() ([]command.Result, error) {
	results := make([]command.Result, 0, len(r.entry.Commands))
	if r.collect {
		r.changes = slices.Grow(r.changes, len(r.entry.Commands))
	}
	for i, c := range r.entry.Commands {
		r.position = i
		r.raiseClock(r.stamp())
		res, err := r.applyCommand(c)
		if err != nil {
			return nil, fmt.Errorf("command %d: %w", i, err)
		}
		results = append(results, res)
	}
	r.closeSets()
	return results, nil
}

func (r *run) applyCommand(c command.Raw) (command.Result, error) {
	if int(c.Kind) < len(commands) && commands[c.Kind].apply != nil {
		result, err := commands[c.Kind].apply(r, c)
		if err == nil {
			r.machine.metrics.applied(c.Kind, result)
		}
		return result, err
	}
	if c.Kind&command.Ignorable != 0 {
		return r.unchanged(), nil
	}
	return command.Result{}, fmt.Errorf("%w: %s", ErrUnknownKind, c.Kind)
}

// stamp is the effective stamp of the command being applied.
func (r *run) stamp() protocol.Timestamp { return command.Stamp(r.entry, r.position) }

// raiseClock keeps the clock floor at or above ts.
func (r *run) raiseClock(ts protocol.Timestamp) {
	m := &r.mark
	if ts.Millis > m.ClockMillis || (ts.Millis == m.ClockMillis && ts.Counter > m.ClockCounter) {
		m.ClockMillis, m.ClockCounter = ts.Millis, ts.Counter
	}
}

func (r *run) changed() command.Result {
	return command.Result{Index: r.mark.Index, Changed: true}
}

func (r *run) unchanged() command.Result { return command.Result{Index: r.mark.Index} }

func (r *run) refused(code protocol.Code, reason string) command.Result {
	return command.Result{Index: r.mark.Index, Code: code, Reason: reason}
}

// lookup returns the cell of an item, with a nil value if it does not exist. key is
// not kept.
func (r *run) lookup(section storage.Section, key []byte) (*cell, error) {
	o := &r.machine.overlay
	// The compiler makes no string for a map index of this form.
	if c := o.cells[section][string(key)]; c != nil {
		if c.cut == 0 {
			o.clean.remove(c)
			o.clean.push(c)
		}
		return c, nil
	}
	c := &cell{key: storage.Key{Section: section, Bytes: string(key)}}
	stored, err := r.read(c.key)
	if err != nil {
		return nil, err
	}
	if stored != nil {
		c.value = append([]byte{}, stored...)
		o.keep(c)
	}
	return c, nil
}

// cell returns the cell of an item that does not exist in the state.
func (r *run) cell(key storage.Key) *cell {
	if c := r.machine.overlay.cells[key.Section][key.Bytes]; c != nil {
		return c // its deletion is not flushed yet
	}
	return &cell{key: key}
}

// read gets a value from the store, valid until the end of the run.
func (r *run) read(key storage.Key) ([]byte, error) {
	if r.reader == nil {
		reader, err := r.machine.store.NewReader()
		if err != nil {
			return nil, err
		}
		r.reader = reader
	}
	value, err := r.reader.Get(r.machine.group, key)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", key.Section, err)
	}
	return value, nil
}

func (r *run) closeReader() {
	if r.reader != nil {
		_ = r.reader.Close()
	}
}

// set changes an item, nil to delete it, and the digest with it.
func (r *run) set(c *cell, value []byte) {
	if c.value != nil {
		r.mark.Digest -= storage.ItemHash(c.key, c.value)
	}
	if value != nil {
		r.mark.Digest += storage.ItemHash(c.key, value)
	}
	r.machine.overlay.set(c, value)
}

// notice records a change that is rare and always of interest.
func (r *run) notice(c Change) {
	if r.machine.onChange != nil {
		c.Index = r.mark.Index
		r.changes = append(r.changes, c)
	}
}

// event records a change for the listener.
func (r *run) event(c Change) {
	if r.collect {
		c.Index = r.mark.Index
		r.changes = append(r.changes, c)
	}
}
