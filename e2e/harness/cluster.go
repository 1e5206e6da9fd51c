package harness

import (
	"errors"
	"fmt"
	"path/filepath"
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
	nodes   []*Node
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
	n := &Node{Name: name, cluster: c, dir: filepath.Join(c.dir, name)}
	c.nodes = append(c.nodes, n)
	n.Readdress()
	return n
}

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
	Eventually(c.t, patience, "one formed cluster", func() error {
		all, err := c.Statuses()
		if err != nil {
			return err
		}
		return formed(all)
	})
}

// formed says what is missing of a formed cluster of three nodes at most.
func formed(all []*Status) error {
	for _, s := range all {
		if s.ClusterID == "" || s.ClusterID != all[0].ClusterID {
			return fmt.Errorf("%s is of cluster %q, %s of %q", s.NodeID, s.ClusterID, all[0].NodeID, all[0].ClusterID)
		}
		if len(s.Groups) == 0 {
			return fmt.Errorf("%s has no groups", s.NodeID)
		}
		for i, g := range s.Groups {
			if i >= len(all[0].Groups) || g.Leader == "" || g.Leader != all[0].Groups[i].Leader {
				return fmt.Errorf("%s takes %q for the leader of group %d", s.NodeID, g.Leader, g.Group)
			}
			if want := min(len(all), 3); len(g.Voters) != want {
				return fmt.Errorf("group %d has %d voters on %s", g.Group, len(g.Voters), s.NodeID)
			}
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
	Eventually(c.t, patience, "equal replicas", func() error {
		all, err := c.Statuses()
		if err != nil {
			return err
		}
		diverged, behind := compareReplicas(all)
		if diverged != nil {
			c.t.Fatalf("%v", diverged)
		}
		return behind
	})
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
	for _, n := range c.nodes {
		n.end()
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
