package index

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// The types of indexes.
const (
	// Hash serves equalities, and holds only values that others can equal.
	Hash = "hash"
	// Navigable serves equalities, ranges and orders.
	Navigable = "navigable"
)

// DocumentName is the name of the operators' document that lists the definitions, and
// MaxDefinitions how many it has at most.
const (
	DocumentName   = "indexes"
	MaxDefinitions = 64
)

// Definition says that the records of a map are indexed by an attribute. A map has at most
// one index for an attribute.
type Definition struct {
	MapName string `json:"mapName"`
	// Attribute is a path whose steps are separated by dots.
	Attribute string `json:"attribute"`
	// Type is Hash or Navigable.
	Type string `json:"indexType"`
}

// document is the stored form of all definitions.
type document struct {
	Format  int          `json:"format"`
	Indexes []Definition `json:"indexes"`
}

const documentFormat = 1

// ErrFormat says that the document of definitions was written by a newer server, or is
// damaged.
var ErrFormat = errors.New("index definitions cannot be read")

// Decode reads the document of definitions; of none, it returns none. The error is
// ErrFormat.
func Decode(value []byte) ([]Definition, error) {
	if len(value) == 0 {
		return nil, nil
	}
	var d document
	if err := json.Unmarshal(value, &d); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if d.Format != documentFormat || len(d.Indexes) > MaxDefinitions {
		return nil, fmt.Errorf("%w: format %d with %d definitions", ErrFormat, d.Format, len(d.Indexes))
	}
	for i, def := range d.Indexes {
		if def.Type != Hash && def.Type != Navigable {
			return nil, fmt.Errorf("%w: index of type %q", ErrFormat, def.Type)
		}
		if Find(d.Indexes[:i], def.MapName, def.Attribute) >= 0 {
			return nil, fmt.Errorf("%w: two indexes of map %q by %q", ErrFormat, def.MapName, def.Attribute)
		}
	}
	return d.Indexes, nil
}

// Encode writes the document of definitions.
func Encode(list []Definition) ([]byte, error) {
	if list == nil {
		list = []Definition{}
	}
	b, err := json.Marshal(document{Format: documentFormat, Indexes: list})
	if err != nil {
		return nil, fmt.Errorf("encode index definitions: %w", err)
	}
	return b, nil
}

// Find returns where the definition for an attribute of a map is in list, -1 if there is
// none.
func Find(list []Definition, mapName, attribute string) int {
	return slices.IndexFunc(list, func(d Definition) bool { return d.MapName == mapName && d.Attribute == attribute })
}
