package harness

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quorate/quorate/e2e/fault"
)

// Config says what a Cluster runs. Only Binary is required.
type Config struct {
	// Binary is the path of the server.
	Binary string
	// Backend is the value of STORAGE_BACKEND; empty is embedded.
	Backend string
	// Secret is the value of JWT_SECRET; empty runs without authentication.
	Secret string
	// Proxied puts the links between nodes behind Cluster.Network.
	Proxied bool
	// Env has further variables, NAME=value.
	Env []string
}

// Cluster is a set of nodes on this machine.
type Cluster struct {
	// Network holds the links between nodes; nil unless Config.Proxied.
	Network *fault.Network
	t       TB
	cfg     Config
	dir     string
	// guests join and leave beside the nodes.
	nodes, guests []*Node
}

// patience bounds waits for what should take seconds at most, on a machine that may
// be very busy.
const patience = 90 * time.Second

// New returns a Cluster without nodes that ends with the test.
func New(t TB, cfg Config) *Cluster {
	t.Helper()
	c := &Cluster{t: t, cfg: cfg, dir: t.TempDir()}
	if cfg.Proxied {
		c.Network = fault.NewNetwork()
	}
	t.Cleanup(c.close)
	return c
}

// Start returns a Cluster of n nodes, n1 to n<n>, that has formed.
func Start(t TB, cfg Config, n int) *Cluster {
	t.Helper()
	c := New(t, cfg)
	for i := range n {
		c.Add(fmt.Sprintf("n%d", i+1))
	}
	for _, node := range c.nodes {
		node.Start()
	}
	c.AwaitFormed()
	return c
}

// Add prepares a node, which is not started. Its seeds are all nodes of the cluster
// at the time it starts.
func (c *Cluster) Add(name string) *Node {
	c.t.Helper()
	n := c.prepare(name)
	c.nodes = append(c.nodes, n)
	return n
}

// AddGuest is Add for a node that only visits the cluster: it is none of Nodes, so that the
// cluster is formed when it does not belong to it.
func (c *Cluster) AddGuest(name string) *Node {
	c.t.Helper()
	n := c.prepare(name)
	c.guests = append(c.guests, n)
	return n
}

func (c *Cluster) prepare(name string) *Node {
	c.t.Helper()
	n := &Node{Name: name, cluster: c, dir: filepath.Join(c.dir, name)}
	n.Readdress()
	return n
}

// Guests are the guests in the order of their adding.
func (c *Cluster) Guests() []*Node { return c.guests }

// Nodes are the nodes in the order of their adding.
func (c *Cluster) Nodes() []*Node { return c.nodes }

// Node returns the node with a name; an unknown one ends the test.
func (c *Cluster) Node(name string) *Node {
	c.t.Helper()
	for _, n := range c.nodes {
		if n.Name == name {
			return n
		}
	}
	c.t.Fatalf("no node %s", name)
	return nil
}

// Running are the nodes whose processes run, paused ones included.
func (c *Cluster) Running() []*Node {
	var list []*Node
	for _, n := range c.nodes {
		if n.Running() {
			list = append(list, n)
		}
	}
	return list
}

// Each calls do for every running node at the same time and waits.
func (c *Cluster) Each(do func(n *Node)) {
	var wg sync.WaitGroup
	for _, n := range c.Running() {
		wg.Go(func() { do(n) })
	}
	wg.Wait()
}

// Level is the strongest level that the backend can honour.
func (c *Cluster) Level() string {
	if c.cfg.Backend == "null" {
		return "REPLICATED"
	}
	return "PERSISTED"
}

// AwaitReady waits until every running node is ready.
func (c *Cluster) AwaitReady() {
	c.t.Helper()
	for _, n := range c.Running() {
		n.AwaitReady()
	}
}

// AwaitFormed waits until the running nodes are ready, in one cluster, every group
// has as many voters as it should, and all nodes agree on its leader.
func (c *Cluster) AwaitFormed() {
	c.t.Helper()
	c.AwaitReady()
	Eventually(c.t, patience, "one formed cluster", c.Formed)
}

// Formed says what is missing of one cluster of the running nodes, in which every group has
// as many voters as it should, all of them running, and one leader on whom all agree.
func (c *Cluster) Formed() error {
	all, err := c.Statuses()
	if err != nil {
		return err
	}
	return formed(all)
}

