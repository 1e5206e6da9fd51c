package raftnode

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/fsm/storage/memory"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/raftnode/mux/memnet"
)

// shortLogs makes snapshots necessary for whoever lags a little.
func shortLogs(cfg *Config) {
	cfg.TrailingLogs = 4
	cfg.SnapshotInterval = time.Hour // tests take snapshots themselves
}

func TestFarBehindFollowerGetsASnapshot(t *testing.T) {
	for _, spooled := range []string{"memory", "files"} {
		t.Run(spooled, func(t *testing.T) {
			dir := ""
			if spooled == "files" {
				dir = t.TempDir()
			}
			simulate(t, 3, testSeed(t), func(t *testing.T, c *cluster) {
				shortLogs(&c.cfg)
				c.cfg.DataDir = dir
				c.startAll()
				leader := c.leader()
				leader.fill("early", 10)
				behind := c.others(leader)[0]
				behind.kill()
				leader.fill("late", 100)
				c.must(leader.group().Snapshot(context.Background()))
				if first := leader.group().Status().FirstLog; first < 90 {
					t.Fatalf("log begins at %d", first)
				}
				behind.restart()
				c.converge()
				if behind.read("late-50") != "late" || behind.group().counters.installed.Load() != 1 {
					t.Error("the follower got no snapshot")
				}
				// It goes on from there, also after another power loss.
				behind.kill()
				leader.mustWrite("k", "v")
				behind.restart()
				c.converge()
				c.noFatal()
				if left, _ := filepath.Glob(filepath.Join(dir, "*.snapshot")); dir != "" && len(left) > 0 {
					t.Errorf("left behind: %v", left)
				}
			})
		})
	}
}

func TestEmptyNodeGetsASnapshot(t *testing.T) {
	simulate(t, 3, testSeed(t), func(t *testing.T, c *cluster) {
		ctx := context.Background()
		shortLogs(&c.cfg)
		c.startAll()
		leader := c.leader()
		last := leader.fill("k", 100)
		c.must(leader.group().Snapshot(ctx))
		n := c.addNode("n4")
		n.boot()
		n.startGroup(nil)
		for _, other := range c.nodes {
			other.mux.SetPeerAddr(n.id, n.addr)
		}
		c.must(leader.group().AddNonvoter(ctx, n.id))
		c.must(n.group().WaitApplied(ctx, last))
		c.converge()
		if n.read("k-99") != "k" {
			t.Error("the new node lacks data")
		}
		if s := n.group().Status(); len(s.Voters) != 3 || len(s.Nonvoters) != 1 {
			t.Errorf("the new node sees members %v, %v", s.Voters, s.Nonvoters)
		}
		c.noFatal()
	})
}

func TestRestartBeginsAtTheFlushedIndexOfATruncatedLog(t *testing.T) {
	simulate(t, 1, testSeed(t), func(t *testing.T, c *cluster) {
		shortLogs(&c.cfg)
		c.startAll()
		n := c.leader()
		n.fill("flushed", 50)
		c.must(n.group().Snapshot(context.Background()))
		n.fill("tail", 7)
		before := n.group().Status()
		_, digest := n.machine().Digest()
		n.kill()
		n.restart()
		status := n.group().Status()
		if status.FirstLog != before.FirstLog || status.FirstLog < 40 {
			t.Errorf("log begins at %d, before at %d", status.FirstLog, before.FirstLog)
		}
		c.leader()
		c.converge()
		if _, now := n.machine().Digest(); now != digest {
			t.Error("another state than before")
		}
		c.noFatal()
	})
}

// What is known to be committed can be read before a leader is elected.
func TestRestartedReplicaShowsCommittedEntriesAtOnce(t *testing.T) {
	simulate(t, 3, testSeed(t), func(t *testing.T, c *cluster) {
		c.startAll()
		c.leader().fill("k", 20)
		c.converge()
		for _, n := range c.nodes {
			n.kill()
		}
		n := c.nodes[0]
		n.restart()
		// A commit is written with a later entry, so the last ones are not known yet.
		if n.read("k-15") != "k" {
			t.Error("a lone restarted replica forgot what was committed")
		}
		// Waiting for what it knows to be applied needs no leader either.
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		c.must(n.group().WaitApplied(ctx, 15))
		if err := n.group().WaitApplied(ctx, 1000); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("wait for the future: %v", err)
		}
	})
}

func TestLogBehindAStateThatIsGoneIsCorrupt(t *testing.T) {
	simulate(t, 1, testSeed(t), func(t *testing.T, c *cluster) {
		shortLogs(&c.cfg)
		c.startAll()
		n := c.leader()
		n.fill("k", 50)
		c.must(n.group().Snapshot(context.Background()))
		n.kill()
		n.store = memory.New(memory.Config{Durable: true})
		n.boot()
		if _, err := n.host.Start(testGroup, c.servers()); !errors.Is(err, ErrCorrupt) {
			t.Errorf("start without the state: %v", err)
		}
		if err := <-n.fatal; !errors.Is(err, ErrCorrupt) {
			t.Errorf("fatal: %v", err)
		}
	})
}

func TestLogIsTruncatedByBytesToo(t *testing.T) {
	simulate(t, 3, testSeed(t), func(t *testing.T, c *cluster) {
		c.cfg.SnapshotBytes = 64 << 10
		c.startAll()
		leader := c.leader()
		for i := range 700 {
			leader.mustWrite(fmt.Sprint("k", i%10), strings.Repeat("x", 250))
		}
		c.eventually(5*time.Second, "shorter logs", func() bool {
			for _, n := range c.nodes {
				if s := n.group().Status(); s.LastLog-s.FirstLog > 550 {
					return false
				}
			}
			return true
		})
		c.noFatal()
	})
}

