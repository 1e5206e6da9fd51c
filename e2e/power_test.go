//go:build linux

package e2e

import (
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/e2e/disk"
	"github.com/quorate/quorate/e2e/harness"
	"github.com/quorate/quorate/protocol"
)

var powerCuts = flag.Int("e2e.powercuts", 3, "how often nodes lose power")

// diskCluster is a cluster whose nodes have disks that can be made to fail.
type diskCluster struct {
	*harness.Cluster
	disks map[*harness.Node]*disk.Disk
}

func startOnDisks(t *testing.T, n int) *diskCluster {
	t.Helper()
	d := &diskCluster{disks: map[*harness.Node]*disk.Disk{}}
	dir := t.TempDir()
	// Registered before the cluster, so that it runs when no process is left.
	t.Cleanup(func() {
		for _, mounted := range d.disks {
			require.NoError(t, mounted.Close())
		}
	})
	d.Cluster = harness.New(t, config())
	for _, name := range []string{"n1", "n2", "n3"}[:n] {
		backing, mount := filepath.Join(dir, name, "backing"), filepath.Join(dir, name, "mount")
		require.NoError(t, os.MkdirAll(backing, 0o700))
		require.NoError(t, os.MkdirAll(mount, 0o700))
		mounted, err := disk.Mount(backing, mount)
		if errors.Is(err, disk.ErrUnsupported) {
			t.Skipf("power loss of real processes needs FUSE; e2e/sim shows the same in virtual time: %v", err)
		}
		require.NoError(t, err)
		node := d.Add(name)
		d.disks[node] = mounted
		node.Env = append(node.Env, "SERVICE_STORE_PATH="+filepath.Join(mount, "service.db"))
	}
	for _, node := range d.Nodes() {
		node.Start()
	}
	d.AwaitFormed()
	return d
}

// cutPower takes the power from nodes at one moment, and gives it back.
func (d *diskCluster) cutPower(t *testing.T, rnd *rand.Rand, nodes []*harness.Node) {
	t.Helper()
	var wg sync.WaitGroup
	errs := make([]error, len(nodes))
	for i, n := range nodes {
		own := rand.New(rand.NewPCG(rnd.Uint64(), 0))
		wg.Go(func() { errs[i] = d.disks[n].Cut(own) })
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	for _, n := range nodes {
		n.End() // unless it has met its disk
		require.NoError(t, d.disks[n].Restore())
		n.Start()
	}
}

// TestAcknowledgedWritesSurvivePowerLoss cuts the power of one, two and all nodes while
// clients write.
func TestAcknowledgedWritesSurvivePowerLoss(t *testing.T) {
	rnd := rand.New(rand.NewPCG(uint64(*seed), 0))
	d := startOnDisks(t, 3)
	load := harness.StartLoad(d.Cluster, harness.LoadConfig{Seed: *seed, Levels: []protocol.WriteConcern{protocol.LevelPersisted}})
	for cycle := range *powerCuts {
		load.AwaitProgress(t, 30, patience)
		var victims []*harness.Node
		for _, i := range rnd.Perm(3)[:1+cycle%3] {
			victims = append(victims, d.Nodes()[i])
		}
		d.cutPower(t, rnd, victims)
		d.AwaitReady()
	}
	settle(t, d.Cluster, load)
}

// TestABrokenDiskStopsItsNodeAlone fills the disk of a node, or has it fail: the node ends
// with exit code 4, the others go on, and it comes back when the disk works.
func TestABrokenDiskStopsItsNodeAlone(t *testing.T) {
	onlyFull(t)
	d := startOnDisks(t, 3)
	load := harness.StartLoad(d.Cluster, harness.LoadConfig{Seed: *seed})
	for i, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EIO} {
		victim := d.Nodes()[i]
		d.disks[victim].Fail(errno)
		require.Equal(t, 4, victim.AwaitExit())
		load.AwaitProgress(t, 50, patience)
		d.disks[victim].Fail(0)
		victim.Start()
		d.AwaitReady()
	}
	settle(t, d.Cluster, load)
}

// TestAHangingDiskCostsTheLeadership hangs the disk of the node that leads: others take over, and it
// goes on when the disk does.
func TestAHangingDiskCostsTheLeadership(t *testing.T) {
	onlyFull(t)
	d := startOnDisks(t, 3)
	load := harness.StartLoad(d.Cluster, harness.LoadConfig{Seed: *seed})
	load.AwaitProgress(t, 30, patience)
	victim := leaderOf(t, d.Cluster, 1)
	release := d.disks[victim].Stall()
	harness.Eventually(t, patience, "another leader", func() error {
		for _, n := range d.Nodes() {
			if n == victim {
				continue
			}
			s, err := n.Status()
			if err != nil {
				return err
			}
			if leader := s.Leader(1); leader != "" && leader != victim.Name {
				return nil
			}
		}
		return errors.New("none yet")
	})
	release()
	settle(t, d.Cluster, load)
}
