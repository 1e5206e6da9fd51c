package bench

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/coder/websocket"
	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/protocol"
)

const (
	// fanNodes is how many nodes the subscribers are spread over.
	fanNodes = 3
	// fanRounds is how many changes are measured, and as many rounds of PING.
	fanRounds = 30
	// fanFrames is what each subscriber gets for a change: the record, and the movement of
	// its row; and as many PONGs in a round.
	fanFrames = 2
	// fanPatience bounds one round.
	fanPatience = time.Minute
	// dialing is how many connections are opened at a time.
	dialing = 32
	// keepAlive is how often a connection that has nothing to say shows that it lives.
	keepAlive = 20 * time.Second
)

// FanRun is one change that many subscribers follow, beside the frames that the same
// sockets carry without it: medians of some runs. Times are in microseconds from the
// writing of a change.
type FanRun struct {
	Nodes              int     `json:"nodes"`
	Subscribers        int     `json:"subscribers"`
	P50                float64 `json:"p50Micros"`
	P99                float64 `json:"p99Micros"`
	Last               float64 `json:"lastMicros"`
	FramesPerSecond    float64 `json:"framesPerSecond"`
	RawFramesPerSecond float64 `json:"rawFramesPerSecond"`
	Ratio              float64 `json:"ratio"`
}

func medianFan(runs []FanRun) FanRun {
	pick := func(f func(FanRun) float64) float64 {
		var values []float64
		for _, r := range runs {
			values = append(values, f(r))
		}
		return median(values)
	}
	return FanRun{
		Nodes: runs[0].Nodes, Subscribers: runs[0].Subscribers,
		P50: pick(func(r FanRun) float64 { return r.P50 }), P99: pick(func(r FanRun) float64 { return r.P99 }),
		Last:               pick(func(r FanRun) float64 { return r.Last }),
		FramesPerSecond:    pick(func(r FanRun) float64 { return r.FramesPerSecond }),
		RawFramesPerSecond: pick(func(r FanRun) float64 { return r.RawFramesPerSecond }),
		Ratio:              pick(func(r FanRun) float64 { return r.Ratio }),
	}
}

// follower is a connection with live queries. A goroutine reads it until it is closed.
type follower struct {
	conn *websocket.Conn
	done chan struct{}
}

// measured is the time in those PINGs whose PONGs count.
var measured = msgp.AppendInt(nil, 1)

// listener is told what followers get.
type listener struct {
	// got is called for each QUERY_UPDATE and each PONG that counts.
	got func()
	// lost takes the end of a connection. Capacity 1.
	lost chan error
}

func newListener(got func()) *listener { return &listener{got: got, lost: make(chan error, 1)} }

// follow subscribes a new connection to queries and returns when all are answered.
func (r *runner) follow(ctx context.Context, url string, queries []msgp.Raw, l *listener) (*follower, error) {
	o := r.options
	c, err := dial(ctx, &o, 0, url)
	if err != nil {
		return nil, err
	}
	for i, q := range queries {
		if err := c.send(ctx, &protocol.QuerySub{QueryID: fmt.Sprint("q", i), MapName: queryMap, Query: q}); err != nil {
			return nil, err
		}
		m, err := c.receive(ctx)
		if err != nil {
			return nil, err
		}
		if _, ok := m.(*protocol.QueryResp); !ok {
			return nil, fmt.Errorf("%w: %T in place of the answer to a query", errRefused, m)
		}
	}
	f := &follower{conn: c.conn, done: make(chan struct{})}
	go f.read(c, l)
	go f.stayAlive()
	return f, nil
}

func (f *follower) read(c *client, l *listener) {
	defer close(f.done)
	for {
		m, err := c.receive(context.Background())
		if err != nil {
			select {
			case l.lost <- err:
			default:
			}
			return
		}
		switch m := m.(type) {
		case *protocol.QueryUpdate:
			l.got()
		case *protocol.Pong:
			if bytes.Equal(m.Timestamp, measured) {
				l.got()
			}
		}
	}
}

// stayAlive keeps the server from closing the connection of a client that only listens.
func (f *follower) stayAlive() {
	t := time.NewTicker(keepAlive)
	defer t.Stop()
	frame, err := protocol.Append(nil, &protocol.Ping{})
	for err == nil {
		select {
		case <-t.C:
			err = f.conn.Write(context.Background(), websocket.MessageBinary, frame)
		case <-f.done:
			return
		}
	}
}

func (f *follower) close() {
	_ = f.conn.CloseNow() // nobody waits for a good end
	<-f.done
}

// round counts what all subscribers got since it began.
type round struct {
	mu    sync.Mutex
	start time.Time
	left  int
	all   chan struct{} // closed when nothing is left
	took  []time.Duration
}

func newRound(n int) *round {
	return &round{start: time.Now(), left: n, all: make(chan struct{}), took: make([]time.Duration, 0, n)}
}

