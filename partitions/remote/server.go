package remote

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/codec"
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/query"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/merkle"
)

// Server answers other nodes for the groups that this one holds. It is safe for
// concurrent use.
type Server struct {
	cfg  Config
	deps ServerDeps

	// mu protects the fields below. feeds are those of other nodes, and untap ends the
	// tap that exists while there are any.
	mu     sync.Mutex
	closed bool
	feeds  map[feedKey]*outflow
	untap  func()
}

// NewServer returns a Server. The caller closes it.
func NewServer(cfg Config, deps ServerDeps) *Server {
	return &Server{cfg: cfg, deps: deps, feeds: map[feedKey]*outflow{}}
}

// HandleRead answers a request of a Client. The error means that the request cannot be
// read, or that the state cannot.
func (s *Server) HandleRead(ctx context.Context, body []byte) ([]byte, error) {
	r := codec.NewReader(body)
	h := takeHeader(&r)
	if err := r.Err(); err != nil {
		return nil, err
	}
	answer := answers[h.op]
	if answer == nil {
		return nil, fmt.Errorf("%w: unknown kind %d of a read", codec.ErrMalformed, h.op)
	}
	replica, held := s.deps.Replica(h.group)
	if !held {
		return []byte{replyAbsent}, nil
	}
	waiting, cancel := context.WithTimeout(ctx, time.Duration(min(h.waitMillis, maxWaitMillis))*time.Millisecond)
	defer cancel()
	if err := s.deps.WaitApplied(waiting, h.group, h.atLeast); err != nil {
		return []byte{replyBehind}, nil
	}
	p := &page{ctx: ctx, group: h.group, replica: replica, cfg: &s.cfg, deps: &s.deps}
	// Asked before the read, which shows at least this much.
	p.index, _ = replica.Applied()
	err := answer(p, &r)
	if err == nil {
		err = r.End()
	}
	if err != nil {
		return nil, err
	}
	return append(binary.AppendUvarint([]byte{replyDone}, p.index), p.body...), nil
}

// maxWaitMillis bounds how long a request waits at a holder.
const maxWaitMillis = 60_000

// page is one answer in the making.
type page struct {
	ctx     context.Context
	group   uint32
	replica Replica
	cfg     *Config
	deps    *ServerDeps
	index   uint64
	body    []byte
}

// full reports whether the page holds as much as one should.
func (p *page) full() bool { return len(p.body) >= p.cfg.PageBytes || p.ctx.Err() != nil }

// answers are what a Server can be asked.
var answers = map[byte]func(p *page, r *codec.Reader) error{
	opLeaves: (*page).leaves, opRecords: (*page).records, opSets: (*page).sets, opKeys: (*page).keys,
	opChanged: (*page).changed, opTags: (*page).tags, opCounter: (*page).counter, opHorizon: (*page).horizon,
	opAnswer: (*page).answer,
}

// Pages of lists: each item has a 1 in front; then a 0 and whether that is the end.

func (p *page) end(end bool) { p.body = appendFlag(append(p.body, 0), end) }

// leaves reads: map, kind of tree.
func (p *page) leaves(r *codec.Reader) error {
	mapName, kind := r.Text(), merkle.Kind(r.Byte())
	if err := r.Err(); err != nil {
		return err
	}
	leaves := new(merkle.Leaves)
	index, err := p.replica.AddLeaves(mapName, kind, leaves)
	p.index, p.body = index, leaves.Append(p.body)
	return err
}

// records reads: map, index above which records were stored, first key of the first
// bucket, buckets.
func (p *page) records(r *codec.Reader) error {
	mapName, since, from, buckets := r.Text(), r.Uvarint(), r.Text(), takeBuckets(r)
	if err := r.Err(); err != nil {
		return err
	}
	for _, bucket := range buckets {
		err := p.replica.LeafRecords(fsm.Leaf{Map: mapName, Bucket: bucket, From: from}, since, func(key string, rec protocol.Record) bool {
			p.body = binary.AppendUvarint(append(p.body, 1), uint64(bucket))
			p.body = appendRecord(codec.AppendText(p.body, key), &rec)
			return !p.full()
		})
		if err != nil {
			return err
		}
		if p.full() {
			p.end(false)
			return nil
		}
		from = ""
	}
	p.end(true)
	return nil
}