// replicas is on how many of n nodes a group is, and voters how many of them vote.
func replicas(group uint32, n int) (replicas, voters int) {
	if group > 0 {
		return min(n, 3), min(n, 3)
	}
	voters = n
	if n > 3 {
		voters = min(n-1+n%2, 5)
	}
	return n, voters
}

// dataGroups is the number of groups beside the system group.
const dataGroups = 6

// formed says what is missing of a formed cluster.
func formed(all []*Status) error {
	leaders, held := map[uint32]string{}, map[uint32]int{}
	running := map[string]bool{}
	for _, s := range all {
		running[s.ServerID] = true
	}
	for _, s := range all {
		if s.ClusterID == "" || s.ClusterID != all[0].ClusterID {
			return fmt.Errorf("%s is of cluster %q, %s of %q", s.NodeID, s.ClusterID, all[0].NodeID, all[0].ClusterID)
		}
		for _, g := range s.Groups {
			if held[g.Group]++; held[g.Group] == 1 {
				leaders[g.Group] = g.Leader
			}
			if g.Leader == "" || g.Leader != leaders[g.Group] {
				return fmt.Errorf("%s takes %q for the leader of group %d", s.NodeID, g.Leader, g.Group)
			}
			if _, want := replicas(g.Group, len(all)); len(g.Voters) != want {
				return fmt.Errorf("group %d has %d voters on %s", g.Group, len(g.Voters), s.NodeID)
			}
			for _, voter := range g.Voters {
				if !running[voter] {
					return fmt.Errorf("group %d has the voter %s on %s, which does not run", g.Group, voter, s.NodeID)
				}
			}
		}
	}
	for group := uint32(0); group <= dataGroups; group++ {
		if want, _ := replicas(group, len(all)); held[group] != want {
			return fmt.Errorf("group %d is on %d nodes", group, held[group])
		}
	}
	return nil
}

// Statuses asks every running node for its status.
func (c *Cluster) Statuses() ([]*Status, error) {
	nodes := c.Running()
	all, errs := make([]*Status, len(nodes)), make([]error, len(nodes))
	var wg sync.WaitGroup
	for i, n := range nodes {
		wg.Go(func() { all[i], errs[i] = n.Status() })
	}
	wg.Wait()
	return all, errors.Join(errs...)
}

// AwaitEqual waits until all running nodes have applied the same entries of every
// group. Replicas that differ at an equal index fail the test at once.
func (c *Cluster) AwaitEqual() {
	c.t.Helper()
	c.awaitEqual()
}

// awaitEqual is AwaitEqual, and returns the digests of the groups.
func (c *Cluster) awaitEqual() (digests map[uint32]string) {
	c.t.Helper()
	Eventually(c.t, patience, "equal replicas", func() error {
		all, err := c.Statuses()
		if err != nil {
			return err
		}
		diverged, behind := compareReplicas(all)
		if diverged != nil {
			c.t.Fatalf("%v", diverged)
		}
		digests = map[uint32]string{}
		for _, s := range all {
			for _, g := range s.Groups {
				digests[g.Group] = g.Digest
			}
		}
		return behind
	})
	return digests
}

// Still calls look while all replicas are equal, again until nothing changed meanwhile:
// writes whose clients have given up may still be on their way.
func (c *Cluster) Still(look func()) {
	c.t.Helper()
	before := c.awaitEqual()
	Eventually(c.t, patience, "a cluster that does not change", func() error {
		look()
		was := before
		before = c.awaitEqual()
		if !maps.Equal(was, before) {
			return errors.New("writes were applied meanwhile")
		}
		return nil
	})
}

// Equal compares the replicas of all running nodes. It returns an error in diverged when
// two differ at the same index, and one in behind when they cannot all be compared yet.
func (c *Cluster) Equal() (diverged, behind error) {
	all, err := c.Statuses()
	if err != nil {
		return nil, err
	}
	return compareReplicas(all)
}

// seeds are the advertised addresses of all nodes.
func (c *Cluster) seeds() string {
	var list []string
	for _, n := range c.nodes {
		list = append(list, n.advertised())
	}
	return strings.Join(list, ",")
}

func (c *Cluster) close() {
	for _, n := range slices.Concat(c.nodes, c.guests) {
		n.End()
	}
	if c.Network != nil {
		c.Network.Close()
	}
	if !c.t.Failed() {
		return
	}
	for _, n := range c.nodes {
		c.t.Logf("end of the log of %s:\n%s", n.Name, n.LogTail(25))
	}
}
