package ws

import (
	"context"
	"errors"
	"math"
	"reflect"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/partitions/notice"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/transport/judge"
)

// counterFeeds shows the counters that connections follow to all of them. A counter is
// read and encoded once for a change, however many follow it; changes that come together
// are shown together. The zero value is ready.
type counterFeeds struct {
	// mu protects feeds and the sets in them.
	mu    sync.Mutex
	feeds map[string]*counterFeed
}

// feedRetry is when a change of a counter is shown again that could not be read.
const feedRetry = time.Second

// counterFeed is one counter. It exists while a connection follows it.
type counterFeed struct {
	name  string
	watch *notice.Watcher
	conns map[*conn]struct{}
	over  chan struct{}
}

// follow shows the changes of a counter to c from now on. It returns false if c follows
// as many as it may.
func (s *Server) follow(c *conn, name string) bool {
	f := &s.counters
	f.mu.Lock()
	defer f.mu.Unlock()
	feed := f.feeds[name]
	if feed != nil {
		if _, already := feed.conns[c]; already {
			return true
		}
	}
	if c.ctx.Err() != nil || len(c.counters) >= s.cfg.MaxCounters {
		return false
	}
	if feed == nil {
		feed = &counterFeed{name: name, watch: c.backend.WatchCounter(name), conns: map[*conn]struct{}{}, over: make(chan struct{})}
		if f.feeds == nil {
			f.feeds = map[string]*counterFeed{}
		}
		f.feeds[name] = feed
		s.background.Go(func() { s.feedCounter(c.backend, feed) })
	}
	feed.conns[c] = struct{}{}
	if c.counters == nil {
		c.counters = map[string]struct{}{}
	}
	c.counters[name] = struct{}{}
	return true
}

// unfollow ends all that c follows.
func (s *Server) unfollow(c *conn) {
	f := &s.counters
	f.mu.Lock()
	defer f.mu.Unlock()
	for name := range c.counters {
		feed := f.feeds[name]
		if delete(feed.conns, c); len(feed.conns) == 0 {
			feed.watch.Close()
			close(feed.over)
			delete(f.feeds, name)
		}
	}
	c.counters = nil
}

// feedCounter shows each change until nobody follows any more.
func (s *Server) feedCounter(b Backend, feed *counterFeed) {
	var shown protocol.CounterState
	for {
		select {
		case <-feed.watch.C:
		case <-feed.over:
			return
		case <-s.base.Done():
			return
		}
		ctx, cancel := context.WithTimeout(s.base, s.cfg.OperationTimeout)
		state, err := b.Counter(ctx, s.reader, feed.name)
		cancel()
		if err != nil {
			s.log.Debug("counter could not be shown", "counter", feed.name, "err", err)
			select {
			case <-time.After(feedRetry):
				feed.watch.Wake()
			case <-feed.over:
			case <-s.base.Done():
			}
			continue
		}
		if reflect.DeepEqual(state, shown) {
			continue
		}
		shown = state
		frame, err := protocol.Append(nil, &protocol.CounterUpdate{Name: feed.name, State: state})
		if err != nil {
			s.log.Error("encode counter", "err", err)
			continue
		}
		s.counters.mu.Lock()
		conns := make([]*conn, 0, len(feed.conns))
		for c := range feed.conns {
			conns = append(conns, c)
		}
		s.counters.mu.Unlock()
		for _, c := range conns {
			c.push(protocol.KindCounterUpdate, frame)
		}
	}
}

// errTooManyCounters refuses to follow one more.
var errTooManyCounters = &judge.Refusal{Code: protocol.CodeOverloaded, Reason: "too many counters on this connection"}

// receiveCounterRequest handles COUNTER_REQUEST: the state, and from then on its changes.
func (c *conn) receiveCounterRequest(m *protocol.CounterRequest) {
	c.inCounterTurn(m, m.Name, func(ctx context.Context) error { return c.showCounter(ctx, m.Name, "", nil) })
}

// receiveCounterSync handles COUNTER_SYNC: a client's state is merged, or something added,
// and the sender follows the counter from then on.
func (c *conn) receiveCounterSync(m *protocol.CounterSync) {
	if r := checkCounterSync(m); r.Refused() {
		c.reply(failureOf(m, r.Code, r.Reason))
		return
	}
	c.inCounterTurn(m, m.Name, func(ctx context.Context) error {
		if m.Add != nil {
			return c.addToCounter(ctx, m)
		}
		return c.mergeCounter(ctx, m)
	})
}

