package genesis

import "slices"

// View is the set of names that may vote on the founder, sorted and without
// repeats. A name is the address that a node advertises; a seed that has not
// answered is present with its text, so that it counts as a missing voter.
type View []string

// NewView returns the View of names, in any order and with repeats.
func NewView(names ...string) View {
	v := slices.Clone(names)
	slices.Sort(v)
	return slices.Compact(v)
}

// Has reports whether name belongs to v.
func (v View) Has(name string) bool {
	_, found := slices.BinarySearch(v, name)
	return found
}

// Equal reports whether v and w are the same set.
func (v View) Equal(w View) bool { return slices.Equal(v, w) }

// Majority is the smallest number of members that is more than half of v.
func (v View) Majority() int { return len(v)/2 + 1 }
