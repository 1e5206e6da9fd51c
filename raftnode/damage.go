package raftnode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/quorate/quorate/fsm/storage"
)

// Damage is a replica that is out of service because its stored state is damaged. Its
// log and its votes are not: it goes on where it was once its state is replaced.
type Damage struct {
	Group uint32
	// Err is what was found.
	Err error
	// AtLeast is the log index that the new state must reach: readers here have seen that
	// far, or the log begins behind it.
	AtLeast uint64
}

// isDamage reports whether err says that the state of a group is damaged, or older than
// the beginning of its log.
func isDamage(err error) bool {
	return errors.Is(err, storage.ErrCorrupt) || errors.Is(err, ErrCorrupt)
}

// Damaged lists the replicas that are out of service, by group.
func (h *Host) Damaged() []Damage {
	h.mu.RLock()
	defer h.mu.RUnlock()
	list := slices.Collect(maps.Values(h.damaged))
	slices.SortFunc(list, func(a, b Damage) int { return cmp.Compare(a.Group, b.Group) })
	return list
}

// IsDamaged reports whether the replica of a group is out of service.
func (h *Host) IsDamaged(group uint32) bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	_, damaged := h.damaged[group]
	return damaged
}

// Isolate takes the replica of a group out of service, because of damage to its state:
// it ends, and does not start again before Readmit. It blocks until the replica has
// ended; for one that is out of service already it does nothing.
func (h *Host) Isolate(group uint32, cause error) error {
	h.lifecycle <- struct{}{}
	defer func() { <-h.lifecycle }()
	if h.IsDamaged(group) {
		return nil
	}
	h.mu.Lock()
	g := h.groups[group]
	delete(h.groups, group)
	h.mu.Unlock()
	applied := uint64(0)
	var err error
	if g != nil {
		applied = g.applier.applied.load()
		err = g.close()
	}
	h.putAside(group, cause, applied)
	return err
}

// putAside notes that a replica which does not run is damaged.
func (h *Host) putAside(group uint32, cause error, applied uint64) {
	log := h.deps.Log.Group(group)
	d := Damage{Group: group, Err: cause, AtLeast: max(applied, log.CommitHint())}
	// An unreadable log has its own way of telling.
	if first, err := log.FirstIndex(); err == nil && first > 0 {
		d.AtLeast = max(d.AtLeast, first-1)
	}
	h.mu.Lock()
	h.damaged[group] = d
	h.mu.Unlock()
	h.logger.Error("state is damaged, the replica is out of service", "group", group, "err", cause)
	h.signal()
}

// Promise makes the log of a damaged replica know a term: that of the state which is to
// replace the damaged one, since a replica must not forget terms that its state has seen.
func (h *Host) Promise(group uint32, term uint64) error {
	log := h.deps.Log.Group(group)
	known, err := log.GetUint64(keyCurrentTerm)
	if err != nil && !isKeyNotFound(err) {
		return fmt.Errorf("read current term of group %d: %w", group, err)
	}
	if known >= term {
		return nil
	}
	if err := log.SetUint64(keyCurrentTerm, term); err != nil {
		return fmt.Errorf("store current term of group %d: %w", group, err)
	}
	return nil
}

// Readmit lets a replica start again whose state was replaced.
func (h *Host) Readmit(group uint32) {
	h.lifecycle <- struct{}{}
	defer func() { <-h.lifecycle }()
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.damaged, group)
}

// startFailed is the error of Start for a group that could not be opened because of err.
func (h *Host) startFailed(group uint32, err error) error {
	if !isDamage(err) {
		return err
	}
	if h.deps.Damaged == nil {
		h.fail(err)
		return err
	}
	h.putAside(group, err, 0)
	h.deps.Damaged(group, err)
	return fmt.Errorf("%w: %w", ErrDamaged, err)
}

// applyFailed is told why a replica can apply nothing more. Damage ends this replica
// alone; anything else ends the process.
func (h *Host) applyFailed(group uint32, err error) {
	if h.deps.Damaged == nil || !isDamage(err) {
		h.fail(err)
		return
	}
	h.deps.Damaged(group, err)
}

// MendLog rids the node's log of damaged bytes: entries that cannot be read any more
// leave it, which needs their effect to be in the durable state, and the rest is written
// anew. A follower that lacks such an entry gets a snapshot.
func (h *Host) MendLog(ctx context.Context) error {
	for _, id := range h.deps.Log.Groups() {
		bad, err := h.deps.Log.Group(id).Unreadable()
		if err == nil && bad > 0 {
			err = h.shorten(ctx, id, bad)
		}
		if err != nil {
			return fmt.Errorf("mend log of group %d: %w", id, err)
		}
	}
	return h.deps.Log.Renew(ctx)
}

// shorten removes the entries of a group through index, which the durable state then has
// behind it.
func (h *Host) shorten(ctx context.Context, group uint32, index uint64) error {
	g, ok := h.Group(group)
	if !ok {
		return fmt.Errorf("entry %d is damaged and the replica does not run", index)
	}
	if err := g.Checkpoint(ctx); err != nil {
		return err
	}
	if flushed := g.machine.Flushed().Index; flushed < index {
		return fmt.Errorf("entry %d is damaged and the state ends at %d", index, flushed)
	}
	first, err := g.log.FirstIndex()
	if err != nil {
		return err
	}
	return g.log.DeleteRange(first, index)
}
