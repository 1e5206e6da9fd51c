//go:build !bug_unconfirmedread

package partitions

// readsUnconfirmed plants a bug when it is built with the tag bug_unconfirmedread: linearizable reads do not wait for a mark in the log.
const readsUnconfirmed = false