// sets reads: map, bucket, first key, first removed tag of it.
func (p *page) sets(r *codec.Reader) error {
	leaf := fsm.Leaf{Map: r.Text(), Bucket: takeBucket(r), From: r.Text(), Tag: r.Text()}
	if err := r.Err(); err != nil {
		return err
	}
	end := true
	err := p.replica.LeafSets(leaf, func(part protocol.OREntry) bool {
		p.body = appendEntry(append(p.body, 1), &part)
		end = !p.full()
		return end
	})
	p.end(end)
	return err
}

// keys reads: map, first removed tag of the first key, keys. The answer may end before the
// last key does, but has a part at least, each with whether another one of its key follows.
func (p *page) keys(r *codec.Reader) error {
	mapName, tag, keys := r.Text(), r.Text(), takeTexts(r)
	if err := r.Err(); err != nil {
		return err
	}
	for len(keys) > 0 {
		part, more, err := p.replica.Set(mapName, keys[0], tag)
		if err != nil {
			return err
		}
		if p.body = appendFlag(appendEntry(append(p.body, 1), &part), more); p.full() {
			break
		}
		if more {
			tag = fsm.TagBehind(part)
		} else {
			keys, tag = keys[1:], ""
		}
	}
	p.end(true)
	return nil
}

// changed reads: map, index above which buckets changed.
func (p *page) changed(r *codec.Reader) error {
	mapName, since := r.Text(), r.Uvarint()
	if err := r.Err(); err != nil {
		return err
	}
	buckets, index, err := p.replica.ChangedBuckets(mapName, since)
	p.index, p.body = index, appendBuckets(p.body, buckets)
	return err
}

// tags reads: map, tags.
func (p *page) tags(r *codec.Reader) error {
	mapName, tags := r.Text(), takeTexts(r)
	if err := r.Err(); err != nil {
		return err
	}
	for _, tag := range tags {
		state, err := p.replica.Tag(mapName, tag)
		if err != nil {
			return err
		}
		p.body = append(p.body, byte(state))
	}
	return nil
}

// counter reads: name.
func (p *page) counter(r *codec.Reader) error {
	name := r.Text()
	if err := r.Err(); err != nil {
		return err
	}
	cells, index, err := p.replica.Counter(name)
	p.index, p.body = index, command.AppendCells(p.body, cells)
	return err
}

func (p *page) horizon(*codec.Reader) error {
	p.body = appendHorizon(p.body, p.replica.Horizon())
	return nil
}

// The first byte of the rows of a query.
const (
	rowsFound     = 0 // the place of the first row left out, and the rows
	rowsTooCostly = 1 // a record costs more to look at than a query may
	rowsExplained = 2 // the plan, and what rowsFound has
)

// answer reads: map, ask.
func (p *page) answer(r *codec.Reader) error {
	mapName, ask := r.Text(), r.Bytes()
	if err := r.Err(); err != nil {
		return err
	}
	var rows []byte
	found, err := p.deps.Answer(p.ctx, p.group, mapName, ask, func(key string, rec protocol.Record) {
		rows = appendRecord(codec.AppendText(rows, key), &rec)
	})
	p.index = found.Index
	if errors.Is(err, query.ErrTooCostly) {
		p.body = append(p.body, rowsTooCostly)
		return nil
	}
	if len(found.Plan) > 0 {
		p.body = codec.AppendBytes(append(p.body, rowsExplained), found.Plan)
	} else {
		p.body = append(p.body, rowsFound)
	}
	p.body = append(codec.AppendBytes(p.body, found.Cut), rows...)
	return err
}

func appendBuckets(dst []byte, buckets []uint16) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(buckets)))
	for _, bucket := range buckets {
		dst = binary.AppendUvarint(dst, uint64(bucket))
	}
	return dst
}

func takeBuckets(r *codec.Reader) []uint16 {
	buckets := make([]uint16, r.Count(1))
	for i := range buckets {
		buckets[i] = takeBucket(r)
	}
	return buckets
}

func appendTexts(dst []byte, texts []string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(texts)))
	for _, text := range texts {
		dst = codec.AppendText(dst, text)
	}
	return dst
}

func takeTexts(r *codec.Reader) []string {
	texts := make([]string, r.Count(1))
	for i := range texts {
		texts[i] = r.Text()
	}
	return texts
}
