package fsm

import (
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/lock"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/fsm/system"
	"github.com/quorate/quorate/protocol"
)

// MaxToken is the greatest token of a lock that there can be.
const MaxToken = lock.MaxToken

// GreatestToken is the greatest token that a lock of the group was ever given, or that
// was left out.
func (m *Machine) GreatestToken() uint64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.locks.Fence()
}

// applyRaiseTokens leaves out tokens, so that those which a lost majority may have given
// are given to nobody else.
func applyRaiseTokens(r *run, c command.Raw) (command.Result, error) {
	m, err := command.DecodeRaiseTokens(c)
	if err != nil {
		return command.Result{}, err
	}
	if !r.machine.locks.Raise(m.By) {
		return r.refused(protocol.CodeMalformed, "tokens would pass 2^53"), nil
	}
	return r.changed(), r.saveLocks()
}

// applyRecover makes the survivor the only member, under another name of the cluster.
func applyRecover(r *run, c command.Raw) (command.Result, error) {
	m, err := command.DecodeRecover(c)
	if err != nil {
		return command.Result{}, err
	}
	before := r.cluster
	next, refusal := before.Recover(m.ClusterID, m.Survivor, m.SinceMillis)
	res, err := r.document(next, refusal, system.GenesisKey, func(s *system.State) []byte {
		return system.AppendGenesis(nil, *s.Genesis)
	})
	if err != nil || !res.Changed {
		return res, err
	}
	if err := r.storeDocument(system.TableKey, system.AppendTable(nil, next.Table)); err != nil {
		return command.Result{}, err
	}
	for _, member := range next.Members {
		if old, _ := before.Member(member.ID); old == member {
			continue
		}
		if err := r.storeDocument(system.MemberKey(member.ID), system.AppendMember(nil, member)); err != nil {
			return command.Result{}, err
		}
	}
	return res, nil
}

// storeDocument stores one more cluster document of a command.
func (r *run) storeDocument(key string, value []byte) error {
	c, err := r.lookup(storage.SectionSystem, []byte(key))
	if err != nil {
		return err
	}
	existed := c.value != nil
	r.set(c, value)
	r.event(Change{Section: storage.SectionSystem, Key: key, Existed: existed})
	return nil
}
