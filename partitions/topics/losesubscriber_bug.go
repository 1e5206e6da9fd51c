//go:build bug_losesubscriber

package topics

// losesSubscribers is a planted bug: some messages do not reach all nodes. The suites must fail when built with this tag.
const losesSubscribers = true
