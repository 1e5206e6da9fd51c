package partitions

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/quorate/quorate/fsm/index"
)

// IndexDefinition says that a map is indexed by an attribute; see index.Definition.
type IndexDefinition = index.Definition

// The document of index definitions; see package index.
const (
	IndexDocument = index.DocumentName
	MaxIndexes    = index.MaxDefinitions
)

// Errors of index definitions, by class.
var (
	// ErrIndexUnsupported: this server does not have indexes of that type.
	ErrIndexUnsupported = errors.New("not implemented")
	// ErrIndexExists: the map has an index by that attribute.
	ErrIndexExists = errors.New("the map has an index by this attribute")
	// ErrNoIndex: the map has no index by that attribute.
	ErrNoIndex = errors.New("the map has no index by this attribute")
	// ErrTooManyIndexes: there is no room for another definition.
	ErrTooManyIndexes = fmt.Errorf("more than %d indexes", MaxIndexes)
)

// IndexError says what of an index definition cannot be.
type IndexError struct {
	// Field is attribute or indexType.
	Field, Reason string
}

// Error implements error.
func (e *IndexError) Error() string { return e.Field + ": " + e.Reason }

const (
	// maxIndexAttribute is how long the attribute of an index is at most, in bytes, and
	// maxIndexSteps how many steps it has.
	maxIndexAttribute = 255
	maxIndexSteps     = 32
)

// CheckIndex reports why a definition, whose map name is legal, cannot be one. Errors:
// *IndexError, ErrIndexUnsupported.
func CheckIndex(d IndexDefinition) error {
	a := d.Attribute
	switch {
	case a == "" || len(a) > maxIndexAttribute || strings.Count(a, ".") >= maxIndexSteps:
		return &IndexError{"attribute", fmt.Sprintf("must have 1 to %d bytes and at most %d steps", maxIndexAttribute, maxIndexSteps)}
	case !utf8.ValidString(a) || strings.IndexFunc(a, unicode.IsControl) >= 0:
		return &IndexError{"attribute", "holds a character that is not allowed"}
	case a == "_key":
		return &IndexError{"attribute", "keys need no index"}
	}
	switch d.Type {
	case index.Hash, index.Navigable:
		return nil
	case "inverted":
		return fmt.Errorf("%w: indexes of type inverted", ErrIndexUnsupported)
	default:
		return &IndexError{"indexType", "must be hash or navigable"}
	}
}

// Indexes lists the definitions in a document of them; none if it is empty. The error is
// index.ErrFormat.
func Indexes(document []byte) ([]IndexDefinition, error) { return index.Decode(document) }

// WithIndex is a document of definitions with one more. Errors: ErrIndexExists,
// ErrTooManyIndexes, index.ErrFormat.
func WithIndex(document []byte, d IndexDefinition) ([]byte, error) {
	list, err := index.Decode(document)
	switch {
	case err != nil:
		return nil, err
	case index.Find(list, d.MapName, d.Attribute) >= 0:
		return nil, ErrIndexExists
	case len(list) >= MaxIndexes:
		return nil, ErrTooManyIndexes
	}
	return index.Encode(append(list, d))
}

// WithoutIndex is a document of definitions without one. Errors: ErrNoIndex,
// index.ErrFormat.
func WithoutIndex(document []byte, mapName, attribute string) ([]byte, error) {
	list, err := index.Decode(document)
	if err != nil {
		return nil, err
	}
	i := index.Find(list, mapName, attribute)
	if i < 0 {
		return nil, ErrNoIndex
	}
	return index.Encode(append(list[:i:i], list[i+1:]...))
}

// IndexStat says how far an index is built.
type IndexStat struct {
	IndexDefinition
	// Entries is what it holds, Total how many keys the map has, deleted ones that are
	// remembered among them, and Processed how many of those were looked at.
	Entries, Total, Processed int
	// Done: the index is built and used for every group.
	Done bool
	// Restart: it was built anew, because the node started or its state was replaced.
	Restart bool
	// Incomplete: some groups are not held by this node, and not counted.
	Incomplete bool
}

// IndexStat says how far this node has built an index that is defined.
func (r *Router) IndexStat(d IndexDefinition) IndexStat {
	stat := IndexStat{IndexDefinition: d, Done: true}
	for group := uint32(1); group <= r.groups(); group++ {
		replica, held := r.deps.Groups.Replica(group)
		if !held {
			stat.Incomplete = true
			continue
		}
		s, known := replica.IndexStat(d.MapName, d.Attribute)
		if !known || s.Definition != d {
			stat.Done = false // the node has not begun
			continue
		}
		stat.Entries, stat.Total, stat.Processed = stat.Entries+s.Entries, stat.Total+s.Records, stat.Processed+s.Processed
		stat.Done, stat.Restart = stat.Done && s.Ready, stat.Restart || s.Restart
	}
	return stat
}
