package check

import (
	"fmt"
	"maps"
	"slices"
)

// Tags holds that the final states of an observed-remove map contain every tag that was
// added for certain and that nobody tried to remove, none that was removed for certain,
// and none that nobody added.
func Tags(ops []Op) []string {
	added, removed := make(map[string]Op), make(map[string]Op)
	for _, op := range ops {
		switch {
		case op.Kind == Add:
			added[op.Value] = op
		case op.Kind == Remove && op.Outcome != Failed && removed[op.Value].Outcome != OK:
			removed[op.Value] = op
		}
	}
	var problems []string
	problem := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	for _, final := range ops {
		if final.Kind != Final {
			continue
		}
		for _, tag := range slices.Sorted(maps.Keys(final.Rows)) {
			add, known := added[tag]
			if !known || add.Outcome == Failed {
				problem("%s ends with tag %q, which nobody added", final.Node, tag)
			} else if final.Rows[tag] != add.Key {
				problem("%s ends with tag %q under key %q instead of %q", final.Node, tag, final.Rows[tag], add.Key)
			}
			if removed[tag].Outcome == OK {
				problem("%s ends with tag %q, which client %d had removed", final.Node, tag, removed[tag].Client)
			}
		}
		for _, tag := range slices.Sorted(maps.Keys(added)) {
			_, there := final.Rows[tag]
			_, gone := removed[tag]
			if add := added[tag]; !there && !gone && add.Outcome == OK {
				problem("%s ends without tag %q, acknowledged to client %d by %s", final.Node, tag, add.Client, add.Node)
			}
		}
	}
	return problems
}
