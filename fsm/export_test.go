package fsm

// WindowSize is the size of the dedup window, for tests that fill it.
const WindowSize = windowSize

// MaxAdditions and AdditionMillis bound the outcomes of additions; see there.
const (
	MaxAdditions   = maxAdditions
	AdditionMillis = additionMillis
)

// CommandNames are the names of the commands table by kind, empty without a row.
func CommandNames() []string {
	var names []string
	for _, c := range commands {
		names = append(names, c.name)
	}
	return names
}

// Tombstones is how many tombstones of both kinds a machine has counted.
func Tombstones(m *Machine) int {
	held := m.holding()
	return held.graves.records + held.graves.tags
}

// SectionNames are the names of the sections table by number, empty without a row.
func SectionNames() []string {
	var names []string
	for _, s := range sections {
		names = append(names, s.name)
	}
	return names
}