// mergeCounter merges a client's state. It follows the counter before, so that it is fed
// what becomes of it like all others; a state that changes nothing is answered alone.
func (c *conn) mergeCounter(ctx context.Context, m *protocol.CounterSync) error {
	if !c.srv.follow(c, m.Name) {
		return errTooManyCounters
	}
	changed, verdict, err := c.backend.MergeCounter(ctx, c.session, m.Name, m.State)
	switch {
	case err != nil:
		return err
	case verdict.Refused():
		return &judge.Refusal{Code: verdict.Code, Reason: verdict.Reason}
	case changed:
		return nil
	}
	state, err := c.backend.Counter(ctx, c.session, m.Name)
	if err == nil {
		c.reply(&protocol.CounterUpdate{Name: m.Name, State: state})
	}
	return err
}

// Bounds of one COUNTER_SYNC.
const (
	maxWriterBytes = 255
	maxWriters     = protocol.MaxBatchItems
)

func checkCounterSync(m *protocol.CounterSync) judge.Refusal {
	if m.Add != nil && (math.IsNaN(*m.Add) || math.IsInf(*m.Add, 0)) {
		return judge.Refusal{Code: protocol.CodeMalformed, Reason: "add is not a finite number"}
	}
	for _, half := range []map[string]float64{m.State.Positive, m.State.Negative} {
		if len(half) > maxWriters {
			return judge.Refusal{Code: protocol.CodeTooLarge, Reason: "state has too many writers"}
		}
		for writer := range half {
			if len(writer) > maxWriterBytes || !utf8.ValidString(writer) {
				return judge.Refusal{Code: protocol.CodeMalformed, Reason: "writer of a counter is too long or not text"}
			}
		}
	}
	return judge.Refusal{}
}

func (c *conn) addToCounter(ctx context.Context, m *protocol.CounterSync) error {
	dedup := ""
	if m.RequestID != "" {
		dedup = c.auth.client + "\x00" + m.RequestID
	}
	total, verdict, err := c.backend.AddToCounter(ctx, c.session, m.Name, *m.Add, dedup)
	switch {
	case err != nil:
		return err
	case verdict.Refused():
		return &judge.Refusal{Code: verdict.Code, Reason: verdict.Reason}
	}
	return c.showCounter(ctx, m.Name, m.RequestID, &total)
}

// inCounterTurn runs task in the order of what the connection does with the counter, and
// says what failed. What is not confirmed may be sent again.
func (c *conn) inCounterTurn(m protocol.Message, name string, task func(context.Context) error) {
	if r := judge.Key(name); r.Refused() {
		c.reply(failureOf(m, r.Code, "counter name: "+r.Reason))
		return
	}
	c.inTurn(&c.counting, m, name, c.srv.cfg.MaxRequests, func(func()) {
		started := time.Now()
		ctx, cancel := context.WithTimeout(c.srv.base, c.srv.cfg.OperationTimeout)
		defer cancel()
		err := task(ctx)
		outcome := "ok"
		var refusal *judge.Refusal
		switch {
		case err == nil:
		case errors.As(err, &refusal):
			outcome = "refused"
			c.reply(failureOf(m, refusal.Code, refusal.Reason))
		default:
			outcome = "unavailable"
			c.srv.log.Debug("counter was not reached", "conn", c.id, "counter", name, "err", err)
			c.reply(failureOf(m, protocol.CodeUnavailable, counterReason(err)))
		}
		c.srv.metrics.operations(serviceCounter, outcome, 1, time.Since(started))
	})
}

// counterReason is what clients are told about a counter that was not reached.
func counterReason(err error) string {
	if errors.Is(err, partitions.ErrUnknown) {
		return "outcome is unknown, send it again"
	}
	return "counter cannot be reached now"
}

// showCounter answers with the state of a counter, and follows it.
func (c *conn) showCounter(ctx context.Context, name, requestID string, total *float64) error {
	state, err := c.backend.Counter(ctx, c.session, name)
	if err != nil {
		return err
	}
	c.reply(&protocol.CounterResponse{Name: name, State: state, RequestID: requestID, Value: total})
	return c.followFrom(ctx, name, state)
}

// followFrom follows a counter that was shown in a state.
func (c *conn) followFrom(ctx context.Context, name string, shown protocol.CounterState) error {
	if !c.srv.follow(c, name) {
		return errTooManyCounters
	}
	// What changed in between was not fed to this connection yet.
	state, err := c.backend.Counter(ctx, c.session, name)
	if err == nil && !reflect.DeepEqual(state, shown) {
		c.reply(&protocol.CounterUpdate{Name: name, State: state})
	}
	return err
}
