package quorate_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quorate/quorate"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/fsm/storage/memory"
	"github.com/quorate/quorate/raftnode"
	"github.com/quorate/quorate/raftnode/logstore"
	"github.com/quorate/quorate/raftnode/mux/memnet"
)

// rottingStore is a store in which the states of groups can be damaged.
type rottingStore struct {
	storage.Store

	mu     sync.Mutex // protects the fields below
	rotten map[uint32]bool
	aside  map[uint32]int
}

func newRottingStore() *rottingStore {
	return &rottingStore{Store: memory.New(memory.Config{Durable: true}), rotten: map[uint32]bool{}, aside: map[uint32]int{}}
}

func (s *rottingStore) Quarantine(group uint32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.aside[group]++
	return nil
}

func (s *rottingStore) Quarantined() (map[uint32]int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.aside), nil
}

func (s *rottingStore) rot(groups ...uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range groups {
		s.rotten[g] = true
	}
}

func (s *rottingStore) check(group uint32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rotten[group] {
		return fmt.Errorf("rotten: %w", storage.ErrCorrupt)
	}
	return nil
}

func (s *rottingStore) NewReader() (storage.Reader, error) {
	r, err := s.Store.NewReader()
	return rottingReader{r, s}, err
}

func (s *rottingStore) Replace(group uint32) (storage.Replacer, error) {
	r, err := s.Store.Replace(group)
	return rottingReplacer{r, s, group}, err
}

type rottingReader struct {
	storage.Reader
	store *rottingStore
}

func (r rottingReader) Get(group uint32, key storage.Key) ([]byte, error) {
	if err := r.store.check(group); err != nil {
		return nil, err
	}
	return r.Reader.Get(group, key)
}

func (r rottingReader) Scan(group uint32, section storage.Section, prefix, from string, fn func(string, []byte) bool) error {
	if err := r.store.check(group); err != nil {
		return err
	}
	return r.Reader.Scan(group, section, prefix, from, fn)
}

type rottingReplacer struct {
	storage.Replacer
	store *rottingStore
	group uint32
}

func (r rottingReplacer) Commit(mark storage.Mark) error {
	err := r.Replacer.Commit(mark)
	if err == nil {
		r.store.mu.Lock()
		defer r.store.mu.Unlock()
		delete(r.store.rotten, r.group)
	}
	return err
}

// unclosedStore keeps a store in memory open across lives of a node.
type unclosedStore struct{ *rottingStore }

func (unclosedStore) Close() error { return nil }

// startRotting starts a node on a store and a log that exist already.
func startRotting(t *testing.T, network *memnet.Network, id string, store *rottingStore, disk *logstore.MemFS, seeds ...string) *simNode {
	t.Helper()
	cfg := quorate.DefaultNodeConfig(id)
	cfg.Mux.ListenAddr, cfg.Mux.Advertise = id+":7000", id
	cfg.Membership.Seeds = seeds
	n := &simNode{disk: disk, ran: make(chan error, 1)}
	var err error
	n.Node, err = quorate.OpenNode(cfg, quorate.NodeDeps{
		Logger: hclog.NewNullLogger(), Network: network.Host(id), LogFS: disk, Store: unclosedStore{store},
		Physical: func() int64 { return time.Now().UnixMilli() },
	})
	if err != nil {
		t.Fatal(err)
	}
	var ctx context.Context
	ctx, n.stop = context.WithCancel(t.Context())
	go func() { n.ran <- n.Run(ctx) }()
	return n
}

// allGroups are the system group and the data groups of a cluster.
var allGroups = []uint32{0, 1, 2, 3, 4, 5, 6}

// rottingCluster is three nodes with some records.
type rottingCluster struct {
	network *memnet.Network
	nodes   [3]*simNode
	stores  [3]*rottingStore
}

func startRottingCluster(t *testing.T) *rottingCluster {
	t.Helper()
	c := &rottingCluster{network: memnet.New(1)}
	for i := range c.nodes {
		c.stores[i] = newRottingStore()
		c.nodes[i] = startRotting(t, c.network, fmt.Sprint("n", i+1), c.stores[i], logstore.NewMemFS(), "n1:7000", "n2:7000", "n3:7000")
	}
	for _, n := range c.nodes {
		n.awaitCaughtUp(t)
	}
	c.write(t, c.nodes[0], "first")
	c.awaitEqual(t)
	return c
}

