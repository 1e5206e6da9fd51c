//go:build !bug_reusetoken

package fsm

// forgetsTokens plants a bug when it is built with the tag bug_reusetoken: the greatest token is not read back after a restart.
const forgetsTokens = false
