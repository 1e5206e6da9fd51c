package protocol

import "fmt"

// WriteConcern is the level a write must reach before it is acknowledged, and the
// level an acknowledgement reports. Greater is stronger. The zero value,
// LevelDefault, means that the client asked for nothing.
type WriteConcern uint8

// The write concerns, weakest first.
const (
	LevelDefault WriteConcern = iota
	LevelFireAndForget
	LevelMemory
	LevelApplied
	LevelReplicated
	LevelPersisted
)

var levelNames = [...]string{
	LevelDefault:       "",
	LevelFireAndForget: "FIRE_AND_FORGET",
	LevelMemory:        "MEMORY",
	LevelApplied:       "APPLIED",
	LevelReplicated:    "REPLICATED",
	LevelPersisted:     "PERSISTED",
}

// String is the wire spelling of w; LevelDefault is the empty string.
func (w WriteConcern) String() string {
	if int(w) < len(levelNames) {
		return levelNames[w]
	}
	return fmt.Sprintf("WriteConcern(%d)", uint8(w))
}

// ParseWriteConcern maps the wire spelling to its level. The empty string is
// LevelDefault; any other unknown spelling is an error wrapping ErrValue.
func ParseWriteConcern(s string) (WriteConcern, error) {
	for i, name := range levelNames {
		if s == name {
			return WriteConcern(i), nil
		}
	}
	return LevelDefault, fmt.Errorf("write concern %q: %w", s, ErrValue)
}
