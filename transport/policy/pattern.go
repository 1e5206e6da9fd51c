package policy

import (
	"slices"
	"strings"
)

// pattern selects resources by name.
type pattern struct {
	// everything: the pattern is a wildcard alone, which selects every kind.
	everything bool
	kind       Kind
	segments   []string
}

func parsePattern(text string) (pattern, error) {
	switch {
	case text == "":
		return pattern{}, wrong("mapPattern", "must not be empty")
	case len(text) > maxPattern:
		return pattern{}, wrong("mapPattern", "is longer than %d bytes", maxPattern)
	case text == "*" || text == "**":
		return pattern{everything: true}, nil
	}
	p := pattern{kind: Map}
	for kind, name := range kindNames {
		if rest, ok := strings.CutPrefix(text, name+":"); ok {
			p.kind, text = Kind(kind), rest
			break
		}
	}
	if text == "*" {
		text = "**" // all of a kind, whatever their names
	}
	p.segments = strings.Split(text, ".")
	// Neighbours that stand for any number are one, which bounds the search below.
	p.segments = slices.CompactFunc(p.segments, func(a, b string) bool { return a == "**" && b == "**" })
	return p, nil
}

// matches reports whether the pattern selects r.
func (p *pattern) matches(r Resource) bool {
	return p.everything || p.kind == r.Kind && matchSegments(p.segments, strings.Split(r.Name, "."))
}

// matchSegments goes back to the latest "**" only: an earlier one could take no more than
// that one can. So the time is bounded by the product of the lengths.
func matchSegments(pattern, name []string) bool {
	p, n := 0, 0
	star, from := -1, 0
	for n < len(name) {
		switch {
		case p < len(pattern) && pattern[p] == "**":
			star, from = p, n
			p++
		case p < len(pattern) && (pattern[p] == "*" || pattern[p] == name[n]):
			p, n = p+1, n+1
		case star >= 0:
			from++
			p, n = star+1, from
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == "**" {
		p++
	}
	return p == len(pattern)
}
