package remote

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/codec"
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/query"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/merkle"
)

// Reader reads one group at its holders. The states that it shows are never older than
// one that it showed before. For one goroutine. Errors of all methods: ErrUnanswered,
// the end of the context.
type Reader struct {
	client *Client
	ctx    context.Context
	group  uint32
	// atLeast is the log index that the next answer must contain.
	atLeast uint64
	// calls is held while functions of the caller run.
	calls sync.Locker
}

// NewReader returns a Reader for one use, whose states contain the log up to atLeast.
// What it is given to call is called with calls locked; it is not locked while holders
// are waited for.
func (c *Client) NewReader(ctx context.Context, group uint32, atLeast uint64, calls sync.Locker) *Reader {
	return &Reader{client: c, ctx: ctx, group: group, atLeast: atLeast, calls: calls}
}

// Index is the log index that everything read so far contains.
func (r *Reader) Index() uint64 { return r.atLeast }

// follow has the changes of s delivered, if somebody wants them, before it is read: the
// state that is read then is no older than where they begin.
func (r *Reader) follow(s Subject) error {
	if !r.client.deps.Followed(s) {
		return nil
	}
	from, err := r.client.follow(r.ctx, r.group, s)
	if err != nil {
		return err
	}
	r.atLeast = max(r.atLeast, from)
	return nil
}

