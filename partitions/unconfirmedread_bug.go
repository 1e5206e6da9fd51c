//go:build bug_unconfirmedread

package partitions

// readsUnconfirmed is a planted bug: linearizable reads do not wait for a mark in the log. The suites must fail when built with this tag.
const readsUnconfirmed = true
