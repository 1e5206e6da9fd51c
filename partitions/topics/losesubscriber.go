//go:build !bug_losesubscriber

package topics

// losesSubscribers plants a bug when it is built with the tag bug_losesubscriber: some messages do not reach all nodes.
const losesSubscribers = false
