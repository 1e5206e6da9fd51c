package model

import (
	"fmt"
	"maps"
	"slices"
)

// State is what one node answers: value by key by map.
type State map[string]map[string]string

// Check reads a finished history against the state of each node, by name, and
// returns every violation:
//
//   - an acknowledged write that is neither there nor superseded by a later one;
//   - a value that nobody wrote, or whose write was refused;
//   - two nodes that differ;
//
// and what was recorded on the way.
func Check(h *History, nodes map[string]State) []string {
	problems := h.Problems()
	h.mu.Lock()
	defer h.mu.Unlock()
	type place struct{ mapName, key string }
	byPlace := make(map[place][]*entry)
	for _, e := range h.order {
		p := place{e.Map, e.Key}
		byPlace[p] = append(byPlace[p], e)
	}
	names := slices.Sorted(maps.Keys(nodes))
	for p, writes := range byPlace {
		for _, name := range names {
			value, found := nodes[name][p.mapName][p.key]
			if problem := checkKey(writes, value, found); problem != "" {
				problems = append(problems, fmt.Sprintf("%s: %s/%s: %s", name, p.mapName, p.key, problem))
			}
		}
	}
	for _, name := range names {
		for mapName, records := range nodes[name] {
			for key := range records {
				if byPlace[place{mapName, key}] == nil {
					problems = append(problems, fmt.Sprintf("%s: %s/%s was never written", name, mapName, key))
				}
			}
		}
		if diff := difference(nodes[names[0]], nodes[name]); diff != "" {
			problems = append(problems, fmt.Sprintf("%s and %s differ: %s", names[0], name, diff))
		}
	}
	slices.Sort(problems)
	return problems
}

// checkKey returns what is wrong with the value of one key, or nothing.
func checkKey(writes []*entry, value string, found bool) string {
	var last *entry // the latest write that must not be lost
	for _, e := range writes {
		if e.durable() && (last == nil || e.Timestamp.Compare(last.Timestamp) > 0) {
			last = e
		}
	}
	if !found {
		return checkAbsent(writes, last)
	}
	i := slices.IndexFunc(writes, func(e *entry) bool { return e.Value == value })
	switch {
	case value == "" || i < 0:
		return fmt.Sprintf("holds %q, which nobody wrote", value)
	case !writes[i].mayExist():
		return fmt.Sprintf("holds %q, whose write was refused", value)
	case last != nil && writes[i].Timestamp.Compare(last.Timestamp) < 0:
		return fmt.Sprintf("holds %q of %v; lost %s", value, writes[i].Timestamp, describe(last))
	}
	return ""
}

func checkAbsent(writes []*entry, last *entry) string {
	if last == nil || last.Value == "" {
		return ""
	}
	for _, e := range writes {
		if e.Value == "" && e.mayExist() && e.Timestamp.Compare(last.Timestamp) > 0 {
			return ""
		}
	}
	return "absent; lost " + describe(last)
}

func describe(e *entry) string {
	what := fmt.Sprintf("%q", e.Value)
	if e.Value == "" {
		what = "the removal"
	}
	return fmt.Sprintf("%s of %v, acknowledged to %s as %s at %s", what, e.Timestamp, e.Client, e.ID, e.level)
}

// difference names one key on which two states differ.
func difference(a, b State) string {
	for mapName, records := range a {
		for key, value := range records {
			if other, found := b[mapName][key]; !found || other != value {
				return fmt.Sprintf("%s/%s is %q and %q", mapName, key, value, other)
			}
		}
	}
	for mapName, records := range b {
		for key, value := range records {
			if _, found := a[mapName][key]; !found {
				return fmt.Sprintf("%s/%s is absent and %q", mapName, key, value)
			}
		}
	}
	return ""
}
