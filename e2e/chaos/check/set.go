package check

import (
	"fmt"
	"maps"
	"slices"
)

// Set holds that every acknowledged element is in all final states, and every one that was
// read, also locally: a replica shows only what is committed. None is there that nobody
// added. A linearizable read shows all that was acknowledged or read linearizably before,
// and a local one all that its own session was acknowledged or shown before.
func Set(ops []Op) []string {
	s := &setCheck{added: make(map[string]Op), firstSeen: make(map[string]Op), firstRead: make(map[string]Op)}
	for _, op := range ops {
		if op.Kind == Add {
			s.added[op.Value] = op
		}
	}
	for _, op := range ops {
		if isRead(op) {
			s.elements(op)
		}
	}
	for _, op := range ops {
		switch {
		case op.Kind == Final, op.Kind == Read && op.Outcome == OK:
			s.complete(op)
		case op.Kind == Local && op.Outcome == OK:
			s.session(op, ops)
		}
	}
	return s.problems
}

func isRead(op Op) bool {
	return op.Outcome == OK && (op.Kind == Read || op.Kind == Local || op.Kind == Final)
}

type setCheck struct {
	added map[string]Op
	// firstSeen are the reads of any kind that returned first with an element, firstRead
	// those of them that every later linearizable read must agree with.
	firstSeen, firstRead map[string]Op
	problems             []string
}

func (s *setCheck) problem(format string, args ...any) {
	s.problems = append(s.problems, fmt.Sprintf(format, args...))
}

// elements holds that a read shows only what was added.
func (s *setCheck) elements(read Op) {
	for e := range read.Rows {
		switch add, known := s.added[e]; {
		case !known:
			s.problem("%s of client %d on %s shows %q, which nobody added", read.Kind, read.Client, read.Node, e)
		case add.Outcome == Failed:
			s.problem("%s of client %d on %s shows %q, whose addition had failed", read.Kind, read.Client, read.Node, e)
		case add.Call > read.Return:
			s.problem("%s of client %d on %s shows %q before it was added", read.Kind, read.Client, read.Node, e)
		}
		earliest(s.firstSeen, e, read)
		if read.Kind != Local {
			earliest(s.firstRead, e, read)
		}
	}
}

// earliest keeps the read that returned first.
func earliest(reads map[string]Op, element string, read Op) {
	if first, seen := reads[element]; !seen || read.Return < first.Return {
		reads[element] = read
	}
}

// complete holds that nothing is missing from a read that must show everything which was
// known before it began.
func (s *setCheck) complete(read Op) {
	before := s.firstRead
	if read.Kind == Final {
		before = s.firstSeen
	}
	for _, e := range slices.Sorted(maps.Keys(s.added)) {
		if _, there := read.Rows[e]; there {
			continue
		}
		if add := s.added[e]; add.Outcome == OK && add.Return < read.Call {
			s.problem("%s of client %d on %s lacks %q, acknowledged to client %d by %s", read.Kind, read.Client, read.Node, e, add.Client, add.Node)
			continue
		}
		if first, seen := before[e]; seen && first.Return < read.Call {
			s.problem("%s of client %d on %s lacks %q, which client %d had read", read.Kind, read.Client, read.Node, e, first.Client)
		}
	}
}

// session holds that a local read shows what its session knows already.
func (s *setCheck) session(read Op, ops []Op) {
	for _, op := range ops {
		if op.Client != read.Client || op.Session != read.Session || op.Outcome != OK || op.Return >= read.Call {
			continue
		}
		known := op.Rows
		if op.Kind == Add {
			known = map[string]string{op.Value: ""}
		}
		for e := range known {
			if _, there := read.Rows[e]; !there {
				s.problem("local read of client %d on %s lacks %q, which its session knew", read.Client, read.Node, e)
				return
			}
		}
	}
}
