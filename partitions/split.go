package partitions

import (
	"fmt"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/partitions/placement"
	"github.com/quorate/quorate/raftnode"
)

// target is one command of a write: what op asks of a group.
type target struct {
	op    int
	group uint32
	// homeless: the group does not own the key, it only remembers the removed tag.
	homeless bool
}

// split encodes the operations of w into one part per group. All parts share a few
// arrays.
func (r *Router) split(w *write, groups uint32) []*part {
	targets := r.targets(w, groups)
	counts := make([]int, groups+1)
	size, parts := 0, 0
	for i := range targets {
		t := &targets[i]
		if counts[t.group]++; counts[t.group] == 1 {
			parts++
		}
		size += commandSize(&w.ops[t.op])
	}
	list := allot(w, counts, len(targets), parts)
	body := make([]byte, 0, size)
	for i := range targets {
		t := &targets[i]
		p := list[counts[t.group]]
		var cmd raftnode.Command
		cmd, body = r.appendCommand(body, w.session, &w.ops[t.op], t.homeless)
		p.cmds = append(p.cmds, cmd)
		p.bytes += len(cmd.Body)
		p.ops = append(p.ops, t.op)
	}
	w.expect(parts)
	return list
}

// targets lists the commands of a write, without operations that are refused already. The owner of a key gets its operations. The
// removal of a tag that the owner has not seen goes to every group: the tag belongs to
// the map, and its record may be under another key.
func (r *Router) targets(w *write, groups uint32) []target {
	list := make([]target, 0, len(w.ops))
	for i := range w.ops {
		if w.results[i].Code != 0 {
			continue
		}
		op := &w.ops[i]
		owner := placement.GroupOf(op.Key, groups)
		// A fence is that of the key's group.
		if op.Remove == "" || op.Fence.Lock != "" || !op.Homeless && r.knowsTag(owner, op) {
			list = append(list, target{op: i, group: owner})
			continue
		}
		for g := uint32(1); g <= groups; g++ {
			list = append(list, target{op: i, group: g, homeless: op.Homeless || g != owner})
		}
	}
	return list
}

// knowsTag reports whether the local replica of group has seen the tag. It may be
// behind: an unneeded command to each group is the cost.
func (r *Router) knowsTag(group uint32, op *Op) bool {
	reader, ok := r.deps.Groups.Replica(group)
	if !ok {
		return false
	}
	state, err := reader.Tag(op.Map, op.Remove)
	return err == nil && state != fsm.TagUnknown
}

// allot makes a part for each group that has commands, with room for as many as counts
// says, n together. It puts the position of each group's part in place of the count.
func allot(w *write, counts []int, n, parts int) []*part {
	structs, list := make([]part, parts), make([]*part, 0, parts)
	cmds, ops := make([]raftnode.Command, n), make([]int, n)
	for group, n := range counts {
		if n == 0 {
			continue
		}
		p := &structs[len(list)]
		*p = part{write: w, group: uint32(group), handover: w.handover, cmds: cmds[:0:n], ops: ops[:0:n]}
		cmds, ops = cmds[n:], ops[n:]
		counts[group] = len(list)
		list = append(list, p)
	}
	return list
}

// commandSize is the room that the command of op needs, about.
func commandSize(op *Op) int {
	const lengths = 64
	size := lengths + len(op.Map) + len(op.Key) + len(op.Record.Timestamp.NodeID) + len(op.Record.Value) + len(op.Dedup) + len(op.Remove) + len(op.Fence.Lock)
	if op.Add != nil {
		size += len(op.Add.Tag) + len(op.Add.Timestamp.NodeID) + len(op.Add.Value)
	}
	return size
}

func (r *Router) appendCommand(body []byte, s *Session, op *Op, homeless bool) (raftnode.Command, []byte) {
	switch {
	case op.Add != nil:
		return command.AppendORAdd(body, command.ORAdd{Map: op.Map, Key: op.Key, Record: *op.Add, Origin: s.origin, Fence: op.Fence})
	case op.Remove != "":
		rem := command.ORRemove{Map: op.Map, Key: op.Key, Tag: op.Remove, Homeless: homeless, Origin: s.origin, Fence: op.Fence}
		if homeless {
			rem.Key = ""
		}
		return command.AppendORRemove(body, rem)
	default:
		return command.AppendPut(body, r.put(s, op))
	}
}

func (r *Router) put(s *Session, op *Op) command.Put {
	put := command.Put{Map: op.Map, Key: op.Key, Record: op.Record, Origin: s.origin, Fence: op.Fence, Guard: op.Guard}
	if op.Record.Timestamp.IsZero() {
		put.Stamped, put.Overwrite = true, true
	}
	if put.Stamped || op.Fence.Lock != "" {
		put.Dedup = op.Dedup
		if put.Dedup == "" {
			// The router may offer the command more than once.
			put.Dedup = fmt.Sprintf("%s#%d", s.origin, r.dedup.Add(1))
		}
	}
	return put
}
