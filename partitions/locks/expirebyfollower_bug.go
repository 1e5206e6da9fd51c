//go:build bug_expirebyfollower

package locks

// everyNodeExpires is a planted bug: every node ends leases by its own clock. The suites must fail when built with this tag.
const everyNodeExpires = true
