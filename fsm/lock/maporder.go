//go:build !bug_maporder

package lock

// inMapOrder plants a bug when it is built with the tag bug_maporder: the locks of a session end in the order of a map.
const inMapOrder = false
