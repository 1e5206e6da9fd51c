package raftnode

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/raftnode/logstore"
	"github.com/quorate/quorate/raftnode/mux/memnet"
)

var chaosFlag = flag.Int("chaos", 4, "number of random histories")

// chaos is a random history of writes and faults.
type chaos struct {
	*cluster
	rng *rand.Rand

	mu    sync.Mutex // protects the fields below
	acked map[string]string
	// alive are the nodes whose group runs.
	alive map[*node]bool
	// leaders is who was seen leading each term.
	leaders map[uint64]ServerID
	unknown int
}

// TestNothingAcknowledgedIsLostUnderRandomFaults also checks that no term has two
// leaders and that all replicas end up equal.
func TestNothingAcknowledgedIsLostUnderRandomFaults(t *testing.T) {
	seed := testSeed(t)
	for i := range *chaosFlag {
		seed := seed + uint64(i)
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			simulate(t, 3, seed, func(t *testing.T, cl *cluster) {
				c := &chaos{
					cluster: cl, rng: rand.New(rand.NewPCG(seed, 1)),
					acked: make(map[string]string), alive: make(map[*node]bool), leaders: make(map[uint64]ServerID),
				}
				c.cfg.TrailingLogs = 40
				c.cfg.SnapshotThreshold = 60
				c.cfg.SnapshotInterval = 2 * time.Second
				c.run(60 * time.Second)
			})
		})
	}
}

func (c *chaos) run(length time.Duration) {
	c.startAll()
	c.leader()
	for _, n := range c.nodes {
		c.alive[n] = true
	}
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for id := range 4 {
		rng := rand.New(rand.NewPCG(c.rng.Uint64(), 2))
		clients.Go(func() { c.client(id, rng, stop) })
	}
	for end := time.Now().Add(length); time.Now().Before(end); {
		c.fault()
		time.Sleep(time.Duration(c.rng.IntN(2000)) * time.Millisecond)
	}
	close(stop)
	clients.Wait()
	c.heal()
	c.leader().mustWrite("last", "v")
	c.converge()
	c.check()
	c.t.Logf("%d acknowledged, %d unknown, %d terms", len(c.acked), c.unknown, len(c.leaders))
	if len(c.acked) < 100 {
		c.t.Error("the faults left no room for writes")
	}
}

// client writes one record after the other to whoever leads.
func (c *chaos) client(id int, rng *rand.Rand, stop chan struct{}) {
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(rng.IntN(40)) * time.Millisecond):
		}
		key, text := fmt.Sprintf("c%d-%d", id, i), fmt.Sprint(rng.IntN(1000))
		group := c.target(rng)
		if group == nil {
			continue
		}
		p, err := group.Propose([]Command{put(key, text)})
		if err != nil {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		_, err = p.Wait(ctx)
		cancel()
		c.mu.Lock()
		switch {
		case err == nil:
			c.acked[key] = text
		case errors.Is(err, ErrUnknown):
			c.unknown++
		}
		c.mu.Unlock()
	}
}

// target is the group on a random live node, and notes who leads there.
func (c *chaos) target(rng *rand.Rand) *Group {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.nodes[rng.IntN(len(c.nodes))]
	if !c.alive[n] {
		return nil
	}
	g, ok := n.host.Group(testGroup)
	if !ok {
		return nil
	}
	if id, term := g.Leader(); id != "" {
		if before, known := c.leaders[term]; known && before != id {
			c.t.Errorf("term %d has leaders %s and %s", term, before, id)
		}
		c.leaders[term] = id
	}
	return g
}

// fault does one random thing to the cluster, or mends it.
func (c *chaos) fault() {
	n := c.nodes[c.rng.IntN(len(c.nodes))]
	other := c.nodes[c.rng.IntN(len(c.nodes))]
	how := []memnet.Cut{memnet.Blackhole, memnet.Reset}[c.rng.IntN(2)]
	switch c.rng.IntN(12) {
	case 0:
		c.net.Isolate(how, n.name)
	case 1:
		c.net.Cut(how, n.name, other.name)
	case 2:
		c.net.SetLinks(memnet.Link{Latency: time.Millisecond, Jitter: 20 * time.Millisecond, ResetRate: 0.01})
	case 3:
		c.down(n)
	case 4:
		for _, n := range c.nodes {
			c.down(n)
		}
	case 5:
		if n.running {
			release := n.fs.StallSync()
			time.AfterFunc(time.Duration(c.rng.IntN(8000))*time.Millisecond, release)
		}
	case 6:
		if n.running {
			n.fs.FailNext(logstore.OpSync, errors.New("injected"))
		}
	case 7:
		if n.running {
			// The refusals are as good as the success.
			_ = n.group().TransferLeadership(context.Background(), other.id)
		}
	case 8:
		if n.running {
			n.group().instance().replace("test")
		}
	default:
		c.heal()
	}
}

// down kills a node; target must not look at it meanwhile.
func (c *chaos) down(n *node) {
	c.mu.Lock()
	delete(c.alive, n)
	c.mu.Unlock()
	if n.running {
		n.running = false
		n.fs.CrashTorn(c.rng.Uint64())
		c.net.CrashHost(n.name)
		n.tearDown()
	}
}

// heal mends the network and brings all nodes back, also those that gave up.
func (c *chaos) heal() {
	c.net.Heal()
	c.net.SetLinks(memnet.Link{Latency: 200 * time.Microsecond, Jitter: 300 * time.Microsecond})
	for _, n := range c.nodes {
		n.fs.FailNext(logstore.OpSync, nil)
		if n.running && len(n.fatal) > 0 {
			if err := <-n.fatal; !errors.Is(err, logstore.ErrFailed) {
				c.t.Errorf("%s gave up: %v", n.name, err)
			}
			c.down(n)
		}
		if !n.running {
			n.restart()
			c.mu.Lock()
			c.alive[n] = true
			c.mu.Unlock()
		}
	}
}

func (c *chaos) check() {
	for _, n := range c.nodes {
		for key, text := range c.acked {
			if got := n.read(key); got != text {
				c.t.Errorf("%s has %q under %s, acknowledged was %q", n.name, got, key, text)
			}
		}
	}
	c.noFatal()
}
