package partitions

import (
	"fmt"

	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/hlc"
	"github.com/quorate/quorate/raftnode"
)

// admit judges the stamps of cmds by this node's clock, which is about to propose
// them. A stamp too far in the future is replaced by the proposer's when the entry
// is built, and never reaches the clock; every other stamp advances it. What the
// hybrid clock has reached is not the future, though the physical clock may have been
// set back: replacing it would give writes stamps that nothing later can supersede.
// The commands are returned, with replacements in a copy.
func (r *Router) admit(cmds []raftnode.Command) ([]raftnode.Command, error) {
	limit := max(r.deps.Physical()+hlc.MaxDriftMillis, r.deps.Clock.Last().Millis)
	var newest protocol.Timestamp
	copied := false
	for i := range cmds {
		if cmds[i].Kind == command.KindORAdd {
			// Its stamp is part of its identity and stays, but drags no clock.
			add, err := command.DecodeORAdd(cmds[i])
			if err != nil {
				return nil, fmt.Errorf("%w: admit command: %w", raftnode.ErrBusy, err)
			}
			if ts := add.Record.Timestamp; ts.Millis <= limit && ts.Compare(newest) > 0 {
				newest = ts
			}
			continue
		}
		if cmds[i].Kind != command.KindPut {
			continue
		}
		put, err := command.DecodePut(cmds[i])
		if err != nil {
			return nil, fmt.Errorf("%w: admit command: %w", raftnode.ErrBusy, err)
		}
		if put.Stamped {
			continue
		}
		ts := put.Record.Timestamp
		if ts.Millis <= limit {
			if ts.Compare(newest) > 0 {
				newest = ts
			}
			continue
		}
		if !copied {
			cmds = append([]raftnode.Command(nil), cmds...)
			copied = true
		}
		// The stamp that is replaced still tells a repeat from a new write. One that has an
		// id already comes with that again, also when its stamp is not the future any more.
		if put.Dedup == "" {
			put.Dedup = put.FarDedup()
		}
		put.Stamped = true
		put.Record.Timestamp = protocol.Timestamp{}
		cmds[i] = command.EncodePut(put)
	}
	if !newest.IsZero() {
		r.deps.Clock.Update(newest)
	}
	return cmds, nil
}
