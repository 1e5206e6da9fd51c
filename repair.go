package quorate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/raftnode"
	"github.com/quorate/quorate/raftnode/mux"
)

// repairPause is how long a node waits before it looks again for a peer that can
// replace a damaged state.
const repairPause = 2 * time.Second

// maxSetAside is how many damaged states of a group are replaced while they take space in
// the store: a disk that damages more is not to be trusted with another copy.
const maxSetAside = 3

// errSetAside says why a group is not repaired again.
var errSetAside = fmt.Errorf("%d damaged states of the group are set aside in the store already; remove the node's files, so that it comes back as a new member", maxSetAside)

// quarantine is a store that keeps what is damaged from being used again.
type quarantine interface {
	Quarantine(group uint32) error
	Quarantined() (map[uint32]int, error)
}

// repairer takes replicas whose state is damaged out of service, and brings them back
// with the state of another node. The log of a replica stays, and with it all that it has
// promised to others.
type repairer struct {
	node *Node
	// wake has a token when there may be something to do. Capacity 1.
	wake chan struct{}

	mu sync.Mutex // protects the fields below
	// reported is damage that was not looked at yet.
	reported map[uint32]error
	// failures are the latest reasons why groups were not repaired.
	failures map[uint32]string
	// aside is how many states of a group are set aside in the store.
	aside map[uint32]int
}

func newRepairer(node *Node) *repairer {
	return &repairer{node: node, wake: make(chan struct{}, 1), reported: map[uint32]error{}, failures: map[uint32]string{}}
}

// report notes that the state of a group is damaged. It does not block.
func (r *repairer) report(group uint32, err error) {
	r.mu.Lock()
	if _, known := r.reported[group]; !known {
		r.reported[group] = err
	}
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *repairer) take() map[uint32]error {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.reported
	r.reported = map[uint32]error{}
	return taken
}

// run works until ctx ends. An error means that the node must stop.
func (r *repairer) run(ctx context.Context) error {
	r.countAside()
	retry := time.NewTicker(repairPause)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
		case <-retry.C:
		}
		for group, cause := range r.take() {
			r.node.metrics.damage.Inc()
			if err := r.isolate(group, cause); err != nil {
				return err
			}
		}
		for _, d := range r.node.host.Damaged() {
			r.note(d.Group, r.repair(ctx, d))
		}
	}
}

// note logs why a group was not repaired, once for each reason.
func (r *repairer) note(group uint32, err error) {
	r.mu.Lock()
	before := r.failures[group]
	if err == nil {
		delete(r.failures, group)
	} else {
		r.failures[group] = err.Error()
	}
	r.mu.Unlock()
	if err != nil && err.Error() != before {
		r.node.log.Warn("damaged state was not replaced yet", "group", group, "err", err)
	}
}

// explain says what is damaged, and why it was not replaced if that was tried.
func (r *repairer) explain(d raftnode.Damage) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if reason := r.failures[d.Group]; reason != "" {
		return d.Err.Error() + "; not replaced: " + reason
	}
	return d.Err.Error()
}

// setAside is how many damaged states of a group take space in the store.
func (r *repairer) setAside(group uint32) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.aside[group]
}

func (r *repairer) allAside() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, count := range r.aside {
		n += count
	}
	return n
}

// countAside looks what the store has set aside.
func (r *repairer) countAside() {
	store, ok := r.node.deps.Store.(quarantine)
	if !ok {
		return
	}
	count, err := store.Quarantined()
	if err != nil {
		r.node.log.Warn("damaged states that were set aside are not counted", "err", err)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.aside = count
}

// isolate ends the replica. What is damaged is kept from being taken for space that can
// be used again: what it points to may be in use elsewhere.
func (r *repairer) isolate(group uint32, cause error) error {
	if err := r.node.host.Isolate(group, cause); err != nil {
		return err
	}
	store, ok := r.node.deps.Store.(quarantine)
	if !ok {
		return nil
	}
	if err := store.Quarantine(group); err != nil {
		return fmt.Errorf("set damaged state of group %d aside: %w", group, err)
	}
	r.countAside()
	return nil
}

// repair replaces the state of a group by that of the first node that gives it away, and
// starts the replica again.
func (r *repairer) repair(ctx context.Context, d raftnode.Damage) error {
	if r.setAside(d.Group) > maxSetAside {
		return errSetAside
	}
	var errs []error
	for _, peer := range r.holders(d.Group) {
		err := r.copyFrom(ctx, d, peer)
		if err == nil {
			r.node.metrics.repairs.Inc()
			r.node.host.Readmit(d.Group)
			return r.start(d.Group)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		return errors.New("no other node holds the group")
	}
	return errors.Join(errs...)
}

// start starts a replica whose state was replaced.
func (r *repairer) start(group uint32) error {
	_, err := r.node.host.Start(group, nil)
	if errors.Is(err, raftnode.ErrRunning) {
		err = nil
	}
	// Who follows a map here missed what came while the replica was away.
	gone := &fsm.Changes{Group: group, Reset: true}
	r.node.hub.Publish(gone)
	r.node.board.Publish(gone)
	r.node.agent.StateChanged()
	return err
}

// holders are the nodes that may have the state of a group: those of the table, or all
// that are known.
func (r *repairer) holders(group uint32) []raftnode.ServerID {
	self := r.node.cfg.Raft.ID
	var list []raftnode.ServerID
	if state := r.node.agent.State(); state != nil && group > 0 && int(group) <= len(state.Table.Groups) {
		for _, id := range state.Table.Groups[group-1].Voters {
			list = append(list, raftnode.ServerID(id))
		}
	} else {
		list = r.node.agent.Peers()
	}
	return slices.DeleteFunc(list, func(id raftnode.ServerID) bool { return id == self })
}

func (r *repairer) copyFrom(ctx context.Context, d raftnode.Damage, peer raftnode.ServerID) (err error) {
	call := func(ctx context.Context, method mux.Method, body []byte) ([]byte, error) {
		return r.node.mux.Call(ctx, peer, method, body)
	}
	src, err := openRemote(ctx, call, openRequest{Group: d.Group, Node: string(peer), AtLeast: max(d.AtLeast, 1)})
	if err != nil {
		return err
	}
	// A release that does not arrive costs the peer a minute of an open view.
	defer func() { _ = src.Close() }()
	if err := r.node.host.Promise(d.Group, src.Term); err != nil {
		return err
	}
	info, err := fsm.Replace(r.node.deps.Store, d.Group, src, d.AtLeast)
	if err != nil {
		return fmt.Errorf("copy state of group %d from %s: %w", d.Group, peer, err)
	}
	r.node.log.Info("damaged state was replaced", "group", d.Group, "peer", peer, "index", info.Mark.Index, "items", info.Items)
	return nil
}
