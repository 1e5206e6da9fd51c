// Package partitions decides which group owns a key, proposes writes there or
// forwards them to the node that can, and fans committed changes out to live
// subscriptions.
//
// A Router accepts writes for any key on any node. Each group has a lane that
// gathers commands while earlier ones are under way and retries, idempotently,
// until every command has a verdict or the caller's deadline ends. Verdicts are
// those that the state machine gave; what is not known is never answered.
package partitions