func TestCheckpointLeavesNothingToReplay(t *testing.T) {
	simulate(t, 1, testSeed(t), func(t *testing.T, c *cluster) {
		c.startAll()
		n := c.leader()
		last := n.fill("k", 5)
		c.must(n.group().Checkpoint(context.Background()))
		if got := n.group().Status().FlushedIndex; got != last {
			t.Errorf("flushed %d, applied %d", got, last)
		}
	})
}

// staleTail brings up the situation of hashicorp/raft issue 697: a former leader has
// uncommitted entries beyond the snapshot that its successor has to send.
func staleTail(c *cluster) (behind *node) {
	shortLogs(&c.cfg)
	c.startAll()
	old := c.leader()
	old.fill("early", 10)
	c.converge()
	c.net.Isolate(memnet.Reset, old.name)
	for i := range 100 {
		entry := command.AppendEntry(nil, protocol.Timestamp{Millis: 1, NodeID: old.name}, []Command{put(fmt.Sprint("stale", i), "v")})
		old.group().instance().raft.Apply(entry, 0)
	}
	next := c.leader(c.others(old)...)
	next.fill("late", 30)
	c.must(next.group().Snapshot(context.Background()))
	if old.group().Status().LastLog < next.group().Status().LastLog+10 {
		c.t.Fatal("the stale tail is too short")
	}
	// The messages that the successor prepared before its snapshot would remove the
	// tail. By now it has given them up.
	time.Sleep(2 * linkWait)
	c.net.Heal()
	return old
}

func TestStaleTailBeyondASnapshotHeals(t *testing.T) {
	simulate(t, 3, testSeed(t), func(t *testing.T, c *cluster) {
		behind := staleTail(c)
		c.converge()
		if behind.read("late-29") != "late" || behind.read("stale0") != "" {
			t.Error("wrong state after the snapshot")
		}
		if got := behind.group().counters.replaced.Load(); got != 1 {
			t.Errorf("%d instances replaced", got)
		}
		c.noFatal()
	})
}

func TestSnapshotsInALoopAreRecognised(t *testing.T) {
	var w installWatch
	now := time.Now()
	for i := range installLoopCount {
		if w.installed(now.Add(time.Duration(i) * time.Second)) {
			t.Fatalf("%d snapshots are no loop", i+1)
		}
	}
	if !w.installed(now.Add(4 * time.Second)) {
		t.Error("four snapshots within seconds are a loop")
	}
	w.progressed()
	if w.installed(now.Add(5 * time.Second)) {
		t.Error("not after entries were applied")
	}
	if w.installed(now.Add(10 * time.Minute)) {
		t.Error("old snapshots do not count")
	}
}

func TestSnapshotsLeaveOneAtATimeAndPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSender(1 << 20)
		release, err := s.acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("second snapshot at once: %v", err)
		}
		out := &outgoing{
			ReadCloser: io.NopCloser(bytes.NewReader(make([]byte, 10<<20))),
			ctx:        t.Context(), limit: s.limit, release: release,
		}
		start := time.Now()
		n, err := io.Copy(io.Discard, out)
		if took := time.Since(start); err != nil || n != 10<<20 || took < 8*time.Second || took > 11*time.Second {
			t.Errorf("%d bytes, %v, in %s", n, err, took)
		}
		if err := out.Close(); err != nil {
			t.Fatal(err)
		}
		release, err = s.acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		release()
	})
}

func TestLeftoversOfReceivedSnapshotsAreDeleted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "incoming")
	s := newSpool(dir, 7)
	if err := s.clear(); err != nil {
		t.Fatal(err)
	}
	r, err := s.create()
	if err != nil {
		t.Fatal(err)
	}
	foreign := filepath.Join(dir, "group-70-1.snapshot")
	if err := errors.Join(r.file.Close(), os.WriteFile(foreign, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := newSpool(dir, 7).clear(); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(left) != 1 || left[0] != foreign {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestReceivedSnapshotOpensOnce(t *testing.T) {
	for _, dir := range []string{"", t.TempDir()} {
		store := &snapshotStore{spool: newSpool(dir, 1)}
		sink, err := store.Create(snapshotVersion, 9, 3, raft.Configuration{}, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{"some ", "bytes"} {
			if _, err := sink.Write([]byte(part)); err != nil {
				t.Fatal(err)
			}
		}
		if err := sink.Close(); err != nil {
			t.Fatal(err)
		}
		meta, r, err := store.Open(sink.ID())
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r)
		if err != nil || string(got) != "some bytes" || meta.Index != 9 || meta.Term != 3 || meta.Size != 10 {
			t.Errorf("%q, %+v, %v", got, meta, err)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		if _, _, err := store.Open(sink.ID()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("second open: %v", err)
		}
	}
}

func TestDamagedConfigurationOfAMarkIsCorrupt(t *testing.T) {
	for name, mark := range map[string]storage.Mark{
		"none":    {Index: 5},
		"garbage": {Index: 5, Configuration: []byte{0xc1, 0xff}},
	} {
		if _, err := markConfiguration(mark); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if conf, err := markConfiguration(storage.Mark{}); err != nil || len(conf.servers) != 0 {
		t.Errorf("zero mark: %v, %v", conf, err)
	}
}
