package judge

import (
	"context"
	"fmt"

	"github.com/quorate/quorate/partitions"
)

// Writer brings operations to the cluster; *partitions.Router is one.
type Writer interface {
	// Write returns one verdict per operation, or what is known without them; see
	// partitions.Router.
	Write(ctx context.Context, s *partitions.Session, ops []partitions.Op) ([]partitions.Verdict, error)
}

// Carry brings operations that Ops has permitted to the cluster. Those that were judged by a
// value which another client has replaced meanwhile are judged again, until they are written
// or refused, or ctx ends. It blocks meanwhile. Errors are those of Write; when some
// operations are decided and others are not, partitions.ErrUnknown.
func (p Permission) Carry(ctx context.Context, w Writer, ops []partitions.Op) ([]partitions.Verdict, error) {
	verdicts, err := p.write(ctx, w, ops)
	if err != nil {
		return nil, err
	}
	for {
		var again []int
		for i := range verdicts {
			if verdicts[i].Changed() {
				again = append(again, i)
			}
		}
		if again == nil {
			return verdicts, nil
		}
		if err := p.carryAgain(ctx, w, ops, verdicts, again); err != nil {
			// It may say that nothing was applied, which is true of these operations only.
			return nil, fmt.Errorf("%w: judged again: %s", partitions.ErrUnknown, err.Error())
		}
	}
}

// carryAgain judges and writes the operations at the given places once more, and enters
// their verdicts.
func (p Permission) carryAgain(ctx context.Context, w Writer, ops []partitions.Op, verdicts []partitions.Verdict, places []int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	judged := make([]partitions.Op, len(places))
	for i, at := range places {
		judged[i] = ops[at]
		judged[i].Guard = partitions.Guard{}
	}
	refusals, err := p.Ops(ctx, judged)
	if err != nil {
		return err
	}
	var permitted []partitions.Op
	var left []int
	for i, at := range places {
		if r := refusals[i]; r.Refused() {
			verdicts[at] = partitions.Verdict{Code: r.Code, Reason: r.Reason}
			continue
		}
		permitted, left = append(permitted, judged[i]), append(left, at)
	}
	if len(permitted) == 0 {
		return nil
	}
	written, err := p.write(ctx, w, permitted)
	for i := range written {
		verdicts[left[i]] = written[i]
	}
	return err
}

func (p Permission) write(ctx context.Context, w Writer, ops []partitions.Op) ([]partitions.Verdict, error) {
	verdicts, err := w.Write(ctx, p.Session, ops)
	if err == nil && len(verdicts) != len(ops) {
		return nil, fmt.Errorf("%w: %d verdicts for %d operations", partitions.ErrUnknown, len(verdicts), len(ops))
	}
	return verdicts, err
}
