//go:build bug_reusetoken

package fsm

// forgetsTokens is a planted bug: the greatest token is not read back after a restart. The suites must fail when built with this tag.
const forgetsTokens = true
