package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// cluster is a set of child processes on loopback with directories of their own.
type cluster struct {
	dir   string
	nodes []*childNode
}

type childNode struct {
	id   string
	port int
	cmd  *exec.Cmd
	log  *os.File
}

// url is the WebSocket address of the node.
func (n *childNode) url() string { return fmt.Sprintf("ws://127.0.0.1:%d/ws", n.port) }

// freePorts reserves n ports for a moment and returns them.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// startCluster starts n servers of this executable, with env added to their
// environment, and waits until all of them are
// ready and share the leadership evenly.
func startCluster(ctx context.Context, n int, env ...string) (*cluster, error) {
	dir, err := os.MkdirTemp("", "quorate-bench-")
	if err != nil {
		return nil, fmt.Errorf("directory of the cluster: %w", err)
	}
	c := &cluster{dir: dir}
	if err := c.start(ctx, n, env); err != nil {
		c.stop()
		return nil, err
	}
	return c, nil
}

func (c *cluster) start(ctx context.Context, n int, env []string) error {
	ports, err := freePorts(2 * n)
	if err != nil {
		return err
	}
	var seeds []string
	for i := range n {
		seeds = append(seeds, fmt.Sprintf("127.0.0.1:%d", ports[n+i]))
	}
	for i := range n {
		node := &childNode{id: fmt.Sprintf("n%d", i+1), port: ports[i]}
		args := []string{"--node-id", node.id, "--port", fmt.Sprint(node.port), "--cluster-port", fmt.Sprint(ports[n+i])}
		if n > 1 {
			args = append(args, "--seed-nodes", strings.Join(seeds, ","))
		}
		env := append([]string{"SERVICE_NO_AUTH=1", "RUST_LOG=warn", "SERVICE_STORE_PATH=" + filepath.Join(c.dir, node.id+".db")}, env...)
		if err := c.spawn(node, args, env); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	return c.awaitSpread(ctx)
}

// spawn starts one child process whose output goes to a file.
func (c *cluster) spawn(node *childNode, args, env []string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this executable: %w", err)
	}
	node.log, err = os.Create(filepath.Join(c.dir, node.id+".log"))
	if err != nil {
		return fmt.Errorf("log of %s: %w", node.id, err)
	}
	node.cmd = exec.Command(self, args...)
	node.cmd.Dir = c.dir
	node.cmd.Env = append(os.Environ(), env...)
	node.cmd.Stdout, node.cmd.Stderr = node.log, node.log
	node.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := node.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", node.id, err)
	}
	c.nodes = append(c.nodes, node)
	return nil
}

// awaitSpread waits until every node is ready and owns partitions.
func (c *cluster) awaitSpread(ctx context.Context) error {
	for {
		if c.ready(ctx) && c.spread(ctx) {
			return nil
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("cluster did not become ready: %w\n%s", ctx.Err(), c.tails())
		}
	}
}

func (c *cluster) ready(ctx context.Context) bool {
	for _, n := range c.nodes {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/health/ready", n.port), nil)
		if err != nil {
			return false
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return false
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return false
		}
	}
	return true
}

func (c *cluster) spread(ctx context.Context) bool {
	probe, err := dial(ctx, &Options{ValueBytes: 1}, 0, c.nodes[0].url())
	if err != nil {
		return false
	}
	defer probe.close()
	owners, err := probe.owners(ctx)
	if err != nil || len(owners) != len(c.nodes) {
		return false
	}
	for _, count := range owners {
		// Six groups of 271 partitions hold 45 or 46 each.
		if count > (6/len(c.nodes)+1)*46 {
			return false
		}
	}
	return true
}

// tails are the last lines that each node wrote.
func (c *cluster) tails() string {
	var b strings.Builder
	for _, n := range c.nodes {
		f, err := os.Open(n.log.Name())
		if err != nil {
			continue
		}
		var last []string
		for s := bufio.NewScanner(f); s.Scan(); {
			last = append(last, s.Text())
			last = last[max(0, len(last)-10):]
		}
		_ = f.Close()
		fmt.Fprintf(&b, "%s:\n  %s\n", n.id, strings.Join(last, "\n  "))
	}
	return b.String()
}

// stop ends the nodes and removes their files.
func (c *cluster) stop() {
	c.halt()
	_ = os.RemoveAll(c.dir)
}

// halt ends the nodes.
func (c *cluster) halt() {
	for _, n := range c.nodes {
		_ = n.cmd.Process.Signal(syscall.SIGTERM)
	}
	for _, n := range c.nodes {
		kill := time.AfterFunc(10*time.Second, func() { _ = n.cmd.Process.Kill() })
		_ = n.cmd.Wait() // how a node ends is of no interest any more
		kill.Stop()
		_ = n.log.Close()
	}
	c.nodes = nil
}

// errChild is wrapped when a child process ended by itself.
var errChild = errors.New("node ended")
