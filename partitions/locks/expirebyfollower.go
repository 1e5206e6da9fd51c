//go:build !bug_expirebyfollower

package locks

// everyNodeExpires plants a bug when it is built with the tag bug_expirebyfollower: every node ends leases by its own clock.
const everyNodeExpires = false
