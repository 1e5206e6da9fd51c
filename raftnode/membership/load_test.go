package membership

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/raftnode"
	"github.com/quorate/quorate/raftnode/mux/memnet"
)

// TestMembersComeAndGoUnderFaults changes the cluster at random while it is written:
// nodes join, leave, lose their disks, are killed and cut off, one after the other.
func TestMembersComeAndGoUnderFaults(t *testing.T) {
	randomised(t, func(t *testing.T, seed uint64) {
		three(t, seed, func(t *testing.T, c *cluster) {
			load := c.startWriting()
			for step := range 10 {
				n := c.nodes[c.rng.IntN(len(c.nodes))]
				switch c.rng.IntN(5) {
				case 0:
					if len(c.nodes) < 6 {
						c.add(fmt.Sprintf("x%d", step)).start()
					}
				case 1:
					if len(c.nodes) > 3 {
						c.must(n.agent.Leave(context.Background()))
						n.kill()
						c.nodes = slices.DeleteFunc(c.nodes, func(o *node) bool { return o == n })
					}
				case 2:
					n.kill()
					n.wipe()
					// The first seeds may all have left by now.
					n.seeds = nil
					for _, o := range c.nodes {
						n.seeds = append(n.seeds, o.addr)
					}
					n.start()
				case 3:
					n.kill()
					time.Sleep(time.Duration(c.rng.IntN(15000)) * time.Millisecond)
					n.start()
				case 4:
					c.net.Isolate(memnet.Blackhole, n.machine())
					time.Sleep(time.Duration(c.rng.IntN(15000)) * time.Millisecond)
					c.net.Heal()
				}
				c.formed(90 * time.Second)
			}
			load.stopAndCheck()
		})
	})
}

// writing is a load of one write at a time to all data groups in turn.
type writing struct {
	c     *cluster
	stop  chan struct{}
	done  chan struct{}
	acked map[uint32][]string
}

func (c *cluster) startWriting() *writing {
	w := &writing{c: c, stop: make(chan struct{}), done: make(chan struct{}), acked: map[uint32][]string{}}
	c.load = w
	go func() {
		defer close(w.done)
		for i := 0; ; i++ {
			select {
			case <-w.stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
			group, key := uint32(i%testGroups)+1, fmt.Sprintf("k%d", i)
			if c.write(group, key) {
				w.acked[group] = append(w.acked[group], key)
			}
		}
	}()
	return w
}

// halt ends the load, once.
func (w *writing) halt() {
	if w == nil {
		return
	}
	select {
	case <-w.stop:
	default:
		close(w.stop)
	}
	<-w.done
}

// stopAndCheck ends the load and looks for every committed write on every replica.
func (w *writing) stopAndCheck() {
	t := w.c.t
	t.Helper()
	w.halt()
	if len(w.acked) != testGroups {
		t.Fatalf("writes were committed in %d groups only", len(w.acked))
	}
	for group, keys := range w.acked {
		for _, n := range w.c.up() {
			w.c.eventually(10*time.Second, fmt.Sprintf("%d writes of group %d on %s", len(keys), group, n.name), func() bool {
				g, held := n.host.Group(group)
				return !held || holdsAll(g, keys)
			})
		}
	}
}

// holdsAll reports whether a replica has a record for every key.
func holdsAll(g *raftnode.Group, keys []string) bool {
	reader := g.Machine().(interface {
		Scan(mapName, from string, fn func(key string, rec protocol.Record) bool) (uint64, error)
	})
	have := map[string]bool{}
	_, err := reader.Scan("m", "", func(key string, _ protocol.Record) bool { have[key] = true; return true })
	return err == nil && !slices.ContainsFunc(keys, func(key string) bool { return !have[key] })
}
