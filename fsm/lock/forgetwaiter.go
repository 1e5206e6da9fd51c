//go:build !bug_forgetwaiter

package lock

// forgetsWaiters plants a bug when it is built with the tag bug_forgetwaiter: a lock that comes free is given to nobody.
const forgetsWaiters = false
