package judge

import (
	"errors"

	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/protocol"
)

// QueryFailure is the refusal that err of a query stands for: one that asking again does
// not mend. The zero value is for errors of other kinds.
func QueryFailure(err error) Refusal {
	for class, code := range map[error]protocol.Code{
		partitions.ErrQueryMalformed:   protocol.CodeMalformed,
		partitions.ErrQueryTooComplex:  protocol.CodeTooLarge,
		partitions.ErrQueryTooCostly:   protocol.CodeTooLarge,
		partitions.ErrTooManyGroups:    protocol.CodeTooLarge,
		partitions.ErrQueryUnsupported: protocol.CodeNotImplemented,
	} {
		if errors.Is(err, class) {
			return Refusal{Code: code, Reason: reasonOf(err, class)}
		}
	}
	return Refusal{}
}

// reasonOf is what clients are told of an error. One of a query object is all about that;
// one of reading is wrapped in what only operators need to know.
func reasonOf(err, class error) string {
	switch {
	case errors.Is(class, partitions.ErrQueryUnsupported):
		return NotImplemented + err.Error()[len(class.Error()+": "):]
	case errors.Is(class, partitions.ErrQueryMalformed) || errors.Is(class, partitions.ErrQueryTooComplex):
		return err.Error()
	default:
		return class.Error()
	}
}

// Consistency judges the consistency that a query asks for.
func Consistency(name string) Refusal {
	if name != "" && name != protocol.ConsistencyLinearizable {
		return Refusal{Code: protocol.CodeMalformed, Reason: "consistency is unknown"}
	}
	return Refusal{}
}

// Explain is what a client is told of how its query was answered. One that may read only some
// rows is not told how many there are: whole says that it may read all.
func Explain(p *partitions.Plan, whole bool) *protocol.QueryPlan {
	plan := &protocol.QueryPlan{
		Kind: string(p.Kind()), Attribute: p.Index.Attribute, IndexType: p.Index.Type,
		GroupsScanned: int64(p.Scanned), GroupsIndexed: int64(p.Indexed),
	}
	if whole {
		plan.Candidates, plan.Matched = int64(p.Candidates), int64(p.Matched)
	}
	return plan
}
