package fault

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
)

// ErrUnknownNode means that a link names a node that was not added.
var ErrUnknownNode = errors.New("node is not part of the network")

// Endpoint is how a Network reaches one node.
type Endpoint struct {
	// Front is the IPv4 address that the node advertises, host:port. The Network
	// listens on it.
	Front string
	// Back is the address that the node listens on.
	Back string
}

// Network proxies the connections between nodes. All methods are safe for concurrent
// use.
type Network struct {
	owner func(local, remote *net.TCPAddr, pids map[string]int) (string, error)

	// mu protects the fields below.
	mu     sync.Mutex
	nodes  map[string]*node
	pids   map[string]int
	links  map[Link]*state
	pipes  map[*pipe]struct{}
	closed bool

	wg sync.WaitGroup // accept loops and pipes; Close waits
}

// node is one front.
type node struct {
	name     string
	back     string
	listener *net.TCPListener
}

// NewNetwork returns a Network without nodes. Close must be called.
func NewNetwork() *Network {
	return &Network{
		owner: ownerOf,
		nodes: make(map[string]*node), pids: make(map[string]int),
		links: make(map[Link]*state), pipes: make(map[*pipe]struct{}),
	}
}

// Add listens on the front of a node. Adding a node again moves it: its old front is
// closed, connections that were made through it stay.
func (n *Network) Add(name string, e Endpoint) error {
	addr, err := net.ResolveTCPAddr("tcp4", e.Front)
	if err != nil {
		return fmt.Errorf("front of %s: %w", name, err)
	}
	l, err := net.ListenTCP("tcp4", addr)
	if err != nil {
		return fmt.Errorf("front of %s: %w", name, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		_ = l.Close()
		return net.ErrClosed
	}
	if old := n.nodes[name]; old != nil {
		_ = old.listener.Close()
	}
	nd := &node{name: name, back: e.Back, listener: l}
	n.nodes[name] = nd
	n.wg.Go(func() { n.accept(nd) })
	return nil
}

// SetProcess says which process is a node. Connections of other processes are closed
// at once; pid 0 means none.
func (n *Network) SetProcess(name string, pid int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if pid == 0 {
		delete(n.pids, name)
		return
	}
	n.pids[name] = pid
}

// Set changes how a link behaves from now on.
func (n *Network) Set(l Link, c Conditions) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.nodes[l.From] == nil || n.nodes[l.To] == nil {
		return fmt.Errorf("%s: %w", l, ErrUnknownNode)
	}
	n.linkLocked(l).set(c)
	return nil
}

// Isolate gives every link from and to a node the conditions c.
func (n *Network) Isolate(name string, c Conditions) error {
	for _, other := range n.Nodes() {
		if other == name {
			continue
		}
		l := Link{From: name, To: other}
		if err := errors.Join(n.Set(l, c), n.Set(l.Reverse(), c)); err != nil {
			return err
		}
	}
	return nil
}

// Heal makes every link healthy.
func (n *Network) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.links {
		s.set(Conditions{})
	}
}

// Reset resets the connections that were dialed along a link and returns how many.
func (n *Network) Reset(l Link) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	reset := 0
	for p := range n.pipes {
		if p.link == l {
			p.close(true)
			reset++
		}
	}
	return reset
}

// Nodes lists the nodes by name.
func (n *Network) Nodes() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	names := make([]string, 0, len(n.nodes))
	for name := range n.nodes {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Close ends all connections and waits for every goroutine.
func (n *Network) Close() {
	n.mu.Lock()
	n.closed = true
	for _, nd := range n.nodes {
		_ = nd.listener.Close()
	}
	for p := range n.pipes {
		p.close(true)
	}
	n.mu.Unlock()
	n.wg.Wait()
}

func (n *Network) accept(nd *node) {
	for {
		conn, err := nd.listener.AcceptTCP()
		if err != nil {
			return
		}
		n.wg.Go(func() { n.serve(nd, conn) })
	}
}

// serve joins one accepted connection to its node.
func (n *Network) serve(nd *node, conn *net.TCPConn) {
	p, forth, back := n.open(nd, conn)
	if p == nil {
		// What cannot be dialed is reset, as by a host without that port.
		_ = conn.SetLinger(0)
		_ = conn.Close()
		return
	}
	p.run(forth, back)
	n.mu.Lock()
	delete(n.pipes, p)
	n.mu.Unlock()
}

// open returns nil if the connection cannot be made.
func (n *Network) open(nd *node, conn *net.TCPConn) (p *pipe, forth, back *state) {
	n.mu.Lock()
	pids := make(map[string]int, len(n.pids))
	for name, pid := range n.pids {
		pids[name] = pid
	}
	n.mu.Unlock()
	// The dialer's local end is our remote one.
	from, err := n.owner(conn.RemoteAddr().(*net.TCPAddr), conn.LocalAddr().(*net.TCPAddr), pids)
	if err != nil {
		return nil, nil, nil
	}
	link := Link{From: from, To: nd.name}
	n.mu.Lock()
	forth, back = n.linkLocked(link), n.linkLocked(link.Reverse())
	n.mu.Unlock()
	if c, _ := forth.get(); c.Refuse {
		return nil, nil, nil
	}
	home, err := net.Dial("tcp", nd.back)
	if err != nil {
		return nil, nil, nil
	}
	p = newPipe(link, conn, home.(*net.TCPConn))
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed || n.nodes[nd.name] != nd {
		_ = home.Close()
		return nil, nil, nil
	}
	n.pipes[p] = struct{}{}
	return p, forth, back
}

func (n *Network) linkLocked(l Link) *state {
	s := n.links[l]
	if s == nil {
		s = newState()
		n.links[l] = s
	}
	return s
}
