// Package logstore is the shared write-ahead log of all Raft groups of one node:
// their log entries and their stable keys, in one sequence of segment files, with
// one write and one fdatasync for everything that is queued at the moment.
//
// A [Log] owns the directory, one writer goroutine and one maintenance goroutine.
// A [GroupLog] is the view of one group; it implements raft.LogStore,
// raft.StableStore and raft.MonotonicLogStore. Every call that changes something
// blocks until the change is durable, or fails. After the first failed write or
// fsync the whole Log fails for good and retries nothing: the owner is expected to
// end the process and to open the log again in a new one.
//
// The file system is reached through [FS]. [OSFS] is the real one. [MemFS] lives
// in memory, knows what was synced and what was not, can lose the difference, and
// injects faults; it is also the log of nodes that store nothing.
//
// What the package does not do: it does not read or interpret entries, it does not
// compress, and it cannot know that an intact but old copy of the whole directory
// was put back. Byte format and crash-safety argument: DESIGN.md.
package logstore
