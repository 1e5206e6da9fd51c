package fsm

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/quorate/quorate/fsm/codec"
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/lock"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/protocol"
)

// The first byte of every stored lock, gateway and greatest token.
const (
	lockFormat    = 1
	gatewayFormat = 1
	tokenFormat   = 1
)

// tokenName is the item of the group section with the greatest token.
const tokenName = "token"

// Refusals of locks. Users see them.
const (
	reasonNotHeld = "the token does not hold the lock"
	reasonExpired = "the lease of the token has expired"
	reasonFull    = "too many wait for the lock, or the connection has too many locks"
)

// applyLock asks for a lock. A request is counted once, in whichever order it and its
// repeats, its cancellation and the end of its session arrive: each of them leaves an
// outcome in the window.
func applyLock(r *run, c command.Raw) (command.Result, error) {
	m, err := command.DecodeLockRequest(c)
	if err != nil {
		return command.Result{}, err
	}
	locks, settled := r.machine.locks, &r.machine.settled
	before := locks.Status(m.Name, m.Request)
	id := requestID(m.Request)
	_, known := settled.find(id)
	_, ended := settled.find(sessionID(m.Request.Session))
	if known || ended {
		return r.lockOutcome(before, before)
	}
	after := before
	// The outcome of a request that waits for long leaves the window before the request does.
	if c.Version < command.QueuedOnceVersion || before.State != lock.Waiting {
		after = locks.Acquire(m.Name, m.Request, r.mark.Index)
	}
	res, err := r.lockOutcome(before, after)
	if err != nil {
		return command.Result{}, err
	}
	return res, r.remember(settled, id, r.changed())
}

// lockOutcome stores what changed, and makes the result of a request.
func (r *run) lockOutcome(before, after lock.Outcome) (command.Result, error) {
	res := r.unchanged()
	if after != before {
		res = r.changed()
	}
	if after.State == lock.Full {
		res = r.refused(protocol.CodeOverloaded, reasonFull)
	}
	res.Value = lock.AppendOutcome(nil, after)
	return res, r.saveLocks()
}

// applyCancel gives up a wait. It also keeps the request from being counted later.
func applyCancel(r *run, c command.Raw) (command.Result, error) {
	m, err := command.DecodeLockRequest(c)
	if err != nil {
		return command.Result{}, err
	}
	locks, settled := r.machine.locks, &r.machine.settled
	before := locks.Status(m.Name, m.Request)
	res, err := r.lockOutcome(before, locks.Cancel(m.Name, m.Request))
	if err != nil {
		return command.Result{}, err
	}
	id := requestID(m.Request)
	if _, known := settled.find(id); known {
		return res, nil
	}
	return res, r.remember(settled, id, r.changed())
}

// applyUnlock releases a lock, once: the repeat of a release says what the first said.
func applyUnlock(r *run, c command.Raw) (command.Result, error) {
	m, err := command.DecodeLockToken(c)
	if err != nil {
		return command.Result{}, err
	}
	id := tokenID(m.Name, m.Token)
	if res, repeated := r.machine.settled.find(id); repeated {
		return res, nil
	}
	if !r.machine.locks.Release(m.Name, m.Token) {
		return r.refused(protocol.CodeStale, reasonNotHeld), nil
	}
	if err := r.saveLocks(); err != nil {
		return command.Result{}, err
	}
	return r.changed(), r.remember(&r.machine.settled, id, r.changed())
}

// applyExpire ends a lease that the leader saw run out, unless it was renewed.
func applyExpire(r *run, c command.Raw) (command.Result, error) {
	m, err := command.DecodeLockToken(c)
	if err != nil || !r.machine.locks.Expire(m.Name, m.Token, m.Lease) {
		return r.unchanged(), err
	}
	if err := r.saveLocks(); err != nil {
		return command.Result{}, err
	}
	return r.changed(), r.remember(&r.machine.settled, tokenID(m.Name, m.Token), r.refused(protocol.CodeStale, reasonExpired))
}

// applyRenew begins a lease anew.
func applyRenew(r *run, c command.Raw) (command.Result, error) {
	m, err := command.DecodeLockToken(c)
	if err != nil {
		return command.Result{}, err
	}
	if !r.machine.locks.Renew(m.Name, m.Token, m.TTLMillis) {
		return r.refused(protocol.CodeStale, reasonNotHeld), nil
	}
	return r.changed(), r.saveLocks()
}

// applyEndSession ends what a connection holds and waits for, and what of it is still
// under way.
func applyEndSession(r *run, c command.Raw) (command.Result, error) {
	m, err := command.DecodeLockSession(c)
	if err != nil {
		return command.Result{}, err
	}
	id := sessionID(m.Session)
	if res, repeated := r.machine.settled.find(id); repeated {
		return res, nil
	}
	r.machine.locks.End(m.Session)
	if err := r.saveLocks(); err != nil {
		return command.Result{}, err
	}
	return r.changed(), r.remember(&r.machine.settled, id, r.changed())
}