func (c *rottingCluster) end(t *testing.T) {
	t.Helper()
	for _, n := range c.nodes {
		if err := n.end(t); err != nil {
			t.Error(err)
		}
	}
	for _, s := range c.stores {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// write has records in every group.
func (c *rottingCluster) write(t *testing.T, n *simNode, prefix string) {
	t.Helper()
	for i := range 40 {
		if v, err := n.write(t.Context(), fmt.Sprint(prefix, i)); err != nil || v.Refused() {
			t.Fatalf("write: %+v, %v", v, err)
		}
	}
}

// awaitEqual waits until all nodes hold all groups with equal states.
func (c *rottingCluster) awaitEqual(t *testing.T) {
	t.Helper()
	var why string
	for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if why = c.unequal(t); why == "" {
			return
		}
	}
	t.Fatal(why)
}

func (c *rottingCluster) unequal(t *testing.T) string {
	t.Helper()
	first := c.nodes[0].Status().Groups
	for _, n := range c.nodes {
		s := n.Status()
		if !n.CaughtUp() || len(s.Groups) != len(allGroups) {
			return fmt.Sprintf("%s is not ready: %+v", s.NodeID, s.Groups)
		}
		for i, g := range s.Groups {
			if g.Damage != "" || g.DigestIndex != first[i].DigestIndex {
				return fmt.Sprintf("group %d of %s: %+v", g.Group, s.NodeID, g)
			}
			if g.Digest != first[i].Digest {
				t.Fatalf("group %d of %s differs", g.Group, s.NodeID)
			}
		}
	}
	return ""
}

func TestAScrubFindsDamageAndPeersReplaceIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startRottingCluster(t)
		defer c.end(t)
		if s, err := c.nodes[1].Scrub(t.Context()); err != nil || len(s.Damage) > 0 || s.Bytes == 0 {
			t.Fatalf("scrub of an undamaged node: %+v, %v", s, err)
		}
		c.stores[1].rot(allGroups...)
		s, err := c.nodes[1].Scrub(t.Context())
		if err != nil || len(s.Damage) != len(allGroups) {
			t.Fatalf("scrub of a damaged node: %+v, %v", s, err)
		}
		c.awaitEqual(t)
		c.write(t, c.nodes[1], "second")
		c.awaitEqual(t)
		if s, err := c.nodes[1].Scrub(t.Context()); err != nil || len(s.Damage) > 0 {
			t.Errorf("scrub of a repaired node: %+v, %v", s, err)
		}
	})
}

// TestAGroupIsReplacedThreeTimes holds that what is set aside does not grow without end,
// and that the state of such a group says why it is left alone, also after a restart.
func TestAGroupIsReplacedThreeTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startRottingCluster(t)
		defer c.end(t)
		const group = 2
		for i := range 3 {
			c.stores[1].rot(group)
			if _, err := c.nodes[1].Scrub(t.Context()); err != nil {
				t.Fatal(err)
			}
			await(t, "the damage to be seen", func() bool { return c.nodes[1].Status().Groups[group].SetAside == i+1 })
			c.awaitEqual(t)
		}
		c.stores[1].rot(group)
		if _, err := c.nodes[1].Scrub(t.Context()); err != nil {
			t.Fatal(err)
		}
		left := func() bool {
			g := c.nodes[1].Status().Groups[group]
			return g.Role == "damaged" && g.SetAside == 4 && strings.Contains(g.Damage, "rotten") && strings.Contains(g.Damage, "set aside")
		}
		await(t, "the group to be left alone", left)
		time.Sleep(time.Hour)
		if !left() {
			t.Errorf("%+v", c.nodes[1].Status().Groups[group])
		}
		c.write(t, c.nodes[1], "without a replica here")
		if err := c.nodes[1].end(t); err != nil {
			t.Fatal(err)
		}
		c.nodes[1] = startRotting(t, c.network, "n2", c.stores[1], c.nodes[1].disk, "n1:7000", "n2:7000", "n3:7000")
		await(t, "the group to be left alone after a restart", func() bool {
			groups := c.nodes[1].Status().Groups
			return len(groups) == len(allGroups) && groups[group].Role == "damaged" && groups[group].SetAside >= 4
		})
	})
}

// TestDamageThatIsMetIsRepaired meets it where entries are applied.
func TestDamageThatIsMetIsRepaired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startRottingCluster(t)
		defer c.end(t)
		for i, n := range c.nodes {
			c.stores[i].rot(allGroups[1:]...)
			c.write(t, c.nodes[(i+1)%3], fmt.Sprint("while n", i+1, " is damaged "))
			c.awaitEqual(t)
			n.awaitCaughtUp(t)
		}
	})
}

