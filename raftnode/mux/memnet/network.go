package memnet

import (
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Network connects hosts. Create one with New.
type Network struct {
	mu sync.Mutex // protects everything below, and the state of all hosts, listeners and connections

	rng      *rand.Rand
	hosts    map[string]*Host
	defaults Link
	links    map[route]*link
	conns    map[uint64]*conn // open connections, each end on its own
	lastConn uint64
}

// New returns a network of perfect links. All randomness comes from seed; with
// several goroutines writing at once, their order decides who gets which number.
func New(seed uint64) *Network {
	return &Network{
		rng:   rand.New(rand.NewPCG(seed, 0)),
		hosts: make(map[string]*Host),
		links: make(map[route]*link),
		conns: make(map[uint64]*conn),
	}
}

// Host returns the view of the named host and creates it if need be. Hosts are
// addressed as name:port.
func (n *Network) Host(name string) *Host {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.hosts[name]
	if h == nil {
		h = &Host{net: n, name: name, nextPort: firstPort, listeners: make(map[int]*listener)}
		n.hosts[name] = h
	}
	return h
}

// SetLink changes one direction. Bytes already under way keep their arrival time.
func (n *Network) SetLink(from, to string, settings Link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.linkLocked(route{from, to}).settings = settings
}

// SetLinks changes all links between different hosts, also those still to come.
// A host's link to itself stays as it is.
func (n *Network) SetLinks(settings Link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.defaults = settings
	for r, l := range n.links {
		if r.from != r.to {
			l.settings = settings
		}
	}
}

// Cut cuts the direction from one host to another. A cut in place is replaced.
func (n *Network) Cut(how Cut, from, to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cutLocked(how, route{from, to})
}

// CutBoth cuts both directions between two hosts.
func (n *Network) CutBoth(how Cut, a, b string) {
	n.Split(how, []string{a}, []string{b})
}

// Split cuts both directions between every host of one side and every host of the
// other.
func (n *Network) Split(how Cut, side, other []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range side {
		for _, b := range other {
			n.cutLocked(how, route{a, b})
			n.cutLocked(how, route{b, a})
		}
	}
}

// Isolate cuts a host off from all other hosts that exist now.
func (n *Network) Isolate(how Cut, host string) {
	n.mu.Lock()
	others := slices.DeleteFunc(slices.Sorted(maps.Keys(n.hosts)), func(h string) bool { return h == host })
	n.mu.Unlock()
	n.Split(how, []string{host}, others)
}

// HealLink ends the cut of one direction. Stalled bytes arrive now.
func (n *Network) HealLink(from, to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.linkLocked(route{from, to})
	l.heal()
	for _, c := range n.openLocked() {
		if c.uses(l) {
			c.wakeLocked()
		}
	}
}

// Heal ends all cuts. Settings of links stay.
func (n *Network) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.links {
		l.heal()
	}
	for _, c := range n.openLocked() {
		c.wakeLocked()
	}
}

// ResetConns resets each open connection with probability p and returns how many.
func (n *Network) ResetConns(p float64) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	reset := 0
	for _, c := range n.openLocked() {
		// One draw a connection, not one an end.
		if c.dialed && n.rng.Float64() < p {
			c.resetLocked()
			c.peer.resetLocked()
			reset++
		}
	}
	return reset
}

// CrashHost stops everything on a host as the death of its processes does: its
// listeners are gone, its own ends of connections fail at once, the other ends are
// reset as soon as the links let them know. The host can be used again at once.
func (n *Network) CrashHost(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.hosts[name]
	if h == nil {
		return
	}
	for _, l := range h.listeners {
		l.closeLocked()
	}
	for _, c := range n.openLocked() {
		if c.local.host == name {
			c.resetLocked()
			c.out.resetAt = time.Now()
			c.out.wakeLocked()
		}
	}
}

func (n *Network) linkLocked(r route) *link {
	l := n.links[r]
	if l == nil {
		l = &link{}
		if r.from != r.to {
			l.settings = n.defaults
		}
		n.links[r] = l
	}
	return l
}

func (n *Network) cutLocked(how Cut, r route) {
	l := n.linkLocked(r)
	if l.cut == 0 {
		l.cutAt = time.Now()
		l.healed = make(chan struct{})
	}
	l.cut = how
	if how != Reset {
		return
	}
	for _, c := range n.openLocked() {
		if c.uses(l) {
			c.resetLocked()
		}
	}
}

// openLocked returns the open connections in the order in which they were made, so
// that a seed means the same in every run.
func (n *Network) openLocked() []*conn {
	open := make([]*conn, 0, len(n.conns))
	for _, id := range slices.Sorted(maps.Keys(n.conns)) {
		open = append(open, n.conns[id])
	}
	return open
}