// applyBeat notes that a node lives.
func applyBeat(r *run, c command.Raw) (command.Result, error) {
	m, err := command.DecodeLockSession(c)
	if err != nil || !r.machine.locks.Hear(m.Session.Gateway, r.mark.Index) {
		return r.unchanged(), err
	}
	return r.changed(), r.saveLocks()
}

// applyEndGateway ends the sessions of a node that was silent, unless it was heard of.
func applyEndGateway(r *run, c command.Raw) (command.Result, error) {
	m, err := command.DecodeLockSession(c)
	if err != nil || !r.machine.locks.EndGateway(m.Session.Gateway, m.Beat) {
		return r.unchanged(), err
	}
	return r.changed(), r.saveLocks()
}

// The dedup ids of the window for locks. Nothing that one of them names is
// ever used again.
func requestID(req lock.Request) id {
	return outcomeID(fmt.Sprintf("request %q %d %d", req.Gateway, req.Number, req.ID))
}

func sessionID(s lock.Session) id {
	return outcomeID(fmt.Sprintf("session %q %d", s.Gateway, s.Number))
}

func tokenID(name string, token uint64) id { return outcomeID(fmt.Sprintf("token %q %d", name, token)) }

// saveLocks stores what changed in the table of locks, and tells the listener.
func (r *run) saveLocks() error {
	locks := r.machine.locks
	changes := locks.Drain()
	for _, name := range distinct(changes.Locks) {
		var value []byte
		if l := locks.Get(name); l != nil {
			value = lock.Append([]byte{lockFormat}, l)
		}
		if err := r.save(storage.Key{Section: storage.SectionLocks, Bytes: name}, value); err != nil {
			return err
		}
		r.notice(Change{Section: storage.SectionLocks, Key: name})
	}
	for _, name := range distinct(changes.Gateways) {
		var value []byte
		if beat := locks.Beat(name); beat > 0 {
			value = binary.AppendUvarint([]byte{gatewayFormat}, beat)
		}
		if err := r.save(storage.Key{Section: storage.SectionGateways, Bytes: name}, value); err != nil {
			return err
		}
		r.notice(Change{Section: storage.SectionGateways, Key: name})
	}
	if fence := locks.Fence(); fence != r.machine.savedFence {
		r.machine.savedFence = fence
		key := storage.Key{Section: storage.SectionGroup, Bytes: tokenName}
		return r.save(key, binary.AppendUvarint([]byte{tokenFormat}, fence))
	}
	return nil
}

// distinct sorts names and drops repeats.
func distinct(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}

// save makes value that of an item, which need not exist; nil deletes it.
func (r *run) save(key storage.Key, value []byte) error {
	c, err := r.lookup(key.Section, []byte(key.Bytes))
	if err == nil && (value != nil || c.value != nil) {
		r.set(c, value)
	}
	return err
}

// loadLock is the row of locks in sections.
func loadLock(s *resident, key string, value []byte) error {
	r := codec.NewReader(value)
	if format := r.Byte(); format != lockFormat {
		r.Fail("format %d", format)
	}
	l := lock.Read(&r, key)
	if err := r.End(); err != nil {
		return fmt.Errorf("decode lock %q: %w: %w", key, storage.ErrCorrupt, err)
	}
	s.locks.Restore(l)
	return nil
}

// loadGateway is the row of gateways in sections. Their sessions were loaded before.
func loadGateway(s *resident, key string, value []byte) error {
	r := codec.NewReader(value)
	if format := r.Byte(); format != gatewayFormat {
		r.Fail("format %d", format)
	}
	beat := r.Uvarint()
	if err := r.End(); err != nil {
		return fmt.Errorf("decode gateway %q: %w: %w", key, storage.ErrCorrupt, err)
	}
	s.locks.RestoreBeat(key, beat)
	return nil
}

// Lock returns a lock as of the last applied entry, nil if nobody holds it. The result
// is a copy.
func (m *Machine) Lock(name string) *lock.Lock {
	m.mu.RLock()
	defer m.mu.RUnlock()
	l := m.locks.Get(name)
	if l == nil {
		return nil
	}
	held := *l
	held.Waiters = slices.Clone(l.Waiters)
	return &held
}

// LockStatus is what a request for a lock has come to, as of the last applied entry.
func (m *Machine) LockStatus(name string, req lock.Request) lock.Outcome {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.locks.Status(name, req)
}

// Locks lists the names of the locks that are held, in order.
func (m *Machine) Locks() []string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.locks.Names()
}

// Gateways says when each gateway that has to do with locks was last heard of, as log
// indexes.
func (m *Machine) Gateways() map[string]uint64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.locks.Gateways()
}