func TestANodeWithDamageStartsAndIsRepaired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startRottingCluster(t)
		defer c.end(t)
		if err := c.nodes[2].end(t); err != nil {
			t.Fatal(err)
		}
		c.write(t, c.nodes[0], "meanwhile")
		// The others go on in terms that the damaged node has not heard of.
		if err := c.nodes[0].end(t); err != nil {
			t.Fatal(err)
		}
		c.nodes[0] = startRotting(t, c.network, "n1", c.stores[0], c.nodes[0].disk, "n1:7000", "n2:7000", "n3:7000")
		c.nodes[0].awaitCaughtUp(t)
		c.write(t, c.nodes[0], "in new terms")
		c.stores[2].rot(allGroups...)
		c.nodes[2] = startRotting(t, c.network, "n3", c.stores[2], c.nodes[2].disk, "n1:7000", "n2:7000", "n3:7000")
		c.awaitEqual(t)
	})
}

// TestALoneNodeRefusesWhatIsDamaged holds that nothing is made up where nobody else has
// the data, and that the rest is served.
func TestALoneNodeRefusesWhatIsDamaged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newRottingStore()
		n := startRotting(t, memnet.New(1), "n1", store, logstore.NewMemFS())
		defer func() {
			if err := n.end(t); err != nil {
				t.Error(err)
			}
		}()
		n.awaitCaughtUp(t)
		store.rot(3)
		if s, err := n.Scrub(t.Context()); err != nil || len(s.Damage) != 1 {
			t.Fatalf("%+v, %v", s, err)
		}
		for deadline := time.Now().Add(time.Minute); n.CaughtUp(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the node says that it can serve everything")
			}
		}
		served, refused := 0, 0
		for i := range 60 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := n.write(ctx, fmt.Sprint(i)); err != nil {
				refused++
			} else {
				served++
			}
			cancel()
		}
		if served == 0 || refused == 0 {
			t.Errorf("%d writes served, %d refused", served, refused)
		}
		for _, g := range n.Status().Groups {
			if (g.Damage != "") != (g.Group == 3) || (g.Role == "damaged") != (g.Group == 3) {
				t.Errorf("%+v", g)
			}
		}
	})
}

func TestALogFromAnEarlierLifeIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, disk := newRottingStore(), logstore.NewMemFS()
		for range 2 {
			n := startRotting(t, memnet.New(1), "n1", store, disk)
			n.awaitCaughtUp(t)
			if err := n.end(t); err != nil {
				t.Fatal(err)
			}
		}
		cfg := quorate.DefaultNodeConfig("n1")
		cfg.Mux.ListenAddr, cfg.Mux.Advertise = "n1:7000", "n1"
		_, err := quorate.OpenNode(cfg, quorate.NodeDeps{
			Logger: hclog.NewNullLogger(), Network: memnet.New(1).Host("n1"), LogFS: logstore.NewMemFS(), Store: store,
			Physical: func() int64 { return time.Now().UnixMilli() },
		})
		if !errors.Is(err, raftnode.ErrStaleLog) {
			t.Errorf("a node whose log was removed: %v, want ErrStaleLog", err)
		}
	})
}

// TestAScrubMendsTheLog damages the files of a log under a running node and starts it
// again on them.
func TestAScrubMendsTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startRottingCluster(t)
		defer c.end(t)
		victim := c.nodes[1]
		flipInLog(t, victim.disk)
		s, err := victim.Scrub(t.Context())
		if err != nil || len(s.Damage) != 1 || !strings.HasPrefix(s.Damage[0], "log: ") || victim.Status().LogDamage != "" {
			t.Fatalf("scrub of a damaged log: %+v, %v, status %q", s, err, victim.Status().LogDamage)
		}
		if s, err := victim.Scrub(t.Context()); err != nil || len(s.Damage) > 0 {
			t.Fatalf("scrub of a mended log: %+v, %v", s, err)
		}
		c.write(t, c.nodes[0], "second")
		if err := victim.end(t); err != nil {
			t.Fatal(err)
		}
		c.nodes[1] = startRotting(t, c.network, "n2", c.stores[1], victim.disk, "n1:7000", "n2:7000", "n3:7000")
		c.awaitEqual(t)
		c.write(t, c.nodes[1], "third")
		c.awaitEqual(t)
	})
}

// flipInLog flips a bit in the checkpoint of the log's first file.
func flipInLog(t *testing.T, disk *logstore.MemFS) {
	t.Helper()
	names, err := disk.List("wal")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !strings.HasSuffix(name, ".wal") {
			continue
		}
		f, err := disk.Open("wal/" + name)
		if err != nil {
			t.Fatal(err)
		}
		var b [1]byte
		if _, err := f.ReadAt(b[:], 40); err != nil {
			t.Fatal(err)
		}
		b[0] ^= 1
		if _, err := f.WriteAt(b[:], 40); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
