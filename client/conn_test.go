package client_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/client"
	"github.com/quorate/quorate/protocol"
)

func TestConfigIsChecked(t *testing.T) {
	for _, cfg := range []client.Config{
		{},
		{Seeds: []string{"http://h"}},
		{Seeds: []string{"ws://"}},
		{Seeds: []string{"h:1"}, ClientID: "a:b"},
		{Seeds: []string{"h:1"}, DialTimeout: -1},
		{Seeds: []string{"h:1"}, MaxInFlight: -1},
	} {
		_, err := client.Open(within(t), cfg)
		require.Error(t, err, "%+v", cfg)
		require.NotErrorIs(t, err, client.ErrUnavailable, "%+v", cfg)
	}
}

func TestOpenEndsWithItsContext(t *testing.T) {
	f := newFake(t)
	f.away.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err := client.Open(ctx, client.Config{Seeds: []string{f.url}})
	require.ErrorIs(t, err, client.ErrUnavailable)
}

func TestARefusedTokenIsFinal(t *testing.T) {
	f := newFake(t)
	f.auth.Store(true)
	for _, token := range []string{"", "bad"} {
		_, err := client.Open(within(t), client.Config{Seeds: []string{f.url}, Token: token})
		require.ErrorIs(t, err, client.ErrRefused, "token %q", token)
	}
	c := open(t, client.Config{Token: "good"}, f)
	f.accept().end(protocol.CloseAuth)
	eventually(t, "the end", func() bool { return c.Status().Final })
	_, err := c.Counter("n").Add(within(t), 1)
	require.ErrorIs(t, err, client.ErrRefused)

	// Whoever has a source of tokens asks it for another one.
	asked := 0
	c = open(t, client.Config{TokenSource: func(context.Context) (string, error) { asked++; return "good", nil }}, f)
	f.accept().end(protocol.CloseAuth)
	f.accept()
	eventually(t, "the connection", c.Connected)
	require.NoError(t, c.Close())
	require.Equal(t, 2, asked)
}

func TestATokenIsRenewedBeforeItExpires(t *testing.T) {
	f := newFake(t)
	f.auth.Store(true)
	var asked atomic.Int64
	open(t, client.Config{
		HeartbeatInterval: 10 * time.Millisecond,
		TokenSource: func(context.Context) (string, error) {
			if asked.Add(1)%2 == 0 {
				return "", errors.New("not now")
			}
			return tokenUntil(time.Now()), nil
		},
	}, f)
	p, deadline := f.accept(), time.After(patience)
	for {
		select {
		case m := <-p.got:
			require.IsType(t, &protocol.Auth{}, m)
			return
		case p = <-f.peers: // on a busy machine the heartbeats may be late
		case <-deadline:
			t.Fatal("not renewed")
		}
	}
}

