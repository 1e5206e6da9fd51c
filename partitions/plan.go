package partitions

import (
	"cmp"
	"encoding/binary"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/codec"
)

// PlanKind says how the records of a query were found.
type PlanKind string

// The kinds of plans. One through an index may have scanned groups too.
const (
	PlanScan  PlanKind = "scan"
	PlanIndex PlanKind = "index"
	PlanKeys  PlanKind = "keys"
)

// Plan says how a query was answered. The zero value is of no group.
type Plan struct {
	// Index was used for the groups that are Indexed; the first in order of the attributes
	// if there were several.
	Index IndexDefinition
	// Scanned, Indexed and Keyed count the groups whose records were all looked at as far
	// as they could be of use, found by an index, and read by their keys.
	Scanned, Indexed, Keyed int
	// Candidates counts the records that were looked at, Matched those of them that the
	// filter admits, whatever the window.
	Candidates, Matched int
}

// Kind is how the records were found.
func (p *Plan) Kind() PlanKind {
	switch {
	case p.Indexed > 0:
		return PlanIndex
	case p.Keyed > 0:
		return PlanKeys
	default:
		return PlanScan
	}
}

// found notes that a group is read through an index.
func (p *Plan) found(f fsm.Found) {
	p.Indexed++
	if p.Index.Attribute == "" || cmp.Less(f.Index.Attribute, p.Index.Attribute) {
		p.Index = f.Index
	}
}

// add takes the plan of a page of a group; those after the first are of the same group.
func (p *Plan) add(o *Plan, first bool) {
	p.Candidates, p.Matched = p.Candidates+o.Candidates, p.Matched+o.Matched
	if !first {
		return
	}
	p.Scanned, p.Keyed = p.Scanned+o.Scanned, p.Keyed+o.Keyed
	if o.Indexed > 0 {
		p.found(fsm.Found{Index: o.Index})
	}
}

// append appends the plan for another node.
func (p *Plan) append(dst []byte) []byte {
	for _, n := range []int{p.Scanned, p.Indexed, p.Keyed, p.Candidates, p.Matched} {
		dst = binary.AppendUvarint(dst, uint64(n))
	}
	return codec.AppendText(codec.AppendText(codec.AppendText(dst, p.Index.MapName), p.Index.Attribute), p.Index.Type)
}

func decodePlan(b []byte) (p Plan, err error) {
	r := codec.NewReader(b)
	for _, n := range []*int{&p.Scanned, &p.Indexed, &p.Keyed, &p.Candidates, &p.Matched} {
		*n = int(min(r.Uvarint(), 1<<40)) // bounded, so that sums are
	}
	p.Index = IndexDefinition{MapName: r.Text(), Attribute: r.Text(), Type: r.Text()}
	return p, r.End()
}
