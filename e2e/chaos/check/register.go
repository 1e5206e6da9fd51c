package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// searchTime bounds the search for an order of one history. Histories of one round are
// decided in less than a second; one that is not decided counts as wrong.
const searchTime = 2 * time.Minute

// Registers holds that the puts and reads of each key are linearizable. Every put has a
// value of its own.
func Registers(ops []Op) []string {
	parts := byKey(ops, Put)
	var problems []string
	for _, key := range slices.Sorted(maps.Keys(parts)) {
		part := parts[key]
		problems = append(problems, neverApplied(key, part)...)
		problems = append(problems, linearizable("key "+key, registerModel(), settle(part))...)
	}
	return problems
}

// step is one operation on one key.
type step struct {
	Op
	seen string // what a read returned
}

// byKey splits writes by key and gives every key its part of every linearizable read.
func byKey(ops []Op, write Kind) map[string][]step {
	parts := make(map[string][]step)
	for _, op := range ops {
		if op.Kind == write {
			parts[op.Key] = append(parts[op.Key], step{Op: op, seen: op.Rows[op.Key]})
		}
	}
	for _, op := range ops {
		if op.Kind != Read || op.Outcome != OK {
			continue
		}
		for key := range parts {
			parts[key] = append(parts[key], step{Op: op, seen: op.Rows[key]})
		}
	}
	return parts
}

// neverApplied finds values that were read although their put failed, or that nobody
// wrote.
func neverApplied(key string, part []step) (problems []string) {
	fate := map[string]Outcome{"": OK}
	for _, s := range part {
		if s.Kind == Put && s.Value != "" {
			fate[s.Value] = s.Outcome
		}
	}
	for _, s := range part {
		if s.Kind != Read {
			continue
		}
		switch o, known := fate[s.seen]; {
		case !known:
			problems = append(problems, fmt.Sprintf("key %s: client %d read %q, which nobody wrote", key, s.Client, s.seen))
		case o == Failed:
			problems = append(problems, fmt.Sprintf("key %s: client %d read %q, whose write had failed", key, s.Client, s.seen))
		}
	}
	return problems
}

// settle turns the steps on a register into a history that is quick to decide and is
// linearizable if and only if theirs is: an open put whose value nobody saw may have
// come at the end, and one that was seen came before the first read of it returned.
func settle(part []step) []porcupine.Operation {
	firstSeen := make(map[string]int64)
	for _, s := range part {
		if s.Kind == Read {
			if at, seen := firstSeen[s.seen]; !seen || s.Return < at {
				firstSeen[s.seen] = s.Return
			}
		}
	}
	var history []porcupine.Operation
	for _, s := range part {
		end := s.end()
		// Removals are all alike: which of them a read has seen is not known.
		if s.Kind == Put && s.Value != "" {
			at, seen := firstSeen[s.Value]
			if s.Outcome == Unknown && !seen {
				continue
			}
			if seen {
				end = min(end, max(at, s.Call))
			}
		}
		if s.Outcome != Failed {
			history = append(history, porcupine.Operation{ClientId: s.Client, Input: s, Call: s.Call, Return: end})
		}
	}
	return history
}

func registerModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return "" },
		Step: func(state, input, _ any) (bool, any) {
			s := input.(step)
			if s.Kind == Put {
				return true, s.Value
			}
			return s.seen == state, state
		},
	}
}

// linearizable searches an order of a history.
func linearizable(what string, m porcupine.Model, history []porcupine.Operation) []string {
	switch porcupine.CheckOperationsTimeout(m, history, searchTime) {
	case porcupine.Ok:
		return nil
	case porcupine.Illegal:
		return []string{fmt.Sprintf("%s: %d operations are not linearizable", what, len(history))}
	default:
		return []string{fmt.Sprintf("%s: %d operations were not shown to be linearizable within %v", what, len(history), searchTime)}
	}
}

// Lists holds that the appends and reads of each key are linearizable. The value of a key
// is the appended values, joined by commas; an append succeeds only on the value that it
// was made from.
func Lists(ops []Op) []string {
	parts := byKey(ops, Append)
	var problems []string
	for _, key := range slices.Sorted(maps.Keys(parts)) {
		problems = append(problems, linearizable("list "+key, listModel(), settleLists(parts[key]))...)
	}
	return problems
}

// settleLists is as settle: an element that nobody saw, in a list that was read later than
// all that is known, may never have come.
func settleLists(part []step) []porcupine.Operation {
	firstSeen := make(map[string]int64)
	note := func(list string, at int64) {
		if list == "" {
			return
		}
		for _, element := range strings.Split(list, ",") {
			if was, seen := firstSeen[element]; !seen || at < was {
				firstSeen[element] = at
			}
		}
	}
	for _, s := range part {
		if s.Kind == Read || s.Outcome == OK {
			note(s.seen, s.Return)
		}
	}
	var history []porcupine.Operation
	for _, s := range part {
		end := s.end()
		if s.Kind == Append {
			at, seen := firstSeen[s.Value]
			if s.Outcome == Failed || s.Outcome == Unknown && !seen {
				continue
			}
			if seen {
				end = min(end, max(at, s.Call))
			}
		}
		history = append(history, porcupine.Operation{ClientId: s.Client, Input: s, Call: s.Call, Return: end})
	}
	return history
}

func listModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return "" },
		Step: func(state, input, _ any) (bool, any) {
			s := input.(step)
			if s.seen != state {
				return false, state
			}
			if s.Kind == Append {
				return true, Joined(s.seen, s.Value)
			}
			return true, state
		},
	}
}

// Joined is a list with one more element.
func Joined(list, element string) string {
	if list == "" {
		return element
	}
	return list + "," + element
}