func (r *round) count() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left == 0 {
		return
	}
	r.took = append(r.took, time.Since(r.start))
	if r.left--; r.left == 0 {
		close(r.all)
	}
}

func (r *round) wait(ctx context.Context, l *listener) (time.Duration, error) {
	timer := time.NewTimer(fanPatience)
	defer timer.Stop()
	select {
	case <-r.all:
		return r.took[len(r.took)-1], nil
	case err := <-l.lost:
		return 0, fmt.Errorf("a subscriber was lost: %w", err)
	case <-timer.C:
		return 0, fmt.Errorf("%w: frames did not come within %s", errRefused, fanPatience)
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// fan measures changes that all subscribers of a cluster follow.
func (r *runner) fan(ctx context.Context) (FanRun, error) {
	c, err := startCluster(ctx, fanNodes)
	if err != nil {
		return FanRun{}, err
	}
	defer c.stop()
	o := r.options
	writer, err := dial(ctx, &o, 0, c.nodes[0].url())
	if err != nil {
		return FanRun{}, err
	}
	defer writer.close()
	var now atomic.Pointer[round]
	now.Store(newRound(0))
	l := newListener(func() { now.Load().count() })
	followers, err := r.followAll(ctx, c, l)
	defer func() {
		for _, f := range followers {
			if f != nil {
				f.close()
			}
		}
	}()
	if err != nil {
		return FanRun{}, err
	}
	m := &fanMeasurement{followers: followers, listener: l, now: &now, latency: newHistogram()}
	for i := range fanRounds + 1 {
		if err := m.round(ctx, writer, i > 0); err != nil { // at first nothing is warm
			return FanRun{}, err
		}
	}
	return m.result(), nil
}

// fanMeasurement is what the rounds of one run gave.
type fanMeasurement struct {
	followers []*follower
	listener  *listener
	now       *atomic.Pointer[round]

	latency      *hdrhistogram.Histogram
	changes, raw time.Duration
	last         time.Duration
}

// round measures one change, and then as many frames without one; counts says whether it
// takes part in the result.
func (m *fanMeasurement) round(ctx context.Context, writer *client, counts bool) error {
	change := newRound(len(m.followers))
	m.now.Store(change)
	if err := writer.put(ctx, queryMap, "k", parcel); err != nil {
		return err
	}
	last, err := change.wait(ctx, m.listener)
	if err != nil {
		return err
	}
	pongs := newRound(fanFrames * len(m.followers))
	m.now.Store(pongs)
	if err := ping(ctx, m.followers); err != nil {
		return err
	}
	raw, err := pongs.wait(ctx, m.listener)
	if err != nil || !counts {
		return err
	}
	m.changes, m.raw, m.last = m.changes+last, m.raw+raw, max(m.last, last)
	for _, took := range change.took {
		_ = m.latency.RecordValue(min(took.Microseconds(), maxLatency)) // within its range
	}
	return nil
}

func (m *fanMeasurement) result() FanRun {
	cost, frames := costOf(m.latency), float64(fanFrames*fanRounds*len(m.followers))
	run := FanRun{
		Nodes: fanNodes, Subscribers: len(m.followers), P50: cost.P50, P99: cost.P99, Last: float64(m.last.Microseconds()),
		FramesPerSecond: frames / m.changes.Seconds(), RawFramesPerSecond: frames / m.raw.Seconds(),
	}
	run.Ratio = run.FramesPerSecond / run.RawFramesPerSecond
	return run
}

// followAll connects the subscribers, spread over the nodes.
func (r *runner) followAll(ctx context.Context, c *cluster, l *listener) ([]*follower, error) {
	followers := make([]*follower, r.options.Subscribers)
	errs := make([]error, dialing)
	var group sync.WaitGroup
	for w := range dialing {
		group.Go(func() {
			for i := w; i < len(followers) && errs[w] == nil; i += dialing {
				followers[i], errs[w] = r.follow(ctx, c.nodes[i%len(c.nodes)].url(), []msgp.Raw{nil}, l)
			}
		})
	}
	group.Wait()
	for _, err := range errs {
		if err != nil {
			return followers, fmt.Errorf("subscribe: %w", err)
		}
	}
	return followers, nil
}

// ping asks every subscriber's node for its PONGs.
func ping(ctx context.Context, followers []*follower) error {
	frame, err := protocol.Append(nil, &protocol.Ping{Timestamp: measured})
	if err != nil {
		return err
	}
	errs := make([]error, dialing)
	var group sync.WaitGroup
	for w := range dialing {
		group.Go(func() {
			for i := w; i < len(followers) && errs[w] == nil; i += dialing {
				for range fanFrames {
					if err := followers[i].conn.Write(ctx, websocket.MessageBinary, frame); err != nil {
						errs[w] = fmt.Errorf("ping: %w", err)
					}
				}
			}
		})
	}
	group.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
