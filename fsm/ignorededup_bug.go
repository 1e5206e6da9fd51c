//go:build bug_ignorededup

package fsm

// ignoresRepeats is a planted bug: repeats are not recognised. The suites must fail when built with this tag.
const ignoresRepeats = true
