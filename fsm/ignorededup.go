//go:build !bug_ignorededup

package fsm

// ignoresRepeats plants a bug when it is built with the tag bug_ignorededup: repeats are not recognised.
const ignoresRepeats = false
