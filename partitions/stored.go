package partitions

import (
	"context"
	"slices"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/partitions/placement"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/merkle"
)

// Stored is what a map holds where an operation would change it.
type Stored struct {
	// Value is the live value, nil for none.
	Value []byte
	// Guard is that of a record which takes the place of what is stored.
	Guard Guard
	// Unknown: an operation of an observed-remove map names a tag whose record cannot be
	// looked up, because its key is not known.
	Unknown bool
}

// Stored returns what is stored where op would change it, not older than what s was
// acknowledged: the record of its key, or of its tag. It blocks until the replica is that
// far, or ctx ends. Errors: ErrUnavailable, those of the state machine.
func (r *Router) Stored(ctx context.Context, s *Session, op *Op) (stored Stored, err error) {
	tag := op.Remove
	if op.Add != nil {
		tag = op.Add.Tag
	}
	if op.Homeless {
		return r.storedHomeless(op), nil
	}
	if r.groups() == 0 {
		return stored, ErrUnavailable
	}
	now := r.deps.Physical()
	err = r.readGroup(ctx, s, placement.GroupOf(op.Key, r.groups()), func(_ uint32, reader Reader) error {
		if tag == "" {
			stored.Guard = command.GuardOf(nil)
			bucket := []uint16{merkle.BucketOf(op.Key)}
			return reader.Records(op.Map, bucket, op.Key, 0, func(_ uint16, key string, rec protocol.Record) bool {
				if key != op.Key || rec.IsTombstone() {
					return false
				}
				stored.Guard = command.GuardOf(rec.Value) // also when it has expired: it is there
				if !rec.Expired(now) {
					stored.Value = slices.Clone(rec.Value)
				}
				return false
			})
		}
		return reader.Sets(op.Map, []string{op.Key}, func(part protocol.OREntry, _ bool) bool {
			stored.Value = slices.Clone(recordOf(part, tag))
			return false // the first part has all records
		})
	})
	if err == nil && tag != "" && stored.Value == nil {
		// The tag belongs to the map: its record may be under another key.
		stored.Unknown = r.storedHomeless(op).Unknown
	}
	return stored, err
}

// recordOf is the value with a tag, nil if there is none.
func recordOf(entry protocol.OREntry, tag string) []byte {
	for i := range entry.Records {
		if entry.Records[i].Tag == tag {
			return entry.Records[i].Value
		}
	}
	return nil
}

// storedHomeless judges a tag whose key is not known: nothing is stored unless a group has
// it live.
func (r *Router) storedHomeless(op *Op) Stored {
	for group := uint32(1); group <= r.groups(); group++ {
		reader, ok := r.deps.Groups.Replica(group)
		if !ok {
			return Stored{Unknown: true}
		}
		tag := op.Remove
		if op.Add != nil {
			tag = op.Add.Tag
		}
		if state, err := reader.Tag(op.Map, tag); err != nil || state == fsm.TagLive {
			return Stored{Unknown: true}
		}
	}
	return Stored{}
}