// ask makes one request and has take read the answer. An answer that cannot be read ends
// the read: part of it may have been shown.
func (r *Reader) ask(op byte, body []byte, take func(answer *codec.Reader) error) (index uint64, err error) {
	var strange error
	cfg := &r.client.cfg
	timeout := cfg.TryTimeout
	if op == opAnswer {
		timeout = cfg.AnswerTimeout
	}
	err = r.client.try(r.ctx, r.group, timeout, func(ctx context.Context, node string) error {
		h := header{op: op, group: r.group, atLeast: r.atLeast}
		if deadline, ok := ctx.Deadline(); ok {
			h.waitMillis = uint64(max(min(time.Until(deadline), cfg.TryTimeout)/2, time.Millisecond).Milliseconds())
		}
		reply, err := r.client.deps.Read(ctx, node, append(h.appendTo(make([]byte, 0, 32+len(body))), body...))
		if err != nil {
			return err
		}
		if err := statusOf(reply); err != nil {
			return err
		}
		answer := codec.NewReader(reply[1:])
		index = answer.Uvarint()
		if err := answer.Err(); err != nil {
			return fmt.Errorf("%w: %w", errStrange, err)
		}
		r.calls.Lock()
		defer r.calls.Unlock()
		if err := take(&answer); err != nil {
			strange = fmt.Errorf("group %d: %s %w: %w", r.group, node, errStrange, err)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	r.atLeast = max(r.atLeast, index)
	return index, strange
}

// list takes a page of items, until take has had enough, and reports whether more follow.
func list(answer *codec.Reader, take func() bool) (more bool, err error) {
	for answer.Byte() == 1 {
		if more := take(); !more || answer.Err() != nil {
			return false, answer.Err()
		}
	}
	end := answer.Byte() != 0
	return !end, answer.End()
}

// Rows are some rows of a query over one group.
type Rows struct {
	// Index is the log index of the state that they are of.
	Index uint64
	List  []protocol.KeyedRecord
	// Cut is the place of the first row that was left out, empty if none was.
	Cut []byte
	// Plan is how the holder found them, empty if the ask does not want to know.
	Plan []byte
}

// Answer has a holder look for the rows that an ask wants, and calls take with them; see
// ServerDeps.Answer. take may keep them. The error may be query.ErrTooCostly, or that of
// take.
func (r *Reader) Answer(mapName string, ask []byte, take func(rows *Rows) error) error {
	if err := r.follow(Subject{Name: mapName}); err != nil {
		return err
	}
	var rows Rows
	tooCostly := false
	index, err := r.ask(opAnswer, codec.AppendBytes(codec.AppendText(nil, mapName), ask), func(answer *codec.Reader) error {
		switch answer.Byte() {
		case rowsTooCostly:
			tooCostly = true
			return answer.End()
		case rowsExplained:
			rows.Plan = answer.Bytes()
		}
		rows.Cut = answer.Bytes()
		for answer.Err() == nil && answer.Len() > 0 {
			rows.List = append(rows.List, protocol.KeyedRecord{Key: answer.Text(), Record: takeRecord(answer)})
		}
		return answer.Err()
	})
	switch {
	case err != nil:
		return err
	case tooCostly:
		return query.ErrTooCostly
	}
	rows.Index = index
	r.calls.Lock()
	defer r.calls.Unlock()
	return take(&rows)
}

// AddLeaves adds the group's share of a hash tree to leaves.
func (r *Reader) AddLeaves(mapName string, kind merkle.Kind, leaves *merkle.Leaves) (uint64, error) {
	if err := r.follow(Subject{Name: mapName}); err != nil {
		return 0, err
	}
	return r.ask(opLeaves, append(codec.AppendText(nil, mapName), byte(kind)), func(answer *codec.Reader) error {
		share := new(merkle.Leaves)
		if err := share.AddEncoded(answer.Rest()); err != nil {
			return err
		}
		leaves.Add(share)
		return nil
	})
}

// Records calls fn with the records in some buckets of a map that entries above since
// stored, in order of buckets and keys, tombstones included, those of the first bucket
// below from left out, until fn returns false. fn keeps none of them.
func (r *Reader) Records(mapName string, buckets []uint16, from string, since uint64,
	fn func(bucket uint16, key string, rec protocol.Record) bool,
) error {
	if err := r.follow(Subject{Name: mapName}); err != nil {
		return err
	}
	for more := true; more && len(buckets) > 0; {
		body := binary.AppendUvarint(codec.AppendText(nil, mapName), since)
		_, err := r.ask(opRecords, appendBuckets(codec.AppendText(body, from), buckets), func(answer *codec.Reader) (err error) {
			more, err = list(answer, func() bool {
				bucket, key, rec := takeBucket(answer), answer.Text(), takeRecord(answer)
				for answer.Err() == nil && len(buckets) > 0 && buckets[0] != bucket {
					buckets = buckets[1:]
				}
				if answer.Err() != nil || len(buckets) == 0 {
					answer.Fail("bucket %d was not asked for", bucket)
					return false
				}
				from = key + "\x00"
				return fn(bucket, key, rec)
			})
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// LeafSets calls fn with the keys of a leaf of an observed-remove map, in parts, until it
// returns false; fn may keep them.
func (r *Reader) LeafSets(leaf fsm.Leaf, fn func(part protocol.OREntry) bool) error {
	if err := r.follow(Subject{Name: leaf.Map}); err != nil {
		return err
	}
	for more := true; more; {
		body := binary.AppendUvarint(codec.AppendText(nil, leaf.Map), uint64(leaf.Bucket))
		_, err := r.ask(opSets, codec.AppendText(codec.AppendText(body, leaf.From), leaf.Tag), func(answer *codec.Reader) (err error) {
			more, err = list(answer, func() bool {
				part := takeEntry(answer)
				if answer.Err() != nil {
					return false
				}
				leaf = leaf.Behind(part)
				return fn(part)
			})
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Sets calls fn with keys of an observed-remove map, in their order, in parts, until it
// returns false; fn may keep them. more: a part of the same key follows.
func (r *Reader) Sets(mapName string, keys []string, fn func(part protocol.OREntry, more bool) bool) error {
	if err := r.follow(Subject{Name: mapName}); err != nil {
		return err
	}
	for tag := ""; len(keys) > 0; {
		parts := 0
		_, err := r.ask(opKeys, appendTexts(codec.AppendText(codec.AppendText(nil, mapName), tag), keys), func(answer *codec.Reader) error {
			_, err := list(answer, func() bool {
				part, more := takeEntry(answer), answer.Byte() != 0
				if answer.Err() != nil || len(keys) == 0 || part.Key != keys[0] || more && len(part.Tombstones) == 0 {
					answer.Fail("key %q was not asked for", part.Key)
					return false
				}
				parts++
				if more {
					tag = fsm.TagBehind(part)
				} else {
					keys, tag = keys[1:], ""
				}
				if !fn(part, more) {
					keys = nil
					return false
				}
				return true
			})
			if err == nil && parts == 0 {
				err = errStrange
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// ChangedBuckets returns the buckets of a map's records that entries above since may have
// changed, and the index of the state.
func (r *Reader) ChangedBuckets(mapName string, since uint64) (buckets []uint16, index uint64, err error) {
	body := binary.AppendUvarint(codec.AppendText(nil, mapName), since)
	index, err = r.ask(opChanged, body, func(answer *codec.Reader) error {
		buckets = takeBuckets(answer)
		return answer.End()
	})
	return buckets, index, err
}

// Tags returns what the group knows of tags, in their order.
func (r *Reader) Tags(mapName string, tags []string) (states []fsm.TagState, err error) {
	_, err = r.ask(opTags, appendTexts(codec.AppendText(nil, mapName), tags), func(answer *codec.Reader) error {
		states = make([]fsm.TagState, len(tags))
		for i := range states {
			states[i] = fsm.TagState(answer.Byte())
		}
		return answer.End()
	})
	return states, err
}

// Counter returns the cells of a counter, and the index of the state.
func (r *Reader) Counter(name string) (cells []command.Cell, index uint64, err error) {
	if err := r.follow(Subject{Counter: true, Name: name}); err != nil {
		return nil, 0, err
	}
	index, err = r.ask(opCounter, codec.AppendText(nil, name), func(answer *codec.Reader) error {
		cells = command.ReadCells(answer)
		return answer.End()
	})
	return cells, index, err
}

// Horizon says how far tombstones of the group are collected.
func (r *Reader) Horizon() (h fsm.Horizon, err error) {
	_, err = r.ask(opHorizon, nil, func(answer *codec.Reader) error {
		h = takeHorizon(answer)
		return answer.End()
	})
	return h, err
}
