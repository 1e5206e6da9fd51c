package raftnode

import (
	"fmt"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/fsm/storage"
)

// keyCurrentTerm is the library's key of the current term in the stable store.
var keyCurrentTerm = []byte("CurrentTerm")

// reconcile makes the log fit the flushed state before an instance starts on them.
// The state is committed, so where the two disagree the log is wrong; a log that
// begins behind the state has lost entries, and the error wraps ErrCorrupt; one that has
// lost votes is ErrStaleLog.
func reconcile(log groupLog, mark storage.Mark, logger hclog.Logger) error {
	if err := checkTerm(log, mark); err != nil {
		return err
	}
	first, err := log.FirstIndex()
	if err != nil {
		return fmt.Errorf("read first index: %w", err)
	}
	last, err := log.LastIndex()
	if err != nil {
		return fmt.Errorf("read last index: %w", err)
	}
	if last == 0 {
		return nil
	}
	if first > mark.Index+1 {
		return fmt.Errorf("%w: log begins at index %d, state ends at %d", ErrCorrupt, first, mark.Index)
	}
	stale, err := contradicts(log, mark, first, last)
	if err != nil || !stale {
		return err
	}
	// Left by a crash between the installation of a snapshot and the removal of the
	// log that it replaced.
	logger.Warn("removing a log that the state has replaced", "first", first, "last", last, "index", mark.Index)
	if err := log.DeleteRange(first, last); err != nil {
		return fmt.Errorf("remove replaced log: %w", err)
	}
	return nil
}

// checkTerm refuses a log whose votes are older than the state: the replica would vote a
// second time in terms that it knew. A group that begins with a state has no term yet.
func checkTerm(log groupLog, mark storage.Mark) error {
	term, err := log.GetUint64(keyCurrentTerm)
	if isKeyNotFound(err) {
		term, err = 1, nil
	}
	if err != nil {
		return fmt.Errorf("read current term: %w", err)
	}
	if term < mark.Term {
		return fmt.Errorf("%w: it is of term %d, the state of term %d", ErrStaleLog, term, mark.Term)
	}
	return nil
}

// contradicts reports whether the log ends before mark, or has another entry there.
func contradicts(log raft.LogStore, mark storage.Mark, first, last uint64) (bool, error) {
	if last < mark.Index {
		return true, nil
	}
	if mark.Index < first {
		return false, nil
	}
	var entry raft.Log
	if err := log.GetLog(mark.Index, &entry); err != nil {
		return false, fmt.Errorf("read entry %d: %w", mark.Index, err)
	}
	return entry.Term != mark.Term, nil
}

// bootstrap writes the first entry of a group, its configuration, unless the group
// has a log or a state. It is the same on all servers named in it.
func bootstrap(log groupLog, mark storage.Mark, servers []raft.Server) error {
	last, err := log.LastIndex()
	if err != nil {
		return fmt.Errorf("read last index: %w", err)
	}
	term, err := log.GetUint64(keyCurrentTerm)
	if err != nil && !isKeyNotFound(err) {
		return fmt.Errorf("read current term: %w", err)
	}
	// Term 1 and no entry is what a crash between the two writes below leaves. Every
	// other group without entries and state has taken part in elections: it waits for
	// a leader.
	if last > 0 || mark.Index > 0 || term > 1 {
		return nil
	}
	conf := raft.Configuration{}
	for _, s := range servers {
		conf.Servers = append(conf.Servers, raft.Server{
			Suffrage: s.Suffrage, ID: s.ID, Address: raft.ServerAddress(s.ID),
		})
	}
	entry := &raft.Log{Index: 1, Term: 1, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(conf)}
	if err := log.SetUint64(keyCurrentTerm, 1); err != nil {
		return fmt.Errorf("store first term: %w", err)
	}
	if err := log.StoreLog(entry); err != nil {
		return fmt.Errorf("store first configuration: %w", err)
	}
	return nil
}