// tokenUntil has the form of a token that expires at a time, but no signature.
func tokenUntil(at time.Time) string {
	return "good." + base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"sub":"me","exp":%d}`, at.Unix())) + ".x"
}

func TestTheStatusIsTold(t *testing.T) {
	f := newFake(t)
	told := make(chan client.Status, 16)
	c := open(t, client.Config{OnStatus: func(s client.Status) { told <- s }}, f)
	require.True(t, (<-told).Connected)
	f.accept().end(protocol.CloseShutdown)
	s := <-told
	require.False(t, s.Connected)
	require.Error(t, s.Err)
	require.Equal(t, f.url, s.URL)
	f.accept()
	require.True(t, (<-told).Connected)
	require.NoError(t, c.Close())
	require.False(t, (<-told).Connected)
	s = <-told
	require.True(t, s.Final)
	require.ErrorIs(t, s.Err, client.ErrClosed)
}

func TestASilentConnectionIsGivenUp(t *testing.T) {
	f := newFake(t)
	open(t, client.Config{HeartbeatInterval: 20 * time.Millisecond}, f)
	f.accept().deaf.Store(true)
	f.accept()
}

func TestANodeThatCannotServeIsLeft(t *testing.T) {
	bad, good := newFake(t), newFake(t)
	good.away.Store(true)
	c := open(t, client.Config{}, bad, good)
	p := bad.accept()
	good.away.Store(false)
	done := put(within(t), c, "k", "v")
	op := next[*protocol.OpBatch](p).Ops[0]
	p.complain(protocol.CodeUnavailable)
	next[*protocol.OpBatch](p)
	p.complain(protocol.CodeUnavailable)
	p = good.accept()
	batch := next[*protocol.OpBatch](p)
	require.Equal(t, op, batch.Ops[0])
	p.ack(batch)
	require.NoError(t, await(t, done))
}

func TestAnAcknowledgementOfNothingEndsTheConnection(t *testing.T) {
	f := newFake(t)
	c := open(t, client.Config{}, f)
	p := f.accept()
	done := put(within(t), c, "k", "v")
	next[*protocol.OpBatch](p)
	p.send(&protocol.OpAck{LastID: "not mine", AchievedLevel: protocol.LevelPersisted})
	p = f.accept()
	p.ack(next[*protocol.OpBatch](p))
	require.NoError(t, await(t, done))
}

func TestStampsFollowTheServersClock(t *testing.T) {
	f := newFake(t)
	f.ahead.Store(int64(time.Hour / time.Millisecond))
	c := open(t, client.Config{ClientID: "me"}, f)
	p := f.accept()
	done := put(within(t), c, "k", "v")
	batch := next[*protocol.OpBatch](p)
	at := batch.Ops[0].Record.Timestamp
	require.Equal(t, "me", at.NodeID)
	require.Greater(t, at.Millis, time.Now().Add(30*time.Minute).UnixMilli())
	p.ack(batch)
	require.NoError(t, await(t, done))
}

// TestEveryCallEndsTruly has many callers at once on connections that end at random, and holds
// that whatever they are told is true of what the server did.
func TestEveryCallEndsTruly(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	f := newFake(t)
	c := open(t, client.Config{MaxInFlight: 64, MinBackoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond}, f)
	s := &store{done: map[string]bool{}}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		s.serve(f, rng, stop)
	}()
	var callers sync.WaitGroup
	for caller := range 16 {
		callers.Go(func() {
			for i := range 60 {
				key := fmt.Sprint(caller, "/", i)
				ctx, cancel := within(t), func() {}
				if i%5 == 0 {
					ctx, cancel = context.WithTimeout(ctx, time.Millisecond)
				}
				var err error
				if i%2 == 0 {
					_, err = c.Map("m").Put(ctx, key, i)
				} else {
					_, err = c.Counter(key).Add(ctx, 1)
				}
				cancel()
				applied := s.applied(key)
				switch {
				case err == nil && !applied:
					t.Errorf("%s is acknowledged and not applied", key)
				case errors.Is(err, client.ErrUnavailable) && applied:
					t.Errorf("%s is applied, and the caller told that it is not", key)
				case err != nil && i%5 != 0:
					t.Errorf("%s: %v", key, err)
				}
			}
		})
	}
	callers.Wait()
	require.NoError(t, c.Close())
	close(stop)
	<-stopped
}

// store is what a server has applied.
type store struct {
	mu   sync.Mutex
	done map[string]bool
}

func (s *store) apply(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done[key] = true
}

func (s *store) applied(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done[key]
}

// serve answers what comes until stop, most of the time: it also closes connections before or
// after it applied something, or says that it cannot serve.
func (s *store) serve(f *fake, rng *rand.Rand, stop <-chan struct{}) {
	var p *peer
	for {
		select {
		case p = <-f.peers:
			continue
		case <-stop:
			return
		default:
		}
		if p == nil {
			continue
		}
		select {
		case m := <-p.got:
			s.answer(p, m, rng.IntN(20))
		case p = <-f.peers:
		case <-stop:
			return
		}
	}
}

func (s *store) answer(p *peer, m protocol.Message, dice int) {
	if dice == 0 {
		p.cut()
		return
	}
	switch m := m.(type) {
	case *protocol.OpBatch:
		if dice == 1 {
			p.complain(protocol.CodeUnavailable)
			return
		}
		for _, op := range m.Ops {
			s.apply(op.Key)
		}
		if dice == 2 {
			p.end(protocol.CloseRetry)
			return
		}
		p.ack(m)
	case *protocol.CounterSync:
		if dice == 1 {
			p.complain(protocol.CodeOverloaded, "type", "COUNTER_SYNC", "name", m.Name)
			return
		}
		s.apply(m.Name)
		if dice == 2 {
			p.cut()
			return
		}
		one := 1.0
		p.send(&protocol.CounterResponse{Name: m.Name, RequestID: m.RequestID, Value: &one})
	}
}
