package judge

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/transport/policy"
)

// Reader reads what permissions depend on; *partitions.Router is one.
type Reader interface {
	// Stored returns what is stored where op would change it.
	Stored(ctx context.Context, s *partitions.Session, op *partitions.Op) (partitions.Stored, error)
	// Barrier has later reads of s show everything that was acknowledged before.
	Barrier(ctx context.Context, s *partitions.Session) error
}

// Permission judges whether a client may do what it asks for.
type Permission struct {
	Access  policy.Access
	Reader  Reader
	Session *partitions.Session
}

// Denied is the refusal of an action that no policy allows.
func Denied(action policy.Action, r policy.Resource) Refusal {
	return Refusal{Code: protocol.CodeForbidden, Reason: fmt.Sprintf("no permission to %s %s", action, r)}
}

// unrestricted reports whether nothing can be denied to the client.
func (p Permission) unrestricted() bool {
	return !p.Access.Guard.Set().Restricts() || p.Access.Caller.Admin
}

// NeedsStored reports whether policies judge one of ops by what is stored, which costs a
// read mark and must follow earlier writes of the client.
func (p Permission) NeedsStored(ops []partitions.Op) bool {
	if p.unrestricted() {
		return false
	}
	set := p.Access.Guard.Set()
	return slices.ContainsFunc(ops, func(op partitions.Op) bool {
		action, resource := asks(&op)
		return set.SeesStored(p.Access.Caller, action, resource)
	})
}

// asks is what an operation asks for.
func asks(op *partitions.Op) (policy.Action, policy.Resource) {
	action := policy.Write
	if op.Remove != "" || op.Add == nil && op.Record.IsTombstone() {
		action = policy.Remove
	}
	return action, policy.Resource{Kind: policy.Map, Name: op.Map}
}

// incoming is the value that an operation brings.
func incoming(op *partitions.Op) []byte {
	switch {
	case op.Add != nil:
		return op.Add.Value
	case op.Remove != "" || op.Record.IsTombstone():
		return nil
	default:
		return op.Record.Value
	}
}

// place is what an operation replaces.
type place struct{ mapName, key, tag string }

func placeOf(op *partitions.Op) place {
	p := place{mapName: op.Map, key: op.Key, tag: op.Remove}
	if op.Add != nil {
		p.tag = op.Add.Tag
	}
	return p
}

// Ops judges operations that come together, in their order, and returns one refusal per
// operation. Where policies look at what is stored, that is what is acknowledged to anyone
// before the call, with the earlier operations that are permitted, and the operation gets a
// guard, so that it takes the place of nothing else. It blocks while that is read. Its error
// wraps partitions.ErrUnavailable.
func (p Permission) Ops(ctx context.Context, ops []partitions.Op) ([]Refusal, error) {
	list := make([]Refusal, len(ops))
	if p.unrestricted() {
		return list, nil
	}
	set := p.Access.Guard.Set()
	confirmed := false
	earlier := map[place][]byte{}
	for i := range ops {
		op := &ops[i]
		action, resource := asks(op)
		row := policy.Row{Key: op.Key, Incoming: incoming(op)}
		if set.SeesStored(p.Access.Caller, action, resource) {
			if !confirmed {
				if err := p.Reader.Barrier(ctx, p.Session); err != nil {
					return nil, unread(err)
				}
				confirmed = true
			}
			if err := p.read(ctx, op, &row, earlier); err != nil {
				return nil, unread(err)
			}
		}
		switch {
		case set.Judge(p.Access.Caller, action, resource, row) != policy.Allowed:
			list[i] = Denied(action, resource)
		case op.Fence.Lock != "":
			list[i] = p.lock(set, op.Fence.Lock)
		}
		if !list[i].Refused() {
			earlier[placeOf(op)] = row.Incoming
		}
	}
	return list, nil
}

// lock judges a fence: it is remembered for the lock, and shuts lower tokens out.
func (p Permission) lock(set *policy.Set, name string) Refusal {
	resource := policy.Resource{Kind: policy.Lock, Name: name}
	if set.Judge(p.Access.Caller, policy.Write, resource, policy.Row{}) != policy.Allowed {
		return Denied(policy.Write, resource)
	}
	return Refusal{}
}

// read fills in what is stored.
func (p Permission) read(ctx context.Context, op *partitions.Op, row *policy.Row, earlier map[place][]byte) error {
	if value, ok := earlier[placeOf(op)]; ok {
		row.Stored = value
		if placeOf(op).tag == "" {
			op.Guard = partitions.GuardOf(value)
		}
		return nil
	}
	stored, err := p.Reader.Stored(ctx, p.Session, op)
	row.Stored, row.StoredUnknown, op.Guard = stored.Value, stored.Unknown, stored.Guard
	return err
}

// unread says of a failed read that nothing was proposed.
func unread(err error) error {
	if errors.Is(err, partitions.ErrUnavailable) {
		return fmt.Errorf("read what is stored: %w", err)
	}
	return fmt.Errorf("%w: read what is stored: %w", partitions.ErrUnavailable, err)
}

// Permit refuses the operations of the plan that the client may not do.
func (p *Plan) Permit(ctx context.Context, permission Permission) error {
	if permission.unrestricted() {
		return nil
	}
	refusals, err := permission.Ops(ctx, p.Propose)
	if err != nil {
		return err
	}
	left := make([]partitions.Op, 0, len(p.Propose))
	moved := make([]int, len(p.Propose))
	for i := range p.Propose {
		moved[i] = len(left)
		if !refusals[i].Refused() {
			left = append(left, p.Propose[i])
		}
	}
	for i := range p.owed {
		o := &p.owed[i]
		if o.op < 0 {
			continue
		}
		if r := refusals[o.op]; r.Refused() {
			o.op, o.refusal = -1, r
			p.Answerable = true
		} else {
			o.op = moved[o.op]
		}
	}
	p.Propose = left
	return nil
}
