//go:build bug_maporder

package lock

// inMapOrder is a planted bug: the locks of a session end in the order of a map. The suites must fail when built with this tag.
const inMapOrder = true
