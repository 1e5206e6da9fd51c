package fsm

import (
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/fsm/system"
	"github.com/quorate/quorate/protocol"
)

func applyGenesis(r *run, c command.Raw) (command.Result, error) {
	g, err := command.DecodeGenesis(c)
	if err != nil {
		return command.Result{}, err
	}
	next, refusal := r.cluster.Found(g)
	return r.document(next, refusal, system.GenesisKey, func(s *system.State) []byte {
		return system.AppendGenesis(nil, *s.Genesis)
	})
}

func applyMemberPut(r *run, c command.Raw) (command.Result, error) {
	base, m, err := command.DecodeMemberPut(c)
	if err != nil {
		return command.Result{}, err
	}
	next, refusal := r.cluster.PutMember(base, m)
	return r.document(next, refusal, system.MemberKey(m.ID), func(s *system.State) []byte {
		stored, _ := s.Member(m.ID)
		return system.AppendMember(nil, stored)
	})
}

func applyTablePut(r *run, c command.Raw) (command.Result, error) {
	base, t, err := command.DecodeTablePut(c)
	if err != nil {
		return command.Result{}, err
	}
	next, refusal := r.cluster.PutTable(base, t)
	return r.document(next, refusal, system.TableKey, func(s *system.State) []byte {
		return system.AppendTable(nil, s.Table)
	})
}

func applyDocumentPut(r *run, c command.Raw) (command.Result, error) {
	base, d, err := command.DecodeDocumentPut(c)
	if err != nil {
		return command.Result{}, err
	}
	next, refusal := r.cluster.PutDocument(base, d)
	return r.document(next, refusal, system.DocumentKey(d.Name), func(s *system.State) []byte {
		return system.AppendDocument(nil, s.Document(d.Name))
	})
}

// document stores the cluster document under key as it is in next, unless the
// proposal was refused or changed nothing.
func (r *run) document(next *system.State, refusal *system.Refusal, key string, encode func(*system.State) []byte,
) (command.Result, error) {
	switch {
	case r.machine.group != SystemGroup:
		return r.refused(protocol.CodeMalformed, "cluster documents belong to the system group"), nil
	case refusal != nil:
		return r.refused(refusal.Code, refusal.Reason), nil
	case next == r.cluster:
		return r.unchanged(), nil
	case len(key) > storage.MaxKeyBytes:
		return r.refused(protocol.CodeTooLarge, "server id is too long"), nil
	}
	c, err := r.lookup(storage.SectionSystem, []byte(key))
	if err != nil {
		return command.Result{}, err
	}
	r.cluster = next
	existed := c.value != nil
	r.set(c, encode(next))
	r.event(Change{Section: storage.SectionSystem, Key: key, Existed: existed})
	return r.changed(), nil
}
