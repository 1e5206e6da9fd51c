//go:build bug_forgetwaiter

package lock

// forgetsWaiters is a planted bug: a lock that comes free is given to nobody. The suites must fail when built with this tag.
const forgetsWaiters = true
