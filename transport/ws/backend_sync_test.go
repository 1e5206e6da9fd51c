package ws

import (
	"context"

	"github.com/hashicorp/go-hclog"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/fsm/storage/memory"
	"github.com/quorate/quorate/fsm/storage/writebehind"
	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/merkle"
)

// openMachine gives the backend a real state machine, from which it answers everything
// about hash trees and observed-remove maps.
func (b *fakeBackend) openMachine() {
	store := memory.New(memory.Config{})
	flusher, err := writebehind.New(writebehind.DefaultConfig(), writebehind.Deps{Logger: hclog.NewNullLogger(), Store: store})
	if err != nil {
		panic(err)
	}
	b.machine, err = fsm.Open(fsm.DefaultConfig(1), fsm.Deps{
		Logger: hclog.NewNullLogger(), Store: store, Flusher: flusher,
		OnChange: func(c *fsm.Changes) {
			sets := &fsm.Changes{Group: c.Group, Index: c.Index}
			for _, change := range c.List {
				if change.Section == storage.SectionSets {
					sets.List = append(sets.List, change)
				}
			}
			b.hub.Publish(sets)
			b.board.Publish(c)
		},
	})
	if err != nil {
		panic(err)
	}
}

// applyLocked applies what was not refused.
func (b *fakeBackend) applyLocked(origin string, ops []partitions.Op, verdicts []partitions.Verdict) {
	var cmds []command.Raw
	for i, op := range ops {
		var c command.Raw
		switch {
		case verdicts[i].Refused():
			continue
		case op.Add != nil:
			c, _ = command.AppendORAdd(nil, command.ORAdd{Map: op.Map, Key: op.Key, Record: *op.Add, Origin: origin})
		case op.Remove != "":
			c, _ = command.AppendORRemove(nil, command.ORRemove{Map: op.Map, Key: op.Key, Tag: op.Remove, Homeless: op.Homeless, Origin: origin})
		default:
			c = command.EncodePut(command.Put{Map: op.Map, Key: op.Key, Record: op.Record, Origin: origin, Stamped: op.Record.Timestamp.IsZero()})
		}
		cmds = append(cmds, c)
	}
	entry := command.AppendEntry(nil, protocol.Timestamp{Millis: testNow, NodeID: "n1"}, cmds)
	if _, err := b.machine.Apply([]fsm.Entry{{Index: b.index, Term: 1, Data: entry}}); err != nil {
		panic(err)
	}
}

func (b *fakeBackend) Watch(s *partitions.Session, mapName string, sink partitions.Sink) *partitions.Subscription {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.wrapSink != nil {
		sink = b.wrapSink(sink)
	}
	sub := b.hub.Subscribe(mapName, b.sessions[s], partitions.Interest{}, sink)
	sub.Release()
	return sub
}

func (b *fakeBackend) Tree(ctx context.Context, _ *partitions.Session, mapName string, kind merkle.Kind) (*merkle.Leaves, error) {
	leaves := new(merkle.Leaves)
	if b.onSnapshot != nil {
		if err := b.onSnapshot(ctx); err != nil {
			return nil, err
		}
	}
	_, err := b.machine.AddLeaves(mapName, kind, leaves)
	return leaves, err
}

func (b *fakeBackend) LeafRecords(_ context.Context, _ *partitions.Session, mapName string, bucket uint16, _ partitions.LeafPlace,
	fn func(string, protocol.Record) bool,
) (next partitions.LeafPlace, end bool, err error) {
	leaf := b.leafFrom(mapName, bucket)
	end = true
	err = b.machine.LeafRecords(leaf, 0, func(key string, rec protocol.Record) bool {
		if end = fn(key, rec); !end {
			b.leaf = fsm.Leaf{From: key + "\x00"}
		}
		return end
	})
	return next, end, err
}

// leafFrom is the leaf from the place on that was returned last: only package partitions
// can make places.
func (b *fakeBackend) leafFrom(mapName string, bucket uint16) fsm.Leaf {
	leaf := b.leaf
	leaf.Map, leaf.Bucket = mapName, bucket
	b.leaf = fsm.Leaf{}
	return leaf
}

func (b *fakeBackend) LeafSets(_ context.Context, _ *partitions.Session, mapName string, bucket uint16, _ partitions.LeafPlace,
	fn func(protocol.OREntry) bool,
) (next partitions.LeafPlace, end bool, err error) {
	leaf := b.leafFrom(mapName, bucket)
	end = true
	err = b.machine.LeafSets(leaf, func(part protocol.OREntry) bool {
		if end = fn(part); !end {
			b.leaf = leaf.Behind(part)
		}
		return end
	})
	return next, end, err
}

func (b *fakeBackend) Sets(_ context.Context, _ *partitions.Session, mapName string, keys []string, maxBytes int) ([]protocol.OREntry, error) {
	var list []protocol.OREntry
	for _, key := range keys {
		entry, _, err := b.machine.Set(mapName, key, "")
		if err != nil {
			return nil, err
		}
		if maxBytes -= entry.Size(); maxBytes < 0 {
			return nil, partitions.ErrTooMuch
		}
		list = append(list, entry)
	}
	return list, nil
}

func (b *fakeBackend) UnknownRemovals(mapName string, tags []string) (unknown []string) {
	b.mu.Lock()
	b.judged = append(b.judged, len(tags))
	b.mu.Unlock()
	for _, tag := range tags {
		if state, err := b.machine.Tag(mapName, tag); err != nil || state != fsm.TagRemoved {
			unknown = append(unknown, tag)
		}
	}
	return unknown
}

func (b *fakeBackend) Horizon() (partitions.Horizon, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.horizon, b.horizonErr
}

func (b *fakeBackend) HorizonChanged(fn func()) (cancel func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.collected = fn
	return func() {}
}

// setHorizon changes what is collected.
func (b *fakeBackend) setHorizon(h partitions.Horizon) {
	b.mu.Lock()
	b.horizon = h
	b.mu.Unlock()
	b.collected()
}

func (*fakeBackend) ClusterID() string { return "c-01" }

func (b *fakeBackend) Now() protocol.Timestamp {
	return protocol.Timestamp{Millis: testNow, NodeID: "n1"}
}

// Stored returns what the maps of the fake hold; nobody's sets are looked at.
func (b *fakeBackend) Stored(_ context.Context, _ *partitions.Session, op *partitions.Op) (partitions.Stored, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	value := b.maps[op.Map][op.Key].Value
	return partitions.Stored{Value: value, Guard: partitions.GuardOf(value), Unknown: op.Homeless}, nil
}

// locked calls fn with what the backend counts held still.
func (b *fakeBackend) locked(fn func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fn()
}
