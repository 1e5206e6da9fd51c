package mux_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/raftnode/mux"
	"github.com/quorate/quorate/raftnode/mux/memnet"
)

// chaos is three nodes that call each other while the network breaks. Every call
// has a number, and every node counts how often it has run it.
type chaos struct {
	t       *testing.T
	rng     *rand.Rand // used by the goroutine that breaks things
	network *memnet.Network
	nodes   []*mux.Mux
	opened  int // numbers ports, so that a restarted node moves

	mu       sync.Mutex // protects the fields below, and replacing nodes
	ran      map[string]int
	verdicts map[string]int // of calls: ok, not sent, unknown
}

var chaosNames = []string{"a", "b", "c"}

// TestVerdictsOfCallsAreTrue checks, over random faults in virtual time, that a call
// that succeeded ran once, one that was not sent never ran, and one whose outcome is
// unknown ran once at most.
func TestVerdictsOfCallsAreTrue(t *testing.T) {
	s := seed(t)
	for _, secret := range []string{"", "secret"} {
		t.Run("secret "+secret, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &chaos{
					t: t, rng: rand.New(rand.NewPCG(s, 1)), network: memnet.New(s),
					nodes: make([]*mux.Mux, len(chaosNames)), ran: map[string]int{}, verdicts: map[string]int{},
				}
				c.run(secret)
			})
		})
	}
}

func (c *chaos) run(secret string) {
	for i := range c.nodes {
		c.start(i, secret)
	}
	c.network.SetLinks(memnet.Link{Latency: time.Millisecond, Jitter: 20 * time.Millisecond, ResetRate: 0.002})
	ctx, stop := context.WithCancel(context.Background())
	var calling sync.WaitGroup
	for caller := range 12 {
		rng := rand.New(rand.NewPCG(uint64(caller), c.rng.Uint64()))
		calling.Go(func() { c.callLoop(ctx, fmt.Sprint(caller), rng) })
	}
	rounds := 150
	if secret != "" {
		rounds = 40 // a TLS handshake costs more than everything else here
	}
	for range rounds {
		time.Sleep(time.Duration(c.rng.IntN(1000)) * time.Millisecond)
		c.breakSomething(secret)
	}
	stop()
	calling.Wait()
	c.network.Heal()
	c.network.SetLinks(memnet.Link{})
	c.requireAllConnect()
	c.t.Logf("verdicts: %v", c.verdicts)
	for _, verdict := range []string{"ok", "not sent", "unknown"} {
		require.NotZero(c.t, c.verdicts[verdict], verdict)
	}
}

// start opens node i on a new port and tells the others.
func (c *chaos) start(i int, secret string) {
	name := chaosNames[i]
	cfg := testConfig(name, name)
	c.opened++
	cfg.ListenAddr, cfg.Secret, cfg.MaxCalls = fmt.Sprintf("%s:%d", name, 7000+c.opened), []byte(secret), 8
	m := open(c.t, cfg, mux.Deps{Network: c.network.Host(name)})
	m.SetClusterID("chaos")
	m.Handle(methodEcho, func(ctx context.Context, _ mux.Peer, body []byte) ([]byte, error) {
		c.mu.Lock()
		c.ran[string(body)]++
		slow := len(c.ran)%5 == 0
		c.mu.Unlock()
		if slow {
			select {
			case <-time.After(200 * time.Millisecond):
			case <-ctx.Done():
			}
		}
		return body, nil
	})
	m.Start()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes[i] = m
	for _, other := range c.nodes {
		if other != nil {
			other.SetPeerAddr(m.ID(), m.Addr())
			m.SetPeerAddr(other.ID(), other.Addr())
		}
	}
}

func (c *chaos) breakSomething(secret string) {
	i, j := c.rng.IntN(3), c.rng.IntN(3)
	how := []memnet.Cut{memnet.Blackhole, memnet.Reset}[c.rng.IntN(2)]
	switch c.rng.IntN(8) {
	case 0:
		c.network.Cut(how, chaosNames[i], chaosNames[j])
	case 1:
		c.network.Isolate(how, chaosNames[i])
	case 2:
		c.network.ResetConns(0.5)
	case 3:
		c.node(i).DropPeer(c.node(j).ID())
	case 4:
		c.network.CrashHost(chaosNames[i])
		fallthrough
	case 5:
		require.NoError(c.t, c.node(i).Close())
		c.start(i, secret)
	default:
		c.network.Heal()
	}
}

func (c *chaos) node(i int) *mux.Mux {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[i]
}

func (c *chaos) callLoop(ctx context.Context, caller string, rng *rand.Rand) {
	for n := 0; ctx.Err() == nil; n++ {
		from, to := c.node(rng.IntN(3)), raft.ServerID(chaosNames[rng.IntN(3)]+"#1")
		callCtx, cancel := context.WithTimeout(ctx, time.Duration(rng.IntN(1000))*time.Millisecond)
		body := fmt.Sprintf("%s/%d", caller, n)
		reply, err := from.Call(callCtx, to, methodEcho, []byte(body))
		cancel()
		// Long enough for a request that is still under way to run.
		time.Sleep(time.Duration(rng.IntN(100)) * time.Millisecond)
		c.judge(body, string(reply), err)
	}
}

// judge compares the verdict of a call with what ran.
func (c *chaos) judge(body, reply string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ran := c.ran[body]
	var remote *mux.RemoteError
	switch {
	case err == nil:
		c.verdicts["ok"]++
		if ran != 1 || reply != body {
			c.t.Errorf("%s succeeded with %q and ran %d times", body, reply, ran)
		}
	case errors.Is(err, mux.ErrNoReply):
		c.verdicts["unknown"]++
		if ran > 1 {
			c.t.Errorf("%s is unknown and ran %d times", body, ran)
		}
	case errors.Is(err, mux.ErrUnreachable), errors.As(err, &remote) && remote.Code == mux.CodeBusy:
		c.verdicts["not sent"]++
		if ran != 0 {
			c.t.Errorf("%s was not sent and ran %d times: %v", body, ran, err)
		}
		// It must not run later either.
		c.ran[body] = 1000
	default:
		c.t.Errorf("%s: unexpected error %v", body, err)
	}
}

// requireAllConnect checks that every node soon reaches every other.
func (c *chaos) requireAllConnect() {
	time.Sleep(10 * time.Second)
	for _, from := range c.nodes {
		for _, to := range c.nodes {
			if from != to {
				body := fmt.Sprintf("%s to %s", from.ID(), to.ID())
				_, err := from.Call(context.Background(), to.ID(), methodEcho, []byte(body))
				require.NoError(c.t, err, body)
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for body, ran := range c.ran {
		require.LessOrEqual(c.t, ran, 1000, "%s ran after it was said not to be sent", body)
	}
}
