package partitions

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/quorate/quorate/fsm/codec"
	"github.com/quorate/quorate/fsm/query"
	"github.com/quorate/quorate/partitions/remote"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/raftnode"
)

// pageRecords is how many records of a grouped query a holder is asked for at once: they
// come in the order of their keys, and are put into groups here.
const pageRecords = 8192

// share is what a node gathers of one group from its holders, in pages of so many bytes.
type share struct {
	gathering *Gathering
	group     uint32
	ask       Ask
	rows      int
	bytes     int
	pageBytes int
	// shown are the keys that came, once there is a second page: a row that moves between
	// two pages must not be there twice.
	shown map[string]struct{}
	pages int
}

// gatherFar has the holders of a group look for its share of the answer. They keep to the
// bounds of the ask, so that no more rows travel than can be shown.
func (g *Gathering) gatherFar(group uint32, reader *remote.Reader, pageBytes int) error {
	s := &share{gathering: g, group: group, ask: g.ask, rows: g.ask.Rows + g.ask.Spare, bytes: g.ask.Bytes, pageBytes: pageBytes}
	if g.groups != nil {
		s.ask = Ask{Map: g.ask.Map, Query: g.ask.Query.Records()}
	}
	for more := true; more; {
		err := reader.Answer(s.ask.Map, s.request(), func(rows *remote.Rows) (err error) {
			more, err = s.take(rows)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// take adds a page, and reports whether the next one may be of use.
func (s *share) take(page *remote.Rows) (more bool, err error) {
	g := s.gathering
	if s.pages++; s.pages == 1 { // later pages are of later states
		g.covered(s.group, page.Index)
		s.shown = map[string]struct{}{}
	}
	if err := s.explain(page); err != nil {
		return false, err
	}
	plan := g.plan // the holder has counted the rows
	for i := range page.List {
		row := &page.List[i]
		if _, twice := s.shown[row.Key]; twice {
			continue
		}
		s.shown[row.Key] = struct{}{}
		if !g.ask.shows(row.Key, row.Record.Value) {
			continue // the holder does not know who asks
		}
		s.rows--
		s.bytes -= (&Row{Key: row.Key, Record: row.Record}).Size()
		g.Add(row.Key, row.Record)
	}
	g.plan = plan
	if g.err != nil || len(page.Cut) == 0 {
		return false, g.err
	}
	if len(page.List) > 0 {
		last := &page.List[len(page.List)-1]
		place := s.ask.Query.Place(last.Key, last.Record.Value)
		s.ask.After = &place
		if g.groups != nil || s.rows > 0 && s.bytes > 0 && !g.best.leavesOut(&place) {
			return true, nil
		}
	}
	cut, err := s.ask.Query.ParsePlace(page.Cut)
	if err != nil {
		return false, fmt.Errorf("rows of a holder: %w", err)
	}
	g.best.cutAt(&cut)
	return false, nil
}

// explain notes how the holder found the rows of a page.
func (s *share) explain(page *remote.Rows) error {
	if len(page.Plan) == 0 {
		return nil
	}
	plan, err := decodePlan(page.Plan)
	if err != nil {
		return fmt.Errorf("plan of a holder: %w", err)
	}
	s.gathering.plan.add(&plan, s.pages == 1)
	return nil
}

// leavesOut reports whether no row from place on is of use.
func (b *best) leavesOut(place *Place) bool {
	return b.cut != nil && b.query.Compare(place, b.cut) >= 0
}

// cutAt notes that rows from place on were left out elsewhere.
func (b *best) cutAt(place *Place) {
	if b.leavesOut(place) {
		return
	}
	b.cut = place
	for len(b.list) > 0 && b.query.Compare(&b.list[0].place, place) >= 0 {
		b.pop()
	}
}

// Flag bits of a request.
const (
	askRecords = 1 << 0
	askPlan    = 1 << 1
)

// request is what a holder needs of an ask: whether only records are wanted and the plan is,
// how many rows and bytes, the place before them, and the query.
func (s *share) request() []byte {
	flag, rows, bytes := byte(0), s.rows, min(s.bytes, s.pageBytes)
	if s.gathering.groups != nil {
		flag, rows, bytes = askRecords, pageRecords, s.pageBytes
	}
	if s.gathering.ask.Explain {
		flag |= askPlan
	}
	b := binary.AppendUvarint([]byte{flag}, uint64(max(rows, 0)))
	b = binary.AppendUvarint(b, uint64(max(bytes, 0)))
	var after []byte
	if s.ask.After != nil {
		after = s.ask.Query.AppendPlace(nil, s.ask.After)
	}
	return s.gathering.ask.Query.AppendSource(codec.AppendBytes(b, after))
}

// decodeAsk reads a request, for one map.
func decodeAsk(mapName string, b []byte, maxBytes int) (Ask, error) {
	r := codec.NewReader(b)
	flag := r.Byte()
	ask := Ask{Map: mapName, Explain: flag&askPlan != 0}
	ask.Rows, ask.Bytes = int(min(r.Uvarint(), pageRecords+MaxQueryRows)), int(min(r.Uvarint(), uint64(maxBytes)))
	after := r.Bytes()
	if err := r.Err(); err != nil {
		return ask, err
	}
	var err error
	if ask.Query, err = query.FromSource(r.Rest()); err != nil {
		return ask, err
	}
	if flag&askRecords != 0 {
		ask.Query = ask.Query.Records()
	}
	if len(after) > 0 {
		place, err := ask.Query.ParsePlace(after)
		if err != nil {
			return ask, err
		}
		ask.After = &place
	}
	return ask, nil
}

// answerHere looks for the rows of one group that another node asks for.
func (r *Router) answerHere(ctx context.Context, group uint32, mapName string, body []byte, show func(key string, rec protocol.Record),
) (found remote.Found, err error) {
	ask, err := decodeAsk(mapName, body, r.cfg.Remote.AnswerBytes)
	if err != nil {
		return found, err
	}
	replica, held := r.deps.Groups.Replica(group)
	if !held {
		return found, raftnode.ErrNotHere
	}
	g := NewGathering(ask, r.deps.Physical())
	found.Index, err = r.gather(ctx, g, group, replica)
	if err := errors.Join(err, g.Err()); err != nil {
		return found, err
	}
	answer := g.Answer()
	for i := range answer.Rows {
		show(answer.Rows[i].Key, answer.Rows[i].Record)
	}
	if g.best.cut != nil {
		found.Cut = ask.Query.AppendPlace(nil, g.best.cut)
	}
	if ask.Explain {
		found.Plan = answer.Plan.append(nil)
	}
	return found, nil
}
