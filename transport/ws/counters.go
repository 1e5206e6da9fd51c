package ws

import (
	"context"
	"errors"
	"math"
	"time"
	"unicode/utf8"

	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/transport/judge"
)

// errTooManyCounters refuses to follow one more.
var errTooManyCounters = &judge.Refusal{Code: protocol.CodeOverloaded, Reason: "too many counters on this connection"}

// receiveCounterRequest handles COUNTER_REQUEST: the state, and from then on its changes. There
// is no other message that ends them.
func (c *conn) receiveCounterRequest(m *protocol.CounterRequest) {
	c.inCounterTurn(m, m.Name, func(ctx context.Context) error {
		switch {
		case m.Unfollow:
			c.srv.unfollow(c, m.Name)
			return nil
		case m.Once:
			state, err := c.backend.Counter(ctx, c.session, m.Name)
			if err == nil {
				c.reply(&protocol.CounterResponse{Name: m.Name, State: state})
			}
			return err
		default:
			return c.showCounter(ctx, m.Name)
		}
	})
}

// receiveCounterSync handles COUNTER_SYNC: a client's state is merged, or something added,
// and the sender follows the counter from then on.
func (c *conn) receiveCounterSync(m *protocol.CounterSync) {
	if r := checkCounterSync(m); r.Refused() {
		c.reply(failureOf(m, r.Code, r.Reason))
		return
	}
	dedup := ""
	if m.RequestID != "" {
		// Ids are unique per device, and of a connection that named none, per connection.
		dedup = c.auth.client + "\x00" + m.RequestID
	}
	c.inCounterTurn(m, m.Name, func(ctx context.Context) error {
		if m.Add != nil {
			return c.addToCounter(ctx, m, dedup)
		}
		return c.mergeCounter(ctx, m)
	})
}

// mergeCounter merges a client's state. It follows the counter before, so that it is fed
// what becomes of it like all others; a state that changes nothing is answered alone.
func (c *conn) mergeCounter(ctx context.Context, m *protocol.CounterSync) error {
	if !c.srv.reserveCounter(c, m.Name) {
		return errTooManyCounters
	}
	c.srv.follow(c, m.Name, nil)
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

func (c *conn) addToCounter(ctx context.Context, m *protocol.CounterSync, dedup string) error {
	total, verdict, err := c.backend.AddToCounter(ctx, c.session, m.Name, *m.Add, dedup)
	switch {
	case err != nil:
		return err
	case verdict.Refused():
		return &judge.Refusal{Code: verdict.Code, Reason: verdict.Reason}
	}
	// The addition stands, whether the state can be read now or not: without it the answer
	// has the total alone, and merging no cells changes nothing.
	state, err := c.backend.Counter(ctx, c.session, m.Name)
	if err != nil {
		c.srv.log.Debug("counter was not read after an addition", "conn", c.id, "counter", m.Name, "err", err)
		c.reply(&protocol.CounterResponse{Name: m.Name, RequestID: m.RequestID, Value: &total})
		return nil
	}
	c.reply(&protocol.CounterResponse{Name: m.Name, State: state, RequestID: m.RequestID, Value: &total})
	// Whoever follows too many already has its verdict, and follows no further one.
	if !m.Once && c.srv.reserveCounter(c, m.Name) {
		c.srv.follow(c, m.Name, &state)
	}
	return nil
}

// inCounterTurn runs task in the order of what the connection does with the counter, and
// says what failed. What is not confirmed may be sent again.
func (c *conn) inCounterTurn(m protocol.Message, name string, task func(context.Context) error) {
	if r := judge.Key(name); r.Refused() {
		c.reply(failureOf(m, r.Code, "counter name: "+r.Reason))
		return
	}
	c.inTurn(&c.counting, m, name, asking, func(func()) {
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
func (c *conn) showCounter(ctx context.Context, name string) error {
	if !c.srv.reserveCounter(c, name) {
		return errTooManyCounters
	}
	state, err := c.backend.Counter(ctx, c.session, name)
	if err != nil {
		c.srv.returnCounter(c, name)
		return err
	}
	c.reply(&protocol.CounterResponse{Name: name, State: state})
	c.srv.follow(c, name, &state)
	return nil
}
