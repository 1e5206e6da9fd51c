package membership
import ("testing";"time";"fmt";"math/rand/v2";"github.com/quorate/quorate/raftnode/mux/memnet")
func TestZZIdle(t *testing.T) {
	c := &cluster{t: t, net: memnet.New(1), rng: rand.New(rand.NewPCG(1, 3))}
	for i := range 3 { c.seeds = append(c.seeds, fmt.Sprintf("n%d:7000", i+1)); c.add(fmt.Sprintf("n%d", i+1)) }
	c.tweak = func(cfg *Config) { cfg.Groups = 6 }
	for _, n := range c.nodes { n.start() }
	time.Sleep(30 * time.Second)
	for _, n := range c.nodes { n.kill() }
}
