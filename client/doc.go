// Package client is the Go client of a Quorate cluster: maps, sets, live queries, locks,
// counters and topics over one WebSocket connection that is kept up.
//
// # Connections
//
// Open connects to one of the seeds, and the Client connects again, to any of them, whenever
// the connection ends. Requests that were not answered are sent again under the same ids, which
// the server recognises, so a repeat has no effect of its own. A refused token is final.
// Config.OnStatus and Client.Status tell how the client stands.
//
// # Errors
//
// A call that changes something returns nil when the server acknowledged it, and otherwise an
// error of one of these classes:
//
//	ErrRefused      the server refused for good, nothing was applied; a *RefusedError
//	ErrUnavailable  not done in time, nothing was applied
//	ErrUnknown      it may have been applied, now or later, or not at all
//	ErrClosed       the client was closed before anything was applied
//
// ErrUnknown comes when time runs out while an answer is outstanding. A caller who must know
// reads afterwards, with Linearizable where that matters.
//
// # Consistency
//
// Records carry hybrid timestamps, and the greatest one of a key wins. The client stamps its
// writes with its own clock, which follows the server's; an earlier write that arrives late
// loses, although it is acknowledged. ServerStamp has the server stamp a write when it is
// ordered, which together with Linearizable reads makes a linearizable register. Additions to
// counters are linearizable.
//
// # Locks
//
// A Lock is held by a lease, renewed in the background, and by the connection. Lost is closed
// before the lease can run out at the server, by this machine's monotonic clock, and when the
// connection ends. A process that was stopped, or has not seen yet that its connection ended, does
// not know that the lock is gone: writes that must not happen then are guarded by Lock.Fence.
//
// # Streams
//
// Follow, Subscribe and Watch return streams with a bounded buffer. A consumer that falls
// behind gets a fresh snapshot, a notice of the gap, or the latest total; nothing is missed
// silently.
package client
