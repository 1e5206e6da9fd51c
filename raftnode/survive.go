package raftnode

import (
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/raftnode/logstore"
)

// Remains is what a stopped node has of one group.
type Remains struct {
	Group uint32
	// Term is the greatest term that the replica took part in.
	Term uint64
	// FlushedIndex is the end of the durable state. CommitIndex is the last entry that is
	// known to be committed; those up to LastIndex may have been or not.
	FlushedIndex, CommitIndex, LastIndex uint64
	// LastTerm is the term of the last entry, LastAt when its leader wrote it, zero if
	// that is not known.
	LastTerm uint64
	LastAt   time.Time
	// Voters and Nonvoters are the members as the last entry leaves them.
	Voters, Nonvoters []ServerID
}

// Held reports whether there is anything.
func (r *Remains) Held() bool { return r.LastIndex > 0 }

// Unknown is the number of entries that are not known to be committed.
func (r *Remains) Unknown() uint64 { return r.LastIndex - min(r.LastIndex, r.CommitIndex) }

// Survivor is one group of a stopped node that is to go on without the others. For one
// goroutine; nothing else may use the log or the state meanwhile.
type Survivor struct {
	log     groupLog
	machine StateMachine
	logger  hclog.Logger
	remains Remains
	// stale tells that the state has replaced the log.
	stale bool
}

// Survey looks at a group of a stopped node and changes nothing on disk. It applies the
// whole log to machine, in memory, so that machine shows what GoOnAlone keeps; its owner
// must not flush it. Errors: ErrCorrupt, those of log and machine.
func Survey(group uint32, log *logstore.GroupLog, machine StateMachine, logger hclog.Logger) (*Survivor, error) {
	s := &Survivor{log: log, machine: machine, logger: logger, remains: Remains{Group: group}}
	if err := s.survey(machine.Flushed()); err != nil {
		return nil, fmt.Errorf("survey group %d: %w", group, err)
	}
	return s, nil
}

// Remains returns what Survey found.
func (s *Survivor) Remains() Remains { return s.remains }

func (s *Survivor) survey(mark storage.Mark) error {
	first, err := s.log.FirstIndex()
	if err != nil {
		return err
	}
	last, err := s.log.LastIndex()
	if err != nil {
		return err
	}
	term, err := s.log.GetUint64(keyCurrentTerm)
	if err != nil && !isKeyNotFound(err) {
		return err
	}
	conf, err := markConfiguration(mark)
	if err != nil {
		return err
	}
	if last > 0 {
		if first > mark.Index+1 {
			return fmt.Errorf("%w: log begins at index %d, state ends at %d", ErrCorrupt, first, mark.Index)
		}
		if s.stale, err = contradicts(s.log, mark, first, last); err != nil {
			return err
		}
	}
	r := &s.remains
	r.Term, r.FlushedIndex, r.LastIndex, r.LastTerm = max(term, mark.Term), mark.Index, mark.Index, mark.Term
	if !s.stale && last > mark.Index {
		if conf, err = s.replay(mark.Index+1, last, conf); err != nil {
			return err
		}
	}
	if last > 0 && !s.stale {
		var newest raft.Log
		if err := s.log.GetLog(r.LastIndex, &newest); err != nil {
			return fmt.Errorf("read entry %d: %w", r.LastIndex, err)
		}
		r.LastAt = newest.AppendedAt
	}
	r.CommitIndex = min(max(s.log.CommitHint(), mark.Index), r.LastIndex)
	for _, server := range conf.servers {
		if server.Suffrage == raft.Voter {
			r.Voters = append(r.Voters, server.ID)
		} else {
			r.Nonvoters = append(r.Nonvoters, server.ID)
		}
	}
	return nil
}

// replay applies entries to the machine, and returns the configuration that they lead to.
func (s *Survivor) replay(from, last uint64, conf *configuration) (*configuration, error) {
	for index := from; index <= last; index++ {
		var entry raft.Log
		if err := s.log.GetLog(index, &entry); err != nil {
			return nil, fmt.Errorf("read entry %d: %w", index, err)
		}
		s.remains.LastIndex, s.remains.LastTerm = index, entry.Term
		if !reachesMachine(&entry) {
			continue
		}
		_, err := s.machine.Apply([]fsm.Entry{{
			Index: index, Term: entry.Term, Data: entry.Data, Configuration: entry.Type == raft.LogConfiguration,
		}})
		if err != nil {
			return nil, fmt.Errorf("apply entry %d: %w", index, err)
		}
		if entry.Type == raft.LogConfiguration {
			conf = &configuration{index: index, servers: raft.DecodeConfiguration(entry.Data).Servers}
		}
	}
	return conf, nil
}

// GoOnAlone appends to the log that this server is the group's only voter, and an entry
// with commands. Once the group runs, the whole log counts as committed, also what was
// never acknowledged. A group without anything begins anew. The two entries are of a term
// of their own. After it failed, or the process was killed at any moment, it may be
// repeated after another Survey. Errors are those of the log.
func (s *Survivor) GoOnAlone(id ServerID, clock Clock, cmds []Command) error {
	r := &s.remains
	if s.stale {
		if err := reconcile(s.log, s.machine.Flushed(), s.logger); err != nil {
			return fmt.Errorf("go on with group %d alone: %w", r.Group, err)
		}
	}
	clock.Advance(s.machine.ClockFloor())
	term := max(r.Term, r.LastTerm) + 1
	conf := raft.Configuration{Servers: []raft.Server{{Suffrage: raft.Voter, ID: id, Address: raft.ServerAddress(id)}}}
	entries := []*raft.Log{
		{Index: r.LastIndex + 1, Term: term, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(conf)},
		{Index: r.LastIndex + 2, Term: term, Type: raft.LogCommand, Data: command.AppendEntry(nil, clock.Reserve(len(cmds)), cmds)},
	}
	err := s.log.SetUint64(keyCurrentTerm, term)
	if err == nil {
		err = s.log.StoreLogs(entries)
	}
	if err != nil {
		return fmt.Errorf("go on with group %d alone: %w", r.Group, err)
	}
	s.logger.Info("the group goes on alone", "group", r.Group, "index", r.LastIndex, "term", term)
	return nil
}
